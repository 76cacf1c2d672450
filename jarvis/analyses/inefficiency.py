"""Findings on operators below their roofline: thresholds and texts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.analyses.advice import (
    OF_ROW,
    SHARED,
    ChosenAdvice,
    choose,
    register_advice,
    values_of,
    values_of_row,
)
from jarvis.analyses.base import Advice, CategoryData
from jarvis.analyses.operations import (
    HYPOTHESIS,
    KERNEL_FLOOR_US,
    LAUNCH_BOUND,
    LAUNCH_BOUND_RULE,
    MIN_COMPUTE_PCT,
    Grouped,
    OperationGroup,
    groups_of,
)
from jarvis.findings import EvidenceValue, Finding, Impact
from jarvis.schemas.names import C
from jarvis.text.format import quoted
from jarvis.text.messages import Message, MessageTable, action, names_in, resolve, to_text

DEFAULT_ADVICE: Mapping[str, Advice] = {
    "compute": Advice(
        rule="bound by the compute peak, no pattern",
        reason="`{name}` runs slower than its arithmetic requires",
        algorithmic="Check whether the {calls} of {arguments} can be batched into fewer, larger "
        "ones, by hand or by a compiler.",
        kernel="Give {package} to the kernel team to tune the tile sizes and "
        "the selection of {kernel}.",
    ),
    "memory": Advice(
        rule="bound by memory bandwidth, no pattern",
        reason="memory bandwidth is left unused",
        algorithmic="Fuse {name} with the operators before and after it{place}, so that "
        "{moved_bytes} per call stay out of memory, for instance with torch.compile.",
        kernel="Give {package} to the kernel team to improve how {kernel} reads and writes memory.",
    ),
    LAUNCH_BOUND: Advice(
        rule=LAUNCH_BOUND_RULE,
        reason="each call has so little work that the fixed cost of a kernel dominates its time",
        algorithmic="Fuse the chain of small operators around {name}{place}, for instance with "
        "torch.compile, or batch its {calls} of {mean_time_ms} each.",
        kernel="{grouped_kernel}Fewer calls save the fixed cost of each kernel, which a GPU "
        "graph does not remove. Main kernel: {kernel}.",
    ),
}
"""Advice for categories without more specific advice."""

register_advice(SHARED, DEFAULT_ADVICE)

MESSAGES = MessageTable(
    "efficiency",
    {
        "part": "{part} {time_ms}",
        "parts": "{parts:joined , }",
        "title.low_efficiency": "Low efficiency: {subject}",
        "title.opportunity": "Below target: {subject}",
        "title.top": f"Below {impact.BOTTLENECK_EFFICIENCY_PCT:g}% of the roofline: {{subject}}",
        "subject": "{name}",
        "subject_with_pattern": "{name} ({pattern})",
        "issue": "{calls} of {subject} over {signatures} {calls:either takes|take} {time_ms} "
        "({compute_pct} of compute) and {calls:either reaches|reach} {efficiency_pct} of the "
        "{bound} roofline{rate}{against}: {reason}{little_left}.",
        "little_left": ", but at this efficiency little is left to gain",
        "reason.of_some": "in the heaviest signature ({some:,} of {calls}), {reason}",
        "rate": " ({achieved:number} of {peak:number} {unit})",
        "rate.small": " ({achieved_mb_per_s:number} MB/s of {peak:number} {unit})",
        "within_band": ", within the {low_pct:.0f}-{high_pct:.0f}%{scale} that such calls usually "
        "reach",
        "below_band": ", where {low_pct:.0f}-{high_pct:.0f}%{scale} is expected",
        "band_scale": " of the {of} (here {reached_pct})",
        "caveat.launch_bound": "Calls this small cannot reach the roofline individually: the "
        "saving is an upper bound for eliminating them by fusion.",
        "caveat.usual": "The efficiency is typical of such calls: they rarely exceed "
        "{high_pct:.0f}% of the {of}.",
        "verify.launch_bound": "Record the trace again: {name} must have {fewer} or less than "
        "{time_ms}.",
        "verify.fewer": "fewer than {calls}",
        "verify.none": "no separate call",
        "verify.faster": "Record the trace again: the {calls} of {name} must take less than "
        "{time_ms} and approach {goal_ms} ({target_pct:.0f}% of the roofline).",
        "capture.compute": "A trace does not show why {kernel} is slow: {run_package} "
        "under the platform's hardware-counter profiler and check how long its matrix "
        "units are busy.",
        "capture.memory": "A trace does not show why {kernel} is slow: {run_package} "
        "under the platform's hardware-counter profiler and compare the bytes that it "
        "actually moves with the modeled {moved_bytes} per call.",
        f"capture.{LAUNCH_BOUND}": "A trace does not show how long a merged call takes: time the "
        "fused or batched form of {arguments} alone, and compare it with {each_time}.",
        "capture.call_site": action(
            "Record with `with_stack=True` to see what calls {name}.", "not has_stacks"
        ),
        "capture.shapes": action(
            "Record with `record_shapes=True`: the arguments of {name} are missing.",
            "not has_shapes",
        ),
    },
)

HEAVIEST_CALL = "the heaviest call"
"""Reasons that begin with it state facts of that call, not of all."""

MIN_TB_PER_S = 1e-4
"""Lower rates are printed in MB/s."""


def low_efficiency(data: CategoryData) -> Iterator[Finding]:
    """Operators that take time and run far below their roofline.

    Symptom: an operator's kernels reach a small part of what the GPU can do at its arithmetic
    intensity.
    Rule: rows of one operator and pattern with an efficiency below the threshold that together take
    more time than the threshold, and that do not exceed the expected efficiency of their pattern.
    Threshold: {impact.BOTTLENECK_EFFICIENCY_PCT}% of the roofline; {impact.BOTTLENECK_TIME_MS} ms
    or {impact.BOTTLENECK_CATEGORY_PCT}% of category time; at least {MIN_COMPUTE_PCT}% of compute.
    """
    for subject in data.once(_low_subjects, _low_subjects):
        if _is_time_relevant(subject.group):
            yield _inefficiency(data, subject, "low_efficiency")


def opportunity(data: CategoryData) -> Iterator[Finding]:
    """Relevant operators that could come closer to their roofline.

    Symptom: one of the trace's top operations, or one with much time, is below the target.
    Rule: rows below the target that are no ``low_efficiency`` finding, do not exceed the expected
    efficiency of their pattern, and either include one of the top operations of the trace or pass
    the time test of ``low_efficiency``.
    Threshold: the target efficiency, {impact.TARGET_PCT}% by default; at least {MIN_COMPUTE_PCT}%
    of compute.
    """
    is_low = data.operations[C.pct_roofline] < impact.BOTTLENECK_EFFICIENCY_PCT
    for subject in _subjects(data, _is_below(data, data.target_pct) & ~is_low):
        if subject.group.is_top or _is_time_relevant(subject.group):
            yield _inefficiency(data, subject, "opportunity")
    if data.target_pct < impact.BOTTLENECK_EFFICIENCY_PCT:
        low = _subjects(data, _is_below(data, data.target_pct))
    else:
        low = data.once(_low_subjects, _low_subjects)
    for subject in low:
        if subject.group.is_top and not _is_time_relevant(subject.group):
            yield _inefficiency(data, subject, "opportunity", title="top")


@dataclass(frozen=True, slots=True)
class Expectation:
    """The usual and the reached efficiency of a pattern's calls on the same scale, in percent."""

    low_pct: float
    high_pct: float
    reached_pct: float
    of: str

    @property
    def is_met(self) -> bool:
        """Return whether the calls reach the usual efficiency."""
        return self.reached_pct >= self.low_pct

    @property
    def is_exceeded(self) -> bool:
        """Return whether the calls exceed the usual efficiency."""
        return self.reached_pct > self.high_pct


