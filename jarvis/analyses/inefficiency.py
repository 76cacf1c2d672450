"""Operators below their roofline: which of them make a card, and what it says."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from jarvis import impact
from jarvis.analyses.base import Advice, CategoryData
from jarvis.analyses.operations import (
    HYPOTHESIS,
    KERNEL_FLOOR_US,
    LAUNCH_BOUND,
    LAUNCH_BOUND_RULE,
    MIN_COMPUTE_PCT,
    OperationGroup,
    groups,
)
from jarvis.analyses.wording import counted, ms, number, pct, quoted, size
from jarvis.findings import CALLED_FROM, GPU_TIME, Finding, Impact

DEFAULT_ADVICE: Mapping[str, Advice] = {
    "compute": Advice(
        rule="bound by the compute peak, no pattern",
        reason="`{name}` runs slower than its arithmetic needs",
        algorithmic="Check whether the {calls} of {arguments} can be batched into fewer, larger "
        "ones, by hand or by a compiler.",
        kernel="Give a replay package of {arguments} to the kernel team to tune the tile sizes and "
        "the selection of {kernel}.",
    ),
    "memory": Advice(
        rule="bound by memory bandwidth, no pattern",
        reason="memory bandwidth is left unused",
        algorithmic="Fuse {name} with the operators before and after it{place}, so that {moved} "
        "per call need not cross memory, for instance with torch.compile.",
        kernel="Give a replay package of {arguments} to the kernel team to improve how {kernel} "
        "reads and writes memory.",
    ),
    LAUNCH_BOUND: Advice(
        rule=LAUNCH_BOUND_RULE,
        reason="each call has so little work that the fixed cost of a kernel decides its time",
        algorithmic="Fuse the chain of small operators around {name}{place}, for instance with "
        "torch.compile, or batch its {calls} of {mean_time} each.",
        kernel="Use a multi-tensor or grouped kernel in place of the {calls} of {kernel}; a GPU "
        "graph only shortens the gaps between them, and tuning the single kernel gains little.",
    ),
}
"""What to say where a category has nothing more specific."""

CAPTURE = {
    "compute": "Why {kernel} is slow is not in a trace: run the replay package of {arguments} "
    "under the platform's hardware-counter profiler and see how long its matrix units are busy.",
    "memory": "Why {kernel} is slow is not in a trace: run the replay package of {arguments} under "
    "the platform's hardware-counter profiler and compare the bytes that it really moves with the "
    "modelled {moved} per call.",
    LAUNCH_BOUND: "What a merged call takes is not in a trace: time the fused or batched form of "
    "{arguments} alone, and compare it with {each_time}.",
}
"""How to learn what the trace cannot say, by bound."""

SMALLEST_TB_PER_S = 1e-4
"""A lower rate is printed in MB/s."""

NO_CALL_SITE = "Record with `with_stack=True` to see what calls {name}."
NO_SHAPES = "Record with `record_shapes=True`: the arguments of {name} are missing."


def low_efficiency(data: CategoryData) -> Iterator[Finding]:
    """Operators that take time and run far below their roofline.

    Symptom: an operator's kernels reach a small part of what the GPU can do for its arithmetic
    intensity.
    Rule: rows of one operator and pattern with an efficiency below the threshold that together
    take more time than the threshold, and that do not exceed the efficiency to expect of their
    pattern.
    Threshold: {impact.BOTTLENECK_EFFICIENCY_PCT}% of the roofline; {impact.BOTTLENECK_TIME_MS} ms
    or {impact.BOTTLENECK_CATEGORY_PCT}% of category time; at least {MIN_COMPUTE_PCT}% of compute.
    """
    for group in groups(_below(data, impact.BOTTLENECK_EFFICIENCY_PCT)):
        if _makes_a_card(data, group) and _is_time_relevant(group):
            yield _inefficiency(data, group, "low_efficiency", "Low efficiency")


def opportunity(data: CategoryData) -> Iterator[Finding]:
    """Operators that matter and could still come closer to their roofline.

    Symptom: one of the trace's top operations, or one with much time, is below the target.
    Rule: rows below the target that are no ``low_efficiency`` finding, do not exceed the efficiency
    to expect of their pattern, and either hold one of the top operations of the trace or pass the
    time test of ``low_efficiency``.
    Threshold: the target efficiency, {impact.TARGET_PCT}% by default; at least
    {MIN_COMPUTE_PCT}% of compute.
    """
    low = pl.col("pct_roofline") < impact.BOTTLENECK_EFFICIENCY_PCT
    below = _below(data, data.target_pct)
    for group in groups(below.filter(~low)):
        if _makes_a_card(data, group) and (group.is_top or _is_time_relevant(group)):
            yield _inefficiency(data, group, "opportunity", "Below target")
    for group in groups(below.filter(low)):
        if _makes_a_card(data, group) and group.is_top and not _is_time_relevant(group):
            yield _inefficiency(data, group, "opportunity", "Below target")


@dataclass(frozen=True, slots=True)
class Expectation:
    """What calls of a pattern usually reach, and what these reach on the same scale, in percent."""

    low_pct: float
    high_pct: float
    reached_pct: float
    of: str

    @property
    def is_met(self) -> bool:
        """Whether the calls reach what is usual."""
        return self.reached_pct >= self.low_pct

    @property
    def is_exceeded(self) -> bool:
        """Whether the calls reach more than is usual."""
        return self.reached_pct > self.high_pct


def expectation(data: CategoryData, group: OperationGroup) -> Expectation | None:
    """The expected efficiency of a group's pattern; None where there is none, where the achieved
    one is not known, or where memory keeps the calls from reaching it at any speed."""
    advice = _advice(data, group)
    if advice.expected_pct is None or group.efficiency_pct is None:
        return None
    low, high = advice.expected_pct
    if advice.expected_of == "roofline":
        return Expectation(low, high, group.efficiency_pct, "roofline")
    reached = group.compute_peak_pct
    if reached is None or reached < high * group.efficiency_pct / impact.FULL_PCT:
        return None
    return Expectation(low, high, reached, advice.expected_of)


def _below(data: CategoryData, efficiency_pct: float) -> pl.DataFrame:
    is_below = impact.is_judged() & (pl.col("pct_roofline") < efficiency_pct)
    is_explained = pl.col("uid").is_in(data.explained_uids)
    return data.operations.filter(is_below & ~is_explained & (pl.col("kernel_time_us") > 0))


def _makes_a_card(data: CategoryData, group: OperationGroup) -> bool:
    usual = expectation(data, group)
    is_better_than_usual = usual is not None and usual.is_exceeded
    return group.compute_pct >= MIN_COMPUTE_PCT and not is_better_than_usual


def _is_time_relevant(group: OperationGroup) -> bool:
    return impact.is_time_relevant(group.time_ms, group.category_pct)


def _inefficiency(data: CategoryData, group: OperationGroup, check: str, title: str) -> Finding:
    advice = _advice(data, group)
    usual = expectation(data, group)
    efficiency = group.efficiency_pct or 0.0
    facts = facts_of(group)
    gain = _gain(data, group, efficiency, usual)
    local = impact.local_priority(
        compute_pct=group.compute_pct, efficiency_pct=efficiency, is_pattern=advice.is_notable
    )
    final = impact.final_priority(
        is_top_operation=group.is_top,
        compute_pct=group.compute_pct,
        category_pct=group.category_pct,
        efficiency_pct=efficiency,
        saved_compute_pct=gain.compute_pct.mid,
        saved_ms=gain.saved_ms.mid,
        is_pattern=advice.is_notable,
    )
    is_expected = usual is not None and usual.is_met
    return Finding(
        check=check,
        category=data.key,
        title=f"{title}: {_subject(group)}",
        operations=group.operations,
        evidence=evidence_of(group),
        issue=_issue(group, efficiency, usual, advice.reason.format_map(facts)),
        algorithmic=advice.algorithmic.format_map(facts),
        kernel=advice.kernel.format_map(facts),
        priority_local=local.lowered() if is_expected else local,
        priority=final.lowered() if is_expected else final,
        impact=gain,
        hypothesis=group.heaviest[HYPOTHESIS],
        caveat=_caveat(group, usual, advice, facts),
        verify=(advice.verify or _verify(group, gain)).format_map(facts),
        capture=_capture(group, advice, facts),
    )


def facts_of(group: OperationGroup) -> dict[str, object]:
    """What the texts of an ``Advice`` may name in braces: the columns of the heaviest row, and
    ``arguments, kernel, calls, mean_time, each, each_time, moved, place`` as they stand in a
    sentence."""
    heaviest = group.heaviest
    facts = {key: "?" if value is None else value for key, value in heaviest.items()}
    moved = heaviest["bytes"]
    mean_time = ms(group.time_ms / max(group.calls, 1))
    each = " each" if group.calls > 1 else ""
    return facts | {
        "name": quoted(group.name),
        "arguments": heaviest["arguments"] or "the heaviest call",
        "kernel": quoted(heaviest["main_kernel"]) if heaviest["main_kernel"] else "its kernel",
        "calls": counted(group.calls, "call"),
        "mean_time": mean_time,
        "each": f"each of the {group.calls:,} calls" if group.calls > 1 else "the call",
        "each_time": f"{counted(group.calls, 'call')} of {mean_time}{each}",
        "moved": size(moved) if moved else "traffic",
        "place": _place(group),
    }


def _place(group: OperationGroup) -> str:
    """`` in `Model / Layer` ``, of the row with most time; empty where it is not known."""
    place = group.heaviest["called_from"]
    if not place:
        return ""
    is_only = group.rows["called_from"].n_unique() == 1
    return f" in {quoted(place)}" if is_only else f" (mostly in {quoted(place)})"


def _caveat(
    group: OperationGroup, usual: Expectation | None, advice: Advice, facts: Mapping[str, object]
) -> str | None:
    said = [advice.caveat.format_map(facts)] if advice.caveat else []
    good_pct = impact.GOOD_EFFICIENCY_PCT
    if group.is_launch_bound:
        said.append(
            "Calls this small cannot reach the roofline one by one: the saving is an upper bound "
            "for fusing them away."
        )
    elif usual is not None and usual.is_met:
        said.append(
            f"The efficiency is usual for such calls: more than {usual.high_pct:.0f}% of the "
            f"{usual.of} is rarely reached."
        )
    elif (group.efficiency_pct or 0.0) > good_pct:
        said.append(f"Above {good_pct:.0f}% an operator is good already: the potential is limited.")
    return " ".join(filter(None, said)) or None


def _verify(group: OperationGroup, gain: Impact) -> str:
    if group.is_launch_bound:
        count = "fewer than {calls}" if group.calls > 1 else "no call of its own"
        return (
            f"Record the trace again: {{name}} must have {count} or less than {ms(gain.time_ms)}."
        )
    goal = f"{ms(gain.time_ms - gain.saved_ms.mid)} ({gain.target_pct or 0:.0f}% of the roofline)"
    return (
        f"Record the trace again: the {{calls}} of {{name}} must take less than "
        f"{ms(gain.time_ms)} and approach {goal}."
    )


def _capture(group: OperationGroup, advice: Advice, facts: Mapping[str, object]) -> str:
    kind = LAUNCH_BOUND if group.is_launch_bound else group.bound or "memory"
    parts = [advice.capture or CAPTURE[kind]]
    if group.heaviest["input_dims"] is None:
        parts.append(NO_SHAPES)
    if group.heaviest["called_from"] is None:
        parts.append(NO_CALL_SITE)
    return " ".join(part.format_map(facts) for part in parts)


def _advice(data: CategoryData, group: OperationGroup) -> Advice:
    if group.pattern is not None and group.pattern in data.advice:
        return data.advice[group.pattern]
    kind = LAUNCH_BOUND if group.is_launch_bound else group.bound or "memory"
    return data.advice.get(kind) or DEFAULT_ADVICE[kind]


def _subject(group: OperationGroup) -> str:
    kind = group.pattern or (LAUNCH_BOUND if group.is_launch_bound else None)
    is_news = kind is not None and kind not in group.name
    return f"{quoted(group.name)} ({kind})" if is_news else quoted(group.name)


def _issue(
    group: OperationGroup, efficiency_pct: float, usual: Expectation | None, reason: str
) -> str:
    rate = group.rate
    reached = f" ({_rate(*rate)})" if rate else ""
    takes, reaches = ("takes", "reaches") if group.calls == 1 else ("take", "reach")
    return (
        f"{counted(group.calls, 'call')} of {_subject(group)} over "
        f"{counted(group.rows.height, 'signature')} {takes} {ms(group.time_ms)} "
        f"({pct(group.compute_pct)} of compute) and {reaches} {pct(efficiency_pct)} of the "
        f"{group.bound} roofline{reached}{_against(usual)}: {reason}{_little_left(efficiency_pct)}."
    )


def _rate(achieved: float, peak: float, unit: str) -> str:
    """``0.245 of 5.30 TB/s``; a rate that would need an exponent in a smaller unit."""
    if unit == "TB/s" and achieved < SMALLEST_TB_PER_S:
        return f"{number(1e6 * achieved)} MB/s of {number(peak)} {unit}"
    return f"{number(achieved)} of {number(peak)} {unit}"


def _little_left(efficiency_pct: float) -> str:
    is_good = efficiency_pct > impact.GOOD_EFFICIENCY_PCT
    return ", but at such an efficiency little is left to gain" if is_good else ""


def _against(usual: Expectation | None) -> str:
    if usual is None:
        return ""
    band = f"{usual.low_pct:.0f}-{usual.high_pct:.0f}%"
    if usual.of != "roofline":
        band = f"{band} of the {usual.of} (here {pct(usual.reached_pct)})"
    if usual.is_met:
        return f", within the {band} that such calls usually reach"
    return f", where {band} is to be expected"


def evidence_of(group: OperationGroup) -> dict[str, float | int | str]:
    """The numbers of a group; what is not known is left out."""
    heaviest = group.heaviest
    evidence: dict[str, float | int | str | None] = {
        GPU_TIME: group.time_ms,
        "Share of compute (%)": group.compute_pct,
        "Share of category (%)": group.category_pct,
        "Efficiency (% of roofline)": group.efficiency_pct,
        "Bound": group.bound,
        "Calls": group.calls,
        "Mean kernel time per call (µs)": 1000 * group.time_ms / max(group.calls, 1),
        "FLOPs/byte of the heaviest call": heaviest["flops_per_byte"],
    }
    if rate := group.rate:
        evidence |= {f"Achieved ({rate[2]})": rate[0], f"Peak ({rate[2]})": rate[1]}
    evidence |= {
        "Heaviest call": heaviest["arguments"],
        "Main kernel": quoted(heaviest["main_kernel"]) if heaviest["main_kernel"] else None,
        "Library": quoted(heaviest["library"]) if heaviest["library"] else None,
        "Tile": heaviest.get("tile"),
        "Part of the model": _parts(group),
        CALLED_FROM: heaviest["called_from"],
    }
    return {label: value for label, value in evidence.items() if value is not None}


def _parts(group: OperationGroup) -> str | None:
    """``MLP 5.10 ms, attention 0.80 ms``, where the analysis tells the parts of a model."""
    if "model_part" not in group.rows.columns:
        return None
    times = (
        group.rows.drop_nulls("model_part")
        .group_by("model_part")
        .agg(pl.col("kernel_time_us").sum())
    )
    ordered = times.sort("kernel_time_us", "model_part", descending=[True, False])
    return ", ".join(f"{part} {ms(us / 1000)}" for part, us in ordered.iter_rows()) or None


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
    """The efficiency to aim at: the target, but no more than the upper end of what is usual, nor
    than the calls would reach in the shortest time that kernels take."""
    floor_us = KERNEL_FLOOR_US * max(group.launches, group.calls)
    limits = [data.target_pct]
    if not group.is_launch_bound:
        limits.append(efficiency_pct * 1000 * group.time_ms / floor_us)
    if usual is not None and usual.reached_pct > 0:
        limits.append(efficiency_pct * usual.high_pct / usual.reached_pct)
    return max(efficiency_pct, min(limits))
