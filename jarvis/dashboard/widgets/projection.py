"""What the sliders do to rows and findings; the formulas are those of ``jarvis.impact``."""

import polars as pl

from jarvis import impact
from jarvis.analyses.base import Analysis, Target
from jarvis.analyses.operations import DETAILS
from jarvis.charts import PROJECTED, Columns, columns_of, state
from jarvis.findings import Finding, Impact
from jarvis.perf_report import Totals
from jarvis.run import Manifest
from jarvis.schemas import TABLES


def operation_columns(analysis: Analysis | None = None) -> Columns:
    """The columns that rows of a page can have."""
    own = analysis.details if analysis else ()
    return columns_of(TABLES["operations"], DETAILS, own, PROJECTED)


def judged(rows: pl.DataFrame, target_pct: float, below_pct: float) -> pl.DataFrame:
    """The rows with ``state`` and ``saved_us``; both sliders act here and nowhere else."""
    return rows.with_columns(
        saved_us=impact.saved_us(target_pct), state=state(target_pct, below_pct)
    )


def saved_ms(rows: pl.DataFrame) -> float:
    """What all rows of ``judged`` would save together."""
    return float(rows["saved_us"].sum()) / 1000


def reprojected(finding: Finding, target_pct: float, manifest: Manifest) -> Impact | None:
    """The impact at the slider's target where a perf model stands behind it, else as found."""
    if finding.impact is None:
        return None
    return impact.at_target(
        finding.impact,
        target_pct,
        found_at_pct=manifest.options.target_pct,
        compute_ms=manifest.totals.compute_time_ms,
        total_ms=manifest.totals.total_time_ms,
    )


def recovered(finding: Finding, target: Target | None, pct: float, totals: Totals) -> Impact | None:
    """The impact at the slider of a system page where the finding follows it, else as found; never
    more than the finding says at most."""
    found = finding.impact
    if found is None or target is None or finding.check != target.check:
        return found
    return impact.bounded_impact(
        found.time_ms,
        found.saved_ms.high,
        low_ms=found.saved_ms.low,
        mid_ms=min(target.recovered_ms(totals, pct), found.saved_ms.high),
        compute_ms=totals.compute_time_ms,
        total_ms=totals.total_time_ms,
    )
