"""The Compare page: the open analysis as the target beside a reference."""

import polars as pl
import streamlit as st

from jarvis.comparison import Comparison
from jarvis.dashboard.pages.compare import charts, metric_cards, tables
from jarvis.dashboard.pages.compare.controls import PAGE, Filters, choose_sides, row_filters
from jarvis.dashboard.pages.compare.details import pair_details
from jarvis.dashboard.pages.compare.downloads import downloads
from jarvis.dashboard.pages.compare.hardware import hardware_of_both
from jarvis.dashboard.pages.compare.replay import compare_and_replay
from jarvis.dashboard.pages.compare.sides import Sides, no_reference
from jarvis.dashboard.pages.compare.views import MATCHED, VIEWS
from jarvis.dashboard.session import selection
from jarvis.dashboard.session.state import Opened
from jarvis.dashboard.widgets.finding_cards import finding_cards


def render(now: Opened) -> None:
    """Draw the comparison of the open analysis with the chosen reference."""
    chosen = choose_sides(now)
    if chosen is None:
        no_reference()
        return
    sides, tolerance = chosen
    found = sides.at(tolerance)
    metric_cards.warnings(sides, found)
    metric_cards.key_figures(found)
    metric_cards.in_sentences(found)
    filters = row_filters(found)
    rows = sides.operations_at(tolerance)
    _charts(found, filters.chosen(rows))
    _findings(found)
    pair = _differences(sides, found, rows, filters)
    compare_and_replay(sides, found, pair)
    hardware_of_both(sides, found)
    downloads(sides, found)


def _charts(found: Comparison, rows: pl.DataFrame) -> None:
    bars, calls = st.columns([4, 5])
    with bars:
        charts.category_bars(found)
    with calls:
        clicked = charts.calls_scatter(found, rows)
    selection.follow_click(tables.table_page(MATCHED), clicked)


def _findings(found: Comparison) -> None:
    st.subheader("What to improve on the target")
    if found.findings:
        finding_cards(
            found.findings,
            lambda finding: finding.impact,
            page=PAGE,
            select=lambda _, reference: tables.show_operation(found, reference.uid),
        )
    else:
        st.success(
            "No operation worth a finding is slower than the hardware explains.",
            icon=":material/check:",
        )


def _differences(
    sides: Sides, found: Comparison, rows: pl.DataFrame, filters: Filters
) -> int | None:
    """The chosen table and the details of its selected row; its ``pair`` if it is a matched one."""
    st.subheader("Differences")
    view = tables.choose_view(found)
    shown = rows if view == MATCHED else VIEWS[view].rows(found)
    picked = tables.view_table(view, shown, filters, sides)
    if picked is None or view != MATCHED:
        return None
    pair_details(sides, found, rows.row(by_predicate=pl.col("pair") == picked, named=True))
    return picked
