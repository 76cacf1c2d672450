"""The findings of a run that get a card, and their rows of operations."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from jarvis import savings
from jarvis.analyses.operations import DETAILS
from jarvis.findings import Finding, Status
from jarvis.run.run import Run
from jarvis.schemas import TABLES
from jarvis.schemas.names import C

COLUMNS = (*(column.name for column in TABLES["operations"]), *(c.name for c in DETAILS))
"""Columns that the rows of every category have, in addition to ``category``."""


@dataclass(frozen=True)
class Recommended:
    """The recommendations of ``run``; sorted and joined once, as the order depends on all
    findings."""

    run: Run

    def of(self, key: str) -> list[Finding]:
        """Return the findings of an analysis, most urgent first; those of low priority get no
        card."""
        return [finding for finding in self.ranked if finding.category == key]

    def rows(self, finding: Finding) -> pl.DataFrame:
        """Return its operations or, without any, those of other categories whose time it shares.

        Most time first, with COLUMNS and ``category``.
        """
        uids = [reference.uid for reference in finding.operations] or list(finding.shared_uids)
        return self._rows.filter(pl.col(C.uid).is_in(uids))

    @cached_property
    def ranked(self) -> list[Finding]:
        """Return the findings of all analyses that get a card, in the order of the run."""
        everything = (f for result in self.run.results.values() for f in result.findings)
        ordered = savings.ranked(everything, self.run.manifest.totals)
        return [finding for finding in ordered if finding.has_agent_card]

    @cached_property
    def _rows(self) -> pl.DataFrame:
        columns = [*COLUMNS, C.category]
        categories = [
            self.run.category_operations(result.key)[columns]
            for result in self.run.results.values()
            if result.tier == "compute" and result.status is Status.OK and result.row_count
        ]
        if not categories:
            return pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64()))
        order: Mapping[str, bool] = {"kernel_time_us": True, "uid": False}
        return pl.concat(categories).sort(list(order), descending=list(order.values()))
