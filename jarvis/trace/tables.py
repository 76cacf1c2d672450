"""Parsed events -> one Polars table for each kind of event.

Times are integer nanoseconds on the trace's own clock. ``uid`` is the position of an event in
``traceEvents``. Nested arguments (shapes, dtypes, strides) stay JSON text: few of them are
distinct, so whoever needs the values parses each text once. ``pid`` and ``tid`` are text, since
Kineto writes numbers and words alike.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import polars as pl

CPU_OP = "cpu_op"
PYTHON_FUNCTION = "python_function"
RUNTIME_CATEGORIES = ("cuda_runtime", "cuda_driver")
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
ANNOTATION_CATEGORIES = ("user_annotation", "gpu_user_annotation")
FLOW_CATEGORIES = ("ac2g", "fwdbwd")

Event = Mapping[str, Any]


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def _arguments(value: Any) -> str | None:
    """A list with an entry for each argument, as JSON text; anything else is no such list."""
    return orjson.dumps(value).decode() if isinstance(value, list) else None


def _name(value: Any) -> str:
    """The name of an event; one without a name has an empty one."""
    return _text(value) or ""


def _nanoseconds(value: Any) -> int | None:
    """Microseconds, as a number or as decimal text, in whole nanoseconds."""
    if isinstance(value, str):
        whole, _, fraction = value.partition(".")
        try:
            return int(whole) * 1000 + int((fraction + "000")[:3])
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value * 1000 if isinstance(value, int) else round(value * 1000)


@dataclass(frozen=True, slots=True)
class Field:
    """One column: where its value stands in an event, and how it is read."""

    column: str
    key: str
    dtype: type[pl.DataType]
    read: Callable[[Any], Any]
    in_args: bool = True


BASE = (
    Field("name", "name", pl.String, _name, in_args=False),
    Field("cat", "cat", pl.String, _text, in_args=False),
    Field("pid", "pid", pl.String, _text, in_args=False),
    Field("tid", "tid", pl.String, _text, in_args=False),
    Field("ts_ns", "ts", pl.Int64, _nanoseconds, in_args=False),
    Field("dur_ns", "dur", pl.Int64, _nanoseconds, in_args=False),
)
LINKS = (
    Field("correlation", "correlation", pl.Int64, _integer),
    Field("external_id", "External id", pl.Int64, _integer),
)
CPU_OPS = (
    *BASE,
    Field("external_id", "External id", pl.Int64, _integer),
    Field("sequence_number", "Sequence number", pl.Int64, _integer),
    Field("input_dims", "Input Dims", pl.String, _arguments),
    Field("input_types", "Input type", pl.String, _arguments),
    Field("input_strides", "Input Strides", pl.String, _arguments),
    Field("concrete_inputs", "Concrete Inputs", pl.String, _arguments),
)
RUNTIME = (*BASE, *LINKS)
GPU_EVENTS = (
    *BASE,
    *LINKS,
    Field("device", "device", pl.Int64, _integer),
    Field("stream", "stream", pl.Int64, _integer),
    Field("bytes", "bytes", pl.Int64, _integer),
    Field("collective", "Collective name", pl.String, _text),
    Field("in_msg_nelems", "In msg nelems", pl.Int64, _integer),
    Field("out_msg_nelems", "Out msg nelems", pl.Int64, _integer),
    Field("in_split_size", "In split size", pl.String, _text),
    Field("out_split_size", "Out split size", pl.String, _text),
    Field("group_size", "Group size", pl.Int64, _integer),
    Field("dtype", "dtype", pl.String, _text),
    Field("process_group_name", "Process Group Name", pl.String, _text),
    Field("process_group_ranks", "Process Group Ranks", pl.String, _text),
)
FLOWS = (
    Field("cat", "cat", pl.String, _text, in_args=False),
    Field("ph", "ph", pl.String, _text, in_args=False),
    Field("id", "id", pl.Int64, _integer, in_args=False),
    Field("pid", "pid", pl.String, _text, in_args=False),
    Field("tid", "tid", pl.String, _text, in_args=False),
    Field("ts_ns", "ts", pl.Int64, _nanoseconds, in_args=False),
)
EVENTS = (Field("ph", "ph", pl.String, _text, in_args=False), *BASE)
THREAD_LABELS = {
    "process_name": ("process_name", "name"),
    "process_labels": ("process_label", "labels"),
    "thread_name": ("thread_name", "name"),
}


def table(events: Iterable[tuple[int, Event]], fields: tuple[Field, ...]) -> pl.DataFrame:
    """``(uid, event)`` pairs as a table of ``uid`` and ``fields``, in file order."""
    rows = list(events)
    columns: dict[str, pl.Series] = {
        "uid": pl.Series("uid", [uid for uid, _ in rows], dtype=pl.Int64)
    }
    heads = [event for _, event in rows]
    arguments = [event.get("args") or {} for event in heads]
    for field in fields:
        read, key = field.read, field.key
        values = [read(part.get(key)) for part in (arguments if field.in_args else heads)]
        columns[field.column] = pl.Series(field.column, values, dtype=field.dtype)
    return pl.DataFrame(columns)


def thread_names(events: Iterable[Event]) -> pl.DataFrame:
    """Metadata events -> ``pid, tid, process_name, process_label, thread_name`` for each thread.

    Process-level labels are written with ``tid`` 0; the last one of a kind wins. Other metadata
    names are ignored.
    """
    labels: dict[tuple[str | None, str | None], dict[str, str | None]] = {}
    for event in events:
        if event.get("ph") == "M" and (known := THREAD_LABELS.get(event.get("name", ""))):
            column, key = known
            thread = (_text(event.get("pid")), _text(event.get("tid")))
            labels.setdefault(thread, {})[column] = _text((event.get("args") or {}).get(key))
    schema = dict.fromkeys(
        ("pid", "tid", "process_name", "process_label", "thread_name"), pl.String
    )
    rows = [{"pid": pid, "tid": tid, **columns} for (pid, tid), columns in labels.items()]
    return pl.DataFrame(rows, schema=schema)
