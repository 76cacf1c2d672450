"""Memory copies by direction: count, time and exposed time."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.operations import timeline_window
from jarvis.analyses.severity import Ladder, at_most, grade, is_worth_acting, priority_of, worst
from jarvis.analyses.tiny_tensors import DATA_PARALLEL, data_parallel_copies
from jarvis.findings import COPIES_POOL, EvidenceValue, Finding, Priority, Severity, texts_of
from jarvis.preconditions import HOST_READ, PAGEABLE, PINNED, SCALAR_BYTES
from jarvis.schemas.names import C
from jarvis.text.messages import Message, MessageTable, Templates, action, to_text
from jarvis.trace.links import RUNTIME_CALL

COPY_TIME_PCT: Ladder = (
    (10.0, Severity.CRITICAL),
    (5.0, Severity.HIGH),
    (2.0, Severity.MEDIUM),
    (0.5, Severity.LOW),
)

COPY_COUNT: Ladder = (
    (100, Severity.CRITICAL),
    (50, Severity.HIGH),
    (10, Severity.MEDIUM),
    (5, Severity.LOW),
)
"""Grades by copy count; a direction has the worse of its two grades. Copies within the device are
capped at MEDIUM unless their time alone is HIGH, because no host waits for them."""


MEMORY = {"pageable_copies": PAGEABLE, "pinned_copies": PINNED}
"""Kinds of host memory by the quantity that counts the copies from or to it."""

SEPARATE_STREAM = action("Copy on a separate stream.", "copies_share_compute_stream")
"""Even from pinned memory, a copy does not overlap with compute on its own stream."""


LIKE_SIZES = 4
"""A mean of sizes that differ more is the size of none of them."""

FIND_COPIES = "Find the operators that copy and check whether the data can stay where it is."


@dataclass(frozen=True, slots=True)
class CopyAdvice:
    """The templates for copies in one direction."""

    title: str
    hypothesis: Templates
    algorithmic: Templates
    kernel: Templates


COPY_ADVICE = {
    "D2H": CopyAdvice(
        title="device-to-host copies",
        hypothesis="Results are read on the host.",
        algorithmic="Keep the data on the device: reduce there, and read values back in batches or "
        "every n-th step.",
        kernel=[
            action("Copy into pinned memory without blocking.", "copies_are_pageable"),
            action(
                "Copy on a separate stream, so that the GPU does not wait.",
                "copies_share_compute_stream",
            ),
        ],
    ),
    "H2D": CopyAdvice(
        title="host-to-device copies",
        hypothesis=[
            action("Copies from memory that is not pinned block the host.", "copies_are_pageable"),
            "Tensors are created on the fly, or data is loaded within the step.",
        ],
        algorithmic="Preallocate tensors on the device and prepare the next batch while the "
        "current one computes.",
        kernel=[
            action("Pin the host memory and copy without blocking.", "copies_are_pageable"),
            SEPARATE_STREAM,
        ],
    ),
    "D2D": CopyAdvice(
        title="copies within the device",
        hypothesis=action(
            "Tensors are duplicated, as clones and `contiguous()` calls do.", "has_clones"
        ),
        algorithmic=[
            action("Drop redundant clones, and write into preallocated views.", "has_clones"),
            action(FIND_COPIES, "not has_clones"),
        ],
        kernel="Fuse the copy with the kernel that produces or reads the tensor, and combine "
        "small copies into one.",
    ),
    "other": CopyAdvice(
        title="copies of unknown direction",
        hypothesis="The trace does not record which memories are involved.",
        algorithmic=FIND_COPIES,
        kernel=SEPARATE_STREAM,
    ),
}


MESSAGES = MessageTable(
    "copies",
    {
        **{
            f"{direction}.{field}": text
            for direction, advice in COPY_ADVICE.items()
            for field, text in asdict(advice).items()
        },
        "D2D.hypothesis.parallel": f"`{DATA_PARALLEL}` copies tensors one by one.",
        "D2D.kernel.parallel": "No kernel needs to change: the copies vanish with the settings.",
        "title": "{copies:count copy} {direction}",
        "issue": "{copies:,} {what} take {time_ms} ({wall_pct} of the GPU window), {exposed_ms} of "
        "it with nothing else running.",
        "caveat.D2H": "Time in which the host waits for the copies is not GPU time and not "
        "included.",
        "verify": "Record the trace again and compare count and exposed time of {direction} "
        "copies.",
        "capture": action(
            "Record with `with_stack=True`: the stacks name the lines of code that copy.",
            "not has_stacks",
        ),
        "description": "{copies:,} {what}, {time_ms}.",
        "hypothesis.values": "Single values are read on the host, as `.item()`, conditions on "
        "tensors and logging do.",
        "hypothesis.tensors": "Tensors are read on the host, as `.cpu()` and `.tolist()` do.",
        "hypothesis.both": "{single_values:count copy} {single_values:either reads a single value|"
        "read single values} on the host, as `.item()`, conditions on tensors and logging do; the "
        "others read tensors, as `.cpu()` and `.tolist()` do.",
        "evidence.sizes": "{least_bytes:size} to {most_bytes:size}",
        "evidence.launcher": "{copies:,} x {name}",
        "evidence.launchers": "{launchers:list}",
        "exposed.title": "Exposed copies",
        "exposed.issue": "Exposed copies take {exposed_ms} ({wall_pct} of the GPU window).",
        "exposed.algorithmic": "Keep data on the device and batch the remaining copies.",
        "exposed.kernel": [
            action("Copy without blocking from pinned memory.", "copies_are_pageable"),
            SEPARATE_STREAM,
        ],
        "exposed.caveat": "Counts and directions are not available: only the shares of the GPU "
        "timeline are.",
        "exposed.verify": "Analyze the trace itself to see counts and directions.",
    },
)


@dataclass(frozen=True, slots=True)
class CopyGrade:
    """Copies in one direction with their grades; shares in percent of the GPU window."""

    direction: str
    count: int
    time_ms: float
    exposed_ms: float
    avg_bytes: float | None
    time_pct: float
    severity: Severity
    by_time: Severity

    @property
    def priority(self) -> Priority:
        """Return the priority of the grade; many copies that take negligible time are not
        urgent."""
        is_relevant = self.by_time is not Severity.ACCEPTABLE
        return priority_of(
            self.severity if is_relevant else at_most(self.severity, Severity.MEDIUM)
        )


def memory_copies(data: CategoryData) -> Iterator[Finding]:
    """Many or long copies in one direction.

    Symptom: data moves repeatedly between host and device, or within the device.
    Rule: per direction the worse of two grades: its share of the GPU window, and its count; copies
    within the device are capped at MEDIUM unless their time alone is HIGH.
    Threshold: above {COPY_TIME_PCT}% of the GPU window, or more than {COPY_COUNT} copies:
    CRITICAL / HIGH / MEDIUM / LOW; a finding from MEDIUM on.
    """
    if "memory_copies" not in data.tables:
        yield from _copies_from_totals(data)
        return
    for copies in graded_copies(data):
        if is_worth_acting(copies.severity):
            yield _copy_finding(data, copies)


def graded_copies(data: CategoryData) -> list[CopyGrade]:
    graded = []
    for row in data.tables["memory_copies"].sort(C.direction).iter_rows(named=True):
        time_ms = row[C.total_time_us] / 1000
        time_pct = impact.share_pct(time_ms, data.totals.total_time_ms)
        by_time, by_count = grade(time_pct, COPY_TIME_PCT), grade(row[C.count], COPY_COUNT)
        severity = worst(by_time, by_count)
        if row[C.direction] not in ("D2H", "H2D"):
            severity = worst(by_time, at_most(by_count, Severity.MEDIUM))
        graded.append(
            CopyGrade(
                direction=row[C.direction],
                count=row[C.count],
                time_ms=time_ms,
                exposed_ms=row[C.exposed_time_us] / 1000,
                avg_bytes=row[C.avg_bytes],
                time_pct=time_pct,
                severity=severity,
                by_time=by_time,
            )
        )
    return graded


def _copy_finding(data: CategoryData, copies: CopyGrade) -> Finding:
    direction = copies.direction
    evidence: dict[str, EvidenceValue] = {
        "direction": direction,
        "copies": copies.count,
        "total_ms": copies.time_ms,
        "wall_pct": copies.time_pct,
        "exposed_ms": copies.exposed_ms,
    }
    single = _single_copies(data, direction)
    sizes = single[C.bytes].drop_nulls()
    least, most = min(sizes.to_list(), default=0), max(sizes.to_list(), default=0)
    if sizes.n_unique() > 1:
        evidence["copy_sizes"] = MESSAGES("evidence.sizes", least_bytes=least, most_bytes=most)
    if copies.avg_bytes is not None and most <= LIKE_SIZES * least:
        evidence["mean_size_bytes"] = copies.avg_bytes
    if launchers := _launchers(single):
        evidence["copied_by"] = MESSAGES("evidence.launchers", launchers=launchers)
    through = {quantity: _through(single, memory) for quantity, memory in MEMORY.items()}
    evidence |= {quantity: n for quantity, n in through.items() if n}
    parallel = _data_parallel(data, single) if direction == "D2D" else ()
    return Finding(
        check="memory_copies",
        category=data.key,
        title=MESSAGES("title", copies=copies.count, direction=direction),
        evidence=evidence,
        issue=MESSAGES(
            "issue",
            copies=copies.count,
            what=MESSAGES(f"{direction}.title"),
            time_ms=copies.time_ms,
            wall_pct=copies.time_pct,
            exposed_ms=copies.exposed_ms,
        ),
        algorithmic=parallel or MESSAGES.texts(f"{direction}.algorithmic"),
        kernel=MESSAGES.texts(f"{direction}.kernel{'.parallel' if parallel else ''}"),
        priority_local=priority_of(copies.severity),
        priority=copies.priority,
        severity=copies.severity,
        impact=impact.bounded_impact(copies.time_ms, copies.exposed_ms, **data.bases),
        hypothesis=MESSAGES("D2D.hypothesis.parallel")
        if parallel
        else _hypothesis(direction, single),
        caveat=MESSAGES("caveat.D2H") if direction == "D2H" else None,
        verify=MESSAGES("verify", direction=direction),
        capture=MESSAGES("capture"),
        time_pool=f"{COPIES_POOL} {direction}",
        shared_uids=tuple(single[C.operation_uid].drop_nulls().unique().sort()),
    )


def _single_copies(data: CategoryData, direction: str) -> pl.DataFrame:
    """Return the copies of the timeline's window in one direction."""
    if "gpu_work" not in data.tables:
        numbers, texts = (C.operation_uid, C.bytes), (C.launcher_name, C.src_kind, C.dst_kind)
        return pl.DataFrame(
            schema={**dict.fromkeys(numbers, pl.Int64), **dict.fromkeys(texts, pl.String)}
        )
    is_one = (pl.col(C.kind) == "copy") & (pl.col(C.direction) == direction)
    return timeline_window(data.tables["gpu_work"]).filter(is_one)


