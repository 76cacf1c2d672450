"""Build one Polars table for each kind of event.

Times are integer nanoseconds on the trace's clock. ``uid`` is the position of an event in
``traceEvents``. Nested arguments (shapes, dtypes, strides) stay JSON text in categorical columns
(four bytes a row): few are distinct, so users parse each text once. ``pid`` and ``tid`` are texts,
because Kineto writes both numbers and words.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import polars as pl
from numpy.typing import NDArray

from jarvis.schemas.names import C
from jarvis.trace.arguments import DIMS, STRIDES, TYPES, VALUES, Arguments
from jarvis.trace.event_store import EventGroup, EventStore, Values
from jarvis.trace.layout import BASE_KEYS, CODE, INTEGER, MISSING_NS, NULL, PH, STRING
from jarvis.trace.repairs import RepairKind
from jarvis.trace.texts import used_codes

CPU_OP = "cpu_op"
PYTHON_FUNCTION = "python_function"
RUNTIME_CATEGORIES = ("cuda_runtime", "cuda_driver")
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
HOST_ANNOTATION = "user_annotation"
ANNOTATION_CATEGORIES = (HOST_ANNOTATION, "gpu_user_annotation")
FLOW_CATEGORIES = ("ac2g", "fwdbwd")
SLICE_CATEGORIES = (
    CPU_OP,
    PYTHON_FUNCTION,
    *RUNTIME_CATEGORIES,
    *GPU_CATEGORIES,
    *ANNOTATION_CATEGORIES,
)
"""Events with a start and a duration, which the profiler writes with phase X."""

THREAD_KEY = (C.pid, C.tid)
"""Columns that identify a thread."""

COMPLETE = b"X"


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if -(2**63) <= number < 2**63 else None


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _json(value)


def _json(value: Any) -> str | None:
    """Return ``value`` as JSON text; None if nested too deeply or with integers over 64 bits."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return None


