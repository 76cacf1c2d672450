"""Sentences on where the host is during the gaps of a cause: calls, functions, copies, steps."""

import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from jarvis.analyses.base import CategoryData
from jarvis.analyses.system.cpu_idle.wording import MESSAGES
from jarvis.perf_report.call_tree.stacks import is_own_function
from jarvis.perf_report.intervals import END
from jarvis.perf_report.timeline.host import HostCall
from jarvis.perf_report.timeline.host_spans import WAITS, is_waiting
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.preconditions import HOST_READ, SCALAR_BYTES
from jarvis.schemas.names import C
from jarvis.text.messages import Message

BY_HOST_CODE = (
    IdleCause.DATA_LOADING,
    IdleCause.HOST_WORK,
    IdleCause.SYNCHRONIZATION,
    IdleCause.ALLOCATOR,
    IdleCause.KERNEL_LOADING,
)
"""Causes that a line of the user's code explains."""

_LOADER_WITHOUT_WORKERS = "_SingleProcessDataLoaderIter"
_FOLDERS = re.compile(r"^/.*?(?=(?:[^/]+/){2}[^/]+\.py\()")
"""The beginning of an absolute path, without its last two folders."""

_PLACE = (C.host_call, C.host_op, C.host_frame, C.host_annotation)

WAITS_NAMED = 3
"""Maximum number of places of waits that a sentence names."""


def placed(gaps: pl.DataFrame) -> pl.DataFrame:
    """Return gaps with the columns on functions, annotations and copies, which runs of earlier
    versions do not have."""
    texts = (C.host_frame, C.host_annotation)
    lacking = [pl.lit(None, pl.String).alias(c) for c in texts if c not in gaps.columns]
    if C.host_copy_uid not in gaps.columns:
        lacking.append(pl.lit(None, pl.Int64).alias(C.host_copy_uid))
    return gaps.with_columns(lacking)


def where(row: Mapping[str, Any]) -> Message:
    """Return the call of a gap, with the function and the annotation that it is in."""
    call, operator = row[C.host_call], row[C.host_op]
    frame = None if row[C.host_frame] == call else row[C.host_frame]
    if frame is not None:
        frame = _FOLDERS.sub("", frame)
    annotation = row[C.host_annotation]
    if call is None:
        return MESSAGES(
            "where", name=frame or annotation, during=_during(annotation if frame else None)
        )
    named = (
        MESSAGES("call.of", name=call, operator=operator)
        if operator
        else MESSAGES("call", name=call)
    )
    return MESSAGES(
        "where.call",
        call=named,
        frame=MESSAGES("where.in", frame=frame) if frame else None,
        during=_during(annotation),
    )


def _during(annotation: str | None) -> Message | None:
    return MESSAGES("where.during", annotation=annotation) if annotation else None


