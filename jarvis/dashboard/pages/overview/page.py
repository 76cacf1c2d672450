"""The overview: verdict, figures, findings in order with their savings, and time spent."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.charts.waterfall import waterfall
from jarvis.dashboard.pages.overview import step
from jarvis.dashboard.pages.overview.tables import (
    finding_addresses,
    ranked_findings,
    rows_beside,
)
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.state import Opened, cached, of_opened, palette
from jarvis.dashboard.widgets.elements import chart_of_links, metric_card
from jarvis.dashboard.widgets.finding_cards import no_longer_findings
from jarvis.dashboard.widgets.projection import operation_columns
from jarvis.impact import NEARLY_ALL_PCT, share_pct
from jarvis.reports.details import details_of
from jarvis.reports.figures import (
    Saving,
    alone_note,
    bounds_note,
    category_times,
    replayed_or_added,
    savings,
    target_words,
    total_ms,
    waterfall_rows,
)
from jarvis.reports.ranking import recommendations
from jarvis.reports.summary import first_sentences
from jarvis.reports.together import floor_line
from jarvis.run import Run
from jarvis.savings import over_steps, whole_ms, whole_name
from jarvis.schemas.names import C
from jarvis.text.format import milliseconds, percent
from jarvis.text.markdown import prose

_MAX_CACHED = 64
_LABEL_ROOM = 1.45
"""Length of the axis of the waterfall relative to its longest bar: a label fits behind it."""


def savings_of(run: Run) -> list[Saving]:
    """Return the savings of all findings."""
    return savings([(item, item.finding) for item in recommendations(run)], run)


@cached(_MAX_CACHED, of_opened)
def _savings(now: Opened) -> list[Saving]:
    return savings_of(now.run)


def waterfall_card(now: Opened, found: list[Saving], notes: str) -> None:
    """Draw the waterfall with its total as the title; a text if there are no savings."""
    run, totals = now.run, now.run.manifest.totals
    now_ms, whole = whole_ms(totals), whole_name(totals)
    with st.container(border=True, height="stretch"):
        if not found:
            st.markdown("**No finding has an estimate**, so there is no projection")
            return
        left_ms = now_ms - total_ms(found)
        st.markdown(
            f"**{milliseconds(now_ms)} could become {milliseconds(left_ms)}** · {whole} minus the "
            "savings below",
            help=replayed_or_added(run),
        )
        chart_of_links(
            _waterfall(now, palette(), waterfall_rows(now_ms, found, whole)),
            "Current time, each saving, and projected time; a bar opens its finding",
            key="overview_waterfall",
            field="label",
            addresses=finding_addresses(now),
        )
        if notes:
            st.caption(notes)


@cached(_MAX_CACHED, of_opened)
def _waterfall(now: Opened, colors: charts.Palette, _rows: pl.DataFrame) -> charts.EncodedDrawing:
    return charts.drawing_of(waterfall(_rows, colors, _LABEL_ROOM, is_short=True)).encoded()


PAGE = "overview"


def verdict(now: Opened) -> None:
    """Draw what the step takes and what costs most."""
    with st.container(border=True):
        st.markdown(prose(" ".join(filter(None, _verdict(now)))))


@cached(_MAX_CACHED, of_opened)
def _verdict(now: Opened) -> tuple[str | None, str]:
    return first_sentences(now.run, details_of(now.run))


def answer(now: Opened) -> None:
    """Draw five figures, the findings in order, and beside them the waterfall of savings."""
    found = _savings(now)
    _figures(now, found)
    findings, waterfall = st.columns([2, 1])
    notes = " ".join(filter(None, (alone_note(found), bounds_note(found), floor_line(now.run))))
    with findings.container(border=True, height="stretch"):
        ranked_findings(now, rows_beside(len(found), len(notes)))
        no_longer_findings(now)
    with waterfall:
        waterfall_card(now, found, notes)


def time_spent(now: Opened) -> None:
    """Draw the parts of a step, the steps, and the categories."""
    step.parts_bar(now)
    step.steps_table(now)
    _categories(now)


def _figures(now: Opened, found: list[Saving]) -> None:
    """Draw five cards: time, its parts, and the saving of all findings together."""
    totals = now.run.manifest.totals
    saved_ms = total_ms(found)
    *times, saving = st.columns(5)
    step.time_cards(now, times)
    with saving:
        metric_card(
            "Saving",
            milliseconds(saved_ms),
            f"{percent(share_pct(saved_ms, whole_ms(totals)))} of "
            f"{whole_name(totals).removeprefix('the ')}",
            help_text="Projected saving of all findings together at the target efficiency, as in "
            "the waterfall below.",
        )


def _categories(now: Opened) -> None:
    shown = _category_chart(now, palette())
    with st.container(border=True, height="stretch"):
        if shown is None:
            st.markdown("**No category has GPU time**: no operation launched GPU work")
            return
        st.markdown(
            shown.title,
            help="Kernel time of each category, and in green the saving if its operations reached "
            "the target. This excludes findings about idle time, communication and fusion, and "
            "includes operations too small for a finding, and those of which findings assume less "
            "than the target.",
        )
        st.caption(shown.caption)
        chart_of_links(
            shown.drawing,
            "Kernel time and saving of each category; a bar opens its page",
            key="overview_categories",
            field=C.category,
            addresses={key: navigation.own_address(key) for key in shown.keys},
        )


@dataclass(frozen=True, slots=True)
class _CategoryChart:
    """The chart of the categories, and their keys."""

    title: str
    caption: str
    drawing: charts.EncodedDrawing
    keys: Sequence[str]


@cached(_MAX_CACHED, of_opened)
def _category_chart(now: Opened, colors: charts.Palette) -> _CategoryChart | None:
    rows = category_times(now.run).filter(pl.col("gpu_time_ms") > 0)
    if rows.is_empty():
        return None
    first = rows.row(0, named=True)
    of_step = " a step" if over_steps(now.run.manifest.totals) else ""
    time_ms, rated_ms, saved_ms = (
        float(rows[name].sum()) for name in ("gpu_time_ms", "rated_ms", "saved_ms")
    )
    share, rated_pct = share_pct(first["gpu_time_ms"], time_ms), share_pct(rated_ms, time_ms)
    rated = (
        "all categories"
        if rated_pct >= NEARLY_ALL_PCT
        else f"the {percent(rated_pct)} with a known efficiency"
    )
    projection = (
        f"at {target_words(now.run)} of the roofline {rated} would save "
        f"{milliseconds(saved_ms)} of kernel time{of_step}"
        if rows["has_efficiency"].any()
        else "no efficiencies, so no saving"
    )
    known = "known: share of the kernel time with a known efficiency · "
    has_known = rows["text"].str.contains("known)", literal=True).any()
    return _CategoryChart(
        f"**{first[C.title]} takes {percent(share)} of kernel time** · {projection}",
        f"Whole bar: kernel time{of_step} · green: could be saved at the target · "
        f"{known if has_known else ''}click a bar",
        charts.categories(rows, operation_columns(), colors).encoded(),
        rows[C.category].to_list(),
    )
