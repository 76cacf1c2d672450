"""The rows of operations that a finding speaks of, whatever category they are in."""

import polars as pl

from jarvis.analyses.operations import DETAILS
from jarvis.findings import Finding, Status
from jarvis.run.run import Run
from jarvis.schemas import TABLES

COLUMNS = (
    *(column.name for column in TABLES["operations"]),
    "category",
    *(c.name for c in DETAILS),
)
"""What the rows of every category have."""


def finding_rows(run: Run, finding: Finding) -> pl.DataFrame:
    """Its operations, or, where it has none, those of other categories whose time it shares.

    Most time first, with COLUMNS.
    """
    uids = [reference.uid for reference in finding.operations] or list(finding.shared_uids)
    categories = [
        run.category_operations(result.key)
        for result in run.results.values()
        if result.tier == "compute" and result.status is Status.OK and result.row_count
    ]
    empty = pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.Null()))
    found = [rows.filter(pl.col("uid").is_in(uids)).select(COLUMNS) for rows in categories]
    kept = [rows for rows in found if not rows.is_empty()]
    order = (["kernel_time_us", "uid"], [True, False])
    return pl.concat(kept).sort(order[0], descending=order[1]) if kept else empty
