"""What the findings would save together: from the GPU time now to the projected one."""

import streamlit as st

from jarvis.charts.waterfall import waterfall
from jarvis.dashboard.session.state import palette
from jarvis.dashboard.widgets.projection import reprojected
from jarvis.reports.figures import Saving, savings, total_ms, waterfall_rows
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.text.format import counted, milliseconds


def projected_savings(run: Run, target_pct: float) -> list[Saving]:
    """What the findings save together; those with a perf model at the target."""
    projected = [
        (item, item.finding.model_copy(update={"impact": impact}))
        for item in recommendations(run)
        for impact in [reprojected(item.finding, target_pct, run.manifest)]
    ]
    return savings(projected, run.manifest.totals.total_time_ms)


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
        chart = waterfall(waterfall_rows(now_ms, found), palette())
        st.altair_chart(chart, alt="GPU time now, less each saving, to the projected GPU time")
