import re
from datetime import datetime, timedelta
from typing import Any

import altair as alt
import polars as pl
import pytest
import vl_convert

from jarvis import charts
from jarvis.analyses.operations import DETAILS
from jarvis.charts.arrivals import (
    AT_MOST,
    PARTS,
    arrival_map,
    bandwidths,
    blame_bars,
    lanes,
    pair_map,
    step_map,
)
from jarvis.charts.marks import Tip, specification
from jarvis.charts.rooflines import Ceiling, log_ticks
from jarvis.charts.trend import trend
from jarvis.perf_report.kernel_blocks import COMMUNICATION, OTHER, blocks, title_of
from jarvis.schemas import TABLES

COLUMNS = charts.columns_of(TABLES["operations"], DETAILS, charts.PROJECTED)
TIMES = "\N{MULTIPLICATION SIGN}"
PRODUCT = f"64{TIMES}16{TIMES}32 bf16"
BELOW, MISSED, REACHED, ABOVE, UNKNOWN = charts.STATES


def rows(**changes: list[Any]) -> pl.DataFrame:
    """Return two GEMMs below a peak of 100 TFLOP/s and 2 TB/s, one with a low efficiency."""
    data: dict[str, list[Any]] = {
        "uid": [7, 9],
        "name": ["aten::mm", "aten::addmm"],
        "arguments": ["[64,32] bf16", None],
        "operation_count": [4, 2],
        "kernel_time_us": [100.0, 50.0],
        "flops_per_byte": [10.0, 200.0],
        "bytes": [1e6, 2e6],
        "tflops_per_s": [5.0, 90.0],
        "tb_per_s": [0.5, 0.45],
        "pct_roofline": [25.0, 90.0],
        "bound": ["memory", "compute"],
        "compute": ["matrix_bf16", "matrix_bf16"],
        "peak_tflops": [100.0, 100.0],
        "peak_tb_per_s": [2.0, 2.0],
        "state": [BELOW, REACHED],
        "saved_us": [68.75, 0.0],
        "params": ['{"M": 64, "N": 16, "K": 32}', None],
    }
    return charts.with_short_names(pl.DataFrame(data | changes, strict=False))


@pytest.mark.parametrize(("numbers", "top"), [([1, 3, None], 3.0), ([0.5], 0.5), ([], 0.0)])
def test_the_largest_of_no_numbers_is_0(numbers: list[float | None], top: float) -> None:
    assert charts.largest(pl.Series(numbers, dtype=pl.Float64)) == top
    assert charts.largest(pl.Series([None], dtype=pl.Int64)) == 0.0


def vega_lite(chart: Any) -> dict[str, Any]:
    """Validate the chart; return it as Vega-Lite."""
    spec: dict[str, Any] = chart.to_dict()
    if isinstance(chart, charts.Drawing):
        alt.Chart.from_dict(spec)
    return spec