def _by_place(gaps: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct places of the host with the number and time of their gaps, most time
    first."""
    is_known = pl.any_horizontal(pl.col(C.host_call, C.host_frame, C.host_annotation).is_not_null())
    return (
        placed(gaps)
        .filter(is_known)
        .group_by(_PLACE)
        .agg(pl.len().alias(C.count), pl.col(C.dur_ns).sum(), pl.col(C.host_call_us).max())
        .sort(C.dur_ns, *_PLACE, descending=[True, *[False] * len(_PLACE)])
    )


def places(gaps: pl.DataFrame) -> list[Message]:
    """Return the distinct places of the host with their number of gaps, most time first."""
    return [
        MESSAGES(
            "evidence.host_call",
            count=row[C.count],
            call=where(row),
            longest_ms=row[C.host_call_us] / 1000,
        )
        if row[C.host_call_us] is not None
        else MESSAGES(
            "evidence.place", count=row[C.count], place=where(row), time_ms=row[C.dur_ns] / 1e6
        )
        for row in _by_place(gaps).iter_rows(named=True)
    ]


def main_place(gaps: pl.DataFrame) -> Message | None:
    """Return the place of the host with most time, as the end of a sentence."""
    for row in _by_place(gaps).head(1).iter_rows(named=True):
        values = {"gaps": row[C.count], "time_ms": row[C.dur_ns] / 1e6}
        if row[C.count] == gaps.height:
            return MESSAGES("call.only", place=where(row))
        return MESSAGES("call.most", place=where(row), **values)
    return None


def after_waits(data: CategoryData, gaps: pl.DataFrame) -> Message | None:
    """Return the waits for the GPU that most of the time of gaps follows, as the end of a sentence.

    A gap follows the last wait that ended before it does. The waits count if they last as long as
    the gaps: meanwhile the host could have launched the work of these.
    """
    slices = data.tables.get("host_slices")
    if slices is None:
        return None
    calls = slices.with_columns(END.alias(C.end_ns))
    runtime = calls.filter(pl.col(C.kind) == HostCall.RUNTIME.value)
    waits = runtime.filter(pl.col(C.name).str.contains(WAITS)).filter(is_waiting())
    ends = gaps.select((pl.col(C.start_ns) + pl.col(C.dur_ns)).alias(C.end_ns), gap_ns=C.dur_ns)
    by_wait = (
        ends.sort(C.end_ns)
        .join_asof(waits.sort(C.end_ns, C.uid), on=C.end_ns, check_sortedness=False)
        .drop_nulls(C.uid)
        .group_by(C.uid)
        .agg(pl.len().alias(C.count), pl.col("gap_ns").sum())
        .join(waits, on=C.uid)
    )
    by_place = (
        by_wait.join(_around(by_wait, calls), on=C.uid)
        .group_by(_PLACE)
        .agg(pl.col(C.count, "gap_ns", C.dur_ns).sum(), pl.len().alias("waits"))
        .sort("gap_ns", *_PLACE, descending=[True, *[False] * len(_PLACE)])
        .head(WAITS_NAMED)
    )
    count, gaps_ns, waits_ns = by_place.select(pl.col(C.count, "gap_ns", C.dur_ns).sum()).row(0)
    if 2 * gaps_ns <= gaps[C.dur_ns].sum() or waits_ns < gaps_ns:
        return None
    named = [
        MESSAGES(
            "wait",
            call=where(row),
            wait_ms=row[C.dur_ns] / 1e6,
            waits=row["waits"],
            gaps=row[C.count],
            time_ms=row["gap_ns"] / 1e6,
        )
        for row in by_place.iter_rows(named=True)
    ]
    if count == gaps.height:
        return MESSAGES("call.after.all", gaps=count, waits=named)
    return MESSAGES("call.after", gaps=count, time_ms=gaps_ns / 1e6, waits=named)


def _around(calls: pl.DataFrame, slices: pl.DataFrame) -> pl.DataFrame:
    """Return the place (``_PLACE``) of each call by ``uid``: the innermost operator and function of
    the user's code around it."""
    names = slices.filter(pl.col(C.kind) == HostCall.PYTHON.value)[C.name].unique().to_list()
    own = {
        C.host_op: pl.col(C.kind) == HostCall.OPERATOR.value,
        C.host_frame: pl.col(C.name).is_in([name for name in names if is_own_function(name)]),
    }
    around = calls.select(C.uid, C.thread, C.ts_ns, C.end_ns).join_where(
        slices.select("kind", C.name, of=C.thread, from_ns=C.ts_ns, to_ns=C.end_ns),
        pl.col(C.thread) == pl.col("of"),
        pl.col(C.ts_ns) >= pl.col("from_ns"),
        pl.col(C.end_ns) <= pl.col("to_ns"),
    )
    found = calls.select(C.uid, pl.col(C.name).alias(C.host_call))
    for column, is_wanted in own.items():
        innermost = around.filter(is_wanted).sort("from_ns").unique(C.uid, keep="last")
        named = innermost.select(C.uid, pl.col(C.name).alias(column))
        found = found.join(named, on=C.uid, how="left")
    return found.with_columns(pl.lit(None, pl.String).alias(C.host_annotation))


def is_mostly_in(gaps: pl.DataFrame, pattern: str) -> bool:
    """Return whether the host is in functions or annotations of this name for most of the time."""
    names = pl.concat_str(C.host_frame, C.host_annotation, separator="\n", ignore_nulls=True)
    inside = placed(gaps).filter(names.str.contains(pattern))
    return bool(2 * inside[C.dur_ns].sum() > gaps[C.dur_ns].sum())


def loads_without_workers(gaps: pl.DataFrame) -> bool:
    """Return whether every gap is due to a loader without worker processes, by its annotation."""
    return bool(gaps[C.host_call].str.contains(_LOADER_WITHOUT_WORKERS).fill_null(False).all())


def without_stacks(data: CategoryData, cause: IdleCause) -> Message | None:
    """Return that no Python functions are recorded, where one would name the line."""
    threads = data.tables.get("host_threads")
    if threads is None or cause not in BY_HOST_CODE or int(threads[C.python_ns].sum()) > 0:
        return None
    return MESSAGES("issue.without_stacks")


def slow_steps(data: CategoryData, cause: IdleCause) -> Message | None:
    """Return the steps that are slow because of a cause."""
    steps = data.tables.get("steps")
    if steps is None:
        return None
    slow = steps.filter(pl.col(C.slow_cause) == cause).sort(C.excess_ns, descending=True)
    names = slow[C.name].drop_nulls().to_list()
    if not names:
        return None
    return MESSAGES("issue.slow_steps", names=names, excess_ms=slow[C.excess_ns][0] / 1e6)


def waited_for(data: CategoryData, gap: Mapping[str, Any]) -> Message | None:
    """Return the copy that the blocking call of a gap waits for, with its size and memory."""
    work = data.tables.get("gpu_work")
    if gap[C.host_copy_uid] is None or work is None:
        return None
    copies = work.filter(pl.col(C.uid) == gap[C.host_copy_uid])
    if copies.is_empty():
        return None
    copy = copies.row(0, named=True)
    host = {"H2D": C.src_kind, "D2H": C.dst_kind}.get(copy[C.direction] or "")
    if host is None or copy[C.bytes] is None:
        return None
    memory = copy[host]
    return MESSAGES(
        f"copy.{copy[C.direction]}",
        size_bytes=copy[C.bytes],
        memory=MESSAGES(f"memory.{memory.lower()}") if memory in ("Pageable", "Pinned") else None,
    )


def blocking_hypothesis(data: CategoryData, gaps: pl.DataFrame) -> Message:
    """Return why the host waits: it reads single values, or tensors, or sends data, or waits
    explicitly."""
    calls = placed(gaps).drop_nulls(C.host_call)
    work = data.tables.get("gpu_work")
    copies = (
        pl.DataFrame(schema={C.direction: pl.String, C.bytes: pl.Int64, C.host_op: pl.String})
        if work is None
        else calls.select(C.host_copy_uid, C.host_op).join(
            work.select(pl.col(C.uid).alias(C.host_copy_uid), C.direction, C.bytes),
            on=C.host_copy_uid,
        )
    )
    reads_value = calls[C.host_op].str.contains(HOST_READ).fill_null(False)
    sizes = copies[C.bytes].drop_nulls()
    directions = copies[C.direction].unique().to_list()
    if calls.height and reads_value.all():
        return MESSAGES("hypothesis.item")
    if copies.height < calls.height or directions not in (["D2H"], ["H2D"]):
        is_explicit = calls.height > 0 and copies.is_empty() and calls[C.host_op].is_null().all()
        key = "hypothesis.explicit" if is_explicit else f"{IdleCause.SYNCHRONIZATION}.hypothesis"
        return MESSAGES(key)
    if directions == ["H2D"]:
        return MESSAGES("hypothesis.send")
    is_scalar = sizes.len() == copies.height and bool((sizes <= SCALAR_BYTES).all())
    return MESSAGES("hypothesis.scalar" if is_scalar else "hypothesis.tensor")


def prevents_graph(data: CategoryData) -> Message | None:
    """Return the blocking calls of operators and Python functions, which a GPU graph cannot
    contain."""
    gaps = data.tables.get("idle_gaps")
    if gaps is None:
        return None
    blocking = placed(gaps).filter(
        (pl.col(C.cause) == IdleCause.SYNCHRONIZATION)
        & pl.any_horizontal(pl.col(C.host_op, C.host_frame).is_not_null())
    )
    if blocking.is_empty():
        return None
    calls = [where(row) for row in _by_place(blocking).iter_rows(named=True)]
    return MESSAGES("kernel.prevented", calls=calls)
