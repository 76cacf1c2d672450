"""The upper half of the overview: metrics, time breakdown and potential savings."""

from collections.abc import Mapping

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.charts.waterfall import waterfall
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened, palette
from jarvis.dashboard.widgets.controls import target_slider
from jarvis.dashboard.widgets.elements import metric_card, render_chart
from jarvis.dashboard.widgets.projection import operation_columns, reprojected
from jarvis.impact import share_pct
from jarvis.perf_report import Totals
from jarvis.reports.figures import (
    Saving,
    category_times,
    gpu_time_parts,
    savings,
    total_ms,
    waterfall_rows,
)
from jarvis.reports.health import health_of
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.savings import whole_ms, whole_name
from jarvis.schemas.names import C
from jarvis.text.format import counted, milliseconds, percent
from jarvis.trace_health import Fact


def projected_savings(run: Run, target_pct: float) -> list[Saving]:
    """Return the savings of the findings, projected to the target if they have a perf model."""
    projected = [
        (item, item.finding.model_copy(update={"impact": impact}))
        for item in recommendations(run)
        for impact in [reprojected(item.finding, target_pct, run.manifest)]
    ]
    return savings(projected, run.manifest.totals)


def waterfall_card(run: Run, found: list[Saving]) -> None:
    """Draw the waterfall with its total as the title; a text if there are no savings."""
    totals = run.manifest.totals
    now_ms, whole = whole_ms(totals), whole_name(totals)
    with st.container(border=True, height="stretch"):
        if not found:
            st.markdown("**No finding has an estimate**, so there is no projection")
            return
        left_ms = now_ms - total_ms(found)
        st.markdown(
            f"**{milliseconds(now_ms)} could become {milliseconds(left_ms)}** · {whole} minus "
            f"savings of {counted(len(found), 'finding')}",
            help="Middle estimates, largest first, within what bounds the step. Overlapping "
            "savings count once, so the bars add up. Exposed communication is left out: a trace of "
            "one rank shows only its upper end.",
        )
        chart = waterfall(waterfall_rows(now_ms, found, whole), palette())
        st.altair_chart(chart, alt="Current time, each saving, and projected time")


PAGE = "overview"


def controls() -> int:
    """Draw the control of the target efficiency."""
    with st.container(border=True):
        place, _ = st.columns([3, 4])
        with place:
            return target_slider(PAGE)


def summary(now: Opened, target_pct: int) -> None:
    """Draw metrics, the bar of GPU time, the categories, and the waterfall of savings."""
    found = projected_savings(now.run, target_pct)
    _metric_cards(now, found)
    _gpu_time(now.run.manifest.totals)
    categories, waterfall = st.columns(2)
    with categories:
        _categories(now, target_pct)
    with waterfall:
        waterfall_card(now.run, found)


def _metric_cards(now: Opened, found: list[Saving]) -> None:
    """Draw six cards: time, its parts, potential saving and top bottleneck."""
    totals = now.run.manifest.totals
    saved_ms = total_ms(found)
    places = st.columns([1, 1, 1.05, 1, 1, 1.15])
    with places[0]:
        _time(totals, {fact.key: fact for fact in health_of(now.run)})
    with places[1]:
        metric_card(
            "GPU busy",
            percent(totals.busy_pct),
            f"compute {percent(totals.compute_pct)}",
            help_text="Time in which any kernel, copy or fill runs, in percent of GPU time. Below: "
            "time in which compute runs.",
        )
    with places[2]:
        metric_card(
            "Exposed comm.",
            percent(totals.exposed_comm_pct),
            milliseconds(totals.exposed_comm_time_ms),
            help_text="Communication time without concurrent compute, in percent of GPU time.",
        )
    with places[3]:
        metric_card(
            "Idle",
            percent(totals.idle_pct),
            milliseconds(totals.idle_time_ms),
            help_text="Time in which no GPU event runs, in percent of GPU time.",
        )
    with places[4]:
        metric_card(
            "Saving",
            milliseconds(saved_ms),
            f"{percent(share_pct(saved_ms, whole_ms(totals)))} of {whole_name(totals)}",
            help_text="Projected saving of all findings at the target efficiency: middle "
            "estimates within what bounds the step, with overlaps counted once, as in the "
            "waterfall below.",
        )
    with places[5].container(border=True, height="stretch", gap="xsmall"):
        _bottleneck(now)


def _time(totals: Totals, facts: Mapping[str, Fact]) -> None:
    """Draw the step time if the trace marks steps, else the GPU time of the recording."""
    meaning = "GPU time: from the first start to the last end of GPU work launched by host calls "
    meaning += "of the trace."
    if span := facts.get("gpu_span_all"):
        meaning += f" Including all other GPU work: {milliseconds(span.value)}."
    gpu_ms = milliseconds(totals.total_time_ms)
    step = facts.get("step_time")
    if step is None:
        metric_card("GPU time", gpu_ms, "no steps", help_text=f"{meaning} The trace has no steps.")
        return
    steps = counted(int(facts["steps"].value or 0), "step")
    metric_card(
        "Step time",
        milliseconds(step.value),
        f"GPU {gpu_ms}",
        help_text=f"Median duration of the profiler steps on the host ({steps}). Below: GPU time "
        f"of the recording. {meaning}",
    )


def _bottleneck(now: Opened) -> None:
    st.markdown("Top bottleneck", help="Category of the most urgent finding.")
    worst = next(iter(recommendations(now.run)), None)
    if worst is None:
        st.caption("No findings.")
        return
    title = worst.result.title
    navigation.link(worst.finding.category, f"**{title}**")
    st.caption(worst.title)


def _gpu_time(totals: Totals) -> None:
    parts = gpu_time_parts(totals)
    with st.container(border=True):
        if not totals.total_time_ms:
            st.markdown("**No GPU time**: the trace has no GPU work")
            return
        shares = [
            f"{part} {percent(share)}" for part, share in parts["part", C.percent].iter_rows()
        ]
        largest = parts.sort(C.time_ms, descending=True).row(0, named=True)
        st.markdown(
            f"**{largest['part'].capitalize()} takes {percent(largest[C.percent])}** of "
            f"{milliseconds(totals.total_time_ms)} GPU time",
            help="Time is attributed in this order: compute, communication, copy, idle.",
        )
        labeled = parts.with_columns(part=pl.Series(shares))
        st.altair_chart(charts.parts_of_time(labeled, palette()), alt="Parts of GPU time")


def _categories(now: Opened, target_pct: int) -> None:
    rows = category_times(now.run, target_pct).filter(pl.col("gpu_time_ms") > 0)
    with st.container(border=True, height="stretch"):
        if rows.is_empty():
            st.markdown("**No category has GPU time**: no operation launched GPU work")
            return
        first = rows.row(0, named=True)
        share = share_pct(first["gpu_time_ms"], float(rows["gpu_time_ms"].sum()))
        projection = (
            f"at {target_pct}% of the roofline all categories would save "
            f"{milliseconds(float(rows['saved_ms'].sum()))}"
            if rows["is_judged"].any()
            else "no efficiencies, so no saving"
        )
        st.markdown(
            f"**{first[C.title]} takes {percent(share)} of kernel time** · {projection}",
            help="Kernel time of each category, and in green the saving if its operations reached "
            "the target. This excludes findings about idle time, communication and fusion, and "
            "includes operations too small for a finding.",
        )
        drawing = charts.categories(rows, operation_columns(), palette())
        render_chart(drawing, "Kernel time and saving of each category")