def _data_parallel(data: CategoryData, copies: pl.DataFrame) -> tuple[Message, ...]:
    operations = data.tables.get("operations")
    if operations is None:
        return ()
    uids = copies[C.operation_uid].drop_nulls().unique()
    return data_parallel_copies(operations.filter(pl.col(C.uid).is_in(uids.implode())), operations)


def _launchers(copies: pl.DataFrame) -> list[Message]:
    """Return the host operators that launch copies, most copies first."""
    is_operator = ~pl.col(C.launcher_name).str.contains(RUNTIME_CALL)
    counts = copies.filter(is_operator).group_by(C.launcher_name).len("copies")
    most = counts.sort("copies", C.launcher_name, descending=[True, False])
    return [MESSAGES("evidence.launcher", copies=n, name=name) for name, n in most.iter_rows()]


def _through(copies: pl.DataFrame, memory: str) -> int:
    """Return how many copies read or write this kind of host memory, if the trace records it."""
    is_there = pl.any_horizontal(pl.col(C.src_kind, C.dst_kind) == memory)
    return copies.filter(is_there).height


def _hypothesis(direction: str, copies: pl.DataFrame) -> tuple[Message, ...]:
    """Return the likely cause; what copies to the host read follows from their sizes."""
    reads_value = pl.col(C.launcher_name).str.contains(HOST_READ).fill_null(False)
    is_value = (pl.col(C.bytes) <= SCALAR_BYTES) | reads_value
    known = copies.select(is_value=is_value).to_series().drop_nulls()
    if direction != "D2H" or known.is_empty() or known.len() < copies.height:
        return MESSAGES.texts(f"{direction}.hypothesis")
    values = int(known.sum())
    if 0 < values < known.len():
        return (MESSAGES("hypothesis.both", single_values=values),)
    return (MESSAGES("hypothesis.values" if values else "hypothesis.tensors"),)


