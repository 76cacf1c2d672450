"""Compare a target with a reference, and separate differences that the two GPUs explain.

A ratio is target time / reference time of a call; a difference is target minus reference. The
reference shows what is attainable; the goal is to improve the target.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import polars as pl

from jarvis.comparison import aggregates, findings, summary
from jarvis.comparison.equal_load import equal_load
from jarvis.comparison.expected import HardwareRatios
from jarvis.comparison.matching import MatchedBy
from jarvis.comparison.operations import Paired
from jarvis.comparison.outcomes import FASTER, SLOWER, TOLERANCE, Outcome, with_outcomes
from jarvis.comparison.sides import Role, Side
from jarvis.comparison.workload import Workload
from jarvis.findings import Finding
from jarvis.perf_report import Totals
from jarvis.schemas import conform
from jarvis.schemas.comparison import SCHEMAS
from jarvis.schemas.names import C
from jarvis.text.messages import to_text

__all__ = [
    "FASTER",
    "SLOWER",
    "TABLES",
    "TOLERANCE",
    "Comparison",
    "HardwareRatios",
    "MatchedBy",
    "Outcome",
    "Role",
    "Side",
    "compare",
]

TABLES = tuple(SCHEMAS)
"""Names of the tables of a comparison in a run."""

_PREFIX = "comparison_"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Comparison of two sides with a tolerance, as tables (columns: ``jarvis.schemas``).

    ``at`` reuses the expensive parts, which do not depend on the tolerance.
    """

    paired: Paired
    tolerance: float

    @property
    def target(self) -> Side:
        """The side to improve."""
        return self.paired.target

    @property
    def reference(self) -> Side:
        """The side that shows what is attainable."""
        return self.paired.reference

    def at(self, tolerance: float) -> Self:
        """Return the same comparison with another tolerance; raise ValueError below 1."""
        return replace(self, tolerance=tolerance)

    @cached_property
    def totals(self) -> pl.DataFrame:
        """Breakdown of both GPU timelines."""
        return conform(aggregates.totals(self.target, self.reference), "comparison_totals")

    @cached_property
    def steps(self) -> pl.DataFrame:
        """What one step of each side consists of."""
        return conform(aggregates.steps(self.target, self.reference), "comparison_steps")

    @cached_property
    def bounds(self) -> pl.DataFrame:
        """Time of each side by the bound of its operations."""
        return conform(aggregates.bounds(self.paired), "comparison_bounds")

    @cached_property
    def categories(self) -> pl.DataFrame:
        """Time by category, with the part that the hardware does not explain."""
        rows = aggregates.categories(self.paired, self.operations, self.unmatched)
        return conform(rows, "comparison_categories")

    @cached_property
    def operations(self) -> pl.DataFrame:
        """The operations that both sides have, most time of the target first."""
        rows = with_outcomes(self._pairs, self.paired.ratios, self.tolerance)
        return conform(rows.with_columns(pl.col(C.row).alias(C.pair)), "comparison_operations")

    @cached_property
    def unmatched(self) -> pl.DataFrame:
        """Operations of only one side, most time first."""
        return conform(self.paired.unmatched, "comparison_unmatched")

    @cached_property
    def only_in_target(self) -> pl.DataFrame:
        """The rows of ``unmatched`` of the target."""
        return self.unmatched.filter(pl.col(C.side) == Role.TARGET.value)

    @cached_property
    def only_in_reference(self) -> pl.DataFrame:
        """The rows of ``unmatched`` of the reference."""
        return self.unmatched.filter(pl.col(C.side) == Role.REFERENCE.value)

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """GPU work by kernel name."""
        return conform(aggregates.kernels(self.paired), "comparison_kernels")

    @cached_property
    def lowering(self) -> pl.DataFrame:
        """The kernels of each row of ``operations`` on each side."""
        return conform(
            self._lowered.with_columns(pl.col(C.row).alias(C.pair)), "comparison_lowering"
        )

    @cached_property
    def collectives(self) -> pl.DataFrame:
        """Communication on each side."""
        rows = aggregates.collectives(self.target, self.reference)
        return conform(rows, "comparison_collectives")

    @cached_property
    def modules(self) -> pl.DataFrame:
        """Time by module of the model."""
        return conform(aggregates.modules(self.target, self.reference), "comparison_modules")

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return all tables by their names in a run."""
        return {name: getattr(self, name.removeprefix(_PREFIX)) for name in TABLES}

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Possible improvements of the target, most urgent first; no saving counts twice."""
        return findings.findings(self.paired, self.operations, self.unmatched, self.tolerance)

    @cached_property
    def summary(self) -> tuple[str, ...]:
        """The comparison as neutral sentences: what the sides do differently; a step and its parts,
        or totals without steps; then key points."""
        return (
            *self.base,
            *self.workload,
            *self.equal_load,
            *self.step_times,
            *(summary.in_parts(self.steps) or summary.in_totals(self.totals)),
            *self.key_points,
        )

    @property
    def base(self) -> tuple[str, ...]:
        """The sentence that times are per step, if they are."""
        return summary.per_step(self.paired)

    @cached_property
    def workload(self) -> tuple[str, ...]:
        """Sentences about what the sides do differently and what is still comparable; none if no
        difference is recorded."""
        return tuple(map(to_text, self._workload.messages))

    @cached_property
    def equal_load(self) -> tuple[str, ...]:
        """Sentences about inference steps of equal load, if both sides have such steps."""
        steps = (side.rows("inference_steps") for side in (self.target, self.reference))
        return tuple(phase.sentence() for phase in equal_load(*steps))

    @property
    def is_like_for_like(self) -> bool:
        """Whether no difference of the workload is recorded, apart from the number of steps."""
        return self._workload.is_alike

    @cached_property
    def _workload(self) -> Workload:
        return Workload(self.paired, self.operations, self.unmatched)

    @property
    def step_times(self) -> tuple[str, ...]:
        """The sentence about the step times of both sides, if they are known."""
        return summary.in_steps(self.steps, has_marks=self.has_steps)

    @property
    def window(self) -> tuple[str, ...]:
        """The sentence about the GPU window of both sides, if it is known."""
        return summary.in_totals(self.totals)[-1:]

    @property
    def has_steps(self) -> bool:
        """Whether steps are marked on both sides."""
        return None not in (self.target.steps, self.reference.steps)

    def totals_of(self, target: Totals) -> Totals:
        """Return the totals of the target with the steps that the findings are about: one, if the
        comparison is per step."""
        return replace(target, step=self.target.saving_bounds)

    @property
    def is_per_step(self) -> bool:
        """Whether times and counts are per step, as the sides differ in the number of steps."""
        return self.target.divisor != self.reference.divisor

    @cached_property
    def key_points(self) -> tuple[str, ...]:
        """Sentences about bounds, matched operations, and explained differences."""
        return summary.key_points(
            self.paired,
            self.operations,
            self.unmatched,
            self.collectives,
        )

    @property
    def is_without_difference(self) -> bool:
        """Whether the sides are equal in every part of the timeline and in every operation."""
        times = (self.totals[C.difference_ms], self.operations[C.difference_ms])
        is_measured = any(len(differences) for differences in times)
        return is_measured and self.unmatched.is_empty() and not any(map(_differs, times))

    @property
    def unknown(self) -> tuple[str, ...]:
        """Sentences about what cannot be compared, or not reliably, and why."""
        return summary.unknown(self.paired)

    @property
    def ratios(self) -> HardwareRatios | None:
        """The ratios that the two GPUs explain; None if either GPU is not known."""
        return self.paired.ratios

    @property
    def same_collectives(self) -> bool | None:
        """Whether both sides use the same collectives: kinds, types, sizes and counts.

        None if no side communicates.
        """
        if self.collectives.is_empty():
            return None
        return aggregates.is_same_communication(self.target, self.reference)

    @cached_property
    def _lowered(self) -> pl.DataFrame:
        return aggregates.lowering(self.paired, self.paired.pairs)

    @cached_property
    def _pairs(self) -> pl.DataFrame:
        main = aggregates.main_kernels(self._lowered)
        return self.paired.pairs.join(main, on=C.pair, how="left", maintain_order="left")


def _differs(differences_ms: pl.Series) -> bool:
    return bool((differences_ms != 0).any())


def compare(target: Side, reference: Side, tolerance: float = TOLERANCE) -> Comparison:
    """Compare a target with a reference; per step if they have different numbers of steps.

    Raises:
        ValueError: The tolerance is below 1.
    """
    steps = target.steps, reference.steps
    if all(steps) and steps[0] != steps[1]:
        target, reference = target.per_step(), reference.per_step()
    return Comparison(Paired(target, reference), tolerance)
