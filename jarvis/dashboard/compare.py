"""The Compare page: the open analysis as the target beside a reference."""

import polars as pl
import streamlit as st

from jarvis.comparison import Comparison
from jarvis.dashboard import compare_charts, compare_figures, compare_tables, selection
from jarvis.dashboard.compare_controls import PAGE, Filters, choose_sides, row_filters
from jarvis.dashboard.compare_details import pair_details
from jarvis.dashboard.compare_downloads import downloads
from jarvis.dashboard.compare_hardware import hardware_of_both
from jarvis.dashboard.compare_replay import compare_and_replay
from jarvis.dashboard.compare_sides import Sides, no_reference
from jarvis.dashboard.compare_views import MATCHED, VIEWS
from jarvis.dashboard.finding_cards import finding_cards
from jarvis.dashboard.state import Opened


def render(now: Opened) -> None:
    """Draw the comparison of the open analysis with the chosen reference."""
    chosen = choose_sides(now)
    if chosen is None:
        no_reference()
        return
    sides, tolerance = chosen
    found = sides.at(tolerance)
    compare_figures.warnings(sides, found)
    compare_figures.key_figures(found)
    compare_figures.in_sentences(found)
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
        compare_charts.category_bars(found)
    with calls:
        clicked = compare_charts.calls_scatter(found, rows)
    selection.follow_click(compare_tables.table_page(MATCHED), clicked)


def _findings(found: Comparison) -> None:
    st.subheader("What to improve on the target")
    if found.findings:
        finding_cards(
            found.findings,
            lambda finding: finding.impact,
            page=PAGE,
            select=lambda _, reference: compare_tables.show_operation(found, reference.uid),
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
    view = compare_tables.choose_view(found)
    shown = rows if view == MATCHED else VIEWS[view].rows(found)
    picked = compare_tables.view_table(view, shown, filters, sides)
    if picked is None or view != MATCHED:
        return None
    pair_details(sides, found, rows.row(by_predicate=pl.col("pair") == picked, named=True))
    return picked