def values(spec: dict[str, Any], layer: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spec["datasets"][layer.get("data", spec.get("data"))["name"]]
    return found


def lines(spec: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Return the corners of each ceiling and of its target."""
    corners = [p for la in spec["layer"] if la["mark"]["type"] == "line" for p in values(spec, la)]
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for corner in corners:
        found.setdefault((corner["ceiling"], corner["of"]), []).append(corner)
    return list(found.values())


def texts(spec: dict[str, Any]) -> list[str]:
    labels = [la for la in spec["layer"] if la["mark"]["type"] == "text"]
    return [label["text"] for layer in labels for label in values(spec, layer)]


def test_a_ceiling_has_its_ridge_where_both_peaks_meet() -> None:
    ceiling = Ceiling("bf16", slope=2.0, peak=100.0)
    assert ceiling.corners((1.0, 1000.0)) == [(1.0, 2.0), (50.0, 100.0), (1000.0, 100.0)]
    assert ceiling.corners((1.0, 10.0)) == [(1.0, 2.0), (10.0, 20.0)]
    assert Ceiling("", slope=2.0, peak=None).corners((1.0, 10.0))[-1] == (10.0, 20.0)


def test_the_roofline_shows_the_peak_and_the_target_of_each_precision() -> None:
    mixed = rows(compute=["matrix_bf16", "vector_fp32"], peak_tflops=[100.0, 20.0])
    spec = vega_lite(charts.compute_roofline(mixed, COLUMNS, 60, charts.LIGHT))
    tops = [max(point["tflops_per_s"] for point in line) for line in lines(spec)]
    assert tops == pytest.approx([100.0, 60.0, 20.0, 12.0])
    assert texts(spec) == [
        "bf16 matrix peak 100 TFLOP/s",
        "fp32 vector peak 20 TFLOP/s",
        "2 TB/s memory",
    ]


def test_the_target_line_moves_with_the_slider() -> None:
    heights = []
    for target in (50, 80):
        spec = vega_lite(charts.compute_roofline(rows(), COLUMNS, target, charts.LIGHT))
        heights.append(lines(spec)[1][-1]["tflops_per_s"])
    assert heights == pytest.approx([50.0, 80.0])


def test_a_slider_changes_only_the_data_of_a_chart() -> None:
    """The browser reuses the specification."""
    seen = []
    for target, saved in ((50, [68.0, 30.0]), (80, [30.0, 68.0])):
        moved = rows(saved_us=saved, state=[BELOW, MISSED])
        seen.append(
            [
                charts.compute_roofline(moved, COLUMNS, target, charts.LIGHT),
                charts.bandwidth_roofline(moved, COLUMNS, target, charts.LIGHT),
                charts.savings(moved, COLUMNS, charts.LIGHT),
                charts.scatter(moved, COLUMNS, charts.LIGHT, x="bytes", y="pct_roofline"),
            ]
        )
    for before, after in zip(*seen, strict=True):
        assert before.spec is after.spec
        assert before.datasets.keys() == after.datasets.keys()
    first, second = (one[2].datasets["bars"]["label"].to_list() for one in seen)
    assert first == second[::-1]


def test_points_carry_state_in_color_and_shape_and_can_be_picked() -> None:
    spec = vega_lite(charts.compute_roofline(rows(), COLUMNS, 80, charts.DARK))
    points = next(la for la in spec["layer"] if la["mark"]["type"] == "point")
    color, shape = points["encoding"]["color"], points["encoding"]["shape"]
    assert color["scale"]["domain"] == shape["scale"]["domain"] == [BELOW, REACHED]
    assert color["scale"]["range"] == [charts.DARK.below_threshold, charts.DARK.primary]
    assert shape["scale"]["range"] == ["triangle-down", "circle"]
    assert [point["uid"] for point in values(spec, points)] == [7, 9]
    assert spec["params"][0]["name"] == charts.PICKED


def test_rows_without_a_rate_or_a_peak_do_not_break_the_roofline() -> None:
    unknown = rows(
        flops_per_byte=[None, 200.0],
        peak_tflops=[None, None],
        peak_tb_per_s=[None, None],
        state=[UNKNOWN, UNKNOWN],
    )
    spec = vega_lite(charts.compute_roofline(unknown, COLUMNS, 80, charts.LIGHT))
    assert not lines(spec)
    assert not texts(spec)
    points = next(la for la in spec["layer"] if la["mark"]["type"] == "point")
    assert [point["uid"] for point in values(spec, points)] == [9]


@pytest.mark.parametrize("draw", [charts.compute_roofline, charts.bandwidth_roofline])
def test_one_small_operation_does_not_stretch_the_axes(draw: Any) -> None:
    small = rows(
        kernel_time_us=[999.0, 1.0],
        tflops_per_s=[90.0, 1e-4],
        tb_per_s=[0.45, 1e-6],
        compute=["matrix_bf16", "vector_fp32"],
        peak_tflops=[100.0, 1.0],
    )
    drawing = draw(small, COLUMNS, 80, charts.LIGHT)
    chart = vega_lite(drawing)
    low, high = chart["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert high < 1000 * low
    assert drawing.note == "Outside the chart: 1 operation, 1.00 µs of 1.00 ms."
    assert charts.selectable(drawing, None, charts.LIGHT).note == drawing.note
    assert not any("fp32" in text for text in texts(chart))
    assert len(values(chart, chart["layer"][0])) == 2  # of which one is clipped


def test_a_scatter_has_the_axis_of_most_time_and_a_unit_by_size() -> None:
    small = rows(kernel_time_us=[999.0, 1.0], bytes=[1e6, 10.0], tb_per_s=[0.02, 0.01])
    drawing = charts.scatter(small, COLUMNS, charts.LIGHT, x="bytes", y="tb_per_s")
    encoding = vega_lite(drawing)["encoding"]
    assert encoding["x"]["scale"]["domain"] == [1e6, 1e6]
    assert encoding["y"]["axis"]["title"] == "GB/s"
    assert drawing.datasets["points"]["tb_per_s"].to_list() == [20, 10]
    assert drawing.note == "Outside the chart: 1 operation, 1.00 µs of 1.00 ms."


def test_only_the_memory_peak_known_leaves_the_slope() -> None:
    memory_only = rows(peak_tflops=[None, None])
    spec = vega_lite(charts.compute_roofline(memory_only, COLUMNS, 80, charts.LIGHT))
    assert texts(spec) == ["2 TB/s memory"]
    assert len(lines(spec)[0]) == 2


def test_the_bandwidth_roofline_is_level_at_the_memory_peak() -> None:
    spec = vega_lite(charts.bandwidth_roofline(rows(), COLUMNS, 50, charts.LIGHT))
    peak, target = lines(spec)
    assert [point["tb_per_s"] for point in peak] == [2.0, 2.0]
    assert [point["tb_per_s"] for point in target] == [1.0, 1.0]
    assert "500 GB/s" in re.findall(r">([^<>]+)</text>", vl_convert.vegalite_to_svg(spec))


@pytest.mark.parametrize("low", [1.0, 2.1, 2.4e7, 5.5, 9.9])
def test_a_short_logarithmic_axis_has_two_ticks(low: float) -> None:
    domain = (low, 3.2 * low)
    ticks = log_ticks(domain)
    assert len(ticks) > 1
    assert all(domain[0] <= tick <= domain[1] for tick in ticks)
    assert log_ticks((1e3, 2e5)) == pytest.approx([1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5])


def test_rooflines_of_two_targets_share_all_but_the_states() -> None:
    many = charts.MAX_POINTS
    data = rows().select(pl.all().repeat_by(many // 2).explode())
    drawings = [
        charts.compute_roofline(data.with_columns(state=pl.lit(state)), COLUMNS, 80, charts.LIGHT)
        for state in (MISSED, REACHED)
    ]
    encoded = [drawing.encoded() for drawing in drawings]
    assert [each.arrow for each in encoded] == [each.arrow for each in drawings]
    one, other = (each.parts["points"] for each in encoded)
    shared = sum(part is same for part, same in zip(one, other, strict=False))
    assert shared > len(one) / 2


def test_the_roofline_draws_no_more_points_than_a_browser_takes() -> None:
    count = charts.MAX_POINTS + 10
    many = pl.concat([rows()] * (count // 2)).with_columns(
        uid=pl.int_range(pl.len()), kernel_time_us=pl.int_range(1, pl.len() + 1).cast(pl.Float64)
    )
    spec = vega_lite(charts.compute_roofline(many, COLUMNS, 80, charts.LIGHT))
    points = next(la for la in spec["layer"] if la["mark"]["type"] == "point")
    shown = values(spec, points)
    assert len(shown) == charts.MAX_POINTS
    assert shown[0]["uid"] == many.height - 1


def test_savings_exclude_zeros_and_label_each_bar_once() -> None:
    same = charts.with_short_names(pl.concat([rows(saved_us=[68.0, 1.0])] * 2))
    spec = vega_lite(charts.savings(same, COLUMNS, charts.LIGHT))
    assert spec["layer"][0]["encoding"]["y"]["sort"]["field"] == "rank"
    assert [(row["rank"], row["label"]) for row in values(spec, spec)] == [
        (0, f"mm\N{EN SPACE}{PRODUCT}"),
        (1, f"mm #2\N{EN SPACE}{PRODUCT}"),
        (2, "addmm"),
        (3, "addmm #2"),
    ]
    one = vega_lite(charts.savings(rows(), COLUMNS, charts.LIGHT))
    assert [row["name"] for row in values(one, one)] == ["aten::mm"]
    name = one["layer"][-1]["encoding"]
    assert (name["text"]["field"], name["x"], name["y"]["axis"]) == ("label", {"value": 0}, None)


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"input_strides": ["((64, 1),)", "((1, 8),)"]}, ["mm, contiguous", "mm, transposed"]),
        ({"input_strides": ["((128, 1),)", "((0, 1),)"]}, ["mm, strided", "mm, expanded"]),
        ({"concrete_inputs": ["('', 'True')", "('', 'False')"]}, ["mm (…, True)", "mm (…, False)"]),
        ({"thread_name": ["thread 1", "thread 2 (pt_autograd_0)"]}, ["mm", "mm, recomputed"]),
        (
            {"thread_name": ["thread 1 (python)", "thread 2 (a)"], "process_name": ["python"] * 2},
            ["mm", "mm, a"],
        ),
        ({"direction": [None, "backward"]}, ["mm", "mm, recomputed"]),
        (
            {"thread_name": ["thread 1 (a)"] * 2, "direction": ["forward", "backward"]},
            ["mm", "mm, recomputed"],
        ),
        (
            {"name": [f"void ns::rms_norm<{n}, true>(int)" for n in (256, 64)]},
            ["rms_norm <256>", "rms_norm <64>"],
        ),
        ({"name": [f"_Z4norm{end}" for end in ("ILi8EE", "IfLi8EE")]}, ["norm", "norm #2"]),
        ({"concrete_inputs": [f"('{'x' * 20}{n}',)" for n in (1, 2)]}, ["mm", "mm #2"]),
    ],
)
def test_rows_of_one_name_have_what_differs(columns: dict[str, Any], found: list[str]) -> None:
    same = {"uid": [1, 2], "name": ["aten::mm"] * 2, "arguments": ["[8,64]"] * 2}
    frame = pl.DataFrame(same | {"input_dims": ["((8, 64),)"] * 2} | columns)
    is_marked = found[-1].endswith("recomputed")
    named = charts.with_short_names(frame, recomputed=[2] if is_marked else [])
    assert named["short_name"].to_list() == found


def test_bars_of_kernels_without_an_operator_have_their_short_names() -> None:
    name = "hipGraphLaunch->void (anonymous namespace)::rotary<c10::Half>(int) (Synthetic Op)"
    frame = rows(name=[name, "aten::mm"])
    drawn = vega_lite(charts.bars(frame, COLUMNS, charts.LIGHT, x="kernel_time_us", y="name"))
    assert [row["label"] for row in values(drawn, drawn)] == ["rotary", "mm"]


def test_values_of_bars_have_the_same_number_of_decimals() -> None:
    frame = rows(kernel_time_us=[196.0, 4.25], saved_us=[14.0, 1.0])
    saving = vega_lite(charts.savings(frame, COLUMNS, charts.LIGHT))
    assert [row["text"] for row in values(saving, saving)] == ["0.014 of 0.196", "0.001 of 0.004"]
    drawn = vega_lite(charts.bars(frame, COLUMNS, charts.LIGHT, x="kernel_time_us", y="name"))
    assert drawn["layer"][1]["encoding"]["text"]["format"] == ",.3f"


@pytest.mark.parametrize(("time_us", "unit", "length"), [(99.0, "µs", 99.0), (100.0, "ms", 0.1)])
def test_bars_of_time_are_in_ms_from_a_tenth_on(time_us: float, unit: str, length: float) -> None:
    frame = rows(kernel_time_us=[time_us, 1.0], saved_us=[time_us / 2, 0.0])
    saving = vega_lite(charts.savings(frame, COLUMNS, charts.LIGHT))
    assert saving["layer"][0]["encoding"]["x"]["axis"]["title"] == unit
    assert [row["kernel_time_us"] for row in values(saving, saving)] == [length]
    assert [row["saved_us"] for row in values(saving, saving)] == [length / 2]
    drawn = vega_lite(charts.bars(frame, COLUMNS, charts.LIGHT, x="kernel_time_us", y="arguments"))
    assert drawn["layer"][0]["encoding"]["x"]["axis"]["title"] == f"Kernel time ({unit})"
    assert [row["label"] for row in values(drawn, drawn)] == [f"64{TIMES}32 bf16", "not recorded"]
    assert values(drawn, drawn)[0]["kernel_time_us"] == length


def test_category_bars_put_the_saving_over_the_time() -> None:
    frame = pl.DataFrame({"title": ["GEMM"], "gpu_time_ms": [10.0], "saved_ms": [4.0]})
    spec = vega_lite(charts.categories(frame, COLUMNS, charts.LIGHT))
    pale, strong, value = spec["layer"]
    assert pale["mark"]["color"] == charts.LIGHT.pale
    assert strong["mark"]["color"] == charts.LIGHT.saving
    assert value["mark"]["color"] == charts.LIGHT.text


def test_bars_add_up_and_keep_the_longest() -> None:
    copies = pl.DataFrame(
        {
            "direction": ["H2D", "D2H", "H2D", None],
            "total_time_us": [1.0, 5.0, 2.0, 0.5],
        }
    )
    columns = charts.columns_of(TABLES["memory_copies"])
    chart = charts.bars(copies, columns, charts.LIGHT, x="total_time_us", y="direction", limit=2)
    spec = vega_lite(chart)
    bars, total = spec["layer"]
    assert bars["encoding"]["y"]["sort"]["field"] == "rank"
    assert total["encoding"]["text"]["aggregate"] == "sum"
    assert {row["direction"]: row["rank"] for row in values(spec, spec)} == {"D2H": 0, "H2D": 1}
    sums = {row["direction"]: row["total_time_us"] for row in values(spec, spec)}
    assert sums == {"D2H": 5.0, "H2D": 3.0}


def test_a_scatter_names_rows_without_a_group() -> None:
    frame = rows().with_columns(op_category=pl.Series([None, "GEMM"], dtype=pl.String))
    spec = vega_lite(
        charts.scatter(
            frame, COLUMNS, charts.LIGHT, x="bytes", y="pct_roofline", color="op_category"
        )
    )
    assert spec["encoding"]["color"]["scale"]["domain"] == ["GEMM", "other"]


def test_a_group_that_no_row_has_makes_no_legend() -> None:
    frame = rows().with_columns(op_category=pl.lit(None, pl.String))
    cloud = charts.scatter(
        frame, COLUMNS, charts.LIGHT, x="bytes", y="pct_roofline", color="op_category"
    )
    stack = charts.bars(frame, COLUMNS, charts.LIGHT, x="saved_us", y="name", color="op_category")
    assert vega_lite(cloud)["encoding"]["color"] == {"value": charts.LIGHT.primary}
    assert vega_lite(stack)["layer"][0]["encoding"]["color"] == {"value": charts.LIGHT.primary}


def test_the_histogram_adds_up_to_all_times() -> None:
    lengths = pl.Series([1.0, 1.5, 12.0, 2000.0, 0.0])
    spec = vega_lite(charts.log_histogram(lengths, charts.LIGHT, "Gap", "Idle"))
    bins = values(spec, spec)
    assert sum(b["total_ms"] for b in bins) == pytest.approx(2.0145)
    assert sum(b["count"] for b in bins) == 4
    assert all(b["low"] < b["high"] for b in bins)


def test_the_bar_of_gpu_time_keeps_its_order() -> None:
    parts = pl.DataFrame(
        {"part": ["compute", "idle"], "time_ms": [3.0, 1.0], "percent": [75.0, 25.0]}
    )
    spec = vega_lite(charts.parts_of_time(parts, charts.DARK))
    assert spec["encoding"]["color"]["scale"]["domain"] == ["compute", "idle"]
    split = pl.concat([parts[:1], parts[:1], parts[1:]]).with_columns(
        part=pl.Series(["compute", "not linked", "idle"]),
        is_unlinked=pl.Series([False, True, False]),
    )
    both = vega_lite(charts.parts_of_time(split, charts.DARK))["encoding"]["color"]["scale"]
    assert both["domain"] == ["compute", "not linked", "idle"]
    compute, communication = charts.DARK.categorical[:2]
    assert both["range"] == [compute, charts.DARK.faint, communication]


def test_hidden_and_exposed_time_are_separate() -> None:
    parts = pl.DataFrame(
        {"kind": ["Communication"] * 2, "part": ["hidden", "exposed"], "time_ms": [1.0, 2.0]}
    )
    spec = vega_lite(charts.exposure(parts, charts.LIGHT))
    assert spec["encoding"]["color"]["scale"]["domain"] == ["hidden", "exposed"]
    assert spec["encoding"]["x"]["axis"]["title"] == "ms"
    copies = pl.concat([parts.with_columns(kind=pl.lit(kind)) for kind in ("H2D", "D2H")])
    svg = vl_convert.vegalite_to_svg(vega_lite(charts.exposure(copies, charts.LIGHT)))
    assert re.findall(r">(\w2\w)<", svg) == ["H2D", "D2H"]
    short = parts.with_columns(pl.col("time_ms") / 1000)
    spec = vega_lite(charts.exposure(short, charts.LIGHT))
    assert spec["encoding"]["x"]["axis"]["title"] == "µs"


def tree_nodes(**changes: list[Any]) -> pl.DataFrame:
    """Return a module of 4 ms with an operator of 3 ms and a rest too narrow for a label."""
    data: dict[str, list[Any]] = {
        "node": [1, 2, 3],
        "level": [0, 1, 1],
        "label": ["Net", "aten::mm", "Rest"],
        "short": ["Net", "mm", "Rest"],
        "name": ["nn.Module: Net", "aten::mm", "Rest"],
        "kind": ["Module", "Operator", "Rest"],
        "color": ["Module", "Operator", "Rest"],
        "start_ms": [0.0, 0.0, 3.95],
        "end_ms": [4.0, 3.95, 4.0],
    }
    return pl.DataFrame(data | changes)


ICICLE_COLORS = {
    "Kernel": "#E69F00",
    "Module": "#0072B2",
    "Operator": "#56B4E9",
    "Rest": "#D0D5DB",
}


def test_an_icicle_is_as_wide_as_its_root_and_labels_wide_nodes() -> None:
    chart = charts.icicle(tree_nodes(), ICICLE_COLORS, charts.LIGHT).to_dict()
    boxes, names = chart["layer"]
    assert boxes["encoding"]["x"]["scale"]["domain"] == [0, 4.0]
    assert boxes["encoding"]["y"]["scale"]["domain"] == [0, 2]
    assert boxes["encoding"]["color"]["scale"]["domain"] == ["Module", "Operator", "Rest"]
    (picked,) = chart["params"]
    assert (picked["name"], picked["select"]["fields"]) == (charts.PICKED, ["node"])
    assert names["mark"]["type"] == "text"
    assert "datum.short" in names["mark"]["text"]["expr"]


def test_an_icicle_highlights_search_results() -> None:
    chart = charts.icicle(tree_nodes(), ICICLE_COLORS, charts.LIGHT, "MM")
    boxes, names = chart.layer
    assert boxes.data["is_found"].to_list() == [False, True, False]
    assert names.data["label"].to_list() == ["Net", "aten::mm"]
    assert names.data["ink"].to_list() == ["#FFFFFF", "#000000"]


def test_a_specification_does_not_depend_on_the_theme_of_another_session() -> None:
    chart = alt.Chart(alt.NamedData("rows")).mark_bar()
    before = specification(chart)
    with alt.theme.enable("none"):
        assert specification(chart) == before


def test_an_axis_of_very_short_times_has_different_labels() -> None:
    parts = pl.DataFrame({"kind": ["D2D"], "part": ["exposed"], "time_ms": [0.00076]})
    svg = vl_convert.vegalite_to_svg(charts.exposure(parts, charts.LIGHT).to_dict())
    labels = re.findall(r">(0\.\d+)<", svg)
    assert len(labels) > 2
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    "drawing",
    [
        charts.compute_roofline(rows(), COLUMNS, 80, charts.LIGHT),
        charts.savings(rows(), COLUMNS, charts.LIGHT),
        charts.scatter(rows(), COLUMNS, charts.LIGHT, x="bytes", y="pct_roofline"),
    ],
)
def test_the_mark_of_the_selected_operation_has_an_outline(drawing: charts.Drawing) -> None:
    nothing, first = (charts.selectable(drawing, uid, charts.LIGHT) for uid in (None, 7))
    assert nothing.spec == first.spec
    spec = vega_lite(first)
    assert [mark["uid"] for mark in values(spec, spec["layer"][-1])] == [7]
    assert spec["layer"][-1]["mark"]["stroke"] == charts.LIGHT.text
    assert nothing.datasets["selected"].is_empty()
    picks = [*spec.get("params", ()), *spec["layer"][0].get("params", ())]
    assert [pick["select"]["fields"] for pick in picks] == [["uid"]]
    vl_convert.vegalite_to_svg(spec)


@pytest.mark.parametrize("color", [None, "state"])
def test_the_bar_with_the_selected_operation_has_an_outline(color: str | None) -> None:
    frame = rows()
    drawing = charts.bars(frame, COLUMNS, charts.LIGHT, x="kernel_time_us", y="name", color=color)
    nothing, first = (
        charts.outlined_bar(drawing, frame, uid, "name", charts.LIGHT) for uid in (None, 7)
    )
    assert nothing.spec == first.spec
    assert nothing.datasets["selected"].is_empty()
    spec = vega_lite(first)
    outline = spec["layer"][-1]
    assert [mark["name"] for mark in values(spec, outline)] == ["aten::mm"]
    assert outline["encoding"].get("detail", {}).get("field") == color
    vl_convert.vegalite_to_svg(spec)


def test_a_rate_above_the_peak_is_never_below_or_on_target() -> None:
    rates = rows(pct_roofline=[100.5, 100.0]).with_columns(charts.state(100, 40).alias("state"))
    assert rates["state"].to_list() == [ABOVE, REACHED]


def test_stacked_columns_are_in_the_order_of_their_colors() -> None:
    parts = pl.DataFrame({"step": [0, 0, 1], "part": ["b", "a", "b"], "ms": [1.0, 2.0, 3.0]})
    colors = {"a": "#111111", "c": "#222222", "b": "#333333"}
    x, part, y = Tip("step", "Step", ",d"), Tip("part", "Part", None), Tip("ms", "Time", ",.2f")
    chart = charts.stacked_columns(parts, colors, charts.LIGHT, x=x, y=y, part=part).to_dict()
    encoding = chart["layer"][0]["encoding"]
    assert encoding["color"]["scale"] == {"domain": ["a", "b"], "range": ["#111111", "#333333"]}
    (rows,) = chart["datasets"].values()
    assert [(row["part"], row["order"]) for row in rows] == [("b", 1), ("a", 0), ("b", 1)]


@pytest.mark.parametrize("palette", [charts.LIGHT, charts.DARK])
def test_each_block_of_a_model_has_a_color_of_its_own(palette: charts.Palette) -> None:
    colors = charts.block_colors(palette)
    assert {title_of(block) for block in (*blocks(), COMMUNICATION, OTHER)} == set(colors)
    assert len(set(colors.values())) == len(colors)


def test_marks_of_bounded_bandwidths_have_an_outline() -> None:
    rows = pl.DataFrame(
        {
            "bytes": [1_000_000],
            "bus_gbs": [100.0],
            "kind": ["all_reduce"],
            "comm_id": ["0"],
            "transfer_us": [10.0],
            "count": [3],
            "low_gbs": [90.0],
            "high_gbs": [110.0],
            "floor_gbs": [None],
            AT_MOST: ["at most this"],
        }
    ).cast({"floor_gbs": pl.Float64})
    drawing = bandwidths(rows, [448.0], charts.LIGHT)
    points, spread, peak = vega_lite(drawing)["layer"]
    assert points["encoding"]["size"]["field"] == "count"
    assert values(drawing.to_dict(), peak) == [{"peak": 448.0}]
    assert points["mark"]["filled"] is False  # color is that of the outline
    assert points["encoding"]["fill"]["scale"] == points["encoding"]["color"]["scale"]
    assert [layer["mark"]["type"] for layer in (spread, peak)] == ["rule", "rule"]
    known = rows.with_columns(floor_gbs=pl.lit(800.0))
    assert bandwidths(known, [], charts.LIGHT).to_dict()["layer"][2]["mark"]["type"] == "line"


def test_charts_of_ranks_have_the_rows_in_their_order() -> None:
    rows = ["0-7", "8-15", "16-23"]
    of_collective = {"instance_id": [4], "row": ["0-7"], "kind": ["all_reduce"], "step": [1]}
    cells = pl.DataFrame(of_collective | {"is_edge": [False], "late_ms": [-0.5], "shown_ms": [0.0]})
    absent = pl.DataFrame(of_collective | {"row": ["16-23"]})
    part = {"order": [0], "part": [PARTS[0]], "arrival_ms": [0.0]}
    times = {"start_ms": [0.0], "end_ms": [2.0], "ms": [2.0]}
    cost = {"gain_low_ms": [1.0], "gain_high_ms": [2.0], "caused_ms": [9.0]}
    steps = pl.DataFrame({"row": rows, "step": [1, 1, 2], "idle_ms": 1.0, "beyond_pct": 0.5})
    pairs = pl.DataFrame({"src": ["8-15"], "dst": ["0-7"], "mb": [5.0], "count": [2.0]})
    colors = charts.LIGHT
    drawings = {
        "arrivals": arrival_map(cells, absent, rows, colors),
        "steps": step_map(steps, Tip("idle_ms", "Idle (ms)", ",.3f"), rows, colors),
        "pairs": pair_map(pairs, rows, colors),
        "lanes": lanes(pl.DataFrame(of_collective | part | times), rows, colors, has_lines=True),
        "blame": blame_bars(
            pl.DataFrame({"row": ["0-7"], "cause": ["idle: host"], "ms": [0.5]}),
            pl.DataFrame({"row": ["0-7"]} | cost),
            rows,
            colors,
        ),
    }
    specs = {name: vega_lite(drawing) for name, drawing in drawings.items()}
    for spec in specs.values():
        assert all(layer["encoding"]["y"]["sort"] == rows for layer in spec["layer"])
    hatched = specs["arrivals"]["layer"][1]
    assert values(specs["arrivals"], hatched)[0]["row"] == "16-23"
    assert specs["arrivals"]["layer"][0]["encoding"]["color"]["field"] == "shown_ms"
    absent = values(specs["steps"], specs["steps"]["layer"][1])
    assert [(each["row"], each["step"]) for each in absent] == [
        ("0-7", 2),
        ("16-23", 1),
        ("8-15", 2),
    ]
    shown = specs["lanes"]["layer"][0]["encoding"]["color"]["scale"]
    assert shown == {"domain": [PARTS[0]], "range": [colors.pale]}
    gain = specs["blame"]["layer"][2]["encoding"]
    assert (gain["x"]["field"], gain["x2"]["field"]) == ("gain_low_ms", "gain_high_ms")


def test_runs_of_one_minute_have_one_label() -> None:
    first = datetime(2026, 11, 27, 18, 35, 10)
    at = [first, first + timedelta(seconds=20), first + timedelta(minutes=1)]
    points = pl.DataFrame({"created": at, "shown_ms": [1.0, 2.0, 3.0], "series": "a", "run": "b"})
    (line, _) = trend(points, "Step time (ms)", charts.LIGHT).to_dict()["layer"]
    labeled = line["encoding"]["x"]["axis"]["values"]
    assert [(each["minutes"], each["seconds"]) for each in labeled] == [(35, 10), (36, 10)]


@pytest.mark.parametrize("times", [[18.8392, 18.8392], [18.8392, 18.9]])
def test_a_trend_has_several_labels(times: list[float]) -> None:
    at = [datetime(2026, 11, 27, 18, minute) for minute in (35, 36)]
    points = pl.DataFrame({"created": at, "shown_ms": times, "series": "a", "run": "b"})
    svg = vl_convert.vegalite_to_svg(trend(points, "Step time (ms)", charts.LIGHT).to_dict())
    labels = re.findall(r">(\d+(?:\.\d+)?)</text>", svg)
    assert len(set(labels)) > 2


def test_a_drawing_of_a_chart_has_its_data_and_leaves_it_as_it_is() -> None:
    nodes = tree_nodes()
    chart = charts.icicle(nodes, ICICLE_COLORS, charts.LIGHT)
    before = chart.to_dict()
    drawing = charts.drawing_of(chart)
    assert set(drawing.datasets) == {"frame_1", "frame_2"}
    assert vega_lite(drawing)["layer"][0]["data"] == {"name": "frame_1"}
    for layer, drawn in zip(before["layer"], drawing.spec["layer"], strict=True):
        rows = before["datasets"][layer["data"]["name"]]
        assert drawing.datasets[drawn["data"]["name"]].to_dicts() == rows
        assert {**layer, "data": None} == {**drawn, "data": None}
    assert {**chart.to_dict(), "config": None} == {**before, "config": None}
