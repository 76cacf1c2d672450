"""Jarvis: performance reports and findings from PyTorch profiler traces.

>>> import jarvis
>>> trace = jarvis.read_trace("trace.json.gz")  # doctest: +SKIP
>>> trace.find("aten::mm")  # doctest: +SKIP

The public names are imported lazily, so that the command line starts fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jarvis.core.errors import JarvisError as JarvisError
    from jarvis.findings import Finding as Finding
    from jarvis.hardware import load_hardware as load_hardware
    from jarvis.perf_report import PerfReport as PerfReport
    from jarvis.perf_report.call_tree.trace_tree import TraceTree as TraceTree
    from jarvis.perf_report.call_tree.trace_tree import read_trace_tree as read_trace
    from jarvis.pipeline import analyze as analyze
    from jarvis.pipeline import what_if as what_if
    from jarvis.run import Run as Run

_SOURCES = {
    "Finding": ("jarvis.findings", "Finding"),
    "JarvisError": ("jarvis.core.errors", "JarvisError"),
    "PerfReport": ("jarvis.perf_report", "PerfReport"),
    "Run": ("jarvis.run", "Run"),
    "TraceTree": ("jarvis.perf_report.call_tree.trace_tree", "TraceTree"),
    "analyze": ("jarvis.pipeline", "analyze"),
    "load_hardware": ("jarvis.hardware", "load_hardware"),
    "read_trace": ("jarvis.perf_report.call_tree.trace_tree", "read_trace_tree"),
    "what_if": ("jarvis.pipeline", "what_if"),
}

__all__ = [
    "Finding",
    "JarvisError",
    "PerfReport",
    "Run",
    "TraceTree",
    "analyze",
    "load_hardware",
    "read_trace",
    "what_if",
]


def __getattr__(name: str) -> object:
    """Import a name of ``__all__`` on first use."""
    if name not in _SOURCES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _SOURCES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """Return the names of ``__all__``."""
    return [*__all__]