def expectation(data: CategoryData, group: OperationGroup) -> Expectation | None:
    """Return the expected efficiency of a group's pattern.

    None if the pattern has none, if the achieved efficiency is not known, or if memory bandwidth
    makes the expected one unreachable.
    """
    advice = _advice(data, group).advice
    if advice.expected_pct is None or group.efficiency_pct is None:
        return None
    low, high = advice.expected_pct
    if advice.expected_of == "roofline":
        return Expectation(low, high, group.efficiency_pct, "roofline")
    reached = group.compute_peak_pct
    if reached is None or reached < high * group.efficiency_pct / impact.FULL_PCT:
        return None
    return Expectation(low, high, reached, advice.expected_of)


def _is_below(data: CategoryData, efficiency_pct: float) -> pl.Series:
    """Return whether each row is below an efficiency and not yet explained."""
    is_below = data.operations[C.pct_roofline] < efficiency_pct
    return data.once(_is_open, _is_open) & is_below


def _is_open(data: CategoryData) -> pl.Series:
    """Return whether each row could be below some efficiency, and is not explained."""
    is_explained = pl.col(C.uid).is_in(data.explained_uids)
    has_time = pl.col(C.kernel_time_us) > 0
    return data.operations.select(impact.has_efficiency() & ~is_explained & has_time).to_series()


