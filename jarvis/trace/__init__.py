"""Read a profiler trace into Polars tables and a call tree."""

from pathlib import Path

from jarvis.core.errors import EmptyTraceError
from jarvis.core.memory_tuning import return_freed_memory
from jarvis.trace import sidecar
from jarvis.trace.event_store import OnProgress, ReadProgress
from jarvis.trace.metadata import TraceInfo
from jarvis.trace.reader import read_raw
from jarvis.trace.repairs import RepairKind
from jarvis.trace.source import SUFFIXES
from jarvis.trace.trace import Trace, tabulate

__all__ = ["SUFFIXES", "OnProgress", "ReadProgress", "Trace", "TraceInfo", "read_trace"]


def read_trace(path: Path | str, on_progress: OnProgress | None = None) -> Trace:
    """Read a Kineto trace: ``.json``, ``.json.gz``, or a ``.zip`` with one of these in it.

    Damaged parts are repaired or skipped, and counted in ``info.repairs``. A large trace that was
    read before is loaded from the user's cache (``sidecar``).

    Raises:
        TraceError: The file cannot be read, is not a trace, or has no events.
    """
    path = Path(path)
    folder = sidecar.folder_of(path)  # before reading: the file may still be written to
    if folder is not None and (cached := sidecar.load(folder, path)):
        return cached
    trace = tabulate(read_raw(path, on_progress))
    if trace.cpu_ops.is_empty() and trace.gpu_events.is_empty():
        is_cut = any(repair.kind is RepairKind.TRUNCATED for repair in trace.info.repairs)
        raise EmptyTraceError(path, is_cut=is_cut)
    if trace.event_count >= sidecar.MIN_EVENTS:
        if folder is not None:
            sidecar.save(trace, folder)
        return_freed_memory()
    return trace
