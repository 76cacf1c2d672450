"""Findings about the target: work slower than the hardware explains, or done only on the target.

Findings state what is slow relative to what; a trace cannot prove the reason.
"""

from collections.abc import Iterator

import polars as pl

from jarvis import impact, savings
from jarvis.comparison import basis as names
from jarvis.comparison.basis import FindingInput
from jarvis.comparison.matching import MatchedBy
from jarvis.comparison.messages import MESSAGES
from jarvis.comparison.operations import (
    MAX_UNLINKED_PCT,
    SAME_WORK,
    SAME_WORKLOAD_PCT,
    Paired,
    differs_in_type,
    matched_pct,
)
from jarvis.comparison.outcomes import SLOWER
from jarvis.comparison.sides import Role, Side
from jarvis.comparison.slower import Slower
from jarvis.comparison.timeline import IDLE, outside_compute
from jarvis.findings import Finding, Impact, OpRef, texts_of
from jarvis.perf_report.efficiency import OVER_LINK
from jarvis.schemas.names import C
from jarvis.text.messages import Message, to_text

ONLY_IN_TARGET = "only_in_target"


def findings(
    paired: Paired, operations: pl.DataFrame, unmatched: pl.DataFrame, tolerance: float
) -> tuple[Finding, ...]:
    """Return the findings, most time between the sides first.

    ``operations`` and ``unmatched`` are the tables of the comparison with ``tolerance``.
    """
    inputs = FindingInput(paired, tolerance)
    found = list(slower(inputs, operations))
    is_linked = all(
        each.unlinked_pct <= MAX_UNLINKED_PCT for each in (paired.target, paired.reference)
    )
    matched = matched_pct(operations, unmatched)
    is_same_workload = matched is None or matched >= SAME_WORKLOAD_PCT
    outside = list(outside_compute(inputs)) if is_same_workload or not is_linked else []
    if any(finding.check != IDLE.check for finding in outside):
        found = [finding for finding in found if not _is_outside_compute(finding, inputs)]
    if is_linked and matched is not None and is_same_workload:
        found += _only_in_target(inputs, unmatched)
    saving = _within_steps([*_within_compute(found, inputs), *outside], paired.target)
    return tuple(sorted(saving, key=_most_time_first))


def _within_steps(found: list[Finding], target: Side) -> list[Finding]:
    """Return the findings with the step time that they save, which bounds their priorities.

    Of kernels by a replay of the target's steps in which they are as fast as on the reference.
    """
    work = target.table("gpu_work") if target.divisor == 1 else None
    replayed = [_replayed(finding, target) for finding in found]
    return savings.within_steps(replayed, target.saving_bounds, work)


def _replayed(finding: Finding, target: Side) -> Finding:
    """Return the finding with its step time from a replay of all steps, for one of them."""
    if finding.impact is None or finding.time_pool is not None or target.simulation is None:
        return finding
    of_all = impact.multiplied(finding.impact, target.divisor)
    of_all_finding = finding.model_copy(update={"impact": of_all})
    saving = savings.step_saving(of_all_finding, target.bounds, None, target.simulation)
    if saving is None:
        return finding
    return finding.model_copy(update={"impact": impact.multiplied(saving, 1 / target.divisor)})


def _is_outside_compute(finding: Finding, inputs: FindingInput) -> bool:
    """Return whether its operations only copy or communicate, which a part of the step covers."""
    is_outside = (pl.col(C.roofline_note) == OVER_LINK) | (pl.col(C.comm_time_us) > 0)
    uids = set(inputs.paired.rows[Role.TARGET].filter(is_outside)[C.uid])
    return all(operation.uid in uids for operation in finding.operations)


def _most_time_first(finding: Finding) -> tuple[float, float, str, str]:
    """Return the sorting key by the step time between the sides, then by the GPU time."""
    gain = finding.impact
    assert gain is not None, "every finding of a comparison has an impact"
    step_ms = round((gain.step_ms or gain.saved_ms).high, savings.EQUAL_DIGITS)
    return -step_ms, -gain.saved_ms.high, finding.category, to_text(finding.title)


def _only_in_target(inputs: FindingInput, unmatched: pl.DataFrame) -> Iterator[Finding]:
    """Yield a finding for each category with work that only the target does."""
    of = {role: unmatched.filter(pl.col(C.side) == role.value) for role in Role}
    reference_ms = dict(
        of[Role.REFERENCE].group_by(C.category).agg(pl.col(C.time_ms).sum()).iter_rows()
    )
    for rows in of[Role.TARGET].partition_by(C.category, maintain_order=True):
        time_ms = float(rows[C.time_ms].sum())
        other_ms = reference_ms.get(rows[C.category][0], 0.0)
        extra_ms = time_ms - inputs.highest_ratio * other_ms
        if inputs.is_relevant(time_ms, extra_ms):
            yield _extra_work(inputs, rows, time_ms, other_ms, extra_ms)


def _extra_work(
    inputs: FindingInput, rows: pl.DataFrame, time_ms: float, other_ms: float, extra_ms: float
) -> Finding:
    category = rows[C.category][0]
    title = inputs.paired.target.titles.get(category, category or "")
    gain = impact.bounded_impact(
        time_ms, extra_ms, compute_ms=inputs.compute_ms, total_ms=inputs.total_ms
    )
    operators = rows[C.name].unique(maintain_order=True).to_list()
    other = MESSAGES("other", reference_ms=other_ms) if other_ms else MESSAGES("other.nothing")
    values = {
        "category": title,
        "time_ms": time_ms,
        "names": operators,
        "count": len(operators),
        "other": other,
        "name": rows[C.name][0],
        "kernel": rows[C.kernel][0],
    }
    return Finding(
        check=ONLY_IN_TARGET,
        category=category or "",
        **texts_of(MESSAGES, values, suffix="only_in_target"),
        operations=tuple(
            OpRef(
                uid=row[C.uid],
                name=row[C.name],
                input_dims=row[C.input_dims],
                operation_count=row[C.calls],
            )
            for row in rows.iter_rows(named=True)
        ),
        evidence={
            names.CALLS: int(rows[C.calls].sum()),
            "gpu_time_ms": time_ms,
            names.REFERENCE_TIME: other_ms,
            names.UNEXPLAINED_TIME: extra_ms,
            names.SHARE_PCT: impact.share_pct(time_ms, inputs.compute_ms),
        },
        impact=gain,
        **inputs.priorities(category, gain, set(rows[C.uid]), efficiency_pct=None),
    )


