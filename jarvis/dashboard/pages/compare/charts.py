"""Charts of the Compare page: time differences by category, and time per call."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.analyses.operations import DETAILS
from jarvis.charts import Columns, columns_of, peak_label
from jarvis.charts import comparison as drawings
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


MATCHED, ONLY_TARGET, ONLY_REFERENCE = "matched", "only_target", "only_reference"


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """A table: label, rows, columns, their order, default sort column and description.

    ``key`` is the column with the row ids of the URL; None if rows cannot be selected.
    """

    label: str
    rows: Callable[[Comparison], pl.DataFrame]
    columns: Columns
    names: tuple[str, ...]
    order: str
    about: str
    key: str | None = None


_TIMES = ("target_ms", "reference_ms", "difference_ms", "difference_pct")
_RATIOS = ("time_ratio", "expected_ratio")
_EXPECTED_RANGE = ("expected_ratio_least", "expected_ratio_most")


def _lowering(comparison: Comparison) -> pl.DataFrame:
    """Return the kernels of each operation, with its time and category."""
    own = comparison.operations.select("pair", "category", "target_ms")
    return comparison.lowering.join(own, on="pair", maintain_order="left")


def _alone(side: str, other: str, rows: Callable[[Comparison], pl.DataFrame]) -> ComparisonTable:
    return ComparisonTable(
        f"Only in {side}",
        rows,
        columns_of(TABLES["comparison_unmatched"]),
        (
            *("name", "input_dims", "time_ms", "calls", "percent_of_compute", "category"),
            *("bound", "kernel", "place"),
        ),
        "time_ms",
        f"Operations of the {side} that have no counterpart on the {other}.",
        "uid",
    )


VIEWS: Mapping[str, ComparisonTable] = {
    MATCHED: ComparisonTable(
        "Matched operations",
        lambda comparison: comparison.operations,
        OPERATION_COLUMNS,
        (
            *("outcome", "name", "arguments", "unexplained_ms", *_TIMES, *_RATIOS),
            *("target_us_per_call", "reference_us_per_call", "target_calls", "reference_calls"),
            *("percent_of_compute", "attainable_ms", "bound", "reference_bound"),
            *("efficiency_pct", "reference_efficiency_pct", "matched_by", "reference_name"),
            *("kernel", "reference_kernel", "work_ratio", *_EXPECTED_RANGE),
        ),
        "unexplained_ms",
        "Operations of both sides. Select a row for its kernels, the calculation of the expected "
        "time, and links to its category page.",
        "pair",
    ),
    ONLY_TARGET: _alone("target", "reference", lambda comparison: comparison.only_in_target),
    ONLY_REFERENCE: _alone("reference", "target", lambda comparison: comparison.only_in_reference),
    "kernels": ComparisonTable(
        "Kernels",
        lambda comparison: comparison.kernels,
        columns_of(TABLES["comparison_kernels"]),
        (
            *("kernel", "found_in", *_TIMES, "target_launches", "reference_launches"),
            *("target_us_per_launch", "reference_us_per_launch"),
        ),
        "target_ms",
        "GPU work by kernel name. Libraries of different vendors have different kernel names, so "
        "most rows are on one side only.",
    ),
    "lowering": ComparisonTable(
        "Kernels of each operation",
        _lowering,
        columns_of(TABLES["comparison_operations"], TABLES["comparison_lowering"]),
        (
            *("name", "input_dims", "target_ms", "side", "kernel", "found_in"),
            *("launches_per_call", "us_per_call", "percent"),
        ),
        "target_ms",
        "Kernels that an operation with these shapes launches on each side.",
    ),
    "modules": ComparisonTable(
        "Modules",
        lambda comparison: comparison.modules,
        columns_of(TABLES["comparison_modules"]),
        ("module", "path", "found_in", *_TIMES, "target_calls", "reference_calls"),
        "target_ms",
        "Time by module of the model. A module contains those below it, so the rows do not add up.",
    ),
    "collectives": ComparisonTable(
        "Collectives",
        lambda comparison: comparison.collectives,
        columns_of(TABLES["comparison_collectives"]),
        (
            *("collective", "dtype", "group_size", "message_mb", "found_in"),
            *(*_TIMES, "target_count", "reference_count"),
        ),
        "target_ms",
        "Communication by kind, element type, group size and message. The time of a collective "
        "includes waiting for other ranks.",
    ),
}
