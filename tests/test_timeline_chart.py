"""The timeline chart: positions of rows, labels, colors."""

import json
from typing import Any

import polars as pl
import pytest

from jarvis import charts
from jarvis.charts import TimelineRow

COLORS = {"GEMM": "#0072B2", "Idle": "#BBD9EA", "Copies": "#F0E442"}
TITLE = "Time (ms)"
ROWS = [TimelineRow("gpu", "Compute"), TimelineRow("s7", "GPU 0 · stream 7", 2)]


def bins() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "row": ["gpu", "gpu"],
            "color": ["GEMM", "Idle"],
            "word": ["GEMM", "Synchronization"],
            "start_ms": [0.0, 1.0],
            "end_ms": [1.0, 2.0],
            "low_pct": [0.0, 0.0],
            "high_pct": [100.0, 25.0],
            "busy_pct": [100.0, 25.0],
        }
    )


def events() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "row": ["s7"] * 3,
            "lane": [0, 1, 0],
            "color": ["GEMM", "Copies", "GEMM"],
            "name": ["a_kernel_with_a_name_that_is_far_too_long" * 5, "Memcpy", "short"],
            "start_ms": [-1.0, 1.0, 1.999],
            "end_ms": [1.0, 1.5, 2.0],
            "dur_us": [2000.0, 500.0, 1.0],
            "called_by": ["aten::mm", None, "aten::mm"],
            "shapes": ["((8, 4), (4, 2))", None, None],
        }
    )


def spec() -> dict[str, Any]:
    chart = charts.timeline_chart(ROWS, bins(), events(), COLORS, (0.0, 2.0), charts.LIGHT, TITLE)
    found: dict[str, Any] = chart.to_dict()
    return found


def data(of: dict[str, Any], layer: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = of["datasets"][of["layer"][layer]["data"]["name"]]
    return rows


def test_a_bin_is_as_high_as_its_share_from_the_bottom_of_its_row() -> None:
    full, quarter = data(spec(), 0)
    assert (full["y"], full["y2"]) == (1.0, 0.0)
    assert (quarter["y"], quarter["y2"]) == (1.0, 0.75)


def test_lanes_of_a_row_lie_below_each_other_and_below_the_row_before() -> None:
    long, copied, short = data(spec(), 1)
    assert long["y"] > 1.0
    assert copied["y"] >= long["y2"]
    assert short["y"] == long["y"]


def test_labels_are_cut_to_the_visible_part_of_an_event() -> None:
    labels = {row["label_ms"]: row["label"] for row in data(spec(), 2)}
    assert set(labels) == {0.0, 1.0}
    assert labels[0.0].endswith("…")
    assert 4 < len(labels[0.0]) < 100
    assert labels[1.0] == "Memcpy"


def test_text_reads_on_its_color() -> None:
    inks = {row["label"]: row["ink"] for row in data(spec(), 2)}
    assert inks["Memcpy"] == "#000000"
    assert {ink for label, ink in inks.items() if label != "Memcpy"} == {"#FFFFFF"}


def test_the_legend_names_what_is_drawn_in_its_order() -> None:
    scale = spec()["layer"][0]["encoding"]["color"]["scale"]
    assert scale == {"domain": list(COLORS), "range": list(COLORS.values())}


def test_every_row_has_its_label_at_its_middle() -> None:
    axis = spec()["layer"][0]["encoding"]["y"]["axis"]
    assert axis["values"] == pytest.approx([0.5, 1.3 + 18 / 26])
    assert all(json.dumps(row.label) in axis["labelExpr"] for row in ROWS)


def test_dragging_and_scrolling_move_and_zoom() -> None:
    chart = spec()
    (moved,) = chart["params"]
    assert (moved["bind"], moved["select"]["encodings"]) == ("scales", ["x"])
    assert chart["layer"][0]["encoding"]["x"]["axis"]["title"] == TITLE


def test_rows_of_the_legend_take_no_height_of_the_lanes() -> None:
    kinds = [f"kind {n}" for n in range(11)]
    colors = dict.fromkeys(kinds, "#000000")
    many = (
        bins()
        .clear()
        .vstack(pl.concat([bins().head(1)] * len(kinds)).with_columns(color=pl.Series(kinds)))
    )
    chart = charts.timeline_chart(
        ROWS, many, events().clear(), colors, (0.0, 2.0), charts.LIGHT, TITLE
    )
    assert chart.to_dict()["height"] == spec()["height"] + 2 * 17