@dataclass(frozen=True)
class _Subject:
    """Operations that are large enough for a finding, and what it says of them at every target."""

    group: OperationGroup
    usual: Expectation | None
    chosen: ChosenAdvice

    @cached_property
    def values(self) -> dict[str, Any]:
        return values_of(self.group)

    @cached_property
    def reason(self) -> Message | None:
        return _reason(self.group, self.chosen, self.values)

    @cached_property
    def content(self) -> dict[str, Any]:
        group, chosen, values = self.group, self.chosen, self.values
        return {
            "evidence": evidence_of(group),
            "algorithmic": chosen.message("algorithmic", values),
            "kernel": chosen.message("kernel", values),
            "hypothesis": resolve(group.heaviest[HYPOTHESIS], values),
            "caveat": _caveat(group, self.usual, chosen, values),
            "capture": _capture(group, chosen, values),
        }


def _subjects(data: CategoryData, is_wanted: pl.Series) -> list[_Subject]:
    """Return the groups that are large enough for a finding and do not exceed what is usual."""
    grouped = data.once(Grouped, lambda watched: Grouped(watched.operations))
    found = (
        _Subject(group, expectation(data, group), _advice(data, group))
        for group in groups_of(grouped, is_wanted, MIN_COMPUTE_PCT)
    )
    return [each for each in found if each.usual is None or not each.usual.is_exceeded]


def _low_subjects(data: CategoryData) -> list[_Subject]:
    return _subjects(data, _is_below(data, impact.BOTTLENECK_EFFICIENCY_PCT))


def _is_time_relevant(group: OperationGroup) -> bool:
    return impact.is_time_relevant(group.time_ms, group.category_pct)


def _inefficiency(
    data: CategoryData, subject: _Subject, check: str, *, title: str | None = None
) -> Finding:
    group, usual = subject.group, subject.usual
    efficiency = group.efficiency_pct or 0.0
    gain = _gain(data, group, efficiency, usual)
    is_pattern = subject.chosen.advice.is_notable
    local = impact.local_priority(
        compute_pct=group.compute_pct, efficiency_pct=efficiency, is_pattern=is_pattern
    )
    final = impact.final_priority(
        is_top_operation=group.is_top,
        compute_pct=group.compute_pct,
        category_pct=group.category_pct,
        efficiency_pct=efficiency,
        saved_compute_pct=gain.compute_pct.mid,
        saved_ms=gain.saved_ms.mid,
        is_pattern=is_pattern,
    )
    is_expected = usual is not None and usual.is_met
    found = Finding(
        check=check,
        category=data.key,
        title=MESSAGES(f"title.{title or check}", subject=subject_of(group)),
        issue=_issue(group, usual, gain, subject.reason),
        priority_local=local.lowered() if is_expected else local,
        priority=final.lowered() if is_expected else final,
        impact=gain,
        verify=subject.chosen.message("verify", subject.values) or _verify(group, gain),
        **subject.content,
    )
    # One tuple, of up to thousands, for all targets: a validated one is a copy.
    return found.model_copy(update={"operations": subject.group.operations})


