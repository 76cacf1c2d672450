"""The page of an operation category, for all categories."""

from collections.abc import Collection
from functools import partial

import polars as pl
import streamlit as st

from jarvis.analyses.base import OF_OPERATIONS, Analysis
from jarvis.analyses.chain_context import fusion_findings_of
from jarvis.analyses.operations import MIN_COMPUTE_PCT
from jarvis.analyses.registry import claim_text
from jarvis.charts import PICKED
from jarvis.core.expressions import rows_where
from jarvis.dashboard.pages.category.cards import figures_of, metric_cards
from jarvis.dashboard.pages.category.finding_only import (
    findings_without_rows,
    fusion_findings,
    fusion_links,
)
from jarvis.dashboard.pages.category.operation_details import operation_details
from jarvis.dashboard.pages.category.operations_table import metrics_table
from jarvis.dashboard.pages.category.step_time import step_line, with_step_savings
from jarvis.dashboard.pages.report.note_badges import finding_badges
from jarvis.dashboard.session import navigation, selection
from jarvis.dashboard.session.state import (
    Opened,
    cached,
    call_path_of,
    of_opened,
    of_stored,
    palette,
    rows_of,
)
from jarvis.dashboard.widgets.controls import category_controls, clear_filters
from jarvis.dashboard.widgets.elements import lazy_expander
from jarvis.dashboard.widgets.finding_cards import finding_cards, no_longer_findings
from jarvis.dashboard.widgets.header import page_header
from jarvis.dashboard.widgets.panel_kinds import PanelData
from jarvis.dashboard.widgets.panels import EncodedPanel, draw_panel, panel_chart
from jarvis.dashboard.widgets.projection import (
    operation_columns,
    with_projection,
)
from jarvis.dashboard.widgets.view import bring_into_view
from jarvis.findings import AnalysisResult, Status
from jarvis.hardware import HardwareSpec, peak_label
from jarvis.impact import (
    KERNEL_FLOOR_US,
    MOSTLY_PCT,
    has_efficiency,
    share_pct,
)
from jarvis.schemas.names import C
from jarvis.simulation.of_rows import NEGLIGIBLE_PCT
from jarvis.text.format import count, counted, percent, tb_per_s, tflops_per_s
from jarvis.text.markdown import escape, prose
from jarvis.text.shapes import call_shapes

_METHOD = f"""
Roofline time is the longer of FLOPs / compute peak and bytes / memory peak, for the operation's
precision; FLOPs and bytes are computed by a perf model from the operator and its shapes, not
measured. **Efficiency** is roofline time / measured GPU busy time. If a peak is unknown, the
efficiency is not available. **Kernel saving** is kernel time minus the kernel time at the target
efficiency, which is at least {KERNEL_FLOOR_US:g} µs a kernel. Times and kernel
savings are sums of the recording. **Step saving** is what a step gains, as the mean of the recorded
steps, if only that operation reaches the target: the recording is replayed with its kernels
shorter. It is 0 where the steps do not wait for them. It is missing where kernels get shorter by
less than {NEGLIGIBLE_PCT:g}% of the steps, and where step times are not simulated.
"""

_MAX_CACHED_PANELS = 256
"""They have at most ``MAX_POINTS`` marks."""

_TABLE_HELP = (
    "Select a row to see its arguments, kernels and call path. Click a column header to sort all "
    "rows."
)
VISIBLE_DETAILS_PX = 320
"""Height of the details that is in view after a click on a row."""


def method_note(analysis: Analysis, rows: pl.DataFrame, hardware: HardwareSpec | None) -> None:
    """Draw an expander with the formulas, the peaks in use and their sources."""
    expander = lazy_expander(
        "How these numbers are computed", f"{analysis.key}_method", icon=":material/function:"
    )
    if expander.open:
        with expander:
            _note(analysis, rows, hardware)


def _note(analysis: Analysis, rows: pl.DataFrame, hardware: HardwareSpec | None) -> None:
    st.markdown(_METHOD)
    modelled = rows.filter(C.has_perf_model)
    share = float(modelled[C.percent_of_category].sum())
    st.markdown(
        f"A perf model covers {count(modelled.height)} of {count(rows.height)} rows, "
        f"{percent(share)} of the category's time."
    )
    if hardware is None:
        st.markdown("The GPU is unknown, so there are no peaks.")
    else:
        st.markdown("\n".join(_peak_lines(rows, hardware)))
    for note in rows[C.roofline_note].drop_nulls().unique(maintain_order=True):
        st.markdown(f"- {escape(note)}")
    if analysis.claim is not None:
        st.markdown(f"This category has {claim_text(analysis.claim)}.")


