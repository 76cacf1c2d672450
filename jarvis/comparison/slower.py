"""Calls that are slower on the target than the hardware explains, and what to do about them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.comparison import basis as names
from jarvis.comparison.basis import Basis
from jarvis.comparison.judgement import SLOWER, Outcome
from jarvis.comparison.matching import MatchedBy
from jarvis.comparison.operations import SAME_WORK
from jarvis.findings import GPU_TIME, Finding, Impact, OpRef
from jarvis.wording import arguments, counted, ms, number, pct, quoted

SLOWER_THAN_HARDWARE, FUSED_ON_REFERENCE = "slower_than_hardware", "fused_on_reference"

FUSED_CATEGORIES = ("elementwise", "reduce", "batchnorm")
"""Categories of operators that fusion with their neighbours relieves of memory traffic."""

MOST_LAUNCHES, MOST_SAVED_LAUNCHES = 30, 15
"""Beyond so many launches of a call on the target, or so many more than on the reference, fusion
alone is no likely reason for the difference."""


def slower(basis: Basis, operations: pl.DataFrame) -> Iterator[Finding]:
    """One finding for each operator of a category whose calls are slower than explained.

    One for each place where the reference needs fewer kernels for what the target does.
    """
    is_slower = pl.col("outcome").is_in(SLOWER) & (pl.col("unexplained_ms") > 0)
    is_measured = pl.col("is_measured") & (pl.col("time_ratio") > basis.tolerance)
    fused = _with_measured_gap(operations).filter(
        _needs_more_launches() & (is_slower | is_measured)
    )
    rows = operations.filter(is_slower).join(fused, on="pair", how="anti", maintain_order="left")
    for kind, part, keys in ((Slower, rows, ("category", "name")), (Fused, fused, ("pair",))):
        for group in part.partition_by(*keys, maintain_order=True):
            found = kind(basis, group.sort("unexplained_ms", "pair", descending=[True, False]))
            if basis.is_relevant(found.time_ms, found.unexplained_ms):
                yield found.finding()


def _needs_more_launches() -> pl.Expr:
    """Whether the target launches more kernels for a call of other operators at one place."""
    launches, reference = pl.col("launches_per_call"), pl.col("reference_launches_per_call")
    return (
        (pl.col("matched_by") == MatchedBy.CALL_TREE.value)
        & (pl.col("name") != pl.col("reference_name"))
        & (reference >= 1)
        & (launches > reference)
        & (launches <= MOST_LAUNCHES)
        & (launches - reference <= MOST_SAVED_LAUNCHES)
    )


def _with_measured_gap(operations: pl.DataFrame) -> pl.DataFrame:
    """Where no GPU says what to expect, the reference's own time is what is attainable."""
    same_ms = pl.col("target_ms") / pl.col("time_ratio")
    is_same_work = pl.col("work_ratio").is_between(1 / SAME_WORK, SAME_WORK)
    is_measured = pl.col("expected_ratio_most").is_null() & is_same_work.fill_null(value=True)
    gap_ms = (pl.col("target_ms") - same_ms).clip(lower_bound=0.0)
    return operations.with_columns(
        is_measured=is_measured,
        attainable_ms=pl.when(is_measured).then(same_ms).otherwise("attainable_ms"),
        unexplained_ms=pl.when(is_measured).then(gap_ms).otherwise("unexplained_ms"),
    )


