"""The subject of comparative reports: the comparison, and the runs on both sides."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jarvis import savings
from jarvis.comparison import Comparison, Role, Side
from jarvis.comparison.findings import ONLY_IN_TARGET
from jarvis.comparison.slower import ARGUMENTS_LENGTH
from jarvis.comparison.timeline import OUTSIDE_COMPUTE
from jarvis.findings import Finding
from jarvis.perf_report import Totals
from jarvis.reports import sections
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.format import arguments, quoted
from jarvis.text.markdown import shortened
from jarvis.text.short_names import kernel_without_operator

Row = Mapping[str, Any]
"""A row of ``comparison_operations``."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A comparison with the runs of its sides, and the names used in its reports."""

    comparison: Comparison
    target: Run
    reference: Run

    def run(self, role: Role) -> Run:
        """Return the run on one side."""
        return self.target if role is Role.TARGET else self.reference

    def side(self, role: Role) -> Side:
        """Return one side of the comparison."""
        compared = self.comparison
        return compared.target if role is Role.TARGET else compared.reference

    @property
    def is_one_gpu(self) -> bool:
        """Return whether both sides ran on the same GPU with the same peaks."""
        ratios = self.comparison.ratios
        return ratios is not None and ratios.is_same

    @cached_property
    def totals(self) -> Totals:
        """Return the totals of the target for its findings."""
        return self.comparison.totals_of(self.target.manifest.totals)

    @property
    def whole(self) -> str:
        """Return the name of the time of which savings are a part."""
        if self.comparison.is_per_step:
            return "the step"
        return savings.whole_name(self.totals)

    @property
    def has_hardware(self) -> bool:
        """Whether the GPU of a side is described."""
        return any(self.side(role).hardware for role in Role)

    @property
    def model(self) -> str:
        """Return the model as the user named it on either side, else the names of both inputs."""
        runs = (self.reference, self.target)
        named = [run.manifest.model_name for run in runs if run.manifest.model_name]
        return " and ".join(dict.fromkeys(named or map(sections.model_name, runs)))

    @property
    def title(self) -> str:
        """Return ``Qwen Performance Comparison: H100 SXM vs MI300X``."""
        reference, target = self.comparison.reference.label, self.comparison.target.label
        return f"{self.model} Performance Comparison: {reference} vs {target}"

    @cached_property
    def numbered(self) -> tuple[tuple[int, Finding], ...]:
        """Return the findings with their numbers, most urgent first."""
        return tuple(enumerate(self.comparison.findings, start=1))

    def row_of(self, finding: Finding) -> Row | None:
        """Return the heaviest compared operation of a finding; None if it has none."""
        if finding.check == ONLY_IN_TARGET or finding.check in OUTSIDE_COMPUTE:
            return None
        uid = finding.operations[0].uid
        rows = [row for row in self.rows if row[C.uid] == uid]
        return max(rows, key=lambda row: row[C.unexplained_ms] or 0.0)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Return the compared operations, most time of the target first."""
        return tuple(self.comparison.operations.iter_rows(named=True))

    @cached_property
    def operations(self) -> Mapping[Role, Mapping[int, Row]]:
        """Return the rows of either side's operations by uid."""
        return {
            role: {row[C.uid]: row for row in self.side(role).rows("operations").to_dicts()}
            for role in Role
        }


def operation_text(row: Row) -> str:
    """Return an operation with its arguments, the name in backticks; for a kernel without an
    operator, the kernel."""
    found = arguments(row[C.input_dims], row[C.input_types])
    name = kernel_without_operator(row[C.name]) or row[C.name]
    return quoted(name) + (f" {shortened(found, ARGUMENTS_LENGTH)}" if found else "")