def _peak_lines(rows: pl.DataFrame, hardware: HardwareSpec) -> list[str]:
    lines = [
        f"- {escape(hardware.title)}, memory: {tb_per_s(hardware.tb_per_s)} "
        f"({escape(hardware.source_of('mem_bw_gbps') or '')})"
    ]
    for compute in rows[C.compute].drop_nulls().unique(maintain_order=True):
        peak, ridge = hardware.peak_tflops(compute), hardware.ridge(compute)
        if peak is None or ridge is None:
            lines.append(f"- {peak_label(compute)}: peak unknown, so only memory is considered")
        else:
            lines.append(
                f"- {peak_label(compute)}: {tflops_per_s(peak)}, compute bound above "
                f"{ridge:,.0f} FLOP/byte ({escape(hardware.source_of(compute) or '')})"
            )
    return lines


def render(analysis: Analysis) -> None:
    """Draw the page of ``analysis`` for the open run."""
    now = page_header(analysis.title, analysis.icon, analysis)
    result = now.stored.results.get(analysis.key)
    if result is None:
        st.info("This run does not have this analysis yet: analyze the trace again to see it.")
        navigation.link(navigation.INGEST, "Analyze a trace", icon=":material/upload_file:")
        return
    if result.status is Status.ERROR:
        _failure(result)
        st.dataframe(now.stored.category_operations(analysis.key), hide_index=True)
        return
    if result.status is Status.NO_DATA or not result.row_count:
        _empty(analysis, now, now.run.results[analysis.key])
        return
    _page(analysis, now)


def _failure(result: AnalysisResult) -> None:
    st.error(
        f"The analysis failed and has no findings: {escape(result.error or '')}. The rough report "
        "has the traceback; the operations are listed below.",
        icon=":material/error:",
    )


def _empty(analysis: Analysis, now: Opened, result: AnalysisResult) -> None:
    """Draw the page of a category without operations; it can still have notes and findings."""
    if result.findings:
        target_pct = now.targets.of_category(analysis.key)
        findings_without_rows(analysis, now, result.findings, target_pct)
        _notes(now, result)
        st.subheader("Findings")
        finding_cards(result.findings, now.run, badges=finding_badges(now))
        return
    if found := fusion_findings_of(now.run.results, result):
        fusion_findings(analysis, now, found)
        _notes(now, result, has_links=True)
        return
    by_name = ""
    if "graph_launches" in now.stored.tables:
        launches = now.stored.table("graph_launches")
        if launches[C.capture_file].null_count():
            by_name = " Kernels that GPU graphs replay are assigned by their names."
    st.info(
        f"This trace has no operations of the category {analysis.title}.{by_name} The overview "
        "shows what takes its time.",
        icon=":material/inbox:",
    )
    _notes(now, result)
    navigation.link(navigation.OVERVIEW, "Overview", icon=":material/dashboard:")


def _notes(now: Opened, result: AnalysisResult, *, has_links: bool = False) -> None:
    """Draw the notes, with links to the findings on kernel fusion that they name."""
    for note in result.notes:
        st.info(prose(note), icon=":material/info:")
    if not has_links:
        fusion_links(now, fusion_findings_of(now.run.results, result))