def _caveat(
    group: OperationGroup,
    usual: Expectation | None,
    chosen: ChosenAdvice,
    values: Mapping[str, Any],
) -> list[Message]:
    caveats = [chosen.message("caveat", values)]
    if group.is_launch_bound:
        caveats.append(MESSAGES("caveat.launch_bound"))
    elif usual is not None and usual.is_met:
        caveats.append(MESSAGES("caveat.usual", high_pct=usual.high_pct, of=usual.of))
    return [caveat for caveat in caveats if caveat is not None and to_text(caveat)]


def _reason(
    group: OperationGroup, chosen: ChosenAdvice, values: Mapping[str, Any]
) -> Message | None:
    """Return the reason, with the calls of the heaviest row if others have another one."""
    reason = chosen.message("reason", values)
    if reason is None or chosen.advice.reason.startswith(HEAVIEST_CALL):
        return reason
    columns = group.heaviest.keys() & {*names_in(reason), *OF_ROW}
    each = ({**values, **values_of_row(row)} for row in group.each_row(*columns))
    if all(chosen.message("reason", values) == reason for values in each):
        return reason
    return MESSAGES("reason.of_some", some=group.heaviest_calls, calls=group.calls, reason=reason)


def _verify(group: OperationGroup, gain: Impact) -> Message:
    if group.is_launch_bound:
        many = MESSAGES("verify.fewer", calls=group.calls)
        return MESSAGES(
            "verify.launch_bound",
            name=group.name,
            fewer=many if group.calls > 1 else MESSAGES("verify.none"),
            time_ms=gain.time_ms,
        )
    return MESSAGES(
        "verify.faster",
        calls=group.calls,
        name=group.name,
        time_ms=gain.time_ms,
        goal_ms=gain.time_ms - gain.saved_ms.mid,
        target_pct=gain.target_pct or 0.0,
    )


def _capture(
    group: OperationGroup, chosen: ChosenAdvice, values: Mapping[str, Any]
) -> list[Message]:
    kind = LAUNCH_BOUND if group.is_launch_bound else group.bound or "memory"
    parts = [chosen.message("capture", values) or MESSAGES.pick(f"capture.{kind}", values)]
    if group.heaviest[C.input_dims] is None:
        parts.append(MESSAGES("capture.shapes", name=group.name))
    if group.heaviest[C.called_from] is None:
        parts.append(MESSAGES("capture.call_site", name=group.name))
    return parts


def _advice(data: CategoryData, group: OperationGroup) -> ChosenAdvice:
    kind = LAUNCH_BOUND if group.is_launch_bound else group.bound or "memory"
    found = choose(data, group.pattern, kind)
    return found or ChosenAdvice(SHARED, kind, DEFAULT_ADVICE[kind])


def subject_of(group: OperationGroup) -> Message:
    """Return the operator, with the pattern of its rows unless its name includes it."""
    kind = group.pattern or (LAUNCH_BOUND if group.is_launch_bound else None)
    is_news = kind is not None and kind not in group.name
    if not is_news:
        return MESSAGES("subject", name=group.name)
    return MESSAGES("subject_with_pattern", name=group.name, pattern=kind)


def _issue(
    group: OperationGroup, usual: Expectation | None, gain: Impact, reason: Message | None
) -> Message:
    return MESSAGES(
        "issue",
        calls=group.calls,
        subject=subject_of(group),
        signatures=group.signatures,
        time_ms=group.time_ms,
        compute_pct=group.compute_pct,
        efficiency_pct=group.efficiency_pct or 0.0,
        bound=group.bound,
        rate=_rate(*group.rate) if group.rate else None,
        against=None if usual is None or _is_too_short(group, usual) else _against(usual),
        reason=reason,
        little_left=MESSAGES("little_left") if impact.is_little(gain) else None,
    )


def _rate(achieved: float, peak: float, unit: str) -> Message:
    """Return ``0.245 of 5.30 TB/s``; a rate that would need an exponent is given in a smaller
    unit."""
    if unit == "TB/s" and achieved < MIN_TB_PER_S:
        return MESSAGES("rate.small", achieved_mb_per_s=1e6 * achieved, peak=peak, unit=unit)
    return MESSAGES("rate", achieved=achieved, peak=peak, unit=unit)


