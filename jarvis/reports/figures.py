"""Frames behind the charts of a whole run: GPU time and possible savings."""

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from jarvis import impact
from jarvis.findings import Finding, Status
from jarvis.perf_report import Totals
from jarvis.reports.ranking import Recommendation
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.format import milliseconds, percent
from jarvis.text.messages import to_text

SAVINGS_SHOWN = 8
"""Findings with their own bar; the others share one."""


@dataclass(frozen=True, slots=True)
class Saving:
    """The saving of one finding from the GPU time that the previous ones leave."""

    label: str
    title: str
    saved_ms: float


def savings(
    projected: Iterable[tuple[Recommendation, Finding]], total_time_ms: float
) -> list[Saving]:
    """Return middle estimates of findings that add up, largest first; together at most the GPU
    time.

    Findings come with their recommendation, since a page projects them to its own target; those
    that save the same time count once.
    """
    pairs = list(projected)
    items = {id(finding): item for item, finding in pairs}
    found, left_ms = [], total_time_ms
    for finding in impact.disjoint_findings(finding for _, finding in pairs):
        saved_ms = min(finding.impact.saved_ms.mid, left_ms) if finding.impact else 0.0
        if saved_ms > 0:
            item = items[id(finding)]
            label = f"{item.label} {item.result.title}"
            found.append(Saving(label, to_text(finding.title).replace("`", ""), saved_ms))
            left_ms -= saved_ms
    return found


def total_ms(found: list[Saving]) -> float:
    """Return the sum of the savings in ms."""
    return sum(saving.saved_ms for saving in found)


def waterfall_rows(now_ms: float, found: list[Saving]) -> pl.DataFrame:
    """Return the bars of ``jarvis.charts.waterfall``: now, the largest savings, the others,
    projected."""
    from jarvis.charts.waterfall import NOW, PROJECTED, SAVING

    shown = found[:SAVINGS_SHOWN]
    if rest := found[SAVINGS_SHOWN:]:
        shown = [*shown, Saving(f"{len(rest)} more", "smaller savings", total_ms(rest))]
    rows = [("Now", "GPU window now", NOW, 0.0, now_ms, milliseconds(now_ms))]
    high_ms = now_ms
    for saving in shown:
        low_ms = max(high_ms - saving.saved_ms, 0.0)
        text = f"\N{MINUS SIGN}{milliseconds(saving.saved_ms)}"
        rows.append((saving.label, saving.title, SAVING, low_ms, high_ms, text))
        high_ms = low_ms
    share = percent(impact.share_pct(high_ms, now_ms))
    text = f"{milliseconds(high_ms)} ({share})"
    rows.append(("Projected", "GPU window that remains", PROJECTED, 0.0, high_ms, text))
    names = ["label", "finding", C.kind, "low_ms", "high_ms", "text"]
    return pl.DataFrame(rows, schema=names, orient="row")


def gpu_time_parts(totals: Totals) -> pl.DataFrame:
    """Return ``part, time_ms, percent``; overlapping time counts only for the first part in this
    order."""
    return pl.DataFrame(
        {
            "part": ["compute", "exposed communication", "exposed copies", "idle"],
            C.time_ms: [
                totals.compute_time_ms,
                totals.exposed_comm_time_ms,
                totals.exposed_memcpy_time_ms,
                totals.idle_time_ms,
            ],
            C.percent: [
                totals.compute_pct,
                totals.exposed_comm_pct,
                totals.exposed_memcpy_pct,
                totals.idle_pct,
            ],
        },
        schema_overrides={C.percent: pl.Float64},
    )


def category_times(run: Run, target_pct: float) -> pl.DataFrame:
    """Return ``title, gpu_time_ms, saved_ms, is_judged`` of each category, most time first."""
    titles = {
        key: result.title
        for key, result in run.results.items()
        if result.tier == "compute" and result.status is not Status.NO_DATA
    }
    operations = run.table("operations").with_columns(impact.saved_us(target_pct).alias(C.saved_us))
    return (
        operations.group_by(C.category)
        .agg(
            gpu_time_ms=pl.col(C.kernel_time_us).sum() / 1000,
            saved_ms=pl.col(C.saved_us).sum() / 1000,
            is_judged=pl.col(C.saved_us).is_not_null().any(),
        )
        .with_columns(pl.col(C.category).replace(titles).alias(C.title))
        .sort("gpu_time_ms", C.category, descending=[True, False])
    )
