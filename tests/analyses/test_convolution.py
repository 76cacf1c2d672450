"""Convolution: kinds, layouts, and transposes seen in the kernels."""

from dataclasses import replace

import polars as pl
import pytest

from jarvis.analyses import checks
from jarvis.analyses.compute.convolution import measure, overheads
from jarvis.analyses.fp32 import fp32_products
from jarvis.findings import Priority, Severity
from jarvis.hardware import load_hardware
from tests.analyses.rows import category, operation, totals
from tests.worded import Worded, in_words, supported_in

low_efficiency = in_words(checks.low_efficiency)
opportunity = in_words(checks.opportunity)
fills_and_casts = in_words(overheads.fills_and_casts)
layout_transposes = in_words(overheads.layout_transposes)

NCHW = [200704, 3136, 56, 1]
NHWC = [200704, 1, 3584, 64]


def conv(
    filter_shape=(64, 64, 3, 3),
    *,
    groups: int = 1,
    stride=NCHW,
    transposes_us: float = 0.0,
    **values,
):
    params = {
        "convNd": "conv2d",
        "input_shape": [10, 64, 56, 56],
        "filter_shape": list(filter_shape),
        "input_stride": stride,
        "groups": groups,
        "stride": values.pop("step", [1, 1]),
        "padding": values.pop("padding", [0, 0]),
        "dilation": values.pop("dilation", [1, 1]),
        "transposed_conv": values.pop("transposed", False),
    }
    time_us = values.pop("time_us", 1000.0)
    kernels = [("igemm_fwd_gtcx3_nhwc", time_us - transposes_us)]
    if transposes_us:
        kernels.append(("batched_transpose_32x16_half", transposes_us))
    kernels += values.pop("others", [])
    name = values.pop("name", "aten::convolution")
    return operation(name, time_us=time_us, params=params, kernels=kernels, **values)


def kind(row) -> str | None:
    return category("convolution", row).operations["pattern"][0]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (conv((64, 64, 3, 3)), "3x3"),
        (conv((64, 64, 2, 2)), "3x3"),
        (conv((64, 64, 3, 1)), "asymmetric"),
        (conv((64, 64, 1, 1)), "1x1"),
        (conv((64, 8, 7, 7)), "large filter"),
        (conv((64, 3, 7, 7)), "few channels"),
        (conv((64, 7, 3, 3)), "few channels"),
        (conv((64, 3, 1, 1)), "1x1"),
        (conv((64, 64, 1, 5)), "asymmetric"),
        (conv((64, 64, 4, 4)), "large filter"),
        (conv((64, 3, 16, 16), step=[16, 16]), "patches"),
        (conv((64, 64, 16, 16), step=[16, 16], padding=[1, 1]), "large filter"),
        (conv((64, 64, 16, 16), step=[8, 8]), "large filter"),
        (conv((64, 64, 3, 3), dilation=[2, 2]), "dilated"),
        (conv((64, 64, 1, 1), dilation=[2, 2]), "1x1"),
        (conv((64, 1, 3, 3), groups=64), "depthwise"),
        (conv((64, 2, 3, 3), groups=32), "3x3"),
        (conv((64, 64, 3, 3), transposed=True), "transposed"),
        (operation("aten::convolution", time_us=10.0), None),
    ],
)
def test_kind(row, expected: str | None) -> None:
    assert kind(row) == expected


@pytest.mark.parametrize(
    ("kernel", "is_transpose"),
    [
        ("batched_transpose_64x16_pack_4x1_ediv_2x1_half", True),
        ("transpose_NCHW2CNHW_V2_2D_WG_off64", True),
        ("transpose_CNHW2NCHW_V2_2D_WG_off64", True),
        ("void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16>", True),
        ("void cudnn::ops::nhwc2nchwKernel<float>", True),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0", False),
        ("cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8", False),
        ("void conv_transpose2d_kernel<float>", False),
        ("SubTensorOpWithCastTensor1d", False),
    ],
)
def test_layout_transposes_by_kernel_name(kernel: str, is_transpose: bool) -> None:
    row = operation("aten::convolution", time_us=100.0, kernels=[(kernel, 100.0)])
    time_us = category("convolution", row).operations["transpose_us"][0]
    assert time_us == (100.0 if is_transpose else 0.0)


