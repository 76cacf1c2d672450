"""A profiler trace as tables: file in, Polars tables and the call tree out."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from jarvis.errors import EmptyTraceError
from jarvis.trace import tables
from jarvis.trace.call_tree import build_call_tree
from jarvis.trace.links import backward_links, launch_links
from jarvis.trace.metadata import TraceInfo, trace_info
from jarvis.trace.reader import SUFFIXES, RawTrace, read_raw

__all__ = ["SUFFIXES", "Trace", "TraceInfo", "read_trace"]

_HOST_COLUMNS = ("uid", "cat", "name", "pid", "tid", "ts_ns", "dur_ns")


@dataclass(frozen=True)
class Trace:
    """One trace: a table for each kind of event, in file order (columns: ``trace.tables``)."""

    info: TraceInfo
    events: pl.DataFrame
    cpu_ops: pl.DataFrame
    runtime: pl.DataFrame
    gpu_events: pl.DataFrame
    flows: pl.DataFrame
    python_functions: pl.DataFrame
    annotations: pl.DataFrame
    threads: pl.DataFrame

    @cached_property
    def call_tree(self) -> pl.DataFrame:
        """The call tree of cpu ops and runtime calls (columns: ``build_call_tree``)."""
        return build_call_tree(self._host(self.cpu_ops, self.runtime))

    @cached_property
    def python_call_tree(self) -> pl.DataFrame:
        """The call tree that includes Python functions, for call paths and module chains."""
        return build_call_tree(self._host(self.cpu_ops, self.runtime, self.python_functions))

    @cached_property
    def launches(self) -> pl.DataFrame:
        """Rows ``link_index, runtime_uid, gpu_uid`` (see ``launch_links``)."""
        return launch_links(self.runtime, self.gpu_events, self.flows)

    @cached_property
    def backwards(self) -> pl.DataFrame:
        """Rows ``backward_uid, forward_uid`` (see ``backward_links``)."""
        return backward_links(self.cpu_ops)

    @staticmethod
    def _host(*frames: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([frame.select(_HOST_COLUMNS) for frame in frames])


def read_trace(path: Path | str) -> Trace:
    """Read a ``.json`` or ``.json.gz`` Kineto trace.

    Raises a TraceError that says what is wrong with the file and what to do.
    """
    trace = _tabulate(read_raw(Path(path)))
    if trace.cpu_ops.is_empty() and trace.gpu_events.is_empty():
        raise EmptyTraceError(path)
    return trace


def _tabulate(raw: RawTrace) -> Trace:
    by_category: dict[object, list[tuple[int, tables.Event]]] = defaultdict(list)
    for uid, event in enumerate(raw.events):
        by_category[event.get("cat")].append((uid, event))

    def of(*categories: str) -> list[tuple[int, tables.Event]]:
        return sorted((pair for c in categories for pair in by_category[c]), key=lambda p: p[0])

    events = tables.table(enumerate(raw.events), tables.EVENTS)
    cpu_ops = tables.table(of(tables.CPU_OP), tables.CPU_OPS)
    annotations = tables.table(of(*tables.ANNOTATION_CATEGORIES), tables.EVENTS)
    return Trace(
        info=trace_info(raw, events, cpu_ops, annotations),
        events=events,
        cpu_ops=cpu_ops,
        runtime=tables.table(of(*tables.RUNTIME_CATEGORIES), tables.RUNTIME),
        gpu_events=tables.table(of(*tables.GPU_CATEGORIES), tables.GPU_EVENTS),
        flows=tables.table(of(*tables.FLOW_CATEGORIES), tables.FLOWS),
        python_functions=tables.table(of(tables.PYTHON_FUNCTION), tables.BASE),
        annotations=annotations,
        threads=tables.thread_names(raw.events),
    )
