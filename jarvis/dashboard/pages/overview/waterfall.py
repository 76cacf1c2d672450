"""Waterfall of the findings' savings, from the current to the projected GPU time."""

import streamlit as st

from jarvis.charts.waterfall import waterfall
from jarvis.dashboard.session.state import palette
from jarvis.dashboard.widgets.projection import reprojected
from jarvis.reports.figures import Saving, savings, total_ms, waterfall_rows
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.text.format import counted, milliseconds


def projected_savings(run: Run, target_pct: float) -> list[Saving]:
    """Return the savings of the findings, projected to the target if they have a perf model."""
    projected = [
        (item, item.finding.model_copy(update={"impact": impact}))
        for item in recommendations(run)
        for impact in [reprojected(item.finding, target_pct, run.manifest)]
    ]
    return savings(projected, run.manifest.totals.total_time_ms)


def waterfall_card(run: Run, found: list[Saving]) -> None:
    """Draw the waterfall with its total as the title; a text if there are no savings."""
    now_ms = run.manifest.totals.total_time_ms
    with st.container(border=True, height="stretch"):
        if not found:
            st.markdown("**No finding has an estimate**, so there is no projection")
            return
        left_ms = now_ms - total_ms(found)
        st.markdown(
            f"**{milliseconds(now_ms)} could become {milliseconds(left_ms)}** · GPU time minus "
            f"savings of {counted(len(found), 'finding')}",
            help="Middle estimates, largest first. Overlapping savings count once, so the bars add "
            "up. Savings of kernels that run concurrently with others may be smaller.",
        )
        chart = waterfall(waterfall_rows(now_ms, found), palette())
        st.altair_chart(chart, alt="Current GPU time, each saving, and projected GPU time")
