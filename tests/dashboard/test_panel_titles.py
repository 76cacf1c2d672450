"""Titles of panels state the main result of the rows shown."""

import polars as pl
import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.base import Panel
from jarvis.dashboard.widgets.panel_titles import panel_title
from jarvis.dashboard.widgets.projection import operation_columns

ROWS = pl.DataFrame(
    {
        "name": ["aten::mm", "aten::add_", "aten::mm"],
        "kernel_time_us": [600.0, 300.0, 100.0],
        "tb_per_s": [1.0, 2.0, None],
        "pct_roofline": [20.0, 90.0, 60.0],
        "state": ["below threshold", "on target", "below target"],
        "saved_us": [450.0, 0.0, 25.0],
        "bytes": [1e6, 2e6, 3e6],
    }
)


@pytest.mark.parametrize(
    ("panel", "said"),
    [
        (
            Panel("roofline", "Roofline"),
            "1 of 2 operations, 66.7% of their time, below the threshold",
        ),
        (Panel("savings", "Savings"), "the first of 2 saves 0.450 ms of 0.475 ms"),
        (Panel("bars", "Time", x="kernel_time_us", y="name"), "aten::mm has 70.0%"),
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
def test_a_title_says_what_was_found(panel: Panel, said: str) -> None:
    columns = operation_columns(load_analyses()["gemm"])
    assert panel_title(panel, ROWS, columns) == f"**{panel.title}** · {said}"


def test_a_title_follows_the_rows_that_are_left() -> None:
    columns = operation_columns()
    on_target = ROWS.filter(state="on target")
    assert panel_title(Panel("roofline", "Roofline"), on_target, columns).endswith(
        "none of 1 operation is below the threshold"
    )
    one = ROWS.filter(pl.col("saved_us") == 25)
    assert panel_title(Panel("savings", "Savings"), one, columns).endswith(
        "one operation saves 25.0 µs"
    )
