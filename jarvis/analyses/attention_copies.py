"""Layout copies of an attention call's own tensors around the fused kernel."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.analyses import kernel_names
from jarvis.analyses.advice import PLACES, needing, values_of
from jarvis.analyses.base import CategoryData
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup, arguments, groups
from jarvis.core.literals import parse_literal
from jarvis.findings import AnalysisResult, Finding, Priority
from jarvis.schemas.names import C
from jarvis.text.messages import Message, MessageTable

COPY_OPERATORS = ("aten::copy_", "aten::clone", "aten::contiguous")
COPY_KERNELS = r"copy|transpose|memcpy"
"""Operators next to an attention call, and kernels inside one, that only copy its tensors."""

COPIES_SHARE_PCT = 10.0
"""Minimum time of the copies in percent of the attention's time."""

FASTER_CALL_CHECKS = ("low_efficiency", "opportunity", "slow_kernel")
"""Checks whose findings advise to make calls faster."""

Shape = tuple[int, ...]
Place = tuple[str, Any]
_Copy = tuple[int, int, int]

COPIES_PER_CALL = 4
"""Query, key, value and output: any further copies do not belong to this call alone."""


MESSAGES = MessageTable(
    "attention_copies",
    {
        "title": "Copies around attention: {name}",
        "issue": "{name} ({attention_ms} in {calls}) is surrounded by copies of its own "
        "tensors{place}, which take {copies_ms} ({compute_pct} of compute): {what}, "
        "{copies_per_call:.3g} per call.",
        "kind": "{copies:count copy} of {tensor}",
        "kinds": "{kinds:list}",
        "inside": "{inside_ms} of copy kernels inside the calls",
        "algorithmic": "Pass query, key and value with their existing strides and read the output "
        "as is: remove the calls that make them contiguous{place}.",
        "kernel.strided": "Leave {kernel} as it is: it reads query, key and value with strides "
        "already, because {name} passes it views with heads and queries swapped.",
        "kernel": "Use an attention kernel that accepts the strides of {arguments}, and compare "
        "{kernel} with and without the copies{on_package}.",
        "caveat": "Equal copies from other call sites are included: the time is an upper bound.",
        "verify": "Record the trace again: the {copies:count copy} must be gone, and {name} must "
        "not take longer than {attention_ms}.",
        "capture": "Time {name} alone on strided and on contiguous inputs: the trace does not "
        "show how much slower the kernel is on strided inputs.",
    },
)


def contiguous_copies(data: CategoryData) -> Iterator[Finding]:
    """Copies of query, key, value or output around a fused attention call.

    Symptom: tensors are made contiguous before and after attention, which moves as much data as
    attention itself.
    Rule: copies in the module of an attention call, of a tensor with the dimensions of its query or
    key in any order, at most {COPIES_PER_CALL} per call, together with copy kernels inside the
    call.
    Threshold: {COPIES_SHARE_PCT}% of the attention's time; at least {MIN_COMPUTE_PCT}% of compute.
    """
    rows = data.operations.with_columns(inside_us=kernel_names.time_us(COPY_KERNELS))
    for group in groups(rows, pl.col(C.is_flash)):
        outside = _copies_around(data, group)
        inside_ms = float(group.rows["inside_us"].sum()) / 1000
        copies_ms = inside_ms + float(outside[C.kernel_time_us].sum()) / 1000
        share = impact.share_pct(copies_ms, group.time_ms)
        compute_pct = impact.share_pct(copies_ms, data.totals.compute_time_ms)
        if share >= COPIES_SHARE_PCT and compute_pct >= MIN_COMPUTE_PCT:
            yield _finding(data, group, outside, copies_ms)


def without_removed(result: AnalysisResult, others: Iterable[AnalysisResult]) -> AnalysisResult:
    """Return a result without findings that advise to make copies around attention faster.

    The finding on these copies advises to remove them.
    """
    removed = {
        uid
        for other in others
        for finding in other.findings
        if finding.check == contiguous_copies.__name__
        for uid in finding.shared_uids
    }
    if not removed:
        return result
    remaining = tuple(
        finding
        for finding in result.findings
        if finding.check not in FASTER_CALL_CHECKS
        or not {operation.uid for operation in finding.operations} <= removed
    )
    return result.model_copy(update={"findings": remaining})


