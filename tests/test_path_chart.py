"""The chart of the critical paths: bars side by side, texts behind them."""

import polars as pl

from jarvis import charts
from jarvis.charts import NOW, SIMULATED

KEYS = ("host work", "gemm")


def rows(*whens: str) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "part": [part for part in ("Host work", "GEMM") for _ in whens],
            "when": [*whens, *whens],
            "time_ms": [4.0, 3.0, 0.5, 0.5][: 2 * len(whens)],
            "pct": [80.0, 60.0, 10.0, 10.0][: 2 * len(whens)],
            "text": ["4.00 ms · 80%", "3.00 ms · 60%", "", ""][: 2 * len(whens)],
            "color": [charts.path_color(key, charts.LIGHT) for key in KEYS for _ in whens],
        }
    )


def test_parts_have_a_bar_for_each_path_in_the_order_of_the_rows() -> None:
    drawn = charts.critical_paths(rows(NOW, SIMULATED), "Time (ms)", charts.LIGHT).to_dict()
    bars, texts = drawn["layer"]
    assert bars["encoding"]["y"]["sort"] == ["Host work", "GEMM"]
    assert bars["encoding"]["yOffset"]["sort"] == [NOW, SIMULATED]
    assert bars["encoding"]["opacity"]["scale"]["domain"] == [NOW, SIMULATED]
    assert texts["encoding"]["text"]["field"] == "text"
    assert bars["encoding"]["x"]["scale"]["domain"][1] > 4.0


def test_the_parts_have_the_colors_of_all_pages() -> None:
    drawn = charts.critical_paths(rows(NOW), "Time (ms)", charts.LIGHT).to_dict()
    (drawn_rows,) = drawn["datasets"].values()
    assert [row["color"] for row in drawn_rows] == [
        charts.LIGHT.categorical[6],
        charts.category_color("gemm", charts.LIGHT),
    ]
    assert drawn["layer"][0]["encoding"]["opacity"]["scale"]["range"] == [1.0]