def _within_compute(found: list[Finding], inputs: FindingInput) -> list[Finding]:
    """Scale savings so that their sum does not exceed the target's compute time.

    Simultaneous operations on several streams can take more than that in total.
    """
    total_ms = sum(finding.impact.saved_ms.high for finding in found if finding.impact)
    if total_ms <= inputs.compute_ms:
        return found
    part = inputs.compute_ms / total_ms
    return [
        finding.model_copy(update={"impact": _scaled(finding.impact, part, inputs)})
        for finding in found
        if finding.impact
    ]


def _scaled(gain: Impact, part: float, inputs: FindingInput) -> Impact:
    return impact.bounded_impact(
        gain.time_ms,
        gain.saved_ms.high * part,
        low_ms=gain.saved_ms.low * part,
        compute_ms=inputs.compute_ms,
        total_ms=inputs.total_ms,
        efficiency_pct=gain.efficiency_pct,
    )


FUSED_ON_REFERENCE, OTHER_TYPE = "fused_on_reference", "other_type"

MAX_LAUNCHES, MAX_SAVED_LAUNCHES = 30, 15
"""Maximum launches of a call on the target, and more than on the reference, for which fusion is a
likely reason for the difference."""


class AtOnePlace(Slower):
    """Operators at one place, compared as a whole: the sides differ in more than speed."""

    @property
    def title(self) -> Message:
        return self._message(f"title.{self.kind}")

    def _algorithmic(self) -> Message:
        return self._message(f"algorithmic.{self.kind}")

    def _kernel(self) -> Message:
        return self._message(f"kernel.{self.kind}")


class Fused(AtOnePlace):
    """Operators at one place for which the reference launches fewer kernels."""

    @property
    def check(self) -> str:
        return FUSED_ON_REFERENCE

    @property
    def kind(self) -> str:
        """Last part of its message keys."""
        return "fused"

    def _hypothesis(self) -> Message:
        return MESSAGES("hypothesis.fused")


class OtherType(AtOnePlace):
    """Operators at one place that the reference computes faster in another type."""

    @property
    def check(self) -> str:
        return OTHER_TYPE

    @property
    def kind(self) -> str:
        """Last part of its message keys."""
        return "other_type"

    def _hypothesis(self) -> None:
        return None


def slower(inputs: FindingInput, operations: pl.DataFrame) -> Iterator[Finding]:
    """Yield a finding for each operator whose calls are slower than explained.

    Places at which the reference needs fewer kernels for the same work, or computes in another
    type, have their own findings.
    """
    is_slower = pl.col(C.outcome).is_in(SLOWER) & (pl.col(C.unexplained_ms) > 0)
    measured = _with_measured_gap(operations)
    is_measured = pl.col("is_measured") & (pl.col(C.time_ratio) > inputs.tolerance)
    fused = measured.filter(_needs_more_launches() & (is_slower | is_measured))
    rows = operations.filter(is_slower).join(fused, on=C.pair, how="anti", maintain_order="left")
    others = measured.filter(is_measured & differs_in_type()).join(
        fused, on=C.pair, how="anti", maintain_order="left"
    )
    kinds = (
        (Slower, rows, (C.category, C.name)),
        (Fused, fused, (C.pair,)),
        (OtherType, others, (C.pair,)),
    )
    for kind, part, keys in kinds:
        for group in part.partition_by(*keys, maintain_order=True):
            calls = kind(inputs, group.sort(C.unexplained_ms, C.pair, descending=[True, False]))
            if inputs.is_relevant(calls.time_ms, calls.unexplained_ms):
                yield calls.finding()


def _needs_more_launches() -> pl.Expr:
    """Return whether the target launches more kernels at a place, with different operators."""
    launches, reference = pl.col(C.launches_per_call), pl.col(C.reference_launches_per_call)
    return (
        (pl.col(C.matched_by) == MatchedBy.CALL_TREE.value)
        & (pl.col(C.name) != pl.col(C.reference_name))
        & (reference >= 1)
        & (launches > reference)
        & (launches <= MAX_LAUNCHES)
        & (launches - reference <= MAX_SAVED_LAUNCHES)
    )


def _with_measured_gap(operations: pl.DataFrame) -> pl.DataFrame:
    """Use the reference's own time as attainable time if no ratio is expected."""
    same_ms = pl.col(C.target_ms) / pl.col(C.time_ratio)
    is_same_work = pl.col(C.work_ratio).is_between(1 / SAME_WORK, SAME_WORK)
    is_measured = pl.col(C.expected_ratio_most).is_null() & is_same_work.fill_null(value=True)
    gap_ms = (pl.col(C.target_ms) - same_ms).clip(lower_bound=0.0)
    return operations.with_columns(
        is_measured=is_measured,
        **{
            C.attainable_ms: pl.when(is_measured).then(same_ms).otherwise(C.attainable_ms),
            C.unexplained_ms: pl.when(is_measured).then(gap_ms).otherwise(C.unexplained_ms),
        },
    )