def _is_too_short(group: OperationGroup, usual: Expectation) -> bool:
    """Return whether kernels of minimal time would not reach the usual efficiency."""
    reached_pct = usual.reached_pct * group.time_ms / _shortest_ms(group)
    return not usual.is_met and reached_pct < usual.low_pct


def _against(usual: Expectation) -> Message:
    scale = None
    if usual.of != "roofline":
        scale = MESSAGES("band_scale", of=usual.of, reached_pct=usual.reached_pct)
    key = "within_band" if usual.is_met else "below_band"
    return MESSAGES(key, low_pct=usual.low_pct, high_pct=usual.high_pct, scale=scale)


def evidence_of(group: OperationGroup) -> dict[str, EvidenceValue | None]:
    """Return the numbers of a group; None for unknown ones."""
    heaviest = group.heaviest
    rate = group.rate
    return {
        "gpu_time_ms": group.time_ms,
        "compute_pct": group.compute_pct,
        "category_pct": group.category_pct,
        "efficiency_pct": group.efficiency_pct,
        "bound": group.bound,
        "calls": group.calls,
        **_times(group),
        "flops_per_byte": heaviest[C.flops_per_byte],
        **({f"Achieved ({rate[2]})": rate[0], f"Peak ({rate[2]})": rate[1]} if rate else {}),
        "heaviest_call": heaviest["arguments"],
        "main_kernel": quoted(heaviest[C.main_kernel]) if heaviest[C.main_kernel] else None,
        "library": quoted(heaviest["library"]) if heaviest["library"] else None,
        "tile": heaviest.get("tile"),
        "model_parts": _parts(group),
        "called_from": heaviest[C.called_from],
    }


def _times(group: OperationGroup) -> dict[str, EvidenceValue]:
    """Return the mean kernel time of a call, or the groups of calls that have no common mean."""
    each = group.time_per_call
    if isinstance(each, Message):
        return {"kernel_times": each}
    return {"mean_kernel_time_us": 1000 * group.time_ms / max(group.calls, 1)}


def _parts(group: OperationGroup) -> Message | None:
    """Return ``MLP 5.10 ms, attention 0.80 ms``, if the analysis assigns rows to parts of a
    model."""
    if C.model_part not in group.every.columns:
        return None
    times = (
        group.select(C.model_part, C.kernel_time_us)
        .group_by(C.model_part)
        .agg(pl.col(C.kernel_time_us).sum())
    )
    known = [(part, time_us) for part, time_us in times.iter_rows() if part is not None]
    ordered = sorted(known, key=lambda part: (-part[1], part[0]))
    parts = [MESSAGES("part", part=part, time_ms=us / 1000) for part, us in ordered]
    return MESSAGES("parts", parts=parts) if parts else None


def _gain(
    data: CategoryData, group: OperationGroup, efficiency_pct: float, usual: Expectation | None
) -> Impact:
    target_pct = _target_pct(data, group, efficiency_pct, usual)
    modelled = impact.modelled_impact(group.time_ms, efficiency_pct, target_pct, **data.bases)
    if not group.is_launch_bound:
        return modelled
    return impact.bounded_impact(
        group.time_ms, modelled.saved_ms.mid, efficiency_pct=efficiency_pct, **data.bases
    )


def _target_pct(
    data: CategoryData, group: OperationGroup, efficiency_pct: float, usual: Expectation | None
) -> float:
    """Return the efficiency to aim at.

    The target, capped at the upper end of what is usual and at what the calls would reach in the
    minimal kernel time.
    """
    limits = [data.target_pct]
    if not group.is_launch_bound:
        limits.append(efficiency_pct * group.time_ms / _shortest_ms(group))
    if usual is not None and usual.reached_pct > 0:
        limits.append(efficiency_pct * usual.high_pct / usual.reached_pct)
    return max(efficiency_pct, min(limits))


def _shortest_ms(group: OperationGroup) -> float:
    """Return the time of as many kernels of minimal time."""
    return KERNEL_FLOOR_US * max(group.launches, group.calls) / 1000
