"""The page of a system analysis: target, findings and metrics."""

from collections.abc import Callable, Mapping

import streamlit as st

from jarvis import charts
from jarvis.analyses.base import Analysis, Target
from jarvis.dashboard.isolation import isolated
from jarvis.dashboard.pages.inference.serving import rates_section
from jarvis.dashboard.pages.report.note_badges import finding_badges
from jarvis.dashboard.pages.system.cpu_idle import cpu_idle_section
from jarvis.dashboard.pages.system.fusion import fusion_section
from jarvis.dashboard.pages.system.multi_kernel import multi_kernel_section, uneven_steps
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.controls import percent_slider
from jarvis.dashboard.widgets.elements import is_unavailable, metric_card
from jarvis.dashboard.widgets.finding_cards import finding_cards, saving_label
from jarvis.dashboard.widgets.header import page_header
from jarvis.dashboard.widgets.panels import panel_chart
from jarvis.dashboard.widgets.projection import recovered, step_time_recovered_ms
from jarvis.findings import COMMUNICATION_POOL, IDLE_POOL, AnalysisResult, Status
from jarvis.impact import share_pct
from jarvis.perf_report import Totals
from jarvis.savings import over_steps, step_count, whole_ms, whole_name
from jarvis.schemas import TABLES
from jarvis.text.format import milliseconds, percent
from jarvis.text.markdown import escape


def render(analysis: Analysis) -> None:
    """Draw the page of ``analysis`` for the open run."""
    now = page_header(analysis.title, analysis.icon, analysis)
    result = now.run.results.get(analysis.key)
    if result is None or result.status is Status.NO_DATA:
        if not is_unavailable(now.run, analysis.needs):
            lacks = "no steps of inference" if analysis.only_with else "no GPU timeline"
            st.info(f"The trace has {lacks}, so this page is empty.", icon=":material/inbox:")
            navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")
        return
    if result.status is Status.ERROR:
        st.error(f"The analysis failed: {escape(result.error or '')}.", icon=":material/error:")
        return
    target_pct = _target_card(analysis, result, now)
    if draw_first := _FIRST.get(analysis.key):
        draw_first(now)
    st.subheader("Findings")
    finding_cards(
        result.findings,
        now.run,
        lambda f: recovered(now, f, analysis.target, target_pct),
        badges=finding_badges(now),
    )
    _SECTIONS.get(analysis.key, _panels)(analysis, now, result)


_REACHED = {
    IDLE_POOL: "The GPU is idle for less than that.",
    COMMUNICATION_POOL: "More than that share of the communication runs beside compute.",
    "": "",
}


def _target_card(analysis: Analysis, result: AnalysisResult, now: Opened) -> float:
    """Draw the slider, the recovered time and the step time that it saves; return the target in
    percent."""
    page, target, totals = analysis.key, analysis.target, now.run.manifest.totals
    if target is None:
        return 0.0
    with st.container(border=True):
        slider, rest = st.columns([4, 6], vertical_alignment="center")
        with slider:
            pct = percent_slider(f"{page}_target", target.label, target.default_pct, target.meaning)
        saved_ms = _recoverable_ms(result, target, now, pct)
        gains = (recovered(now, finding, target, pct) for finding in result.findings)
        first = next((gain for gain in gains if gain is not None and gain.gain_ms > 0), None)
        if not target.recovered_ms(totals, pct):
            has_none = target.pool_ms is not None and not target.pool_ms(totals)
            text = f"**The trace has no {target.pool} time**, so there is nothing to recover."
            if not has_none:
                text = f"**The target of {pct}% is reached.** {_REACHED[target.pool or '']}"
            if first is not None:
                text += f" The first finding below can still save: {saving_label(first, totals)}."
            rest.markdown(text)
            return pct
        recovery, step = rest.columns(2)
        with recovery:
            metric_card(
                f"Recovered at {pct}%",
                *_recovered(saved_ms, target, totals),
                help_text="Time saved at the target, computed from times in the trace.",
            )
        if (step_ms := step_time_recovered_ms(now, target, pct)) is not None:
            with step:
                _step_card(target, pct, step_ms, totals)
    return pct


def _recovered(saved_ms: float, target: Target, totals: Totals) -> tuple[str, str]:
    """Return recovered time and its share: of a step for idle time, else of the GPU window."""
    if target.pool == IDLE_POOL:
        saved_ms /= step_count(totals)
        share = f"{percent(share_pct(saved_ms, whole_ms(totals)))} of {whole_name(totals)}"
    else:
        share = f"{percent(share_pct(saved_ms, totals.total_time_ms))} of the GPU window"
        share += f", {over}" if (over := over_steps(totals)) else ""
    return milliseconds(saved_ms), share


def _step_card(target: Target, pct: float, saved_ms: float, totals: Totals) -> None:
    saved_ms /= step_count(totals)
    is_bound = target.pool == COMMUNICATION_POOL
    share = f"{percent(share_pct(saved_ms, whole_ms(totals)))} of {whole_name(totals)}"
    metric_card(
        f"Step time saved at {pct}%",
        milliseconds(saved_ms),
        f"at most {share}" if is_bound else share,
        help_text="The recording is replayed with that part of each collective hidden. One rank "
        "does not show what part of a collective is waiting for the other ranks."
        if is_bound
        else "The recording is replayed with that part of the host time in each idle gap removed.",
    )


def _recoverable_ms(result: AnalysisResult, target: Target, now: Opened, pct: float) -> float:
    """Return the time recovered at the target in ms, from its finding if there is one; at most what
    the findings of its pool of time save."""
    of_check = (
        recovered(now, finding, target, pct)
        for finding in result.findings
        if finding.check == target.check
    )
    impact = next((impact for impact in of_check if impact is not None), None)
    if impact is not None:
        return impact.saved_ms.mid
    recovered_ms = target.recovered_ms(now.run.manifest.totals, pct)
    of_pool = [
        finding.impact.saved_ms.high if finding.impact else 0.0
        for finding in result.findings
        if target.pool and (finding.time_pool or "").startswith(target.pool)
    ]
    return min(recovered_ms, sum(of_pool)) if of_pool else recovered_ms


def _panels(analysis: Analysis, now: Opened, result: AnalysisResult) -> None:
    """Draw the declared panels of an analysis without a dedicated section."""
    if not analysis.panels:
        return
    for number, (place, panel) in enumerate(
        zip(st.columns(len(analysis.panels), border=True), analysis.panels, strict=True)
    ):
        with place, isolated(panel.title):
            rows, columns = now.run.table(panel.source), charts.columns_of(TABLES[panel.source])
            key = f"{analysis.key}_panel_{number}"
            panel_chart(panel, rows, columns, now.run.target_pct, key)


_FIRST: Mapping[str, Callable[[Opened], None]] = {"multi_kernel": uneven_steps}
"""What is above the findings."""

_SECTIONS: Mapping[str, Callable[[Analysis, Opened, AnalysisResult], None]] = {
    "multi_kernel": multi_kernel_section,
    "cpu_idle": cpu_idle_section,
    "kernel_fusion": fusion_section,
    "inference": rates_section,
}