@dataclass(frozen=True)
class Slower:
    """Calls of one operator that are slower than the hardware explains, largest gap first."""

    basis: Basis
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

    @property
    def _has_known_bound(self) -> bool:
        bounds = self.first["bound"], self.first["reference_bound"]
        return all(bound in ("memory", "compute") for bound in bounds)

    @cached_property
    def is_much(self) -> bool:
        return bool((self.rows["outcome"] == Outcome.MUCH_SLOWER.value).any())

    @property
    def check(self) -> str:
        return SLOWER_THAN_HARDWARE

    @property
    def title(self) -> str:
        word = "much slower" if self.is_much else "slower"
        return f"{quoted(self.first['name'])} is {word} than the hardware explains"

    def finding(self) -> Finding:
        first, name = self.first, quoted(self.first["name"])
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
        return Finding(
            check=self.check,
            category=first["category"] or "",
            title=self.title,
            operations=chosen,
            shared_uids=tuple(uid for uid in uids if uid not in heaviest),
            evidence=self._evidence(),
            issue=self._issue(),
            algorithmic=self._algorithmic(),
            kernel=self._kernel(),
            impact=self.gain,
            hypothesis=self._hypothesis(),
            caveat=self._caveat(),
            verify=f"Record the target again: these calls of {name} must take about "
            f"{ms(self.attainable_ms)}.",
            capture=self._capture(),
            **self.basis.priorities(
                first["category"],
                self.gain,
                set(uids),
                efficiency_pct=self.gain.efficiency_pct,
            ),
        )

    def _issue(self) -> str:
        first = self.first
        return (
            f"On the target {quoted(first['name'])} takes {ms(self.time_ms)} in "
            f"{counted(int(self.rows['target_calls'].sum()), 'call')}, {self._compared()}. "
            f"{ms(self.unexplained_ms)} are not explained; most of that is {self.arguments}: "
            f"{number(first['target_us_per_call'])} µs per call against "
            f"{number(first['reference_us_per_call'])} µs."
        )

    def _capture(self) -> str:
        return (
            f"Run the replay package of {quoted(self.first['name'])} on both GPUs: it shows "
            "whether the kernel alone is slower there too."
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
            names.CALLS: int(self.rows["target_calls"].sum()),
            GPU_TIME: self.time_ms,
            names.REFERENCE_TIME: self.reference_ms,
            names.SLOWER_PCT: self._against_reference(self.time_ms),
            names.EXPECTED_PCT: self._against_reference(self.attainable_ms),
            names.ATTAINABLE_TIME: self.attainable_ms,
            names.UNEXPLAINED_TIME: self.unexplained_ms,
            names.SHARE_PCT: impact.share_pct(self.time_ms, self.basis.compute_ms),
            names.ARGUMENTS: arguments(self.first["input_dims"], self.first["input_types"]),
            names.LAUNCHES: self.first["launches_per_call"],
            names.REFERENCE_LAUNCHES: self.first["reference_launches_per_call"],
            names.KERNEL: self.first["kernel"],
            names.REFERENCE_KERNEL: self.first["reference_kernel"],
        }
        return {name: value for name, value in facts.items() if value is not None}

    def _against_reference(self, time_ms: float) -> float:
        return 100 * (time_ms - self.reference_ms) / self.reference_ms

    def _compared(self) -> str:
        actual, expected = map(self._against_reference, (self.time_ms, self.attainable_ms))
        return (
            f"{_change(actual)} than the {ms(self.reference_ms)} of the reference for as many"
            + self._explained(expected)
        )

    def _explained(self, percent: float) -> str:
        if self.first["expected_ratio_most"] is None:
            return ""
        if math.isclose(self.attainable_ms, self.reference_ms):
            return ", where the two GPUs explain no difference"
        return f", where the two GPUs explain {ms(self.attainable_ms)}, {_change(percent)}"

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
        is_short = self.first["expected_ratio"] is None and self._has_known_bound
        if self.first["expected_ratio_most"] is None:
            parts.append("What the GPUs explain of the difference is not known.")
        elif is_short:
            parts.append(
                "On one side launching decides, so no more is asked than the reference's own time."
            )
        elif self.first["expected_ratio"] is None:
            parts.append("What bounds it is not known, so the highest ratio counts as explained.")
        if self.first["is_roofline_capped"]:
            parts.append("The reference is faster still: the target's roofline is the limit.")
        reached = self.first["reference_efficiency_pct"]
        if not is_short and reached is not None and reached < impact.BOTTLENECK_EFFICIENCY_PCT:
            parts.append(
                f"The reference itself reaches {pct(reached)} of its roofline, so bandwidth and "
                "compute peaks may not be what decides."
            )
        return " ".join(parts)


class Fused(Slower):
    """Operators at one place for which the reference launches fewer kernels."""

    @property
    def check(self) -> str:
        return FUSED_ON_REFERENCE

    @property
    def title(self) -> str:
        return f"{quoted(self.place)}: the reference needs fewer kernels"

    def _issue(self) -> str:
        first = self.first
        return (
            f"At {quoted(self.place)} the target launches {number(first['launches_per_call'])} "
            f"kernels per call ({quoted(first['name'])}), the reference "
            f"{number(first['reference_launches_per_call'])} "
            f"({quoted(first['reference_name'])}). They take {ms(self.time_ms)} in "
            f"{counted(first['target_calls'], 'call')}, {self._compared()}."
        )

    def _algorithmic(self) -> str:
        return (
            f"Run the work at {quoted(self.place)} as the reference does, in "
            f"{quoted(self.first['reference_name'])} or another fused operator, or let a compiler "
            "fuse it."
        )

    def _kernel(self) -> str:
        return (
            f"Give the target a kernel that does the work of {quoted(self.first['name'])} at once; "
            f"begin with {quoted(self.first['kernel'] or self.first['name'])}, which takes most "
            "of the time."
        )

    def _hypothesis(self) -> str:
        return "Operators that are fused on the reference alone are the likely cause."

    def _capture(self) -> str:
        return (
            "Record both sides with `with_stack=True` and shapes, so that the calls at this place "
            "can be told apart."
        )


def _change(percent: float) -> str:
    """``12.3% longer`` or ``12.3% shorter``."""
    return f"{pct(abs(percent))} {'longer' if percent > 0 else 'shorter'}"
