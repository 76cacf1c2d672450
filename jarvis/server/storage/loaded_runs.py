"""Caches of stored analyses that are open: pages and the API of a process share them."""

from functools import lru_cache
from pathlib import Path
from threading import RLock

from jarvis.analyses.system.cpu_idle.wording import CAUSES
from jarvis.run import Run
from jarvis.run.timeline import Timeline
from jarvis.run.timeline_rows import HostChoice, TimelineRows

MAX_CACHED_RUNS = 8

_lock = RLock()


def loaded_run(root: str, stamp: int) -> Run:
    """Load a run, which is immutable; ``stamp``, the time of its manifest, detects a replaced one.

    Raises:
        RunError: The run directory cannot be read.
    """
    with _lock:  # else two threads load the same run
        return _run(root, stamp)


def loaded_timeline(root: str, stamp: int) -> Timeline:
    """Return the timeline of ``loaded_run``, with what it has computed."""
    with _lock:
        return _timeline(root, stamp)


def loaded_rows(root: str, stamp: int, host: HostChoice, threads: int, depth: int) -> TimelineRows:
    """Return the rows of ``loaded_timeline`` with these host calls."""
    with _lock:
        return _rows(root, stamp, host, threads, depth)


@lru_cache(maxsize=MAX_CACHED_RUNS)
def _run(root: str, stamp: int) -> Run:
    return Run.load(Path(root))


@lru_cache(maxsize=MAX_CACHED_RUNS)
def _timeline(root: str, stamp: int) -> Timeline:
    return Timeline(_run(root, stamp))


@lru_cache(maxsize=MAX_CACHED_RUNS)
def _rows(root: str, stamp: int, host: HostChoice, threads: int, depth: int) -> TimelineRows:
    causes = {cause.value: words.label for cause, words in CAUSES.items()}
    return TimelineRows(_timeline(root, stamp), causes, host, threads, depth)
