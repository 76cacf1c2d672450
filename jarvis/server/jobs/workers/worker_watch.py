"""The worker of a web server: started with it, started again when it dies, stopped with it."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from threading import Event, Thread
from time import monotonic

from jarvis.server.settings import settings

FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
"""Between a death and the next start; twice as long each time while workers die young."""

YOUNG_S = 30.0
STOP_S = 6.0
"""A worker that is told to stop has so long."""

log = logging.getLogger(__name__)


def job_slots() -> int | None:
    """``JARVIS_JOB_SLOTS``: how many jobs run at once, 0 where other workers do; by default one,
    and None for as many as the Dask cluster can."""
    now = settings()
    is_open = now.dask_scheduler is not None and "job_slots" not in now.model_fields_set
    return None if is_open else now.job_slots


def worker_command(slots: int | None) -> tuple[str, ...]:
    """What starts a worker that ends with its starter."""
    slots_given = () if slots is None else ("--slots", str(slots))
    return (
        sys.executable,
        "-m",
        "jarvis.server.jobs.workers.worker",
        "--tied-to-input",
        *slots_given,
    )


@contextmanager
def watched_worker(command: Sequence[str]) -> Iterator[None]:
    """A worker at work while the block runs."""
    watch = _Watch(command)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


@asynccontextmanager
async def worker_at_work() -> AsyncIterator[None]:
    """A worker at work meanwhile, with the slots of the settings; none where these are 0."""
    slots = job_slots()
    if slots == 0:
        yield
        return
    watch = _Watch(worker_command(slots))
    watch.start()
    try:
        yield
    finally:
        await asyncio.to_thread(watch.stop)


class _Watch:
    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._is_stopping = Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE)
        self._thread.start()

    def stop(self) -> None:
        """Close the worker's input, which tells it to leave, and wait for it."""
        self._is_stopping.set()
        process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
        self._thread.join()

    def _watch(self) -> None:
        pause_s = FIRST_PAUSE_S
        while self._process is not None:
            begin = monotonic()
            code = self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            if self._is_stopping.is_set():
                return
            pause_s = FIRST_PAUSE_S if monotonic() - begin > YOUNG_S else pause_s
            log.warning("the worker ended with code %d; the next starts in %g s", code, pause_s)
            if self._is_stopping.wait(pause_s):
                return
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE)
