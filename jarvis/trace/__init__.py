"""A profiler trace as tables: file in, Polars tables and the call tree out."""

from pathlib import Path

from jarvis.core.errors import EmptyTraceError
from jarvis.trace import sidecar
from jarvis.trace.allocator import return_freed_memory
from jarvis.trace.metadata import TraceInfo
from jarvis.trace.raw_trace import OnProgress, ReadProgress
from jarvis.trace.reader import read_raw
from jarvis.trace.repairs import RepairKind
from jarvis.trace.source import SUFFIXES
from jarvis.trace.trace import Trace, tabulate

__all__ = ["SUFFIXES", "OnProgress", "ReadProgress", "Trace", "TraceInfo", "read_trace"]


def read_trace(path: Path | str, on_progress: OnProgress | None = None) -> Trace:
    """Read a Kineto trace: ``.json``, ``.json.gz``, or a ``.zip`` with one of these in it.

    What is broken in it is mended or left out, and counted in ``info.repairs``. A large trace that
    was read before comes from the user's cache (``sidecar``). Raises a TraceError that says what
    is wrong with the file and what to do.
    """
    path = Path(path)
    place = sidecar.place_of(path)  # before the reading: the file may still be written to
    if place is not None and (kept := sidecar.load(place, path)):
        return kept
    trace = tabulate(read_raw(path, on_progress))
    if trace.cpu_ops.is_empty() and trace.gpu_events.is_empty():
        is_cut = any(repair.kind is RepairKind.TRUNCATED for repair in trace.info.repairs)
        raise EmptyTraceError(path, is_cut=is_cut)
    if trace.event_count >= sidecar.MIN_EVENTS:
        if place is not None:
            sidecar.save(trace, place)
        return_freed_memory()
    return trace