def _copies_from_totals(data: CategoryData) -> Iterator[Finding]:
    share = data.totals.exposed_memcpy_pct or 0.0
    severity = grade(share, COPY_TIME_PCT)
    if not is_worth_acting(severity):
        return
    exposed_ms = data.totals.exposed_memcpy_time_ms
    values = {"exposed_ms": exposed_ms, "wall_pct": share}
    yield Finding(
        check="memory_copies",
        category=data.key,
        **texts_of(MESSAGES, values, prefix="exposed"),
        evidence={"exposed_copies_ms": exposed_ms, "wall_pct": share},
        priority_local=priority_of(severity),
        priority=priority_of(severity),
        severity=severity,
        impact=impact.bounded_impact(exposed_ms, exposed_ms, **data.bases),
        time_pool=COPIES_POOL,
    )


def summary(data: CategoryData) -> dict[str, JsonValue]:
    if "memory_copies" not in data.tables:
        return {"total_count": None, "total_time_us": data.totals.total_memcpy_time_ms * 1000}
    copies = data.tables["memory_copies"].sort(C.direction)
    return {
        "total_count": int(copies[C.count].sum()),
        "total_time_us": float(copies[C.total_time_us].sum()),
        "by_direction": {str(row.pop("direction")): row for row in copies.iter_rows(named=True)},
    }