@pytest.mark.parametrize(
    ("kernel", "is_found"),
    [
        ("volta_scudnn_128x64_relu_interior_nn_v1", True),
        ("void cudnn::cnn::implicit_convolve_sgemm<float, float, 1024>", True),
        ("void cudnn::detail::dgrad_engine<float, 128>", True),
        ("volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp", False),
        ("void at::native::conv_depthwise2d_forward_kernel<3, float>", False),
    ],
)
def test_a_convolution_in_fp32_without_tensor_cores(kernel: str, is_found: bool) -> None:
    row = conv((64, 64, 3, 3), flops=1e10, bound="memory only", pct_roofline=5.0)
    row |= {"input_types": "('', 'float', 'float', 'ScalarList')", "kernels": []}
    data = category("convolution", row, hardware=load_hardware().get("V100 SXM2 16GB"))
    rows = data.operations.with_columns(main_kernel=pl.lit(kernel))
    found = list(fp32_products(replace(data, operations=rows)))
    assert bool(found) is is_found
    unknown = rows.with_columns(flops=pl.lit(None, pl.Float64))
    for finding in fp32_products(replace(data, operations=unknown)):
        assert finding.impact is None


def layout(share: float, *, stride=NCHW, base=None, **values) -> list[Worded]:
    row = conv(time_us=5000.0, transposes_us=50 * share, stride=stride, **values)
    return list(layout_transposes(category("convolution", row, base=base, top={1})))


def test_much_transposing_urges_channels_last_and_saves_its_time() -> None:
    (finding,) = layout(42.0)
    assert "42.0% of convolution time" in finding.issue
    assert "channels_last" in finding.algorithmic
    assert finding.algorithmic.startswith("Convert")
    assert finding.severity is Severity.HIGH
    assert finding.priority is Priority.CRITICAL
    assert finding.impact.saved_ms.high == pytest.approx(2.1)
    assert finding.impact.method == "upper bound"


@pytest.mark.parametrize(
    ("share", "severity"),
    [(20.5, Severity.HIGH), (19.5, Severity.MEDIUM), (10.5, Severity.MEDIUM)],
)
def test_bands(share: float, severity: Severity) -> None:
    (finding,) = layout(share)
    assert finding.severity is severity
    assert (finding.priority.rank <= Priority.HIGH.rank) is (severity is Severity.HIGH)


def test_below_ten_percent_is_acceptable() -> None:
    assert not layout(9.5)


def test_little_time_is_no_finding_whatever_its_share() -> None:
    assert not layout(42.0, base=totals(compute_ms=500.0))


def test_channels_last_inputs_get_other_advice() -> None:
    (finding,) = layout(42.0, stride=NHWC)
    assert "already" in finding.algorithmic
    assert finding.evidence["Inputs in channels_last (% of transpose time)"] == 100.0


def test_forward_and_backward_are_separated() -> None:
    rows = [
        conv(transposes_us=300.0, direction="forward"),
        conv(transposes_us=500.0, direction="backward", name="aten::convolution_backward"),
    ]
    (finding,) = layout_transposes(category("convolution", *rows))
    assert finding.evidence["Forward (ms)"] == pytest.approx(0.3)
    assert finding.evidence["Backward (ms)"] == pytest.approx(0.5)
    assert len(finding.operations) == 2


