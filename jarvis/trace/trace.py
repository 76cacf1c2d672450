"""Tables of one trace, with the call tree and links derived from them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.schemas.names import C
from jarvis.trace import tables
from jarvis.trace.call_tree import build_call_tree
from jarvis.trace.event_store import EventGroup, EventStore, RawTrace
from jarvis.trace.layout import ARGUMENT_KEY, CAT, NAME, STRING
from jarvis.trace.links import backward_links, launch_links
from jarvis.trace.metadata import TraceInfo, span_ns, trace_info
from jarvis.trace.tables import Field
from jarvis.trace.texts import used_codes

_HOST_COLUMNS = (C.uid, C.cat, C.name, C.pid, C.tid, C.ts_ns, C.dur_ns)


@dataclass(frozen=True)
class Trace:
    """One table for each kind of event, in file order (columns: ``trace.tables``)."""

    info: TraceInfo
    event_count: int
    cpu_ops: pl.DataFrame
    runtime: pl.DataFrame
    gpu_events: pl.DataFrame
    flows: pl.DataFrame
    annotations: pl.DataFrame
    threads: pl.DataFrame
    store: EventStore

    @cached_property
    def python_functions(self) -> pl.DataFrame:
        """Frames of the Python stack; many, and needed only for call paths."""
        return tables.table(self.store, [tables.PYTHON_FUNCTION], tables.BASE)

    @cached_property
    def host_annotations(self) -> pl.DataFrame:
        """The annotations of the host, without their images on the GPU."""
        return self.annotations.filter(pl.col(C.cat) == tables.HOST_ANNOTATION)

    @cached_property
    def event_waits(self) -> pl.DataFrame:
        """Synchronization events of CUPTI, which few traces have (``tables.EVENT_WAITS``)."""
        return tables.table(self.store, [tables.EVENT_WAIT], tables.EVENT_WAITS)

    @cached_property
    def call_tree(self) -> pl.DataFrame:
        """The call tree of cpu ops and runtime calls (columns: ``build_call_tree``)."""
        return build_call_tree(self._nested(self._host(self.cpu_ops, self.runtime)))

    @cached_property
    def python_call_tree(self) -> pl.DataFrame:
        """The call tree with Python functions, for call paths and module chains."""
        host = self._host(self.cpu_ops, self.runtime, self.python_functions)
        return build_call_tree(self._nested(host))

    @cached_property
    def annotation_tree(self) -> pl.DataFrame:
        """The call tree of the annotations of the host."""
        return build_call_tree(self.host_annotations)

    @cached_property
    def launches(self) -> pl.DataFrame:
        """Rows ``link_index, runtime_uid, gpu_uid`` (see ``launch_links``)."""
        return launch_links(self.runtime, self.gpu_events, self.flows)

    @cached_property
    def backwards(self) -> pl.DataFrame:
        """Rows ``backward_uid, forward_uid`` (see ``backward_links``)."""
        return backward_links(self.cpu_ops)

    def kernel_arguments(self, uids: pl.Series) -> pl.DataFrame:
        """Return ``uid`` and ``tables.COMMUNICATION`` of chosen kernels."""
        return tables.arguments(self.store, tables.GPU_CATEGORIES, tables.COMMUNICATION, uids)

    def recorded_collectives(self, uids: pl.Series) -> pl.DataFrame:
        """Return ``uid`` and ``tables.RECORDED_COLLECTIVE`` of chosen operators."""
        return tables.arguments(self.store, [tables.CPU_OP], tables.RECORDED_COLLECTIVE, uids)

    def annotation_arguments(self, uids: pl.Series) -> pl.DataFrame:
        """Return ``uid, input_dims, input_types`` of chosen annotations of the host."""
        categories = [tables.HOST_ANNOTATION]
        return tables.arguments(self.store, categories, tables.SHAPES, uids)

    @property
    def recording(self) -> "Trace":
        """The trace without calls that were added to it."""
        return self

    def shown_times(self, calls: pl.DataFrame) -> pl.DataFrame:
        """Return calls with the ``ts_ns`` and ``dur_ns`` to show; ``ts_ns`` is the recorded one."""
        return calls

    def _nested(self, host: pl.DataFrame) -> pl.DataFrame:
        """Return host events with the threads and times by which they nest."""
        return host

    @staticmethod
    def _host(*frames: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([frame.select(_HOST_COLUMNS) for frame in frames])


def tabulate(raw: RawTrace, runtime_fields: tuple[Field, ...] = tables.RUNTIME) -> Trace:
    """Build the tables of a trace, and free the raw events that they replace.

    Args:
        runtime_fields: Columns of the runtime calls.
    """
    store = raw.store
    rename_old_categories(store)
    tables.drop_incomplete_slices(store)
    span = span_ns(store)
    threads = tables.thread_names(store)

    def build(categories: Sequence[str], fields: tuple[Field, ...]) -> pl.DataFrame:
        table = tables.table(store, categories, fields)
        for category in categories:
            store.release(category, {(field.key, field.in_args) for field in fields})
        return table

    cpu_ops = build([tables.CPU_OP], tables.CPU_OPS)
    annotations = build(tables.ANNOTATION_CATEGORIES, tables.BASE)
    runtime = build(tables.RUNTIME_CATEGORIES, runtime_fields)
    gpu_events = build(tables.GPU_CATEGORIES, tables.GPU_EVENTS)
    flows = build(tables.FLOW_CATEGORIES, tables.FLOWS)
    return Trace(
        info=trace_info(raw, span, cpu_ops, annotations),
        event_count=raw.event_count,
        cpu_ops=cpu_ops,
        runtime=runtime,
        gpu_events=gpu_events,
        flows=flows,
        annotations=annotations,
        threads=threads,
        store=store,
    )


CATEGORIES = {
    "Operator": "cpu_op",
    "Python": "python_function",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
"""Category names before PyTorch 1.12, and those of today."""

ARROWS = "async"
"""The category of the arrows from launches to kernels before PyTorch 1.12."""

ARGUMENTS = {"Input dims": "Input Dims", "external id": "External id"}
"""Names of arguments that were spelled differently."""

ANNOTATION = re.compile(r"#|^[^:]* ")
"""Names of annotations, which were recorded as operators. The name of an operator has no ``#``, and
no space before a colon; annotations without both look like operators."""


def rename_old_categories(store: EventStore) -> None:
    """Rename old categories and their arguments in place; keep those of today.

    Annotations of the host become ``user_annotation`` unless the trace has that category.
    """
    found = set(store.categories())
    renamed = {old: new for old, new in CATEGORIES.items() if old in found and new not in found}
    if not renamed.keys() & {"Operator", "Kernel", "Runtime"}:
        return
    if ARROWS in found and "ac2g" not in found:
        renamed[ARROWS] = "ac2g"
    for old, new in renamed.items():
        group = store.take(old)
        _rename_arguments(store, group, ARGUMENTS)
        if old == "Operator" and tables.HOST_ANNOTATION not in found:
            is_annotation = _is_annotation(store, group)
            _put(store, tables.HOST_ANNOTATION, group.rows(is_annotation))
            group = group.rows(~is_annotation)
        _put(store, new, group)


def _put(store: EventStore, category: str, group: EventGroup) -> None:
    code = store.texts.intern(category.encode(), STRING)
    group.codes[CAT][:] = [np.full(group.height, code, np.int32)]
    store.put(category, group)


def _rename_arguments(store: EventStore, group: EventGroup, names: Mapping[str, str]) -> None:
    for code in list(group.pairs):
        key, in_arguments = store.texts.key(code)
        if in_arguments and key in names:
            new = store.texts.intern(names[key].encode(), ARGUMENT_KEY)
            group.pairs.setdefault(new, group.pairs.pop(code))


def _is_annotation(store: EventStore, group: EventGroup) -> NDArray[np.bool_]:
    codes = group.text(NAME)
    distinct = used_codes(codes, len(store.texts))
    names = store.texts.values(distinct, store.repairs)
    annotations = [
        code
        for code, name in zip(distinct, names, strict=True)
        if isinstance(name, str) and ANNOTATION.search(name)
    ]
    return np.isin(codes, annotations)