def _copies_around(data: CategoryData, group: OperationGroup) -> pl.DataFrame:
    """Return the operations that copy a tensor of the group's calls within their module."""
    operations = data.tables.get("operations")
    if operations is None:
        return data.operations.clear()
    found: set[int] = set()
    is_copy = pl.col(C.name).is_in(COPY_OPERATORS) & (pl.col(C.kernel_time_us) > 0)
    copies = operations.filter(is_copy)
    by_place = _by_place_and_shape(copies)
    criteria = {_copy_criteria(call): None for call in group.rows.iter_rows(named=True)}
    for place, shapes, remaining in criteria:
        for _, uid, count in sorted(chain(*(by_place.get((place, shape), ()) for shape in shapes))):
            if count <= remaining:
                remaining -= count
                found.add(uid)
    return copies.filter(pl.col(C.uid).is_in(found))


def _by_place_and_shape(copies: pl.DataFrame) -> dict[tuple[Place, Shape], list[_Copy]]:
    """Return order, uid and number of calls of the copies by module and tensor shape."""
    found: dict[tuple[Place, Shape], list[_Copy]] = {}
    for order, copy in enumerate(copies.iter_rows(named=True)):
        for shape in _tensors(copy[C.input_dims])[:1]:
            entry = order, copy[C.uid], copy[C.operation_count]
            for key in (C.module_path, C.entry_point):
                found.setdefault((_place(copy, key), tuple(sorted(shape))), []).append(entry)
    return found


def _copy_criteria(call: dict[str, Any]) -> tuple[Place, frozenset[Shape], int]:
    """Return the module of a call, the shapes of its first two tensors, and the maximum number of
    copies."""
    shapes = frozenset(tuple(sorted(shape)) for shape in _tensors(call[C.input_dims])[:2])
    place = _place(call, C.module_path if call[C.module_path] else C.entry_point)
    return place, shapes if place[1] else frozenset(), COPIES_PER_CALL * call[C.operation_count]


def _tensors(input_dims: str | None) -> list[Shape]:
    """Return the shapes of the tensor arguments with three or more dims."""
    return [s for s in parse_literal(input_dims) if len(s) > 2 and not isinstance(s[0], tuple)]


def _place(row: dict[str, Any], key: str) -> Place:
    """Return the module of an example call, or its calling function."""
    value = row[key]
    return key, tuple(value) if isinstance(value, list) else value


def _finding(
    data: CategoryData, group: OperationGroup, outside: pl.DataFrame, copies_ms: float
) -> Finding:
    ordered = outside.sort(C.kernel_time_us, C.uid, descending=[True, False])
    inside_ms = float(group.rows["inside_us"].sum()) / 1000
    compute_pct = impact.share_pct(copies_ms, data.totals.compute_time_ms)
    is_large = compute_pct > impact.MEDIUM_COMPUTE_PCT
    priority = Priority.HIGH if is_large else Priority.MEDIUM
    places = [place for place in ordered[C.entry_point].unique(maintain_order=True) if place]
    values, uid = values_of(group), group.heaviest[C.uid]
    if places:
        values["place"] = PLACES("in", place=places[0])
    values |= {
        "attention_ms": group.time_ms,
        "copies_ms": copies_ms,
        "compute_pct": compute_pct,
        "copies": int(ordered[C.operation_count].sum()),
        "copies_per_call": int(ordered[C.operation_count].sum()) / max(group.calls, 1),
        "what": _kinds(ordered) or MESSAGES("inside", inside_ms=inside_ms),
    }
    return Finding(
        check="contiguous_copies",
        category=data.key,
        title=MESSAGES.pick("title", values),
        operations=group.operations if inside_ms > 0 else (),
        evidence={
            "copies_ms": copies_ms,
            "compute_pct": compute_pct,
            "copies_per_call": values["copies_per_call"],
            "attention_ms": group.time_ms,
            "gpu_time_ms": copies_ms,
            "copies": values["what"],
        },
        issue=MESSAGES.pick("issue", values),
        algorithmic=MESSAGES.pick("algorithmic", values),
        kernel=(
            needing(MESSAGES.pick("kernel.strided", values), f"attention_reads_strides({uid})"),
            needing(MESSAGES.pick("kernel", values), f"not attention_reads_strides({uid})"),
        ),
        priority_local=priority,
        priority=priority,
        impact=impact.bounded_impact(copies_ms, copies_ms, **data.bases),
        caveat=MESSAGES("caveat"),
        verify=MESSAGES.pick("verify", values),
        capture=needing(MESSAGES.pick("capture", values), f"not attention_reads_strides({uid})"),
        shared_uids=tuple(ordered[C.uid]),
    )


def _kinds(copies: pl.DataFrame) -> Message | None:
    """List each row of copies with the tensor that it copies; None without copies."""
    kinds = [
        MESSAGES(
            "kind",
            copies=row[C.operation_count],
            tensor=(arguments(row[C.input_dims], row[C.input_types]) or "").split(", [")[0],
        )
        for row in copies.iter_rows(named=True)
    ]
    return MESSAGES("kinds", kinds=kinds) if kinds else None
