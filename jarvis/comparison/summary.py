"""Summary of a comparison as sentences: totals, key points, and limitations."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from jarvis.comparison.aggregates import (
    has_communication_data,
    is_known_communication,
    is_same_communication,
)
from jarvis.comparison.operations import (
    MAX_UNLINKED_PCT,
    Paired,
    differs_in_type,
    matched_pct,
)
from jarvis.comparison.outcomes import FASTER, SLOWER, Outcome
from jarvis.comparison.sides import Role, Side
from jarvis.schemas.names import C
from jarvis.text.messages import Message, MessageTable, to_text

MESSAGES = MessageTable(
    "comparison_summary",
    {
        "part": "{part}: {target_ms} on the target, {reference_ms} on the reference, {change}.",
        "computation_time": "Compute time",
        "total_memcpy_time": "Memory copies",
        "exposed_comm_time": "Exposed communication",
        "idle_time": "Idle time of the GPU",
        "total_time": "GPU window",
        "step": "{span}: {target_ms} on the target, {reference_ms} on the reference, {change}"
        "{part}.",
        "span.step": "One step",
        "span.recording": "The recording",
        "step.part": "; the difference is largest in {part} ({target_ms} against {reference_ms})",
        "change.from_nothing": "which has none",
        "change.none": "no difference",
        "change.more": "{change_ms} ({change_pct}) more",
        "change.less": "{change_ms} ({change_pct}) less",
        "steps": "The target has {target:count step}, the reference {reference:count step}: all "
        "times and numbers of calls are per step, those of calls rounded.",
        "matched.all": "All operations of both sides have a counterpart.",
        "matched": "{matched_pct} of the time of the target's operations has a counterpart on the "
        "reference; {target_ms} are on the target only, {reference_ms} on the reference only.",
        "calls": "The two sides differ in the number of calls of {operations:count operation}: "
        "expectations are per call, differences cover all calls.",
        "slower": "Slower than the hardware explains: {times}; {unexplained_ms} of that are not "
        "explained.",
        "slower.one_gpu": "Slower on the same GPU: {times}; {unexplained_ms} of that are not "
        "explained.",
        "slower.none.one_gpu": "No operation is slower than on the reference, the same GPU, by "
        "more than the tolerance.",
        "as_expected.one_gpu": "As fast on the same GPU, within the tolerance: {times}.",
        "faster.one_gpu": "Faster on the same GPU: {times}.",
        "slower.none": "No operation with an expected time is slower than the hardware explains.",
        "as_expected": "Within the tolerance of what the hardware explains: {times}.",
        "faster": "Faster than the hardware explains: {times}.",
        "short": "Too short to compare (launch bound): {times}.",
        "other_type": "Not like for like, in different types: {times}.",
        "nothing_expected": "Without an expected ratio: {times}.",
        "times": "{operations:count operation} of {target_ms}, {reference_ms} on the reference",
        "collectives.same": "Both sides use the same collectives: kinds, types, sizes and counts "
        "are equal.",
        "collectives.same.recorded": "Both sides have equal numbers of collectives, as far as "
        "kind, type and size are recorded; some lack them.",
        "collectives.differ": "The collectives differ: {both} of {kinds:count kind} of one type "
        "and size are on both sides.",
        "one_has_steps": "Only the {side} marks steps: times are those of whole recordings, so "
        "compare times per call.",
        "unlinked": "{unlinked_ms} of GPU work of the {side}, {unlinked_pct} of its GPU time, have "
        "no recorded launch: they are in none of its operations, so they are not compared.",
        "unlinked.most": "The {side} is not comparable by operation: {unlinked_ms} of its GPU "
        "work, {unlinked_pct} of its GPU time, have no recorded launch and are in none of its "
        "operations. Work of only one side is not reported as a finding.",
        "hardware": "The GPU of the {side} is not described, so no ratio is expected for any "
        "operation.",
        "kernels": "The kernels of the {side} are not known, so they are not compared.",
        "shapes": "The {side} has no recorded shapes: operations match by name only.",
        "lacks.gpu_timeline": "The {side} has no GPU timeline, so totals are not compared.{reason}",
        "lacks.operations": "The {side} has no times of single operations, so operations, "
        "categories and kernels are not compared.{reason}",
        "lacks.call_tree": "The {side} has no call tree: operations with different names match "
        "only by the dimensions of matrix products, and modules are not compared.{reason}",
        "lacks.collectives": "The {side} has no data about collectives, so they are not compared."
        "{reason}",
        "reason": " {reason}",
    },
)

MIN_UNLINKED_PCT = 1.0
"""Less GPU work without a recorded launch is not worth a sentence, as in trace health."""

_PARTS = ("computation_time", "total_memcpy_time", "exposed_comm_time", "idle_time", "total_time")
_NEEDED = ("gpu_timeline", "operations", "call_tree")


def in_totals(totals: pl.DataFrame) -> tuple[str, ...]:
    """Return the parts of both timelines as neutral sentences."""
    return tuple(map(to_text, _totals(totals)))


def in_parts(steps: pl.DataFrame) -> tuple[str, ...]:
    """Return the parts of a step of both sides as neutral sentences; those of no side are left
    out."""
    rows = [row for row in steps.to_dicts()[:-1] if row[C.target_ms] or row[C.reference_ms]]
    return tuple(to_text(_part(row[C.type][:1].upper() + row[C.type][1:], row)) for row in rows)


def _part(part: Message | str, row: Mapping[str, Any]) -> Message:
    return MESSAGES(
        "part",
        part=part,
        target_ms=row[C.target_ms],
        reference_ms=row[C.reference_ms],
        change=_change(row),
    )


def in_steps(steps: pl.DataFrame, *, has_marks: bool) -> tuple[str, ...]:
    """Return the step times of both sides and their largest difference; none if a side has no
    steps.

    ``has_marks``: steps are marked; else the times are those of the recordings.
    """
    if steps.is_empty():
        return ()
    *parts, whole = steps.to_dicts()
    most = max(parts, key=lambda part: abs(part[C.difference_ms]))
    part = {
        "part": most[C.type],
        "target_ms": most[C.target_ms],
        "reference_ms": most[C.reference_ms],
    }
    message = MESSAGES(
        "step",
        span=MESSAGES("span.step" if has_marks else "span.recording"),
        target_ms=whole[C.target_ms],
        reference_ms=whole[C.reference_ms],
        change=_change(whole),
        part=MESSAGES("step.part", **part) if most[C.difference_ms] else None,
    )
    return (to_text(message),)


def key_points(
    paired: Paired,
    operations: pl.DataFrame,
    unmatched: pl.DataFrame,
    collectives: pl.DataFrame,
) -> tuple[str, ...]:
    """Return sentences about bounds, matched operations, and explained differences.

    The arguments are the comparison's tables.
    """
    is_one_gpu = paired.ratios is not None and paired.ratios.is_same
    messages = (
        *_matched(operations, unmatched),
        *_calls(operations),
        *_outcomes(operations, ".one_gpu" if is_one_gpu else ""),
        *_collectives(paired, collectives),
    )
    return tuple(map(to_text, messages))


def _totals(totals: pl.DataFrame) -> Iterator[Message]:
    times = {row[C.type]: row for row in totals.iter_rows(named=True)}
    for part in _PARTS:
        row = times.get(part)
        if row is None or not (row[C.target_ms] or row[C.reference_ms]):
            continue
        yield _part(MESSAGES(part), row)


def per_step(paired: Paired) -> tuple[str, ...]:
    """Return the sentence that the comparison is per step, if it is."""
    steps = paired.target.divisor, paired.reference.divisor
    if steps[0] == steps[1]:
        return ()
    return (to_text(MESSAGES("steps", target=steps[0], reference=steps[1])),)


def _change(row: Mapping[str, Any]) -> Message:
    change_ms, change_pct = row[C.difference_ms], row[C.difference_pct]
    if change_pct is None:
        return MESSAGES("change.from_nothing")
    if change_pct == 0:
        return MESSAGES("change.none")
    key = "change.more" if change_pct > 0 else "change.less"
    return MESSAGES(key, change_ms=abs(change_ms), change_pct=abs(change_pct))


def _matched(operations: pl.DataFrame, unmatched: pl.DataFrame) -> Iterator[Message]:
    share = matched_pct(operations, unmatched)
    if share is not None:
        only = {
            f"{role.value}_ms": _sum(unmatched.filter(pl.col(C.side) == role.value), C.time_ms)
            for role in Role
        }
        key = "matched" if any(only.values()) else "matched.all"
        yield MESSAGES.pick(key, {"matched_pct": share, **only})


def _calls(operations: pl.DataFrame) -> Iterator[Message]:
    rows = operations.filter(pl.col(C.target_calls) != pl.col(C.reference_calls))
    if not rows.is_empty():
        yield MESSAGES("calls", operations=rows.height)


def _outcomes(operations: pl.DataFrame, gpu: str) -> Iterator[Message]:
    slower = operations.filter(pl.col(C.outcome).is_in(SLOWER))
    if not slower.is_empty():
        unexplained_ms = _sum(slower, C.unexplained_ms)
        yield MESSAGES(f"slower{gpu}", times=_times(slower), unexplained_ms=unexplained_ms)
    elif operations[C.is_unexpected].count():
        yield MESSAGES(f"slower.none{gpu}")
    is_unknown = pl.col(C.outcome) == Outcome.UNKNOWN.value
    kinds = (
        (f"as_expected{gpu}", pl.col(C.outcome) == Outcome.EXPECTED.value),
        (f"faster{gpu}", pl.col(C.outcome).is_in(FASTER)),
        ("short", pl.col(C.outcome) == Outcome.SHORT.value),
        ("other_type", is_unknown & differs_in_type()),
        ("nothing_expected", is_unknown & ~differs_in_type()),
    )
    for key, is_of_kind in kinds:
        rows = operations.filter(is_of_kind)
        if not rows.is_empty():
            yield MESSAGES(key, times=_times(rows))


def _times(rows: pl.DataFrame) -> Message:
    times = {f"{role.value}_ms": _sum(rows, f"{role.value}_ms") for role in Role}
    return MESSAGES("times", operations=rows.height, **times)


def _sum(rows: pl.DataFrame, column: str) -> float:
    return float(rows.select(pl.col(column).sum()).item())


def _collectives(paired: Paired, collectives: pl.DataFrame) -> Iterator[Message]:
    if collectives.is_empty():
        return
    if is_same_communication(paired.target, paired.reference):
        is_known = is_known_communication(collectives)
        yield MESSAGES("collectives.same" if is_known else "collectives.same.recorded")
        return
    both = collectives.filter(pl.col(C.found_in) == "both").height
    yield MESSAGES("collectives.differ", both=both, kinds=collectives.height)


def unknown(paired: Paired) -> tuple[str, ...]:
    """Return sentences about what cannot be compared."""
    sides = {Role.TARGET: paired.target, Role.REFERENCE: paired.reference}
    limits = [message for role, side in sides.items() for message in _limitations(role, side)]
    marking = [role.value for role, side in sides.items() if side.steps is not None]
    if len(marking) == 1 and not any(side.rows("steps").is_empty() for side in sides.values()):
        limits.append(MESSAGES("one_has_steps", side=marking[0]))
    return tuple(map(to_text, limits))


def _limitations(role: Role, side: Side) -> Iterator[Message]:
    if side.hardware is None:
        yield MESSAGES("hardware", side=role.value)
    yield from _unlinked(role, side)
    for table in _NEEDED:
        if side.rows(table).is_empty():
            yield _without(role, side, table)
    if not has_communication_data(side):
        yield _without(role, side, "collectives")
    operations = side.rows("operations")
    if operations.is_empty():
        return
    if operations[C.kernels].list.len().fill_null(0).sum() == 0:
        yield MESSAGES("kernels", side=role.value)
    if operations[C.input_dims].null_count() == operations.height:
        yield MESSAGES("shapes", side=role.value)


def _unlinked(role: Role, side: Side) -> Iterator[Message]:
    """Yield how much GPU work is in no operation, unless it is too little to matter."""
    unlinked_ms, share = side.unlinked_ms, side.unlinked_pct
    if not side.rows("operations").is_empty() and share >= MIN_UNLINKED_PCT:
        key = "unlinked.most" if share > MAX_UNLINKED_PCT else "unlinked"
        yield MESSAGES(key, side=role.value, unlinked_ms=unlinked_ms, unlinked_pct=share)


def _without(role: Role, side: Side, table: str) -> Message:
    text = side.lacks.get(table)
    reason = MESSAGES("reason", reason=text) if text else None
    return MESSAGES(f"lacks.{table}", side=role.value, reason=reason)
