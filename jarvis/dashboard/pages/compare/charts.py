"""The charts of the Compare page: what each category takes more or less, and single calls."""

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
from jarvis.dashboard.widgets.elements import drawn
from jarvis.dashboard.widgets.table import small_table
from jarvis.schemas import TABLES, TEXT, Column
from jarvis.text.format import counted, decimal, milliseconds

_QUANTITIES = {
    "ms": "difference_ms",
    "%": "difference_pct",
    "not explained": "unexplained_ms",
}
OPERATION_COLUMNS = charts.columns_of(DETAILS, TABLES["comparison_operations"])
"""The columns that rows of the page can have."""

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
_ALIKE = 0.005
"""A line of a ratio that is so close to 1 lies on that of equal times."""

_MEASURED, _EXPECTED = "reference", "expected"


def category_bars(found: Comparison) -> None:
    """The card with the bars of the categories."""
    with st.container(border=True, height="stretch"):
        st.markdown(f"**{_bars_title(found)}**")
        quantity = choice(
            "compare_bars",
            "Bars show",
            tuple(_QUANTITIES),
            "Target less reference in ms, the same in percent of the reference, or the time that "
            "the hardware does not explain.",
        )
        drawing = drawings.category_differences(
            found.categories, _CATEGORY_COLUMNS, palette(), _QUANTITIES[quantity]
        )
        drawn(drawing, "What each category takes more or less on the target", key="compare_chart")
        small_table(
            found.categories,
            _CATEGORY_COLUMNS,
            "Time of each category on both sides",
            _CATEGORY_SHOWN,
            _WIDTHS,
        )


def _bars_title(found: Comparison) -> str:
    row = next(iter(found.totals.filter(pl.col("type") == "computation_time").rows(named=True)), {})
    change = row.get("difference_ms")
    if change is None:
        return "Time by category: target less reference"
    if change == 0:
        return "Compute takes the same time on both sides"
    word = "more" if change > 0 else "less"
    return f"Compute takes {milliseconds(abs(change))} {word} on the target"


def calls_scatter(found: Comparison, rows: pl.DataFrame) -> int | None:
    """The card with the calls on both sides; the ``pair`` that was clicked."""
    with st.container(border=True, height="stretch"):
        st.markdown(f"**{_calls_title(rows)}**")
        against = choice(
            "compare_against",
            "Target against",
            (_MEASURED, _EXPECTED),
            "The time of a call on the reference as measured, or that time scaled to what the two "
            "GPUs explain: then what the hardware makes different falls away.",
        )
        if rows.is_empty():
            st.caption("No matched operation passes the filters.")
            return None
        columns, colors = OPERATION_COLUMNS, palette()
        if against == _EXPECTED and rows["expected_ratio_most"].null_count() == rows.height:
            st.caption("No expected ratio is available for these operations.")
            return None
        drawing = (
            drawings.calls_against_expected(rows, found.tolerance, columns, colors)
            if against == _EXPECTED
            else drawings.calls_on_both_sides(rows, expected_lines(found), columns, colors)
        )
        if (hidden := rows.height - charts.MAX_POINTS) > 0:
            st.caption(f"The {charts.MAX_POINTS:,} operations with most time; {hidden:,} hidden.")
        picked = drawn(
            drawing,
            "Time of a call of each matched operation on the target and on the reference",
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
    return "Time of a call on both sides"


def expected_lines(found: Comparison) -> Mapping[str, float]:
    """The ratios that the two GPUs explain, by what they are expected of: memory, and each compute
    peak in use, most time first."""
    if found.ratios is None:
        return {}
    by_time = (
        pl.concat(
            side.rows("operations").select("bound", "compute", "kernel_time_us")
            for side in (found.target, found.reference)
        )
        .filter(pl.col("bound") == "compute")
        .group_by("compute")
        .agg(pl.col("kernel_time_us").sum())
        .sort("kernel_time_us", "compute", descending=[True, False])
    )
    ratios = {"memory": found.ratios.memory}
    for compute in by_time["compute"]:
        ratio = found.ratios.compute(compute)
        if ratio is not None:
            ratios[peak_label(compute)] = ratio
    told_apart = [(name, ratio) for name, ratio in ratios.items() if abs(ratio - 1) > _ALIKE]
    return {
        f"{name} bound: {decimal(ratio)}x": ratio
        for name, ratio in told_apart[: drawings.MAX_RATIOS]
    }