def _page(analysis: Analysis, now: Opened) -> None:
    """Draw the page of a category with operations: figures before step savings, charts before what
    needs the findings at this target, as that takes longest to compute."""
    controls = category_controls(analysis.key)
    target_pct = now.targets.of_category(analysis.key)
    rows = with_projection(rows_of(now, analysis.key), target_pct, now.below_pct)
    is_shown = controls.passing(rows)
    shown = rows_where(rows, is_shown)
    filter_id = controls.filter_id
    figures = figures_of(now, analysis.key, filter_id, now.below_pct, shown)
    is_picked = _follow_clicks(analysis)
    uid, is_new = selection.selected(analysis.key, shown)
    if controls.are_set:
        _coverage(analysis.key, shown, rows)
    is_part = shown.height < rows.height
    if figures.has_efficiency:
        step_line(now, analysis.key, shown, target_pct, is_part=is_part)
    aims_slot = st.container()
    metric_cards(analysis, figures, now, is_part=is_part)
    notes_slot = st.container()
    rows = with_step_savings(now, analysis.key, rows, target_pct)
    shown = rows_where(rows, is_shown)
    has_rates = figures.has_rate or bool((rows[C.tb_per_s] > 0).any())
    _charts(analysis, now, filter_id, shown, rows, uid, has_rates=has_rates)
    st.subheader("Findings")
    with st.container():
        result = now.run.results[analysis.key]
        _findings(now, result, shown, is_filtered=is_part)
    with aims_slot:
        _lower_aims(result, target_pct)
    with notes_slot:
        _notes(now, result)
    st.subheader("Operations", help=_TABLE_HELP)
    how = f"{_rows_shown(shown, rows)} · select a row for details"
    if C.saved_step_us in shown.columns and _has_unneeded(shown):
        how += " · step saving 0: the steps do not wait for that operation"
    if shown.is_empty():
        st.caption(how)
        st.info("The filters hide every row.", icon=":material/filter_alt:")
    else:
        metrics_table(analysis, now, shown, filter_id, uid, is_new=is_new, about=how)
    if uid is not None:
        key = _details(analysis, now, rows, uid)
        if is_new:
            bring_into_view(key)
        elif is_picked:
            bring_into_view(key, VISIBLE_DETAILS_PX)
    method_note(analysis, rows, now.stored.manifest.hardware)


def _details(analysis: Analysis, now: Opened, rows: pl.DataFrame, uid: int) -> str:
    """Draw the details of an operation; return the key of their container."""
    target_pct, is_it = now.targets.of_category(analysis.key), pl.col(C.uid) == uid
    whole = now.stored.category_operations(analysis.key).filter(is_it)
    row = with_projection(whole, target_pct, now.below_pct).row(0, named=True)
    if C.saved_step_us in rows.columns:
        row[C.saved_step_us] = rows.filter(is_it)[C.saved_step_us].item()
    key = f"{analysis.key}_details_{uid}"
    with st.container(key=key):
        operation_details(analysis.key, now, row, call_path_of(now, analysis.key, uid), target_pct)
    return key


def _lower_aims(result: AnalysisResult, target_pct: float) -> None:
    """Draw how many findings assume less than the target that all figures of the page are at."""
    aims = (f.impact.target_pct for f in result.findings if f.impact is not None)
    if lower := sum(aim is not None and aim < target_pct for aim in aims):
        assume, say = (
            ("finding assumes that its", "its card says")
            if lower == 1
            else ("findings assume that their", "their cards say")
        )
        st.caption(
            f"{count(lower)} {assume} operations reach less than {target_pct:g}%; {say} why. The "
            f"figures of this page assume that all operations reach {target_pct:g}%."
        )


def _follow_clicks(analysis: Analysis) -> bool:
    """Select the operation clicked since the last run; return whether it is a row of the table."""
    for number in range(len(analysis.panels)):
        selection.follow_chart(analysis.key, _panel_key(analysis, number), PICKED)
    return selection.follow_table(analysis.key)


def _panel_key(analysis: Analysis, number: int) -> str:
    return f"{analysis.key}_panel_{number}"


def _rows_shown(shown: pl.DataFrame, rows: pl.DataFrame) -> str:
    return f"{count(shown.height)} of {counted(rows.height, 'row')} shown"


def _has_unneeded(rows: pl.DataFrame) -> bool:
    """Return whether an operation saves kernel time but no step time."""
    return bool(((rows[C.saved_us] > 0) & (rows[C.saved_step_us] == 0)).any())


def _coverage(page: str, shown: pl.DataFrame, rows: pl.DataFrame) -> None:
    """Draw which rows the figures, charts and findings of the page cover, and a way back."""
    with st.container(horizontal=True, vertical_alignment="center"):
        part_us, whole_us = (float(each[C.kernel_time_us].sum()) for each in (shown, rows))
        share = percent(share_pct(part_us, whole_us))
        text = f"**{_rows_shown(shown, rows)}**, {share} of the category's kernel time: figures, "
        st.markdown(f"{text}charts and findings below cover these.", width="content")
        clear_filters(page)


