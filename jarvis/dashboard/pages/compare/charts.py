"""Charts of the Compare page: time differences by category, and time per call."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl
import streamlit as st

from jarvis import charts
from jarvis.analyses.operations import DETAILS
from jarvis.charts import Columns, columns_of
from jarvis.charts import comparison as drawings
from jarvis.comparison import SLOWER, Comparison
from jarvis.dashboard.pages.compare.metric_cards import of_steps
from jarvis.dashboard.session.state import palette
from jarvis.dashboard.widgets.controls import choice
from jarvis.dashboard.widgets.elements import render_chart
from jarvis.dashboard.widgets.table import small_table
from jarvis.hardware import peak_label
from jarvis.schemas import TABLES, TEXT, Column
from jarvis.schemas.names import C
from jarvis.text.format import counted, decimal, milliseconds

_QUANTITIES = {
    "ms": C.difference_ms,
    "%": C.difference_pct,
    "not explained": C.unexplained_ms,
}
OPERATION_COLUMNS = charts.columns_of(DETAILS, TABLES["comparison_operations"])
"""Columns that rows of the page can have."""

_CATEGORY_COLUMNS = charts.columns_of(
    TABLES["comparison_categories"],
    (Column(C.title, "Category", TEXT, meaning="category of operations"),),
)
_CATEGORY_SHOWN = (C.title, C.target_ms, C.reference_ms)
"""Columns of the table below the bars, before the one that the bars show."""

_WIDTHS = {
    C.title: 90,
    C.target_ms: 65,
    C.reference_ms: 88,
    C.difference_ms: 88,
    C.difference_pct: 88,
    C.unexplained_ms: 105,
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
            (*_CATEGORY_SHOWN, _QUANTITIES[quantity]),
            _WIDTHS,
        )


def _bars_title(comparison: Comparison) -> str:
    change = float(comparison.categories[C.difference_ms].sum())
    steps = of_steps(comparison)
    if change == 0:
        return f"All categories together take the same time on both sides{steps}"
    word = "more" if change > 0 else "less"
    return f"All categories together take {milliseconds(abs(change))} {word} on the target{steps}"


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
        if against == _EXPECTED and rows[C.expected_ratio_most].null_count() == rows.height:
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
    slower = rows.filter(pl.col(C.outcome).is_in(SLOWER))
    if not slower.is_empty():
        unexplained = milliseconds(float(slower[C.unexplained_ms].sum()))
        of = counted(int(rows[C.is_unexpected].count()), "comparable operation")
        verb = "is" if slower.height == 1 else "are"
        return f"{slower.height} of {of} {verb} slower than expected, by {unexplained}"
    if rows[C.is_unexpected].count():
        return "No operation is slower than expected"
    return "Time per call on both sides"


def expected_lines(comparison: Comparison) -> Mapping[str, float]:
    """Return the expected time ratios: memory, then each compute peak in use, longest first."""
    if comparison.ratios is None:
        return {}
    by_time = (
        pl.concat(
            side.rows("operations").select(C.bound, C.compute, C.kernel_time_us)
            for side in (comparison.target, comparison.reference)
        )
        .filter(pl.col(C.bound) == "compute")
        .group_by(C.compute)
        .agg(pl.col(C.kernel_time_us).sum())
        .sort(C.kernel_time_us, C.compute, descending=[True, False])
    )
    ratios = {"memory": comparison.ratios.memory}
    for compute in by_time[C.compute]:
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


_TIMES = (C.target_ms, C.reference_ms, C.difference_ms)


def _lowering(comparison: Comparison) -> pl.DataFrame:
    """Return the kernels of each operation, with its time and category."""
    own = comparison.operations.select(C.pair, C.category, C.target_ms)
    return comparison.lowering.join(own, on=C.pair, maintain_order="left")


def _alone(side: str, other: str, rows: Callable[[Comparison], pl.DataFrame]) -> ComparisonTable:
    return ComparisonTable(
        f"Only in {side}",
        rows,
        columns_of(TABLES["comparison_unmatched"]),
        (
            *(C.name, C.input_dims, C.time_ms, C.calls, C.percent_of_compute, C.category),
            *(C.bound, C.kernel),
        ),
        C.time_ms,
        f"Operations of the {side} that have no counterpart on the {other}.",
        "uid",
    )


VIEWS: Mapping[str, ComparisonTable] = {
    MATCHED: ComparisonTable(
        "Matched operations",
        lambda comparison: comparison.operations,
        OPERATION_COLUMNS,
        (C.outcome, C.name, "arguments", *_TIMES, C.unexplained_ms, C.difference_pct),
        C.unexplained_ms,
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
            *(C.kernel, C.found_in, *_TIMES, C.difference_pct),
            *(C.target_launches, C.reference_launches),
        ),
        C.target_ms,
        "GPU work by kernel name. Libraries of different vendors have different kernel names, so "
        "most rows are on one side only.",
    ),
    "lowering": ComparisonTable(
        "Kernels of each operation",
        _lowering,
        columns_of(TABLES["comparison_operations"], TABLES["comparison_lowering"]),
        (
            *(C.name, C.input_dims, C.target_ms, C.side, C.kernel),
            *(C.launches_per_call, C.us_per_call, C.percent),
        ),
        C.target_ms,
        "Kernels that an operation with these shapes launches on each side.",
    ),
    "modules": ComparisonTable(
        "Modules",
        lambda comparison: comparison.modules,
        columns_of(TABLES["comparison_modules"]),
        (C.module, C.path, C.found_in, *_TIMES, C.difference_pct),
        C.target_ms,
        "Time by module of the model. A module contains those below it, so the rows do not add up.",
    ),
    "collectives": ComparisonTable(
        "Collectives",
        lambda comparison: comparison.collectives,
        columns_of(TABLES["comparison_collectives"]),
        (
            *(C.collective, C.dtype, C.group_size, C.message_mb),
            *(*_TIMES, C.target_count, C.reference_count),
        ),
        C.target_ms,
        "Communication by kind, element type, group size and message. The time of a collective "
        "includes waiting for other ranks.",
    ),
}
