"""The recorded slices, from the trace or, without it, from a run."""

from collections import Counter
from collections.abc import Iterator
from functools import partial

import polars as pl

from jarvis.reports.perfetto.parts import (
    ARROWS,
    TRACK,
    Part,
    ReadTexts,
    Recorded,
    Track,
    is_timed,
    natural,
    numbers,
    texts,
)
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.trace import Trace, tables
from jarvis.trace.arguments import Arguments
from jarvis.trace.event_store import Values
from jarvis.trace.links import ARROW

FORWARD = "fwdbwd"
"""Category of arrows from an operator to its backward node."""

UNKNOWN = "unknown"
_THREAD = [C.pid, C.tid]
_ROW = "_row"
_HOST = frozenset({tables.CPU_OP, tables.PYTHON_FUNCTION, *tables.RUNTIME_CATEGORIES})
_GPU = frozenset(tables.GPU_CATEGORIES)


def of_trace(trace: Trace) -> Recorded:
    """Return all slices of a trace, with their arguments."""
    found = list(_slices(trace))
    timed = [(category, rows.filter(is_timed()), reads) for category, rows, reads in found]
    threads = _threads([(category, rows) for category, rows, _ in timed])
    parts = [
        Part(
            category,
            rows.join(threads, on=_THREAD, nulls_equal=True, maintain_order="left"),
            reads,
        )
        for category, rows, reads in timed
    ]
    return Recorded(
        parts,
        _tracks(threads, trace.threads),
        _arrows(trace),
        sum(rows.height for _, rows, _ in found) - sum(part.rows.height for part in parts),
    )


def _slices(trace: Trace) -> Iterator[tuple[str, pl.DataFrame, dict[str, ReadTexts]]]:
    """Return for each category its slices and the readers of their arguments."""
    store = trace.store
    known = (
        (trace.cpu_ops, tables.CPU_OPS),
        (trace.python_functions, tables.BASE),
        (trace.runtime, tables.RUNTIME),
        (trace.gpu_events, tables.GPU_EVENTS),
        (trace.annotations, tables.BASE),
    )
    for table, fields in known:
        for (category,), rows in table.partition_by(
            C.cat, as_dict=True, maintain_order=True
        ).items():
            yield str(category), rows, _readers(trace, str(category), rows, fields)
    others = set(store.categories()) - {*tables.SLICE_CATEGORIES, *tables.FLOW_CATEGORIES}
    for category in sorted(others, key=lambda each: each or ""):
        events = tables.table(store, [category], tables.OTHER_EVENTS)
        rows = events.filter(pl.col("ph") == "X")
        if rows.height:
            yield category or UNKNOWN, rows, {}


def _readers(
    trace: Trace, category: str, rows: pl.DataFrame, fields: tuple[tables.Field, ...]
) -> dict[str, ReadTexts]:
    """Return the readers of the arguments: those in the table, and those that no table has."""
    found: dict[str, ReadTexts] = {}
    for field in fields:
        if field.in_args:
            is_text = field.dtype is not pl.Int64 and not isinstance(field.read, Arguments)
            found[field.key] = (texts if is_text else numbers)(field.column)
    group = trace.store.group(category)
    uids = pl.Series(C.uid, group.uid())
    for key, in_arguments in trace.store.keys(category):
        if in_arguments and key not in found and uids.len():
            values = trace.store.values(group, key, in_arguments)
            found[key] = partial(_stored_texts, trace, uids, values)
    return found


def _stored_texts(trace: Trace, uids: pl.Series, values: Values, rows: pl.DataFrame) -> pl.Series:
    return tables.json_values(trace.store, values, uids.search_sorted(rows[C.uid]).to_numpy())


def _threads(slices: list[tuple[str, pl.DataFrame]]) -> pl.DataFrame:
    """Return ``pid, tid, track`` of the threads with slices: host, then GPUs, then others."""
    counts: Counter[tuple[str | None, str | None]] = Counter()
    busy: Counter[str | None] = Counter()
    rank: dict[str | None, int] = {}
    for category, rows in slices:
        own = 0 if category in _HOST else 1 if category in _GPU else 2
        for pid, tid, count in rows.group_by(_THREAD).len().iter_rows():
            counts[pid, tid] += count
            busy[pid] += count if own == 0 else 0
            rank[pid] = min(rank.get(pid, own), own)

    def order(thread: tuple[str | None, str | None]) -> tuple[object, ...]:
        pid, tid = thread
        host = -counts[thread] if rank[pid] == 0 else 0
        return rank[pid], -busy[pid], natural(pid or ""), host, natural(tid or "")

    threads = sorted(counts, key=order)
    return pl.DataFrame(
        {
            C.pid: pl.Series([pid for pid, _ in threads], dtype=pl.Categorical),
            C.tid: pl.Series([tid for _, tid in threads], dtype=pl.Categorical),
            TRACK: pl.Series(range(len(threads)), dtype=pl.Int64),
        }
    )