def _findings(
    now: Opened, result: AnalysisResult, shown: pl.DataFrame, *, is_filtered: bool
) -> None:
    """Draw the findings of the rows shown, and how many others there are."""

    def labels(uids: Collection[int]) -> dict[int, tuple[str | None, str]]:
        return _labels(now, result.key, tuple(uids))

    if result.status is Status.ERROR:  # only at this target
        _failure(result)
        return
    if not is_filtered:
        if not result.findings and (why := _why_none(shown)):
            st.info(why, icon=":material/visibility_off:")
        else:
            finding_cards(result.findings, now.run, badges=finding_badges(now), labels=labels)
        no_longer_findings(now, result.key)
        return
    covering = frozenset(shown[C.uid])
    covered = tuple(f for f in result.findings if not f.row_uids or f.row_uids & covering)
    if covered:
        finding_cards(covered, now.run, badges=finding_badges(now), labels=labels)
    if hidden := len(result.findings) - len(covered):
        st.caption(f"The filters hide the rows of {counted(hidden, 'finding')}.")


@cached(_MAX_CACHED_PANELS, of_stored)
def _labels(now: Opened, key: str, uids: tuple[int, ...]) -> dict[int, tuple[str | None, str]]:
    columns = (C.uid, "arguments", C.params, "difference")
    rows = rows_of(now, key).select(columns).filter(pl.col(C.uid).is_in(uids))
    return {
        uid: (call_shapes(arguments, params), difference)
        for uid, arguments, params, difference in rows.iter_rows()
    }


def _why_none(rows: pl.DataFrame) -> str:
    """Return why no finding does not mean that these operations are fast, as sentences; empty if
    the efficiency of most of their time is known, and they take enough time for a finding."""
    compute_pct = float(rows[C.percent_of_compute].sum())
    if 0 < compute_pct < MIN_COMPUTE_PCT:
        return (
            f"No findings on this page: its operations take {percent(compute_pct)} of compute, too "
            "little for a finding."
        )
    unknown = rows.filter(~has_efficiency())
    share = share_pct(*(float(part[C.kernel_time_us].sum()) for part in (unknown, rows)))
    if share < MOSTLY_PCT:
        return ""
    is_all = unknown.height == rows.height
    which = "its kernel time" if is_all else f"{percent(share)} of its kernel time"
    return (
        f"No findings on this page: the efficiency of {which} is not known, so this does not mean "
        "that it is fast."
    )


def _charts(
    analysis: Analysis,
    now: Opened,
    filter_id: str,
    rows: pl.DataFrame,
    whole: pl.DataFrame,
    selected: int | None,
    *,
    has_rates: bool,
) -> None:
    """Draw the panels in pairs, the first one wider, with the selected operation marked; without
    those of efficiencies if no operation of the category has a rate."""
    columns, target_pct = operation_columns(analysis), now.targets.of_category(analysis.key)
    numbered = [
        (number, panel)
        for number, panel in enumerate(analysis.panels)
        if has_rates or not (panel.kind in OF_OPERATIONS or panel.y == C.pct_roofline)
    ]
    for first in range(0, len(numbered), 2):
        pair = numbered[first : first + 2]
        widths = [5, 4] if len(pair) > 1 and not first else len(pair)
        for place, (number, panel) in zip(st.columns(widths, border=True), pair, strict=True):
            with place:
                name = _panel_key(analysis, number)
                key = selection.chart_key(name, PICKED, selected)
                look = (now.below_pct, palette().background)
                draw = partial(_cached_panel, now, name, filter_id, *look, selected)
                panel_chart(panel, rows, columns, target_pct, key, whole, draw)


@cached(_MAX_CACHED_PANELS, of_opened)
def _cached_panel(  # the first parameters are what the rows and colors of ``_data`` depend on
    now: Opened,
    name: str,
    filter_id: str,
    below_pct: float,
    background: str,
    selected: int | None,
    _data: PanelData,
) -> EncodedPanel:
    drawing, title = draw_panel(_data, selected)
    return None if drawing is None else drawing.encoded(), title