@pytest.mark.parametrize(
    ("made", "band"),
    [
        ({"filter_shape": (64, 64, 3, 3)}, "where 50-70% is expected"),
        ({"filter_shape": (64, 64, 5, 5)}, "where 60-80% of the compute peak (here 10.0%)"),
        ({"filter_shape": (64, 64, 1, 1)}, "where 40-60% is expected"),
        ({"filter_shape": (64, 1, 3, 3), "groups": 64}, "where 30-50% is expected"),
        ({"filter_shape": (64, 64, 3, 3), "dilation": [2, 2]}, "where 50-70% is expected"),
        ({"filter_shape": (64, 64, 1, 3)}, "where 50-70% is expected"),
    ],
)
def test_expected_band_of_each_kind_is_in_the_finding(made: dict, band: str) -> None:
    row = conv(**made, pct_roofline=10.0, bound="compute", flops=7.08e10)
    (finding,) = low_efficiency(category("convolution", row))
    assert band in finding.issue


def test_few_input_channels_are_named() -> None:
    (finding,) = low_efficiency(category("convolution", conv((64, 3, 7, 7), pct_roofline=20.0)))
    assert "few input channels (3 to 64)" in finding.issue
    assert "space to depth" in finding.algorithmic


def test_a_transposed_convolution_has_no_band() -> None:
    row = conv(transposed=True, pct_roofline=10.0, bound="compute")
    (finding,) = low_efficiency(category("convolution", row))
    assert "expected" not in finding.issue
    assert "upsampling" in finding.algorithmic


def test_inside_its_band_a_kind_is_less_urgent() -> None:
    def finding(pct: float, filter_shape: tuple[int, ...], groups: int) -> Worded:
        row = conv(filter_shape, groups=groups, pct_roofline=pct, bound="memory")
        (found,) = opportunity(category("convolution", row, top={1}))
        return found

    depthwise, small = finding(45.0, (64, 1, 3, 3), 64), finding(45.0, (64, 64, 3, 3), 1)
    assert "within the 30-50%" in depthwise.issue
    assert depthwise.priority.rank == small.priority.rank + 1


def test_the_convolving_kernels_are_judged_alone_too() -> None:
    others = [("SubTensorOpWithCastTensor1d", 100.0)]
    row = conv(transposes_us=400.0, others=others, pct_roofline=20.0, bound="compute")
    seen = category("convolution", row).operations.row(0, named=True)
    assert seen["main_kernel"] == "igemm_fwd_gtcx3_nhwc"
    assert seen["convolving_pct"] == pytest.approx(40.0)
    (finding,) = low_efficiency(category("convolution", row))
    assert "the heaviest call reaches 40.0%" in finding.issue
    assert "igemm_fwd" in finding.kernel


def test_a_call_of_nothing_but_transposes_keeps_its_main_kernel() -> None:
    kernels = [("batched_transpose_32x16_half", 100.0)]
    row = operation("aten::convolution", time_us=100.0, kernels=kernels)
    seen = category("convolution", row).operations.row(0, named=True)
    assert seen["main_kernel"] == "batched_transpose_32x16_half"
    assert seen["convolving_pct"] is None


def fills(share: float, **values) -> list[Worded]:
    others = [("SubTensorOpWithCastTensor1d", 50 * share)]
    row = conv(time_us=5000.0, others=others, **values)
    return list(fills_and_casts(category("convolution", row)))


def test_fills_and_casts_are_an_overhead_from_ten_percent_on() -> None:
    (finding,) = fills(10.0, direction="backward")
    assert "10.0% of convolution time" in finding.issue
    assert "`SubTensorOpWithCastTensor1d`" in finding.verify
    assert finding.evidence["Backward (ms)"] == pytest.approx(0.5)
    assert finding.impact.saved_ms.high == pytest.approx(0.5)
    assert finding.impact.saved_ms.low == 0.0
    assert not fills(9.9)


def test_transposes_are_no_fills_and_fills_no_transposes() -> None:
    row = conv(transposes_us=400.0)
    assert category("convolution", row).operations["fill_us"][0] == 0.0
    row = conv(others=[("SubTensorOpWithScalar1d", 50.0)])
    assert category("convolution", row).operations["transpose_us"][0] == 0.0


