"""The roofline sheets: their calls and times."""

from typing import Any

import pytest

from jarvis.trace.links import BACKWARD_PREFIX
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

CONV = [[1, 3, 8, 8], [4, 3, 3, 3], [], [], [], [], [], [], []]
CONV_ARGS = {
    "types": ["float", "float", "", *["ScalarList"] * 3, "Scalar", "ScalarList", "Scalar"],
    "concrete": ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"],
}
CONV_BACKWARD = [[1, 4, 6, 6], *CONV[:2], [], [], [], [], [], [], [], []]
CONV_BACKWARD_ARGS = {
    "types": ["float"] * 3 + ["ScalarList"] * 4 + ["Scalar", "ScalarList", "Scalar", "ScalarList"],
    "concrete": [
        *[""] * 3,
        "[0]",
        "[1, 1]",
        "[0, 0]",
        "[1, 1]",
        "False",
        "[0, 0]",
        "1",
        "[True, True, False]",
    ],
}


def report(builder: TraceBuilder) -> TraceLensReport:
    return TraceLensReport(builder.read(), None, strict=True)


def test_calls_with_equal_parameters_are_one_row() -> None:
    builder = trace()
    for us in (10, 30):
        builder.op("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=us)
    builder.op("aten::mm", [[8, 4], [4, 6]]).launches("gemm", us=5)
    sheet = report(builder).roofline_sheets["GEMM"]
    columns = ("param_M", "param_N", "param_K", "name_count", "kernel_time_us_sum", "uid_first")
    assert sheet.select(columns).rows() == [(8, 2, 4, 2, 40.0, 0), (8, 6, 4, 1, 5.0, 10)]


ATTENTION = ("aten::_scaled_dot_product_flash_attention", [[2, 4, 8, 16]] * 3)


@pytest.mark.parametrize(
    ("op", "dims", "concrete", "reason"),
    [
        (*ATTENTION, ["", "", "", "nan"], "the parameter dropout is nan"),
        (*ATTENTION, ["", "", "", "-inf"], "the parameter dropout is -inf"),
    ],
)
def test_invalid_arguments_do_not_affect_other_rows(
    op: str, dims: list[Any], concrete: list[str], reason: str
) -> None:
    builder = trace().op(op, dims, concrete=concrete).launches("odd", us=10)
    builder.op("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=5)
    found = TraceLensReport(builder.read(), None)
    assert found.sheets()["GEMM"]["Kernel Time (µs)_sum"].to_list() == [5.0]
    assert found.perf_model_failures["reason"].to_list() == [reason]


def test_the_largest_shapes_give_a_number() -> None:
    builder = trace().op("aten::mm", [[2**31] * 2] * 2).launches("gemm", us=10)
    (gflops,) = TraceLensReport(builder.read(), None).sheets()["GEMM"]["GFLOPS_first"]
    assert gflops == pytest.approx(2 * 2.0**93 / 1e9)


@pytest.mark.parametrize("dims", [[[-8, 4], [4, 2]], [[1e300, 1e300], [1e300, 2]]])
def test_shapes_that_no_tensor_has_are_a_failure_of_the_call(dims: list[Any]) -> None:
    builder = trace().op("aten::mm", dims).launches("odd", us=10)
    builder.op("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=5)
    found = TraceLensReport(builder.read(), None)
    assert found.sheets()["GEMM"]["Kernel Time (µs)_sum"].to_list() == [5.0]
    assert found.perf_model_failures["name"].to_list() == ["aten::mm"]


def test_nested_ops_of_one_family_have_separate_rows() -> None:
    dims, concrete = [[4, 8], [], [8], [8]], ["", "[8]", "", ""]
    builder = trace().op("aten::layer_norm", dims, concrete=concrete)
    builder.child("aten::native_layer_norm", dims, concrete=concrete).launches("norm", us=5)
    sheet = report(builder).roofline_sheets["Normalization"]
    assert sheet.select("name", "kernel_time_us_sum").rows() == [
        ("aten::layer_norm", 5.0),
        ("aten::native_layer_norm", 5.0),
    ]


def test_convolutions_go_forward_and_their_backward_ops_back() -> None:
    builder = trace().op("aten::convolution", CONV, seq=1, **CONV_ARGS).launches("conv", us=10)
    builder.up().thread(2).op(BACKWARD_PREFIX + " ConvolutionBackward0", seq=1)
    builder.child("aten::convolution_backward", CONV_BACKWARD, **CONV_BACKWARD_ARGS)
    sheets = report(builder.launches("conv_bwd", us=25)).roofline_sheets
    assert sheets["CONV_fwd"]["name"].to_list() == ["aten::convolution"]
    assert sheets["CONV_bwd"].select("name", "kernel_time_us_sum").rows() == [
        ("aten::convolution_backward", 25.0)
    ]


def test_the_backward_sheet_takes_the_time_of_the_ops_own_autograd_nodes() -> None:
    mean = {"types": ["float", "ScalarList", "Scalar", ""], "concrete": ["", "[-1]", "True", ""]}
    builder = trace().op("aten::mean", [[4, 8], [], [], []], seq=3, **mean)
    builder.launches("mean", us=10).op("aten::mean", [[2, 8], [], [], []], **mean)
    builder.launches("mean", us=7).up().thread(2).op(BACKWARD_PREFIX + " MeanBackward1", seq=3)
    builder.child("MeanBackward1").child("aten::div", [[4, 8], []]).launches("div", us=4).up(2)
    builder.child("aten::other").launches("more", us=2)
    sheets = report(builder).roofline_sheets
    assert sheets["Reduce_fwd"]["kernel_time_us_sum"].to_list() == [10.0, 7.0]
    assert sheets["Reduce_bwd"].select("name", "kernel_time_us_sum").rows() == [("aten::mean", 6.0)]
    names = [d["name"] for d in sheets["Reduce_bwd"]["kernel_details"].to_list()[0]]
    assert sorted(names) == ["div", "more"]


def test_sheets_are_in_the_order_of_their_families() -> None:
    builder = trace().op("aten::neg", [[4]]).launches("k")
    builder.op("aten::mul", [[4], [4]]).launches("k").op("aten::mm", [[8, 4], [4, 2]]).launches("g")
    assert list(report(builder).roofline_sheets) == [
        "GEMM",
        "BinaryElementwise",
        "UnaryElementwise",
    ]


def test_the_kernel_name_gives_a_gemm_its_layout() -> None:
    tensile = "Cijk_Alik_Bljk_BBS_BH_MT64x64"
    sheet = report(trace().op("aten::mm", [[8, 4], [4, 2]]).launches(tensile)).roofline_sheets[
        "GEMM"
    ]
    assert sheet["param_transpose"].to_list() == ["(True, False)"]