def _tracks(threads: pl.DataFrame, names: pl.DataFrame) -> list[Track]:
    """Return the threads with their recorded names."""
    of_process = {
        pid: " ".join(dict.fromkeys(filter(None, labels)))
        for pid, *labels in names.group_by(C.pid, maintain_order=True)
        .agg(pl.col(C.process_name, C.process_label).drop_nulls().first())
        .iter_rows()
    }
    of_thread = {
        (pid, tid): name
        for pid, tid, name in names.select(*_THREAD, C.thread_name).iter_rows()
        if name
    }
    return [
        Track(
            of_process.get(pid) or _named("process", pid),
            of_thread.get((pid, tid)) or _named("thread", tid),
            pid,
            tid,
        )
        for pid, tid in threads.select(_THREAD).iter_rows()
    ]


def _named(kind: str, text: str | None) -> str:
    """Return a name for an id: the id itself, with ``kind`` before it if it is a number."""
    if text is None:
        return f"{kind} {UNKNOWN}"
    return f"{kind} {text}" if text.isdecimal() else text


def _arrows(trace: Trace) -> pl.DataFrame:
    """Return the arrows from launches to GPU events, and from operators to backward nodes."""
    found = [
        trace.launches.select(pl.lit(ARROW).alias(C.cat), from_uid=C.runtime_uid, to_uid=C.gpu_uid)
    ]
    if (trace.flows[C.cat] == FORWARD).any():
        backward = pl.col(C.backward_uid)
        found.append(
            trace.backwards.select(
                pl.lit(FORWARD).alias(C.cat), from_uid=C.forward_uid, to_uid=backward
            )
        )
    return pl.concat(found)


def of_run(run: Run) -> Recorded:
    """Return the slices that a run has: all GPU events, and the longest host calls."""
    threads = run.tables.get("host_threads")
    calls = run.tables.get("host_slices")
    work = run.table("gpu_work")
    tracks = []
    parts = []
    if threads is not None and calls is not None:
        tracks = [
            Track(
                row[C.process_name] or _named("process", row[C.pid]),
                row[C.thread_name] or _named("thread", row[C.tid]),
                row[C.pid],
                row[C.tid],
            )
            for row in threads.sort(C.thread).iter_rows(named=True)
        ]
        for (kind,), rows in calls.partition_by(C.kind, as_dict=True, maintain_order=True).items():
            parts.append(
                Part(
                    str(kind),
                    rows.rename({C.thread: TRACK}),
                    {"Input Dims": texts(C.input_dims)},
                )
            )
    lanes = work.select(C.device, C.stream).unique().sort(C.device, C.stream, nulls_last=True)
    lanes = lanes.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(TRACK) + len(tracks))
    tracks += [
        Track(
            f"GPU {_shown(device)}",
            f"stream {_shown(stream)}",
            f"GPU {_shown(device)}",
            None if stream is None else str(stream),
        )
        for device, stream in lanes.select(C.device, C.stream).iter_rows()
    ]
    work = work.join(lanes, on=[C.device, C.stream], nulls_equal=True, maintain_order="left")
    reads = {
        "device": numbers(C.device),
        "stream": numbers(C.stream),
        "bytes": numbers(C.bytes),
        "launched by": texts(C.launcher_name),
    }
    for (category,), rows in work.partition_by(C.cat, as_dict=True, maintain_order=True).items():
        parts.append(Part(str(category), rows, reads))
    every = [Part(part.category, part.rows.filter(is_timed()), part.arguments) for part in parts]
    arrows = work.drop_nulls(C.launch_uid).select(
        pl.lit(ARROW).alias(C.cat), from_uid=C.launch_uid, to_uid=C.uid
    )
    without_time = sum(part.rows.height for part in parts) - sum(p.rows.height for p in every)
    return Recorded(every, tracks, arrows.cast(ARROWS), without_time)


def _shown(number: int | None) -> str:
    return "?" if number is None else str(number)
