"""Convolution: kinds, layouts, and transposes seen in the kernels."""

import pytest

from jarvis.analyses.checks import low_efficiency
from jarvis.analyses.compute.convolution import layout_transposes, measure
from jarvis.findings import Finding, Priority, Severity
from tests.analyses.rows import category, operation, totals

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
        "dilation": [1, 1],
        "transposed_conv": values.pop("transposed", False),
    }
    time_us = values.pop("time_us", 1000.0)
    kernels = [("igemm_fwd_gtcx3_nhwc", time_us - transposes_us)]
    if transposes_us:
        kernels.append(("batched_transpose_32x16_half", transposes_us))
    name = values.pop("name", "aten::convolution")
    return operation(name, time_us=time_us, params=params, kernels=kernels, **values)


def kind(row) -> str | None:
    return category("convolution", row).operations["pattern"][0]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (conv((64, 64, 3, 3)), "3x3"),
        (conv((64, 64, 3, 1)), "3x3"),
        (conv((64, 64, 1, 1)), "1x1"),
        (conv((64, 3, 7, 7)), "large filter"),
        (conv((64, 64, 1, 5)), "large filter"),
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


def layout(share: float, *, stride=NCHW, base=None, **values) -> list[Finding]:
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


def test_forward_and_backward_are_told_apart() -> None:
    rows = [
        conv(transposes_us=300.0, direction="forward"),
        conv(transposes_us=500.0, direction="backward", name="aten::convolution_backward"),
    ]
    (finding,) = layout_transposes(category("convolution", *rows))
    assert finding.evidence["Forward (ms)"] == pytest.approx(0.3)
    assert finding.evidence["Backward (ms)"] == pytest.approx(0.5)
    assert len(finding.operations) == 2


def test_expected_band_of_each_kind_stands_in_the_finding() -> None:
    row = conv((64, 64, 3, 3), pct_roofline=10.0, bound="compute")
    (finding,) = low_efficiency(category("convolution", row))
    assert "where 50-70% is to be expected" in finding.issue
    assert "(3x3)" in finding.title


def test_measure() -> None:
    rows = [conv(transposes_us=400.0), conv((64, 64, 1, 1), time_us=600.0)]
    metrics = measure(category("convolution", *rows))
    assert metrics["transpose_overhead_percent"] == pytest.approx(25.0)
    assert metrics["transpose_time_ms"] == pytest.approx(0.4)
    assert metrics["transpose_count"] == 1
    assert metrics["time_ms_by_kind"] == {"1x1": 0.6, "3x3": 1.0}


@pytest.mark.parametrize(
    ("row", "advice"),
    [
        (conv(transposes_us=390.0), "39% of the heaviest call are layout transposes: convert"),
        (conv(transposes_us=390.0, stride=NHWC), "although its input is in channels_last"),
        (conv(transposes_us=90.0), "Keep the layout"),
    ],
)
def test_advice_on_a_slow_convolution_knows_its_transposes(row, advice: str) -> None:
    row |= {"pct_roofline": 20.0, "bound": "compute", "has_perf_model": True}
    (finding,) = low_efficiency(category("convolution", row))
    assert advice in finding.algorithmic
