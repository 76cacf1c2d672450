"""The serving page: steps of an inference engine, their phases and rates."""

from dataclasses import replace

import polars as pl
import streamlit as st

from jarvis.analyses.base import Analysis
from jarvis.charts import MAX_COLUMNS, columns_of, drawing_of, stacked_columns
from jarvis.charts.marks import LINEAR, Tip
from jarvis.dashboard.pages.inference.shared import STEPS, findings_link, is_missing, remarks
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened, palette
from jarvis.dashboard.widgets.controls import ALL, choice, percent_slider, whole_number
from jarvis.dashboard.widgets.elements import metric_card, render_chart
from jarvis.dashboard.widgets.table import small_table
from jarvis.findings import AnalysisResult
from jarvis.perf_report.serving.notes import step_notes
from jarvis.perf_report.serving.rates import StepRates, step_rates
from jarvis.perf_report.serving.selection import STEADY, selected_steps, steady_state
from jarvis.schemas import TABLES
from jarvis.schemas.names import C
from jarvis.text.format import MINUS, count, counted, decimal, milliseconds, percent

_COLUMNS = columns_of(TABLES[STEPS])
_SHORT = {C.launch_mode: "Launch", C.graph_launches: "Graphs"}
_SHORT_COLUMNS = {name: replace(_COLUMNS[name], label=label) for name, label in _SHORT.items()}
_WIDTHS = {
    C.step: 45,
    C.phase: 62,
    C.step_time_ms: 98,
    C.tokens_per_s: 66,
    C.mbu_pct: 62,
    C.mfu_pct: 62,
    C.busy_ms: 74,
    C.gap_before_ms: 112,
    C.gap_inside_ms: 102,
    C.launch_mode: 62,
    C.graph_launches: 60,
}
"""Widths in pixels that show these columns in a window of 1280 pixels."""

_SHOWN = (
    *_WIDTHS,
    *(C.ctx_requests, C.gen_requests, C.ctx_tokens, C.gen_tokens, C.kv_tokens, C.resolution),
    *(C.padding_pct, C.kernel_count, C.short_kernels_ms),
    *(C.exposed_comm_ms, C.modelled_pct, C.is_cut),
)
_PARTS = (C.step, C.part, C.phase, C.step_time_ms, C.busy_ms, C.gap_before_ms, C.gap_inside_ms)
_OFTEN_0 = (C.ctx_requests, C.gen_requests, C.ctx_tokens, C.gen_tokens, C.exposed_comm_ms, C.is_cut)
_STATISTICS = (C.mean_ms, C.p50_ms, C.p95_ms)
"""Columns that are hidden where they are all 0, and where no phase has several steps."""

_BUSY, _INSIDE, _BEFORE = "GPU busy", "gap inside the step", "gap before the step"
_TIMES = {_BUSY: C.busy_ms, _INSIDE: C.gap_inside_ms, _BEFORE: C.gap_before_ms}


def render(now: Opened) -> None:
    """Draw the page for the open run."""
    if is_missing(now, STEPS):
        return
    table = now.run.table(STEPS)
    steps, parts = (table.filter(pl.col(C.part).is_null() == whole) for whole in (True, False))
    has_rates = steps[C.mbu_pct].count() + steps[C.mfu_pct].count() > 0
    with st.container(horizontal=True, vertical_alignment="bottom"):
        steps = _chosen(steps)
        mbu, mfu = (
            percent_slider(
                f"serving_{rate.lower()}", f"Target {rate}", now.run.target_pct, _TARGETS[rate]
            )
            if has_rates
            else round(now.run.target_pct)
            for rate in ("MBU", "MFU")
        )
    _figures(step_rates(steps.filter(~pl.col(C.is_cut)), mbu, mfu), mbu, mfu, has_rates)
    if steps.height > 1:
        _chart(steps)
    remarks(step_notes(steps, now.run.table("idle_gaps"), now.run.table("gpu_work")))
    with st.container(horizontal=True):
        findings_link(now)
        if steps[C.cost_source].null_count() and steps[C.graph_launches].sum():
            navigation.link("graphs", "Replayed graphs and their captures", icon=":material/hub:")
    phases = now.run.table("inference_phases")
    has_one_each = phases[C.step_count].max() == 1
    shown = [name for name in phases.columns if not (has_one_each and name in _STATISTICS)]
    _table("Phases", "inference_phases", phases, tuple(shown))
    used = [name for name in _SHOWN if name not in _OFTEN_0 or steps[name].sum()]
    _table("Steps", STEPS, steps, tuple(used))
    if parts.height:
        _table("Parts of steps", STEPS, parts, _PARTS)