def assessment(data: CategoryData) -> dict[str, JsonValue]:
    totals = data.totals
    time_pct = impact.share_pct(totals.total_memcpy_time_ms, totals.total_time_ms)
    severity = grade(time_pct, COPY_TIME_PCT)
    graded = graded_copies(data) if "memory_copies" in data.tables else []
    return {
        "severity": worst(severity, *(copies.severity for copies in graded)),
        "total_count": sum(copies.count for copies in graded) if graded else None,
        "total_time_ms": totals.total_memcpy_time_ms,
        "percent_of_total": time_pct,
        "issues": [_copy_issue(data, copies) for copies in graded],
    }


def _copy_issue(data: CategoryData, copies: CopyGrade) -> dict[str, JsonValue]:
    hypothesis = _hypothesis(copies.direction, _single_copies(data, copies.direction))
    description = MESSAGES(
        "description",
        copies=copies.count,
        what=MESSAGES(f"{copies.direction}.title"),
        time_ms=copies.time_ms,
    )
    return {
        "direction": copies.direction,
        "count": copies.count,
        "time_ms": copies.time_ms,
        "exposed_time_ms": copies.exposed_ms,
        "percent_of_total": copies.time_pct,
        "avg_bytes": copies.avg_bytes,
        "severity": copies.severity,
        "description": to_text(description),
        "hypothesis": to_text(each for each in hypothesis if not each.needs),
    }
