"""What to improve on the target: slower than the hardware explains, or done on the target alone.

Findings say what is slow against what; why it is so, a trace cannot prove.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.comparison.expected import HardwareRatios
from jarvis.comparison.judgement import SLOWER, Outcome
from jarvis.comparison.matching import MatchedBy
from jarvis.comparison.operations import SAME_WORKLOAD_PCT, Paired, matched_pct
from jarvis.comparison.sides import Role
from jarvis.findings import GPU_TIME, Finding, Impact, OpRef, Priority
from jarvis.wording import arguments, counted, listed, ms, number, pct, quoted

SLOWER_THAN_HARDWARE, ONLY_IN_TARGET = "slower_than_hardware", "only_in_target"
"""The checks that findings name."""

FUSED_CATEGORIES = ("elementwise", "reduce", "batchnorm")
"""Categories of operators that fusion with their neighbours relieves of memory traffic."""

REFERENCE_TIME = "Reference GPU time (ms)"
ATTAINABLE_TIME = "Attainable (ms)"
UNEXPLAINED_TIME = "Not explained (ms)"
SLOWER_PCT, EXPECTED_PCT = "Slower (%)", "Expected (%)"
CALLS = "Calls"
SHARE_PCT = "Share of compute (%)"
ARGUMENTS = "Heaviest arguments"
KERNEL, REFERENCE_KERNEL = "Kernel", "Reference kernel"
"""Names of evidence. ``REFERENCE_TIME`` is that of as many calls as the target makes."""


def findings(
    paired: Paired, operations: pl.DataFrame, unmatched: pl.DataFrame, tolerance: float
) -> tuple[Finding, ...]:
    """What to improve on the target, most urgent first; savings add up, none counts twice.

    ``operations`` and ``unmatched`` are those of the comparison under ``tolerance``.
    """
    basis = _Basis(paired, tolerance)
    found = list(_slower(basis, operations))
    if (matched_pct(operations, unmatched) or 0.0) >= SAME_WORKLOAD_PCT:
        found += _only_in_target(basis, unmatched)
    return tuple(impact.ranked(_within_compute(found, basis)))


@dataclass(frozen=True)
class _Basis:
    """What all findings stand on."""

    paired: Paired
    tolerance: float

    @cached_property
    def compute_ms(self) -> float:
        return self.paired.target.compute_ms

    @cached_property
    def total_ms(self) -> float:
        return self.paired.target.timeline_ms("total_time") or self.compute_ms

    @cached_property
    def category_ms(self) -> dict[str | None, float]:
        rows = self.paired.rows[Role.TARGET].group_by("category")
        return dict(rows.agg(pl.col("kernel_time_us").sum() / 1e3).iter_rows())

    @cached_property
    def top_uids(self) -> frozenset[int]:
        top = self.paired.target.tables.get("top_operations")
        return (
            frozenset() if top is None else frozenset(top["operation_uids"].explode().drop_nulls())
        )

    def is_relevant(self, time_ms: float, saved_ms: float) -> bool:
        """Whether a saving is worth a finding: a part of the run that counts, and enough of it."""
        return (
            impact.share_pct(time_ms, self.compute_ms) >= impact.RELEVANT_COMPUTE_PCT
            and impact.share_pct(saved_ms, self.compute_ms) >= impact.MIN_SAVED_COMPUTE_PCT
            and saved_ms >= impact.MIN_SAVED_MS
        )

    def priorities(
        self, category: str | None, gain: Impact, uids: set[int], *, efficiency_pct: float | None
    ) -> dict[str, Priority]:
        compute_pct = impact.share_pct(gain.time_ms, self.compute_ms)
        final = impact.final_priority(
            is_top_operation=not self.top_uids.isdisjoint(uids),
            compute_pct=compute_pct,
            category_pct=impact.share_pct(gain.time_ms, self.category_ms.get(category, 0.0)),
            efficiency_pct=efficiency_pct,
            saved_compute_pct=gain.compute_pct.mid,
            saved_ms=gain.saved_ms.mid,
        )
        local = impact.local_priority(compute_pct=compute_pct, efficiency_pct=efficiency_pct)
        return {"priority": final, "priority_local": local}

    @property
    def highest_ratio(self) -> float:
        """The most that hardware explains of any work; 1 where nothing is known of it."""
        ratios: HardwareRatios | None = self.paired.ratios
        return 1.0 if ratios is None else max(1.0, ratios.bounds()[1])


def _slower(basis: _Basis, operations: pl.DataFrame) -> Iterator[Finding]:
    """One finding for each operator of a category whose calls are slower than explained."""
    rows = operations.filter(pl.col("outcome").is_in(SLOWER) & (pl.col("unexplained_ms") > 0))
    for group in rows.partition_by("category", "name", maintain_order=True):
        found = _Slower(basis, group.sort("unexplained_ms", "pair", descending=[True, False]))
        if basis.is_relevant(found.time_ms, found.unexplained_ms):
            yield found.finding()


@dataclass(frozen=True)
class _Slower:
    """Calls of one operator that are slower than the hardware explains, largest gap first."""

    basis: _Basis
    rows: pl.DataFrame

    @cached_property
    def first(self) -> dict[str, Any]:
        return self.rows.row(0, named=True)

    @cached_property
    def time_ms(self) -> float:
        return float(self.rows["target_ms"].sum())

    @cached_property
    def reference_ms(self) -> float:
        """What the reference takes for as many calls."""
        return float(self.rows.select((pl.col("target_ms") / pl.col("time_ratio")).sum()).item())

    @cached_property
    def attainable_ms(self) -> float:
        return float(self.rows["attainable_ms"].sum())

    @cached_property
    def unexplained_ms(self) -> float:
        return float(self.rows["unexplained_ms"].sum())

    @cached_property
    def gain(self) -> Impact:
        """At best the attainable time, at least what the tolerance would let pass."""
        rest = pl.col("target_ms") - self.basis.tolerance * pl.col("attainable_ms")
        low_ms = float(self.rows.select(rest.clip(lower_bound=0.0).sum()).item())
        return impact.bounded_impact(
            self.time_ms,
            self.unexplained_ms,
            low_ms=low_ms,
            compute_ms=self.basis.compute_ms,
            total_ms=self.basis.total_ms,
            efficiency_pct=impact.share_pct(self.attainable_ms, self.time_ms),
        )

    @cached_property
    def arguments(self) -> str:
        found = arguments(self.first["input_dims"], self.first["input_types"])
        return f"`{found}`" if found else f"the call at {quoted(self.place)}"

    @cached_property
    def place(self) -> str:
        return str(self.first["place"] or self.first["name"])

    @cached_property
    def is_much(self) -> bool:
        return bool((self.rows["outcome"] == Outcome.MUCH_SLOWER.value).any())

    def finding(self) -> Finding:
        first, name = self.first, quoted(self.first["name"])
        word = "much slower" if self.is_much else "slower"
        uids = sorted({uid for row in self.rows["uids"] for uid in row})
        described = self.rows.unique("uid", keep="first", maintain_order=True)
        chosen = tuple(
            OpRef(
                uid=row["uid"],
                name=row["name"],
                input_dims=row["input_dims"],
                operation_count=row["target_calls"],
            )
            for row in described.iter_rows(named=True)
        )
        heaviest = {reference.uid for reference in chosen}
        per_call = (
            f"{number(first['target_us_per_call'])} µs per call against "
            f"{number(first['reference_us_per_call'])} µs"
        )
        return Finding(
            check=SLOWER_THAN_HARDWARE,
            category=first["category"] or "",
            title=f"{name} is {word} than the hardware explains",
            operations=chosen,
            shared_uids=tuple(uid for uid in uids if uid not in heaviest),
            evidence=self._evidence(),
            issue=f"On the target {name} takes {ms(self.time_ms)} in "
            f"{counted(int(self.rows['target_calls'].sum()), 'call')}, {self._compared()}. "
            f"{ms(self.unexplained_ms)} are not explained; most of that is {self.arguments}: "
            f"{per_call}.",
            algorithmic=self._algorithmic(),
            kernel=self._kernel(),
            impact=self.gain,
            hypothesis=self._hypothesis(),
            caveat=self._caveat(),
            verify=f"Record the target again: these calls of {name} must take about "
            f"{ms(self.attainable_ms)}.",
            capture=f"Run the replay package of {name} on both GPUs: it shows whether the kernel "
            "alone is slower there too.",
            **self.basis.priorities(
                first["category"],
                self.gain,
                set(uids),
                efficiency_pct=self.gain.efficiency_pct,
            ),
        )

    def _algorithmic(self) -> str:
        name = quoted(self.first["name"])
        if self.first["category"] in FUSED_CATEGORIES:
            return (
                f"Let a compiler or a fused operator run {name} together with its neighbours, so "
                "that its result is not written and read again."
            )
        return (
            f"Another layout, type, padded size or backend can select another kernel of the target "
            f"for {name}: try it first for {self.arguments}."
        )

    def _evidence(self) -> dict[str, float | int | str]:
        facts = {
            CALLS: int(self.rows["target_calls"].sum()),
            GPU_TIME: self.time_ms,
            REFERENCE_TIME: self.reference_ms,
            SLOWER_PCT: self._against_reference(self.time_ms),
            EXPECTED_PCT: self._against_reference(self.attainable_ms),
            ATTAINABLE_TIME: self.attainable_ms,
            UNEXPLAINED_TIME: self.unexplained_ms,
            SHARE_PCT: impact.share_pct(self.time_ms, self.basis.compute_ms),
            ARGUMENTS: arguments(self.first["input_dims"], self.first["input_types"]),
            KERNEL: self.first["kernel"],
            REFERENCE_KERNEL: self.first["reference_kernel"],
        }
        return {name: value for name, value in facts.items() if value is not None}

    def _against_reference(self, time_ms: float) -> float:
        return 100 * (time_ms - self.reference_ms) / self.reference_ms

    def _compared(self) -> str:
        actual, expected = map(self._against_reference, (self.time_ms, self.attainable_ms))
        return (
            f"{_change(actual)} than the {ms(self.reference_ms)} of the reference for as many, "
            f"where the two GPUs explain {ms(self.attainable_ms)}, {_change(expected)}"
        )

    def _kernel(self) -> str:
        kernel, reference = self.first["kernel"], self.first["reference_kernel"]
        if kernel is None:
            return f"Replay {self.arguments} on the target and tune or exchange its kernels."
        text = f"Replay {self.arguments} on the target and tune or exchange {quoted(kernel)}"
        if reference is None:
            return f"{text}."
        if kernel == reference:
            return f"{text}, which the reference launches too."
        return f"{text}; the reference launches {quoted(reference)}."

    def _hypothesis(self) -> str:
        if self.first["same_kernels"]:
            return (
                "Both sides launch kernels of the same names, so how they are compiled for or fit "
                "the target is the likely cause."
            )
        if self.is_much:
            return (
                "At more than twice the explained time, the choice or the tuning of a kernel is "
                "the likely cause."
            )
        return "Kernels or software of the target are the likely cause."

    def _caveat(self) -> str:
        parts = ["Clocks, power limits and software versions of the two sides may differ too."]
        if self.first["matched_by"] != MatchedBy.ARGUMENTS.value:
            parts.append(
                f"The reference runs {quoted(self.first['reference_name'])} here: matched by "
                f"{'place' if self.first['place'] else 'dimensions'}, not by name."
            )
        if self.first["expected_ratio"] is None:
            parts.append("What bounds it is not known, so the highest ratio counts as explained.")
        if self.first["is_roofline_capped"]:
            parts.append("The reference is faster still: the target's roofline is the limit.")
        reached = self.first["reference_efficiency_pct"]
        if reached is not None and reached < impact.BOTTLENECK_EFFICIENCY_PCT:
            parts.append(
                f"The reference itself reaches {pct(reached)} of its roofline, so bandwidth and "
                "compute peaks may not be what decides."
            )
        return " ".join(parts)


def _only_in_target(basis: _Basis, unmatched: pl.DataFrame) -> Iterator[Finding]:
    """One finding for each category in which the target alone has work."""
    of = {role: unmatched.filter(pl.col("side") == role.value) for role in Role}
    reference_ms = dict(
        of[Role.REFERENCE].group_by("category").agg(pl.col("time_ms").sum()).iter_rows()
    )
    for rows in of[Role.TARGET].partition_by("category", maintain_order=True):
        time_ms = float(rows["time_ms"].sum())
        other_ms = reference_ms.get(rows["category"][0], 0.0)
        extra_ms = time_ms - basis.highest_ratio * other_ms
        if basis.is_relevant(time_ms, extra_ms):
            yield _extra_work(basis, rows, time_ms, other_ms, extra_ms)


def _extra_work(
    basis: _Basis, rows: pl.DataFrame, time_ms: float, other_ms: float, extra_ms: float
) -> Finding:
    category = rows["category"][0]
    title = basis.paired.target.titles.get(category, category or "")
    gain = impact.bounded_impact(
        time_ms, extra_ms, compute_ms=basis.compute_ms, total_ms=basis.total_ms
    )
    names = [quoted(name) for name in rows["name"].unique(maintain_order=True)]
    them, have = listed(names), "has" if len(names) == 1 else "have"
    kernel = rows["kernel"][0]
    uids = set(rows["uid"])
    other = f"{ms(other_ms)} of its own" if other_ms else "nothing of its own"
    return Finding(
        check=ONLY_IN_TARGET,
        category=category or "",
        title=f"{title}: work that only the target does",
        operations=tuple(
            OpRef(
                uid=row["uid"],
                name=row["name"],
                input_dims=row["input_dims"],
                operation_count=row["calls"],
            )
            for row in rows.iter_rows(named=True)
        ),
        evidence={
            CALLS: int(rows["calls"].sum()),
            GPU_TIME: time_ms,
            REFERENCE_TIME: other_ms,
            UNEXPLAINED_TIME: extra_ms,
            SHARE_PCT: impact.share_pct(time_ms, basis.compute_ms),
        },
        issue=f"{ms(time_ms)} of {them} on the target {have} no counterpart on the reference, "
        f"which has {other} here.",
        algorithmic="Find out what the reference does in their place, such as a fused operator or "
        "none at all, and do the same on the target.",
        kernel=f"Replay {quoted(rows['name'][0])} and make "
        f"{quoted(kernel) if kernel else 'its kernels'} faster, or fold the work into the kernels "
        "around it.",
        impact=gain,
        hypothesis="Another version, setting or lowering on the target is the likely cause.",
        caveat="What has no counterpart may still be the same work under other names at another "
        "place of the call tree.",
        verify=f"Record the target again: less time must go to {them}, or none.",
        **basis.priorities(category, gain, uids, efficiency_pct=None),
    )


def _within_compute(found: list[Finding], basis: _Basis) -> list[Finding]:
    """Findings whose savings add up to no more than the target's compute time.

    Operations that run at the same time on several streams can take more than that together; then
    each saving counts in proportion.
    """
    most_ms = sum(finding.impact.saved_ms.high for finding in found if finding.impact)
    if most_ms <= basis.compute_ms:
        return found
    part = basis.compute_ms / most_ms
    return [
        finding.model_copy(update={"impact": _scaled(finding.impact, part, basis)})
        for finding in found
        if finding.impact
    ]


def _scaled(gain: Impact, part: float, basis: _Basis) -> Impact:
    return impact.bounded_impact(
        gain.time_ms,
        gain.saved_ms.high * part,
        low_ms=gain.saved_ms.low * part,
        compute_ms=basis.compute_ms,
        total_ms=basis.total_ms,
        efficiency_pct=gain.efficiency_pct,
    )


def _change(percent: float) -> str:
    """``12.3% longer`` or ``12.3% shorter``."""
    return f"{pct(abs(percent))} {'longer' if percent > 0 else 'shorter'}"
