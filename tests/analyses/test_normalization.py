"""Normalization: types, modes and layouts, the bandwidth baseline, and traffic without a model."""

from math import prod
from pathlib import Path

import pytest

from jarvis.analyses import bandwidth, checks
from jarvis.analyses.compute import batchnorm
from jarvis.analyses.compute.batchnorm import (
    BACKWARD,
    INFERENCE,
    TRAINING,
    estimated_bytes,
    measure,
)
from jarvis.core.workspace import RunPaths
from jarvis.pipeline import analyze
from tests.analyses.rows import category, operation, totals
from tests.analyses.test_elementwise import baseline
from tests.analyses.test_runner import report, run
from tests.builders import trace
from tests.worded import in_words, worded

slow_kernel = in_words(bandwidth.slow_kernel)
low_efficiency = in_words(checks.low_efficiency)
estimated_bandwidth = in_words(batchnorm.estimated_bandwidth)

NCHW = "((200704, 3136, 56, 1), (64,))"
NHWC = "((200704, 1, 3584, 64), (64,))"
NATIVE = "void at::native::batch_norm_collect_statistics_kernel<Var, bf16>"
LIBRARY = "MIOpenBatchNormFwdTrainSpatial"


def norm(name: str = "aten::batch_norm", pct: float | None = 3.0, **values) -> dict:
    params = {"num_channels": values.pop("channels", 64)}
    if (training := values.pop("training", True)) is not None:
        params["is_training"] = training
    time_us = values.pop("time_us", 2000.0)
    defaults = {
        "op_category": "NORM_fwd",
        "direction": "forward",
        "input_dims": "((10, 64, 56, 56), (64,))",
        "input_strides": NCHW,
        "input_types": "('c10::BFloat16', 'c10::BFloat16')",
        "roofline_time_us": 30.0,
        "params": params,
        "kernels": [(values.pop("kernel", NATIVE), time_us)],
    }
    if pct is not None:
        defaults |= {"pct_roofline": pct, "bound": "memory"}
    return operation(name, time_us=time_us, **(defaults | values))


def column(name: str, made: dict, **options) -> object:
    return category("batchnorm", made, **options).operations[name][0]


def low(made: dict, **options):
    (card,) = low_efficiency(category("batchnorm", made, **options))
    return card


@pytest.mark.parametrize(
    ("made", "mode", "pattern"),
    [
        (norm(), TRAINING, TRAINING),
        (norm(training=False), INFERENCE, INFERENCE),
        (norm("aten::native_batch_norm_backward", direction="backward"), BACKWARD, TRAINING),
        (norm(training=None, pct=None), None, TRAINING),
        (norm("aten::instance_norm"), None, "groups"),
        (norm("aten::native_group_norm_backward", direction="backward"), BACKWARD, "groups"),
        (norm("aten::layer_norm"), None, None),
        (norm("aten::_fused_rms_norm"), None, None),
    ],
)
def test_mode_and_pattern(made: dict, mode: str | None, pattern: str | None) -> None:
    assert (column("mode", made), column("pattern", made)) == (mode, pattern)


@pytest.mark.parametrize(
    ("made", "reductions", "extent"),
    [
        (norm(), 64, 31360),
        (norm("aten::instance_norm"), 640, 3136),
        (norm("aten::layer_norm", channels=3136), 640, 3136),
        (norm("aten::group_norm"), None, None),
        (norm(input_dims=None), None, None),
    ],
)
def test_what_is_reduced_on_its_own(made: dict, reductions, extent) -> None:
    assert (column("reductions", made), column("extent", made)) == (reductions, extent)


@pytest.mark.parametrize(
    ("strides", "layout", "advice"),
    [
        (NCHW, "channels_first", "Convert the model and its input to channels_last"),
        (NHWC, "channels_last", "already"),
    ],
)
def test_the_layout_decides_the_action(strides: str, layout: str, advice: str) -> None:
    made = norm(input_strides=strides)
    assert column("layout", made) == layout
    assert advice in low(made).algorithmic


def test_the_backward_pass_does_not_repeat_the_conversion() -> None:
    made = norm("aten::native_batch_norm_backward", direction="backward", input_strides=NCHW)
    advice = low(made).algorithmic
    assert "Convert" not in advice
    assert "with the model in channels_last" in advice


def test_batch_normalization_on_recorded_statistics_is_folded() -> None:
    assert "Fold it into the preceding convolution" in low(norm(training=False)).algorithmic
    assert "channels_last" not in low(norm(training=False)).algorithmic


@pytest.mark.parametrize(
    ("values", "units", "is_said"),
    [
        ({}, 304, True),
        ({"kernel": LIBRARY}, 304, False),
        ({"input_strides": NHWC}, 304, False),
        ({}, 64, False),
        ({}, None, False),
    ],
)
def test_few_channels_for_one_block_each(values: dict, units: int | None, is_said: bool) -> None:
    hypothesis = low(norm(**values), compute_units=units).hypothesis
    assert (hypothesis is not None) is is_said
    if is_said:
        assert "64 of 304 compute units" in hypothesis


@pytest.mark.parametrize(
    ("compute_ms", "place"),
    [(4.0, "50.0% of compute in all, within"), (3.9, "above"), (21, "below")],
)
def test_share_of_compute_against_what_is_usual(compute_ms: float, place: str) -> None:
    assert place in low(norm(), base=totals(compute_ms=compute_ms)).caveat


