"""Each kind of panel is drawn, and its title says what the rows on screen show."""

from dataclasses import replace
from typing import get_args

import polars as pl
import pytest

from jarvis import charts
from jarvis.analyses import load_analyses
from jarvis.analyses.base import Panel, PanelKind
from jarvis.dashboard.widgets.panel_kinds import KINDS, PanelData
from jarvis.dashboard.widgets.projection import operation_columns, with_projection
from jarvis.run import Run

ROWS = pl.DataFrame(
    {
        "name": ["aten::mm", "aten::add_", "aten::mm"],
        "kernel_time_us": [600.0, 300.0, 100.0],
        "tb_per_s": [1.0, 2.0, None],
        "pct_roofline": [20.0, 90.0, 60.0],
        "state": ["below threshold", "on target", "below target"],
        "saved_us": [450.0, 0.0, 25.0],
        "bytes": [1e6, 2e6, 3e6],
        "bound": ["compute", "memory", "compute"],
        "compute": ["matrix_bf16", "vector_fp32", "matrix_bf16"],
        "flops_per_byte": [500.0, 0.1, 500.0],
    }
)


def title(panel: Panel, rows: pl.DataFrame = ROWS) -> str:
    columns = operation_columns(load_analyses()["gemm"])
    return KINDS[panel.kind].title(PanelData(panel, rows, columns, 80, charts.LIGHT))


@pytest.mark.parametrize("name", get_args(PanelKind))
def test_a_kind_is_drawn_where_there_are_rows(name: PanelKind, sample_run: Run) -> None:
    rows = with_projection(sample_run.category_operations("gemm"), 80, 40)
    rows = charts.with_short_names(rows.with_columns(arguments=pl.lit("")))
    columns = operation_columns(load_analyses()["gemm"])
    kind, panel = KINDS[name], Panel(name, "T", x="flops", y="pct_roofline")
    data = PanelData(panel, rows, columns, 80, charts.LIGHT)
    drawing = kind.draw(data)
    assert drawing is not None
    assert not drawing.is_empty
    assert kind.title(data)
    nothing = kind.draw(replace(data, rows=rows.clear()))
    assert nothing is None or nothing.is_empty
    assert kind.when_empty(data).endswith(".")


def test_a_roofline_has_no_operations_without_an_efficiency(sample_run: Run) -> None:
    """Host copies have a rate, but the roof does not apply to them."""
    rows = with_projection(sample_run.category_operations("elementwise"), 80, 40)
    rows = charts.with_short_names(rows.with_columns(arguments=pl.lit("")))
    rated = rows.filter(pl.col("tb_per_s") > 0)
    assert (rated["state"] == "not available").any()
    columns = operation_columns(load_analyses()["elementwise"])
    panel = Panel("roofline", "Roofline", y="tb_per_s")
    drawing = KINDS["roofline"].draw(PanelData(panel, rows, columns, 80, charts.LIGHT))
    assert drawing is not None
    shown = [set(each["state"]) for each in drawing.datasets.values() if "state" in each.columns]
    assert shown
    assert not any("not available" in states for states in shown)


def test_an_empty_chart_of_savings_says_why() -> None:
    columns = operation_columns(load_analyses()["gemm"])
    unknown = ROWS.with_columns(saved_us=pl.lit(None, pl.Float64))
    reached = ROWS.with_columns(saved_us=pl.lit(0.0))
    unknown_why, reached_why = (
        KINDS["savings"].when_empty(
            PanelData(Panel("savings", "S"), rows, columns, 80, charts.LIGHT)
        )
        for rows in (unknown, reached)
    )
    assert unknown_why == "No operation here has a known efficiency."
    assert reached_why == "All operations with a known efficiency reach 80% of their roofline."


def test_there_are_no_other_kinds() -> None:
    assert set(KINDS) == set(get_args(PanelKind))


@pytest.mark.parametrize(
    ("panel", "expected"),
    [
        (
            Panel("roofline", "Roofline"),
            "1 of 2 operations, 66.7% of their time, below the threshold",
        ),
        (
            Panel("savings", "Savings"),
            "in green; the first of 2 saves 0.450 ms of 0.475 ms kernel time",
        ),
        (Panel("bars", "Time", x="kernel_time_us", y="name"), "mm has 70.0% of the kernel time"),
        (
            Panel("scatter", "Efficiency", x="bytes", y="pct_roofline"),
            "median 60.0%",
        ),
        (
            Panel("scatter", "Bandwidth", x="bytes", y="tb_per_s"),
            "median 1.50 TB/s",
        ),
    ],
)
def test_a_title_says_what_was_found(panel: Panel, expected: str) -> None:
    assert title(panel) == expected


def test_a_title_counts_operations_that_the_chart_cannot_place() -> None:
    copies = ROWS.with_columns(flops_per_byte=pl.Series([500.0, None, 500.0]))
    assert title(Panel("roofline", "Roofline"), copies).endswith(
        "below the threshold (1 without FLOPs not shown)"
    )
    assert "not shown" not in title(Panel("roofline", "Roofline", y="tb_per_s"), copies)


def test_a_title_follows_the_rows_that_are_left() -> None:
    on_target = ROWS.filter(state="on target")
    expected = "none of 1 operation is below the threshold"
    assert title(Panel("roofline", "Roofline"), on_target) == expected
    unknown = ROWS.filter(state="below threshold").with_columns(state=pl.lit("not available"))
    both = pl.concat([on_target, unknown])
    of_known = "none of 1 operation with a known efficiency is below the threshold"
    assert title(Panel("roofline", "Roofline"), both) == of_known
    assert (
        title(Panel("roofline", "Roofline"), unknown)
        == "the efficiency of 1 operation is not known"
    )
    one = ROWS.filter(pl.col("saved_us") == 25)
    assert (
        title(Panel("savings", "Savings"), one)
        == "in green; one operation saves 25.0 µs of kernel time"
    )