@pytest.mark.parametrize(("share", "verb"), [(42.0, "Convert"), (15.0, "Consider converting")])
def test_no_usual_gain_is_stated_beside_the_bound(share: float, verb: str) -> None:
    (finding,) = layout(share)
    assert finding.algorithmic.startswith(verb)
    assert "usually" not in finding.algorithmic


@pytest.mark.parametrize("is_training", [True, False])
def test_in_training_a_normalization_cannot_be_fused(is_training: bool) -> None:
    rows = [conv(), *([conv(direction="backward")] if is_training else [])]
    advice = category("convolution", *rows).operations["layout_then"][0]
    assert advice.endswith("training" if is_training else "forward")


def test_measure() -> None:
    rows = [
        conv(transposes_us=400.0, direction="forward"),
        conv((64, 64, 1, 1), time_us=600.0, direction="backward"),
    ]
    metrics = measure(category("convolution", *rows))
    assert metrics["transpose_overhead_percent"] == pytest.approx(25.0)
    assert metrics["transpose_time_ms"] == pytest.approx(0.4)
    assert metrics["transpose_count"] == 1
    assert metrics["time_ms_by_kind"] == {"1x1": 0.6, "3x3": 1.0}
    assert metrics["time_ms_by_direction"] == {"backward": 0.6, "forward": 1.0}
    assert metrics["fill_and_cast_time_ms"] == 0.0


@pytest.mark.parametrize(
    ("row", "advice"),
    [
        (conv(transposes_us=390.0), "transposes take 39% of the heaviest call: change"),
        (conv(transposes_us=390.0, stride=NHWC), "although its input is in channels_last"),
        (conv(transposes_us=90.0), "Keep the layout"),
        (conv(transposes_us=390.0, direction="forward"), "Then fuse the following normalization"),
        (conv(transposes_us=390.0, direction="backward"), "Then a larger batch gives"),
    ],
)
def test_advice_on_a_slow_convolution_knows_its_transposes(row, advice: str) -> None:
    row |= {"pct_roofline": 20.0, "bound": "compute", "has_perf_model": True}
    (finding,) = low_efficiency(category("convolution", row))
    assert advice in finding.algorithmic


def test_without_shapes_kernels_are_named_and_nothing_is_replayed() -> None:
    row = operation(
        "hipLaunchKernel->batched_transpose_16x64_half (Synthetic Op)",
        time_us=1000.0,
        kernels=[("batched_transpose_16x64_half", 1000.0)],
    )
    data = category("convolution", row)
    (found,) = supported_in(data, overheads.layout_transposes(data))
    assert found.kernel.startswith("Report `batched_transpose_16x64_half` to the kernel team")
    for unknown in (
        "Forward (ms)",
        "Backward (ms)",
        "Inputs in channels_last (% of transpose time)",
    ):
        assert unknown not in found.evidence


def test_fills_of_the_library_without_operators_are_convolutions() -> None:
    name = "hipLaunchKernel->SubTensorOpWithCastTensor1d (Synthetic Op)"
    row = operation(name, time_us=1000.0, kernels=[("SubTensorOpWithCastTensor1d", 1000.0)])
    (found,) = fills_and_casts(category("convolution", row))
    assert found.issue.endswith("in 1 launch.")
    assert "Report `SubTensorOpWithCastTensor1d` to the kernel team" in found.kernel


def test_few_transposes_leave_the_advice_on_layout_to_the_operator() -> None:
    slow = {"pct_roofline": 20.0, "bound": "compute", "has_perf_model": True}
    row = conv(transposes_us=390.0) | slow
    other = conv((64, 64, 1, 1), time_us=9000.0) | {"pct_roofline": 90.0, "bound": "compute"}
    data = category("convolution", row, other)
    assert not list(layout_transposes(data))
    (found,) = low_efficiency(data)
    assert "convert the model to channels_last first" in found.algorithmic
