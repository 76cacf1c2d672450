"""Jarvis: turns a PyTorch profiler trace into decisions.

>>> import jarvis
>>> trace = jarvis.read_trace("trace.json.gz")  # doctest: +SKIP
>>> trace.find("aten::mm")  # doctest: +SKIP

The names below are loaded when they are first asked for, since the command line starts here too.
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
    from jarvis.run import Run as Run

_HOMES = {
    "Finding": ("jarvis.findings", "Finding"),
    "JarvisError": ("jarvis.core.errors", "JarvisError"),
    "PerfReport": ("jarvis.perf_report", "PerfReport"),
    "Run": ("jarvis.run", "Run"),
    "TraceTree": ("jarvis.perf_report.call_tree.trace_tree", "TraceTree"),
    "analyze": ("jarvis.pipeline", "analyze"),
    "load_hardware": ("jarvis.hardware", "load_hardware"),
    "read_trace": ("jarvis.perf_report.call_tree.trace_tree", "read_trace_tree"),
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
]


def __getattr__(name: str) -> object:
    """One of the names of ``__all__``."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """The names of ``__all__``."""
    return [*__all__]