def _flag(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return bool(value) if isinstance(value, bool | int) else None


def _name(value: Any) -> str:
    """Return the name of an event; empty if there is none."""
    return _text(value) or ""


@dataclass(frozen=True, slots=True)
class Field:
    """One column: the key of its value in an event (or in ``args``), and its conversion."""

    column: str
    key: str
    dtype: type[pl.DataType]
    read: Callable[[Any], Any]
    in_args: bool = True


BASE = (
    Field(C.name, "name", pl.String, _name, in_args=False),
    Field(C.cat, "cat", pl.Categorical, _text, in_args=False),
    Field(C.pid, "pid", pl.Categorical, _text, in_args=False),
    Field(C.tid, "tid", pl.Categorical, _text, in_args=False),
    Field(C.ts_ns, "ts", pl.Int64, _integer, in_args=False),
    Field(C.dur_ns, "dur", pl.Int64, _integer, in_args=False),
)
LINKS = (
    Field("correlation", "correlation", pl.Int64, _integer),
    Field(C.external_id, "External id", pl.Int64, _integer),
)
SHAPES = (
    Field(C.input_dims, "Input Dims", pl.Categorical, DIMS),
    Field(C.input_types, "Input type", pl.Categorical, TYPES),
)
CPU_OPS = (
    *BASE,
    Field(C.external_id, "External id", pl.Int64, _integer),
    Field(C.sequence_number, "Sequence number", pl.Int64, _integer),
    *SHAPES,
    Field(C.input_strides, "Input Strides", pl.Categorical, STRIDES),
    Field(C.concrete_inputs, "Concrete Inputs", pl.Categorical, VALUES),
)
RUNTIME = (*BASE, *LINKS)
CAPTURED_RUNTIME = (*RUNTIME, Field("kernel", "kernel", pl.Categorical, _text))
"""Columns of runtime calls that add kernels to a graph, with their names."""

GPU_EVENTS = (
    *BASE,
    *LINKS,
    Field(C.device, "device", pl.Int64, _integer),
    Field(C.stream, "stream", pl.Int64, _integer),
    Field(C.graph_id, "graph id", pl.Int64, _integer),
    Field(C.graph_node_id, "graph node id", pl.Int64, _integer),
    Field(C.bytes, "bytes", pl.Int64, _integer),
    Field(C.collective, "Collective name", pl.Categorical, _text),
    Field(C.in_msg_nelems, "In msg nelems", pl.Int64, _integer),
    Field(C.out_msg_nelems, "Out msg nelems", pl.Int64, _integer),
    Field(C.in_split_size, "In split size", pl.Categorical, _text),
    Field(C.out_split_size, "Out split size", pl.Categorical, _text),
    Field(C.group_size, "Group size", pl.Int64, _integer),
    Field(C.dtype, "dtype", pl.Categorical, _text),
    Field(C.process_group_name, "Process Group Name", pl.Categorical, _text),
    Field(C.process_group_ranks, "Process Group Ranks", pl.Categorical, _text),
)
_OF_COLLECTIVES = (
    C.collective,
    C.in_msg_nelems,
    C.out_msg_nelems,
    C.in_split_size,
    C.out_split_size,
    C.group_size,
    C.dtype,
    C.process_group_name,
    C.process_group_ranks,
)
COMMUNICATION = (
    Field(C.pg_desc, "Process Group Description", pl.String, _text),
    Field(C.rank_start, "Global rank start", pl.Int64, _integer),
    Field(C.rank_stride, "Global rank stride", pl.Int64, _integer),
    Field(C.group_rank, "Rank", pl.Int64, _integer),
    Field(C.src_rank, "Src Rank", pl.Int64, _integer),
    Field(C.dst_rank, "Dst Rank", pl.Int64, _integer),
    Field(C.seq, "Seq", pl.Int64, _integer),
    Field(C.comms_id, "Comms Id", pl.String, _text),
    Field(C.is_async, "Is asynchronized op", pl.Boolean, _flag),
)
"""Arguments of a collective that few events have: of kernels, and of host calls."""

RECORDED_COLLECTIVE = (
    *(field for field in GPU_EVENTS if field.column in _OF_COLLECTIVES),
    *COMMUNICATION,
)
"""All arguments of a collective, as ``record_param_comms`` has them."""

FLOWS = (
    Field(C.cat, "cat", pl.Categorical, _text, in_args=False),
    Field("ph", "ph", pl.Categorical, _text, in_args=False),
    Field("id", "id", pl.Int64, _integer, in_args=False),
    Field(C.pid, "pid", pl.Categorical, _text, in_args=False),
    Field(C.tid, "tid", pl.Categorical, _text, in_args=False),
    Field(C.ts_ns, "ts", pl.Int64, _integer, in_args=False),
)
OTHER_EVENTS = (*BASE, Field("ph", "ph", pl.Categorical, _text, in_args=False))
EVENT_WAIT = "cuda_sync"
EVENT_WAITS = (
    *BASE,
    Field("correlation", "correlation", pl.Int64, _integer),
    Field(C.stream, "stream", pl.Int64, _integer),
    Field("wait_on_stream", "wait_on_stream", pl.Int64, _integer),
    Field("record_correlation", "wait_on_cuda_event_record_corr_id", pl.Int64, _integer),
)
THREAD_LABELS = {
    "process_name": ("process_name", "name"),
    "process_labels": ("process_label", "labels"),
    "thread_name": ("thread_name", "name"),
}


def drop_incomplete_slices(store: EventStore) -> None:
    """Remove slices with a phase other than X, and count them as lost."""
    complete = store.texts.intern(COMPLETE, STRING)
    for category in SLICE_CATEGORIES:
        group = store.group(category)
        is_complete = group.text(PH) == complete
        if not is_complete.all():
            lost = int((~is_complete).sum())
            store.put(category, group.rows(is_complete))
            store.repairs.add(RepairKind.NOT_A_SLICE, lost, lost, example=category)


def table(
    store: EventStore, categories: Iterable[str | None], fields: tuple[Field, ...]
) -> pl.DataFrame:
    """Return the events of some categories as a table of ``uid`` and ``fields``, in file order."""
    groups = [store.group(c) for c in categories if store.group(c).height] or [EventGroup()]
    frames = [
        pl.DataFrame(
            [pl.Series(C.uid, group.uid()), *(_series(store, group, field) for field in fields)]
        )
        for group in groups
    ]
    return frames[0] if len(frames) == 1 else pl.concat(frames).sort(C.uid, maintain_order=True)


def arguments(
    store: EventStore, categories: Iterable[str], fields: tuple[Field, ...], uids: pl.Series
) -> pl.DataFrame:
    """Return ``uid`` and arguments of chosen events, whose other values a table already has."""
    frames = []
    for category in categories:
        group = store.group(category)
        rows = np.flatnonzero(np.isin(group.uid(), uids.to_numpy()))
        columns = [pl.Series(C.uid, group.uid()[rows])]
        for field in fields:
            values = store.values(group, field.key, field.in_args)
            columns.append(_read(store, Values(values.values[rows], values.kinds[rows]), field))
        frames.append(pl.DataFrame(columns))
    return pl.concat(frames)


def _series(store: EventStore, group: EventGroup, field: Field) -> pl.Series:
    if field.in_args or field.key not in BASE_KEYS:
        return _read(store, store.values(group, field.key, field.in_args), field)
    if field.dtype is pl.Int64:
        times = group.time(0 if field.key == "ts" else 1)
        return pl.Series(field.column, times).set(pl.Series(times == MISSING_NS), None)
    codes = group.text(BASE_KEYS.index(field.key))
    return _read(store, Values(codes, np.where(codes < 0, NULL, CODE).astype(np.uint8)), field)


def _read(store: EventStore, values: Values, field: Field) -> pl.Series:
    """Return ``field.read`` of each value, called once per distinct value."""
    is_code, is_number = values.kinds == CODE, values.kinds == INTEGER
    if field.dtype is pl.Int64 and field.read is _integer and not is_code.any():
        return pl.Series(field.column, values.values.astype(np.int64)).set(
            pl.Series(~is_number), None
        )
    numbers = np.unique(values.values[is_number])
    codes = used_codes(values.values[is_code], len(store.texts))
    texts = store.texts.values(codes, store.repairs)
    if isinstance(field.read, Arguments):
        _count_invalid(store, field, field.read, texts)
    distinct = [
        field.read(None),
        *(field.read(number) for number in numbers.tolist()),
        *(field.read(value) for value in texts),
    ]
    place = np.zeros(len(values.values), np.uint32)
    place[is_number] = 1 + np.searchsorted(numbers, values.values[is_number])
    place_of_code = np.zeros(len(store.texts), np.uint32)
    place_of_code[codes] = np.arange(1 + len(numbers), len(distinct), dtype=np.uint32)
    place[is_code] = place_of_code[values.values[is_code]]
    return pl.Series(field.column, distinct, dtype=field.dtype)[place]


def json_values(store: EventStore, values: Values, rows: NDArray[np.int64]) -> pl.Series:
    """Return the values of some events as JSON; null without a value, and for what JSON lacks."""
    chosen = Values(values.values[rows], values.kinds[rows])
    return _read(store, chosen, Field("text", "", pl.String, _json_or_none))


def _json_or_none(value: Any) -> str | None:
    return None if value is None else _json(value)


def _count_invalid(store: EventStore, field: Field, read: Arguments, texts: list[Any]) -> None:
    count = sum(map(read.has_invalid_entries, texts))
    store.repairs.add(RepairKind.ODD_ARGUMENT, count, example=field.key)


METADATA = (
    Field("ph", "ph", pl.String, _text, in_args=False),
    Field(C.kind, "name", pl.String, _name, in_args=False),
    Field(C.pid, "pid", pl.String, _text, in_args=False),
    Field(C.tid, "tid", pl.String, _text, in_args=False),
    Field(C.name, "name", pl.String, _text),
    Field("labels", "labels", pl.String, _text),
)


def thread_names(store: EventStore) -> pl.DataFrame:
    """Return ``pid, tid, process_name, process_label, thread_name`` of each thread.

    Process-level labels have ``tid`` 0. The last label of a kind wins; other metadata events are
    ignored.
    """
    labels: dict[tuple[str | None, str | None], dict[str, str | None]] = {}
    events = table(store, [c for c in store.categories() if store.has(c, PH, "M")], METADATA)
    known = events.filter((pl.col("ph") == "M") & pl.col(C.kind).is_in(list(THREAD_LABELS)))
    for event in known.iter_rows(named=True):
        column, key = THREAD_LABELS[event[C.kind]]
        labels.setdefault((event[C.pid], event[C.tid]), {})[column] = event[key]
    schema = dict.fromkeys((C.pid, C.tid), pl.Categorical()) | dict.fromkeys(
        (C.process_name, C.process_label, C.thread_name), pl.String()
    )
    rows = [{C.pid: pid, C.tid: tid, **columns} for (pid, tid), columns in labels.items()]
    return pl.DataFrame(rows, schema=schema)
