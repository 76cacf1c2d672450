"""Charts of the Compare page: time differences by category, and time per call."""

from collections.abc import Mapping

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.analyses.operations import DETAILS
from jarvis.charts import comparison as drawings
from jarvis.charts import peak_label
from jarvis.comparison import SLOWER, Comparison
from jarvis.dashboard.session.state import palette
from jarvis.dashboard.widgets.controls import choice
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.dashboard.widgets.table import small_table
from jarvis.schemas import TABLES, TEXT, Column
from jarvis.text.format import counted, decimal, milliseconds

_QUANTITIES = {
    "ms": "difference_ms",
    "%": "difference_pct",
    "not explained": "unexplained_ms",
}
OPERATION_COLUMNS = charts.columns_of(DETAILS, TABLES["comparison_operations"])
"""Columns that rows of the page can have."""

_CATEGORY_COLUMNS = charts.columns_of(
    TABLES["comparison_categories"],
    (Column("title", "Category", TEXT, meaning="category of operations"),),
)
_CATEGORY_SHOWN = ("title", "target_ms", "reference_ms", "difference_pct", "unexplained_ms")
_WIDTHS = {
    "title": 90,
    "target_ms": 75,
    "reference_ms": 95,
    "difference_pct": 85,
    "unexplained_ms": 105,
}
_MIN_OFFSET = 0.005
"""Ratios closer to 1 than this get no line, as it would overlap the line of equal times."""

_MEASURED, _EXPECTED = "reference", "expected"


def category_bars(comparison: Comparison) -> None:
    """Draw the card with the bars of the categories."""
    with st.container(border=True, height="stretch"):
        st.markdown(f"**{_bars_title(comparison)}**")
        quantity = choice(
            "compare_bars",
            "Bars show",
            tuple(_QUANTITIES),
            "Target minus reference in ms or in percent of the reference, or the time that the "
            "hardware does not explain.",
        )
        drawing = drawings.category_differences(
            comparison.categories, _CATEGORY_COLUMNS, palette(), _QUANTITIES[quantity]
        )
        render_chart(drawing, "Time difference of each category on the target", key="compare_chart")
        small_table(
            comparison.categories,
            _CATEGORY_COLUMNS,
            "Time of each category on both sides",
            _CATEGORY_SHOWN,
            _WIDTHS,
        )


def _bars_title(comparison: Comparison) -> str:
    row = next(
        iter(comparison.totals.filter(pl.col("type") == "computation_time").rows(named=True)), {}
    )
    change = row.get("difference_ms")
    if change is None:
        return "Time by category: target minus reference"
    if change == 0:
        return "Compute takes the same time on both sides"
    word = "more" if change > 0 else "less"
    return f"Compute takes {milliseconds(abs(change))} {word} on the target"


def calls_scatter(comparison: Comparison, rows: pl.DataFrame) -> int | None:
    """Draw the card with the calls on both sides; return the ``pair`` of the clicked point."""
    with st.container(border=True, height="stretch"):
        st.markdown(f"**{_calls_title(rows)}**")
        against = choice(
            "compare_against",
            "Target against",
            (_MEASURED, _EXPECTED),
            "Time per call on the reference as measured, or scaled by the expected ratio of the "
            "two GPUs, which removes hardware differences.",
        )
        if rows.is_empty():
            st.caption("No matched operation passes the filters.")
            return None
        columns, colors = OPERATION_COLUMNS, palette()
        if against == _EXPECTED and rows["expected_ratio_most"].null_count() == rows.height:
            st.caption("No expected ratio is available for these operations.")
            return None
        drawing = (
            drawings.calls_against_expected(rows, comparison.tolerance, columns, colors)
            if against == _EXPECTED
            else drawings.calls_on_both_sides(rows, expected_lines(comparison), columns, colors)
        )
        if (hidden := rows.height - charts.MAX_POINTS) > 0:
            st.caption(f"The {charts.MAX_POINTS:,} longest operations; {hidden:,} hidden.")
        picked = render_chart(
            drawing,
            "Time per call of each matched operation on target and reference",
            key=f"compare_scatter_{against}",
            selection=charts.PICKED,
        )
    return int(picked[0]["pair"]) if picked else None


def _calls_title(rows: pl.DataFrame) -> str:
    slower = rows.filter(pl.col("outcome").is_in(SLOWER))
    if not slower.is_empty():
        unexplained = milliseconds(float(slower["unexplained_ms"].sum()))
        of = counted(rows.height, "operation")
        verb = "is" if slower.height == 1 else "are"
        return f"{slower.height} of {of} {verb} slower than the hardware explains, by {unexplained}"
    if rows["is_unexpected"].count():
        return "No operation is slower than the hardware explains"
    return "Time per call on both sides"


def expected_lines(comparison: Comparison) -> Mapping[str, float]:
    """Return the expected time ratios: memory, then each compute peak in use, longest first."""
    if comparison.ratios is None:
        return {}
    by_time = (
        pl.concat(
            side.rows("operations").select("bound", "compute", "kernel_time_us")
            for side in (comparison.target, comparison.reference)
        )
        .filter(pl.col("bound") == "compute")
        .group_by("compute")
        .agg(pl.col("kernel_time_us").sum())
        .sort("kernel_time_us", "compute", descending=[True, False])
    )
    ratios = {"memory": comparison.ratios.memory}
    for compute in by_time["compute"]:
        ratio = comparison.ratios.compute(compute)
        if ratio is not None:
            ratios[peak_label(compute)] = ratio
    distinct = [(name, ratio) for name, ratio in ratios.items() if abs(ratio - 1) > _MIN_OFFSET]
    return {
        f"{name} bound: {decimal(ratio)}x": ratio for name, ratio in distinct[: drawings.MAX_RATIOS]
    }
