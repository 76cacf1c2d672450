"""What the findings would save together: from the GPU time now to the projected one."""

from dataclasses import dataclass

import polars as pl
import streamlit as st

from jarvis.analyses.wording import counted
from jarvis.charts.waterfall import NOW, PROJECTED, SAVING, waterfall
from jarvis.dashboard.projection import reprojected
from jarvis.dashboard.state import palette
from jarvis.impact import disjoint_findings, share_pct
from jarvis.reports.quantities import milliseconds, percent
from jarvis.reports.ranking import recommendations
from jarvis.run import Run

_SHOWN = 8
"""Findings with a bar of their own; the others share one."""


@dataclass(frozen=True, slots=True)
class Saving:
    """What one finding saves of the GPU time that those before it leave."""

    label: str
    title: str
    saved_ms: float


def savings(run: Run, target_pct: float) -> list[Saving]:
    """Middle estimates of findings that add up, largest first; together at most the GPU time.

    Findings that draw on the same time count once, as in the reports; those with a perf model are
    projected to the target.
    """
    totals = run.manifest.totals
    ranked = recommendations(run)
    projected = [
        item.finding.model_copy(update={"impact": reprojected(item.finding, target_pct, totals)})
        for item in ranked
    ]
    items = {id(finding): item for finding, item in zip(projected, ranked, strict=True)}
    found, left_ms = [], totals.total_time_ms
    for finding in disjoint_findings(projected):
        saved_ms = min(finding.impact.saved_ms.mid, left_ms) if finding.impact else 0.0
        if saved_ms > 0:
            item = items[id(finding)]
            label = f"{item.label} {item.result.title}"
            found.append(Saving(label, finding.title.replace("`", ""), saved_ms))
            left_ms -= saved_ms
    return found


def total_ms(found: list[Saving]) -> float:
    """What the savings add up to."""
    return sum(saving.saved_ms for saving in found)


def waterfall_card(run: Run, found: list[Saving]) -> None:
    """The waterfall with what it comes to as its title; a sentence where nothing is saved."""
    now_ms = run.manifest.totals.total_time_ms
    with st.container(border=True, height="stretch"):
        if not found:
            st.markdown("**No finding has an estimate**, so there is no projection")
            return
        left_ms = now_ms - total_ms(found)
        st.markdown(
            f"**{milliseconds(now_ms)} could become {milliseconds(left_ms)}** · GPU time less what "
            f"{counted(len(found), 'finding')} would save",
            help="Middle estimates, largest first. Findings that draw on the same time count once, "
            "so the bars add up. Savings of kernels that run beside others may be smaller.",
        )
        chart = waterfall(bars(now_ms, found), palette())
        st.altair_chart(chart, alt="GPU time now, less each saving, to the projected GPU time")


def bars(now_ms: float, found: list[Saving]) -> pl.DataFrame:
    """The rows of the chart: now, the largest savings, the others as one, projected."""
    shown = found[:_SHOWN]
    if rest := found[_SHOWN:]:
        shown = [*shown, Saving(f"{len(rest)} more", "smaller savings", total_ms(rest))]
    rows = [("Now", "GPU time now", NOW, 0.0, now_ms, milliseconds(now_ms))]
    high_ms = now_ms
    for saving in shown:
        low_ms = max(high_ms - saving.saved_ms, 0.0)
        text = f"\N{MINUS SIGN}{milliseconds(saving.saved_ms)}"
        rows.append((saving.label, saving.title, SAVING, low_ms, high_ms, text))
        high_ms = low_ms
    share = percent(share_pct(high_ms, now_ms))
    text = f"{milliseconds(high_ms)} ({share})"
    rows.append(("Projected", "GPU time that remains", PROJECTED, 0.0, high_ms, text))
    names = ["label", "finding", "kind", "low_ms", "high_ms", "text"]
    return pl.DataFrame(rows, schema=names, orient="row")
