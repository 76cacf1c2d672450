from typing import Any

import altair as alt
import polars as pl
import pytest

from jarvis import charts
from jarvis.analyses.operations import DETAILS
from jarvis.charts.comparison import (
    EQUAL_TIME,
    LONGER,
    SHORTER,
    calls_against_expected,
    calls_on_both_sides,
    category_differences,
)
from jarvis.comparison import Outcome
from jarvis.schemas import TABLES

CATEGORIES = charts.columns_of(TABLES["comparison_categories"])
OPERATIONS = charts.columns_of(DETAILS, TABLES["comparison_operations"])


def vega_lite(drawing: charts.Drawing) -> dict[str, Any]:
    """The chart as Vega-Lite, found valid."""
    spec = drawing.to_dict()
    alt.Chart.from_dict(spec)
    return spec


def categories() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "title": ["GEMM", "Attention", "Reduce"],
            "reference_ms": [4.0, 2.0, 0.0],
            "target_ms": [3.0, 5.0, 0.5],
            "difference_ms": [-1.0, 3.0, 0.5],
            "difference_pct": [-25.0, 150.0, None],
            "unexplained_ms": [0.0, 2.0, 0.0],
        }
    )


def operations(**changes: list[Any]) -> pl.DataFrame:
    data: dict[str, list[Any]] = {
        "pair": [0, 1],
        "name": ["aten::mm", "aten::add"],
        "arguments": ["[64,32] bf16", None],
        "outcome": [Outcome.SLOWER.value, Outcome.UNKNOWN.value],
        "target_us_per_call": [300.0, 20.0],
        "reference_us_per_call": [100.0, 10.0],
        "time_ratio": [3.0, 2.0],
        "expected_ratio": [None, None],
        "expected_ratio_least": [0.5, None],
        "expected_ratio_most": [1.5, None],
        "target_ms": [3.0, 0.2],
        "difference_ms": [2.0, 0.1],
        "unexplained_ms": [1.5, None],
        "matched_by": ["arguments", "arguments"],
    }
    return pl.DataFrame(data | changes, strict=False)


@pytest.mark.parametrize("palette", charts.PALETTES.values())
def test_bars_go_to_both_sides_of_zero_most_time_first(palette: charts.Palette) -> None:
    spec = vega_lite(category_differences(categories(), CATEGORIES, palette, "difference_ms"))
    bars = spec["datasets"]["bars"]
    assert [(bar["title"], bar["value"], bar["side"]) for bar in bars] == [
        ("Attention", 3.0, LONGER),
        ("Reduce", 0.5, LONGER),
        ("GEMM", -1.0, SHORTER),
    ]
    low, high = spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert low < -1.0
    assert high > 3.0


def test_a_percentage_of_zero_has_no_bar_and_comes_last() -> None:
    drawing = category_differences(categories(), CATEGORIES, charts.LIGHT, "difference_pct")
    last = drawing.datasets["bars"].row(-1, named=True)
    assert (last["title"], last["value"], last["is_known"]) == ("Reduce", 0.0, False)


def test_both_axes_have_one_range_so_that_equal_times_lie_on_the_diagonal() -> None:
    drawing = calls_on_both_sides(operations(), {"memory": 0.5}, OPERATIONS, charts.LIGHT)
    vega_lite(drawing)
    lines = drawing.datasets["lines"]
    ratios = lines.with_columns(
        ratio=pl.col("target_us_per_call") / pl.col("reference_us_per_call")
    )
    of = dict(ratios.select("line", "ratio").unique().iter_rows())
    assert of == {EQUAL_TIME: pytest.approx(1.0), "memory": pytest.approx(0.5)}
    assert lines["reference_us_per_call"].min() < 10.0
    assert lines["reference_us_per_call"].max() > 300.0


def test_the_nearest_bound_of_an_expected_range_counts() -> None:
    drawing = calls_against_expected(operations(), 1.2, OPERATIONS, charts.DARK)
    vega_lite(drawing)
    points = drawing.datasets["points"]
    assert points["expected_us_per_call"].to_list() == [150.0]
    factors = drawing.datasets["lines"].select(
        pl.col("target_us_per_call") / pl.col("expected_us_per_call")
    )
    found = sorted(set(factors.to_series().round(6)))
    assert found == pytest.approx([1 / 1.2, 1.0, 1.2], abs=1e-5)


def test_no_more_points_are_drawn_than_a_browser_takes() -> None:
    many = charts.MAX_POINTS + 5
    rows = pl.concat([operations().head(1)] * many).with_columns(
        pair=pl.int_range(many), target_ms=pl.int_range(many).cast(pl.Float64)
    )
    points = calls_on_both_sides(rows, {}, OPERATIONS, charts.LIGHT).datasets["points"]
    assert points["pair"].to_list() == list(range(many - 1, 4, -1))