def rates_section(_: Analysis, now: Opened, __: AnalysisResult) -> None:
    """Draw the figures of all steps at the target of the head, for the page of findings."""
    if STEPS not in now.run.manifest.tables:
        return
    table, target_pct = now.run.table(STEPS), round(now.run.target_pct)
    steps = table.filter(pl.col(C.part).is_null(), ~pl.col(C.is_cut))
    has_rates = steps[C.mbu_pct].count() + steps[C.mfu_pct].count() > 0
    st.subheader("Steps")
    _figures(step_rates(steps, target_pct, target_pct), target_pct, target_pct, has_rates)


_TARGETS = {
    "MBU": "Share of the peak memory bandwidth that steps should reach.",
    "MFU": "Share of the peak of the matrix units that steps should reach.",
}


def _chosen(steps: pl.DataFrame) -> pl.DataFrame:
    """Draw the choice of steps if there is one, and return them."""
    phases = steps[C.phase].drop_nulls().unique(maintain_order=True).to_list()
    options = [ALL, *([STEADY] if steady_state(steps) else []), *(phases if phases[1:] else [])]
    if len(options) == 1:
        return steps
    chosen = choice(
        "serving_steps",
        "Steps",
        options,
        "All steps, those in a row with nearly the most requests, or those of a phase.",
    )
    return steps if chosen == ALL else selected_steps(steps, chosen)


def _figures(rates: StepRates, mbu: int, mfu: int, has_rates: bool) -> None:
    busy = rates.busy_pct

    def while_busy(rate_pct: float | None) -> str | None:
        return f"{percent(100 * rate_pct / busy)} while busy" if rate_pct and busy else None

    saved = (
        None
        if rates.target_ms is None or rates.median_ms is None
        else rates.median_ms - rates.target_ms
    )
    with st.container(horizontal=True):
        metric_card(
            "Step time" if rates.steps == 1 else "Median step time",
            milliseconds(rates.median_ms),
            "1 step"
            if rates.steps == 1
            else f"{counted(rates.steps, 'step')}, p95 {milliseconds(rates.p95_ms)}",
            help_text=f"{_COLUMNS[C.step_time_ms].meaning}. Steps that the recording cuts are in "
            "no figure.",
        )
        metric_card(
            "Tokens/s",
            "—" if rates.tokens_per_s is None else decimal(rates.tokens_per_s),
            None if rates.itl_ms is None else f"ITL {milliseconds(rates.itl_ms)}",
            help_text="Tokens of all requests over the step times. ITL (inter-token latency) is "
            "the median step time of steps that generate tokens.",
        )
        metric_card(
            "GPU busy",
            percent(busy),
            help_text="Share of the step times in which GPU work of the step runs.",
        )
        if not has_rates:
            return
        for label, value, column in (
            ("MBU", rates.mbu_pct, C.mbu_pct),
            ("MFU", rates.mfu_pct, C.mfu_pct),
        ):
            metric_card(
                label, percent(value), while_busy(value), help_text=_COLUMNS[column].meaning
            )
        metric_card(
            "Step at the targets" if rates.steps == 1 else "Median step at the targets",
            milliseconds(rates.target_ms),
            None if saved is None else f"{MINUS}{milliseconds(saved)} at most",
            help_text=f"The longer of the times in which memory moves the bytes at {mbu}% of its "
            f"peak and matrix units do their FLOPs at {mfu}% of theirs, but never longer than now. "
            "Gaps and other work are not in it: a lower bound of the step time.",
        )


def _chart(steps: pl.DataFrame) -> None:
    """Draw the time of each step in parts."""
    first = 0
    with st.container(border=True):
        if steps.height > MAX_COLUMNS:
            first = whole_number(
                *("serving_from", "From row", 0, 0, steps.height - 1),
                f"The chart shows {MAX_COLUMNS} steps from this one on.",
            )
        shown = steps.slice(first, MAX_COLUMNS)
        times = pl.concat(
            shown.select(C.step, pl.col(column).fill_null(0).alias(C.time_ms), part=pl.lit(part))
            for part, column in _TIMES.items()
        )
        colors = palette()
        of_parts = {
            _BUSY: colors.primary,
            _INSIDE: colors.below_target,
            _BEFORE: colors.below_threshold,
        }
        whole = "" if shown.height == steps.height else f", {count(shown.height)} of them"
        st.markdown(f"**Time of {counted(steps.height, 'step')}{whole}**")
        chart = stacked_columns(
            times,
            of_parts,
            colors,
            x=Tip(C.step, "Step", ",d"),
            y=Tip(C.time_ms, "Time (ms)", LINEAR),
            part=Tip("part", "Part", None),
        )
        render_chart(drawing_of(chart), "Time of each step: GPU busy, gaps inside and before it")


def _table(title: str, name: str, rows: pl.DataFrame, shown: tuple[str, ...] = ()) -> None:
    """Draw a table without the columns that have no values."""
    columns = {**columns_of(TABLES[name]), **_SHORT_COLUMNS}
    filled = [column for column in shown or rows.columns if rows[column].count()]
    with st.container(border=True):
        st.markdown(f"**{title}**")
        small_table(rows, columns, title, filled, _WIDTHS if name == STEPS else None)