def test_batch_normalization_below_the_baseline_saves_the_time_above_it() -> None:
    data = category("batchnorm", norm(pct=3.0), baseline=baseline(75.0))
    (card,) = slow_kernel(data)
    assert card.title == "Slow kernel: `aten::batch_norm`"
    assert "not the hardware" in card.issue
    assert "channels_last" in card.algorithmic
    assert card.impact.saved_ms.mid == pytest.approx(2.0 * (1 - 3 / 75))


def test_the_card_on_the_slow_kernel_is_the_only_one() -> None:
    copy = operation(
        "aten::copy_",
        op_category="elementwise",
        time_us=1000.0,
        pct_roofline=75.0,
        bound="memory",
        tb_per_s=4.0,
    )
    found = run(report(copy | {"bytes": 2.0**25}, norm()))["batchnorm"].result.findings
    assert [card.check for card in found] == ["slow_kernel"]
    slow_copy = copy | {"bytes": 2.0**25, "pct_roofline": 10.0, "tb_per_s": 0.53}
    found = run(report(slow_copy, norm()))["batchnorm"].result.findings
    assert [card.check for card in found] == ["low_efficiency"]


@pytest.mark.parametrize(
    ("mode", "passes"), [(TRAINING, 3), (INFERENCE, 2), (BACKWARD, 5), (None, 3)]
)
def test_estimated_traffic_by_mode(mode: str | None, passes: int) -> None:
    assert estimated_bytes((10, 4), "('float',)", mode) == passes * 40 * 4
    assert estimated_bytes((10, 4), "('c10::Half',)", mode) == passes * 40 * 2


def test_no_estimate_without_a_dtype() -> None:
    assert estimated_bytes((10, 4), None, TRAINING) is None
    assert estimated_bytes((10, 4), "('',)", TRAINING) is None


def test_a_normalization_without_a_model_is_judged_by_its_passes() -> None:
    made = norm("aten::_batch_norm_with_update", None, direction=None, training=None)
    data = category("batchnorm", made)
    moved = 3 * 10 * 64 * 56 * 56 * 2
    assert data.operations["estimated_bytes"][0] == moved
    (card,) = estimated_bandwidth(data)
    reached = 100 * moved / 1e12 / 2e-3 / 5.3
    assert card.evidence["Estimated efficiency (% of bandwidth)"] == pytest.approx(reached)
    assert card.impact.saved_ms.high == pytest.approx(2.0 * (1 - reached / 100))
    assert card.impact.method == "upper bound"
    assert "estimate" in card.caveat


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (norm("aten::batch_norm", 3.0), {}),
        (norm("x_batch_norm", None, time_us=4.0), {}),
        (norm("x_batch_norm", None), {"hardware": None}),
        (norm("x_batch_norm", None, input_types=None), {}),
        (norm("x_batch_norm", None), {"base": totals(compute_ms=1000.0)}),
    ],
)
def test_no_estimate_where_it_says_nothing(made: dict, options: dict) -> None:
    assert not list(estimated_bandwidth(category("batchnorm", made, **options)))


def test_an_estimated_row_is_a_finding() -> None:
    made = norm("x_batch_norm", None, op_category="other")
    found = run(report(made))["batchnorm"].result.findings
    assert [card.check for card in found] == ["estimated_bandwidth"]


def test_metrics() -> None:
    rows = [
        norm(time_us=3000.0),
        norm("aten::native_batch_norm_backward", direction="backward", time_us=1000.0),
        norm("aten::layer_norm", time_us=1000.0),
    ]
    found = measure(category("batchnorm", *rows, baseline=baseline(40.0)))
    assert found["time_ms_by_type"] == {"batch_norm": 4.0, "layer_norm": 1.0}
    assert found["time_ms_by_mode"] == {"backward": 1.0, "training": 3.0}
    assert found["batch_norm_share_of_compute_pct"] == pytest.approx(40.0)
    assert found["baseline_efficiency_percent"] == 40.0


def test_a_trace_with_a_slow_batch_normalization(tmp_path: Path) -> None:
    images = [32, 64, 112, 112]
    moved_bytes = 2 * 2 * prod(images)
    builder = trace("AMD Instinct MI300X")
    at_37_pct_us = moved_bytes / (0.37 * 5.3e12) * 1e6
    builder.op("aten::copy_", [images, images]).launches("copy_kernel", us=at_37_pct_us)
    arguments = [images, [64], [64], [64], [64], [], [], [], []]
    values = ["", "", "", "", "", "True", "0.1", "1e-05", "True"]
    builder.op("aten::batch_norm", arguments, concrete=values).launches(NATIVE, us=2000)
    found = analyze(builder.write(tmp_path / "trace.json"), output_dir=tmp_path / "run")
    (card,) = worded(found.results["batchnorm"].findings)
    assert card.title == "Far below the bandwidth baseline: `aten::batch_norm`"
    assert card.impact.target_pct == pytest.approx(37.0, abs=0.01)
    assert "401,408 positions of a channel" in card.algorithmic
    text = RunPaths(tmp_path / "run").findings("batchnorm", "compute").read_text(encoding="utf-8")
    assert " at 37% of the roofline" in text


@pytest.mark.parametrize(("kernel", "is_advised"), [(NATIVE, True), (LIBRARY, False)])
def test_the_library_is_advised_in_place_of_the_frameworks_kernel(
    kernel: str, is_advised: bool
) -> None:
    text = low(norm(kernel=kernel)).kernel
    assert ("DNN library's fused batch normalization" in text) is is_advised
    assert "Give a replay package of" in text
