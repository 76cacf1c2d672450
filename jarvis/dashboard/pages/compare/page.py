"""The Compare page: the open analysis (target) against a reference."""

import polars as pl
import streamlit as st

from jarvis.comparison import Comparison
from jarvis.dashboard.pages.compare import charts, metric_cards, tables
from jarvis.dashboard.pages.compare.charts import MATCHED, VIEWS
from jarvis.dashboard.pages.compare.controls import PAGE, Filters, choose_sides, row_filters
from jarvis.dashboard.pages.compare.details import compare_and_replay, downloads, pair_details
from jarvis.dashboard.pages.compare.hardware import hardware_of_both
from jarvis.dashboard.pages.compare.sides import Sides, candidates, no_reference
from jarvis.dashboard.session import selection
from jarvis.dashboard.session.current_user import visible_catalog
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.finding_cards import finding_cards
from jarvis.schemas.names import C


def render(now: Opened) -> None:
    """Draw the comparison of the open analysis with the chosen reference."""
    others = candidates(now, visible_catalog())
    chosen = choose_sides(now, others)
    if chosen is None:
        no_reference(others)
        return
    sides, tolerance = chosen
    comparison = sides.at(tolerance)
    metric_cards.warnings(sides, comparison)
    metric_cards.verdict(comparison)
    metric_cards.key_metrics(comparison)
    metric_cards.in_sentences(comparison)
    metric_cards.limits(comparison)
    pair = None
    if tables.shown_views(comparison):
        filters = row_filters(comparison)
        rows = sides.operations_at(tolerance)
        _charts(comparison, rows, filters)
        _findings(sides, comparison)
        pair = _differences(sides, comparison, rows, filters)
    else:
        _findings(sides, comparison)
    if not comparison.operations.is_empty():
        compare_and_replay(sides, comparison, pair)
    hardware_of_both(sides, comparison)
    downloads(sides, comparison)


def _charts(comparison: Comparison, rows: pl.DataFrame, filters: Filters) -> None:
    """Draw the charts that have rows."""
    if comparison.categories.is_empty():
        return
    if rows.is_empty():
        charts.category_bars(comparison)
        return
    bars, calls = st.columns([4, 5])
    with bars:
        charts.category_bars(comparison)
    with calls:
        clicked = charts.calls_scatter(comparison, filters.chosen(rows))
    selection.follow_click(tables.table_page(MATCHED), clicked)


def _findings(sides: Sides, comparison: Comparison) -> None:
    """Draw the findings, or that there are none; nothing if nothing was compared."""
    has_efficiency = comparison.operations[C.is_unexpected].count() > 0
    if not (comparison.findings or has_efficiency):
        return
    st.subheader("What to improve on the target")
    run = sides.target.run
    if comparison.findings:
        finding_cards(
            comparison.findings,
            run.with_totals(comparison.totals_of(run.manifest.totals)),
            lambda finding: finding.impact,
            page=PAGE,
            select=lambda _, reference: tables.show_operation(comparison, reference.uid),
        )
    else:
        st.success(
            "No significant operation is slower than expected.",
            icon=":material/check:",
        )


def _differences(
    sides: Sides, comparison: Comparison, rows: pl.DataFrame, filters: Filters
) -> int | None:
    """Draw the chosen table and its selected row; return the ``pair`` of a matched operation."""
    st.subheader("Differences")
    view = tables.choose_view(comparison)
    shown = rows if view == MATCHED else VIEWS[view].rows(comparison)
    picked = tables.view_table(view, shown, filters, sides)
    if picked is None or view != MATCHED:
        return None
    pair_details(sides, comparison, rows.row(by_predicate=pl.col(C.pair) == picked, named=True))
    return picked
