"""Elementwise: classes, access, neighbors, and the bandwidth baseline it is compared with."""

from dataclasses import replace

import pytest

from jarvis.analyses import bandwidth, checks
from jarvis.analyses.baseline import Baseline
from jarvis.analyses.compute import elementwise
from jarvis.analyses.compute.elementwise import measure
from jarvis.findings import Priority
from tests.analyses.rows import category, operation, table, totals
from tests.worded import Worded, in_words, supported_in

low_baseline = in_words(bandwidth.low_baseline)
slow_kernel = in_words(bandwidth.slow_kernel)
low_efficiency = in_words(checks.low_efficiency)
opportunity = in_words(checks.opportunity)
many_calls = in_words(elementwise.many_calls)

CONTIGUOUS = {"input_dims": "((64, 8), (64, 8))", "input_strides": "((8, 1), (8, 1))"}
STRIDED = {"input_dims": "((64, 8), (64, 8))", "input_strides": "((8, 1), (1, 64))"}
BROADCAST = {"input_dims": "((64, 8), (8,))", "input_strides": "((8, 1), (1,))"}
CASTING = {**CONTIGUOUS, "input_types": "('float', 'c10::BFloat16')"}

GENERAL = [("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel>", 1000.0)]
VECTORIZED = [("void at::native::vectorized_elementwise_kernel<4, at::native>", 1000.0)]


def row(name: str = "aten::mul", pct: float = 30.0, **values) -> dict:
    values = {"bytes": 2.0**25, "tb_per_s": pct * 0.053, "roofline_time_us": 6.0} | values
    return operation(
        name, time_us=values.pop("time_us", 1000.0), pct_roofline=pct, bound="memory", **values
    )


def column(name: str, made: dict) -> object:
    return category("elementwise", made).operations[name][0]


def baseline(efficiency_pct: float, **values) -> Baseline:
    known = {
        "tb_per_s": efficiency_pct * 0.053,
        "efficiency_pct": efficiency_pct,
        "best_efficiency_pct": efficiency_pct,
        "uids": (1,),
        "calls": 10,
        "time_us": 1000.0,
        "contiguous_pct": 100.0,
    }
    return Baseline(**(known | values))


@pytest.mark.parametrize(
    ("name", "values", "op_type", "op_class"),
    [
        ("aten::add_", {}, "add", "arithmetic"),
        ("aten::mul", {}, "multiply", "arithmetic"),
        ("aten::div", {}, "divide", "arithmetic"),
        ("aten::sub", {}, "subtract", "arithmetic"),
        ("aten::copy_", CONTIGUOUS, "copy", "copy"),
        ("aten::copy_", CASTING, "copy", "cast"),
        ("aten::gelu", {}, "other", "activation"),
        ("aten::clamp_min_", {"module_path": ["BasicBlock_0", "ReLU_1"]}, "other", "activation"),
        ("aten::clamp_min_", {}, "other", "compare/mask"),
        ("aten::masked_fill_", {}, "other", "compare/mask"),
        ("aten::eq", {}, "other", "compare/mask"),
        ("aten::rsqrt", {}, "other", "math"),
        ("aten::threshold_backward", {}, "other", "activation"),
        ("aten::fill_", {}, "other", "other"),
    ],
)
def test_types_and_classes(name: str, values: dict, op_type: str, op_class: str) -> None:
    made = row(name, **values)
    assert (column("op_type", made), column("op_class", made)) == (op_type, op_class)


@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        (CONTIGUOUS, None),
        (STRIDED, "strided"),
        (BROADCAST, "broadcast"),
        ({**BROADCAST, "bytes": 2.0**19}, "small tensor"),
        ({**BROADCAST, "bytes": 2.0**20}, "broadcast"),
        ({**STRIDED, "time_us": 5.0, "roofline_time_us": 0.1}, None),
        ({}, None),
    ],
)
def test_what_decides_the_efficiency(values: dict, pattern: str | None) -> None:
    assert column("pattern", row(**values)) == pattern


def test_a_cast_is_distinguished_from_a_copy() -> None:
    assert column("pattern", row("aten::copy_", **CASTING)) == "cast"
    assert column("pattern", row("aten::mul", **CASTING)) is None


def cards(check, *rows: dict, **options) -> list[Worded]:
    return list(check(category("elementwise", *rows, **options)))


def test_a_strided_copy_names_its_strides_and_asks_for_the_order_that_is_needed() -> None:
    made = row("aten::copy_", 30.0, **STRIDED, module_path=["Attention_0"])
    (card,) = cards(low_efficiency, made)
    assert "(strided)" in card.title
    assert "(strides (8, 1) and (1, 64))" in card.issue
    assert "Avoid the reordering in `Attention`" in card.algorithmic
    assert "replay package of [64,8]" in card.kernel
    (card,) = cards(low_efficiency, row("aten::add", 30.0, **STRIDED))
    assert "operands in one memory order, so" in card.algorithmic


@pytest.mark.parametrize(("kernels", "is_said"), [(GENERAL, True), (VECTORIZED, False)])
def test_the_general_kernel_is_recognized_by_its_name(kernels: list, is_said: bool) -> None:
    (card,) = cards(low_efficiency, row(**BROADCAST, kernels=kernels))
    assert ("general path" in (card.hypothesis or "")) is is_said


def test_neighbors_of_the_same_module_are_what_to_fuse_with() -> None:
    norm = {"module_path": ["Model_0", "RMSNorm_1"]}
    rows = [
        row("aten::mul", **norm),
        row("aten::pow", **norm),
        row("aten::threshold_backward", **norm),
        row("aten::exp", module_path=["Model_0", "MLP_1"]),
    ]
    card = next(c for c in cards(low_efficiency, *rows) if "aten::mul" in c.title)
    assert "Fuse it with `aten::pow` in `Model / RMSNorm`" in card.algorithmic
    assert "aten::exp" not in card.algorithmic
    assert "backward" not in card.algorithmic
    assert "kernel fusion analysis" in card.algorithmic


def test_without_a_place_no_neighbors_are_invented() -> None:
    (first, second) = cards(low_efficiency, row("aten::mul"), row("aten::pow"))
    assert "Fuse `aten::mul` into the operator that produces its input" in first.algorithmic
    assert "aten::mul" not in second.algorithmic


def test_small_calls_are_compared_with_the_kernel_floor() -> None:
    made = row("aten::add_", 0.1, time_us=800.0, count=200, bytes=24.0, roofline_time_us=0.001)
    (card,) = cards(low_efficiency, made)
    assert "(tiny tensors)" in card.title
    assert "moves 24 B in 4.00 µs" in card.issue
    assert "multi-tensor" in card.kernel
    assert card.impact.method == "upper bound"
    assert column("rating", made) == "launch bound"
    assert column("floor_ratio", made) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("name", "values", "pattern"),
    [
        ("aten::add_", {"bytes": 2.0**16 - 1, "module_path": ["Net_0"]}, "tiny tensors"),
        ("aten::add_", {"bytes": 2.0**16, "module_path": ["Net_0"]}, None),
        ("aten::add_", {"bytes": 2.0**20 - 1}, "tiny tensors"),
        ("aten::add_", {"bytes": 2.0**20}, None),
        ("aten::gelu", {"bytes": 24.0}, None),
        ("aten::copy_", {"bytes": 2.0**21, "kernel_count": 600}, "tiny tensors"),
    ],
)
def test_only_tiny_tensors_are_gathered(name: str, values: dict, pattern: str | None) -> None:
    made = row(name, 0.1, time_us=800.0, count=200, roofline_time_us=0.01, **values)
    assert column("pattern", made) == pattern
    (card,) = cards(low_efficiency, made)
    assert ("multi-tensor" in card.kernel) is (pattern is not None)


def test_tiny_tensors_with_neighbors_are_fused() -> None:
    place = {"module_path": ["RMSNorm_1"], "roofline_time_us": 0.1, "bytes": 24.0}
    rows = [
        row(name, 0.1, time_us=800.0, count=200, **place) for name in ("aten::add", "aten::mul")
    ]
    (first, _) = cards(low_efficiency, *rows)
    assert "(launch bound)" in first.title
    assert "Fuse it with `aten::mul` in `RMSNorm`" in first.algorithmic


@pytest.mark.parametrize(
    ("pct", "rating"),
    [
        (100.1, "above the peak"),
        (75.0, "excellent"),
        (70.0, "good"),
        (50.0, "fuse"),
        (30.0, "slow"),
    ],
)
def test_ladder(pct: float, rating: str) -> None:
    assert column("rating", row(pct=pct)) == rating


def test_simple_operators_are_expected_at_70_to_80_percent() -> None:
    (below,) = cards(opportunity, row(pct=60.0, **CONTIGUOUS))
    (within,) = cards(opportunity, row(pct=75.0, **CONTIGUOUS))
    assert "where 70-80% is expected" in below.issue
    assert "within the 70-80%" in within.issue
    assert within.priority.rank > below.priority.rank


@pytest.mark.parametrize(
    ("reference_pct", "pct", "title"),
    [
        (70.0, 19.9, "Slow kernel: `aten::mul`"),
        (75.0, 2.0, "Slow kernel: `aten::mul`"),
        (69.9, 19.0, "Far below the bandwidth baseline: `aten::mul`"),
        (35.0, 9.9, "Far below the bandwidth baseline: `aten::mul`"),
        (70.0, 20.1, None),
        (35.0, 10.1, None),
    ],
)
def test_a_kernel_far_below_the_baseline(reference_pct: float, pct: float, title) -> None:
    found = cards(slow_kernel, row(pct=pct, **CONTIGUOUS), baseline=baseline(reference_pct))
    assert [card.title for card in found] == ([title] if title else [])


def test_only_a_high_baseline_clears_the_hardware() -> None:
    made = row(pct=7.0, **CONTIGUOUS)
    (high,) = cards(slow_kernel, made, baseline=baseline(70.0))
    (low,) = cards(slow_kernel, made, baseline=baseline(35.0))
    assert "the kernel is slow, not the hardware" in high.issue
    assert "not the hardware" not in low.issue
    assert "5.00 times as much" in low.issue
    assert high.impact.saved_ms.mid == pytest.approx(1.0 * (1 - 7 / 70))
    assert low.impact.saved_ms.mid == pytest.approx(1.0 * (1 - 7 / 35))
    assert high.evidence["Target time (ms)"] == pytest.approx(0.1)


def test_no_call_is_expected_below_the_time_of_the_shortest_kernel() -> None:
    made = row(pct=1.0, time_us=1000.0, count=50, roofline_time_us=3.0, **CONTIGUOUS)
    (card,) = cards(slow_kernel, made, baseline=baseline(70.0))
    assert card.evidence["Target time (ms)"] == pytest.approx(50 * 2e-3)
    assert card.impact.saved_ms.mid == pytest.approx(0.9)


def test_a_kernel_with_little_to_gain_is_not_called_slow() -> None:
    made = row(pct=10.0, time_us=1000.0, count=460, **CONTIGUOUS)
    (card,) = cards(slow_kernel, made, baseline=baseline(70.0))
    assert card.impact.saved_ms.mid == pytest.approx(0.08), "460 kernels of 2 µs remain"
    assert "not the hardware" not in card.issue


def test_no_baseline_or_no_work_accuses_no_kernel() -> None:
    assert not cards(slow_kernel, row("aten::sub", 2.0))
    tiny = row(pct=2.0, time_us=900.0, count=300, roofline_time_us=0.1)
    assert not cards(slow_kernel, tiny, baseline=baseline(75.0))
    known_rate = replace(baseline(75.0), efficiency_pct=None)
    assert not cards(slow_kernel, row(pct=2.0), baseline=known_rate)
    small = totals(compute_ms=1000.0)
    assert not cards(slow_kernel, row(pct=2.0), baseline=baseline(75.0), base=small)


@pytest.mark.parametrize(("pct", "count"), [(49.9, 1), (50.0, 0), (75.0, 0)])
def test_a_low_baseline_is_a_finding(pct: float, count: int) -> None:
    assert len(cards(low_baseline, row(pct=pct, **CONTIGUOUS))) == count


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"time_us": 80.0, "count": 10, **CONTIGUOUS}, "calls are short (8.00 µs"),
        (STRIDED, "100.0% of their time is in operands that"),
        (CONTIGUOUS, "lower clock"),
    ],
)
def test_the_likely_cause_of_a_low_baseline(values: dict, words: str) -> None:
    (card,) = cards(low_baseline, row(pct=40.0, **values))
    assert words in card.hypothesis
    assert card.impact is None
    assert card.title == "Low bandwidth baseline: 40.0%"


@pytest.mark.parametrize(("streams", "are_suspected"), [((7, 7), False), ((7, 8), True)])
def test_other_streams_are_suspected_only_where_there_are_some(
    streams: tuple[int, int], are_suspected: bool
) -> None:
    data = category("elementwise", row(pct=40.0, **CONTIGUOUS))
    work = table("gpu_work", *({"stream": stream, "device": 0} for stream in streams))
    data = replace(data, tables={"gpu_work": work})
    (card,) = supported_in(data, bandwidth.low_baseline(data))
    assert ("other streams" in card.hypothesis.lower()) is are_suspected
    assert ("runs alone" in card.algorithmic) is are_suspected


def test_a_thousand_calls_are_a_finding_a_few_less_are_not() -> None:
    def found(count: int) -> list[Worded]:
        rows = [
            row("aten::mul", time_us=count * 6.0, count=count - 200),
            row("aten::add", time_us=200.0, count=200),
        ]
        return cards(many_calls, *rows, base=totals(compute_ms=100.0))

    assert not found(1000)
    (card,) = found(1001)
    assert card.title == "1,001 elementwise calls"
    assert "`aten::mul` 801 times, `aten::add` 200 times) take 6.21 ms together (6.2" in card.issue
    assert ", 200 of them only" not in card.issue
    long = row("aten::mul", time_us=20_000.0, count=100)
    (card,) = cards(many_calls, row("aten::add", time_us=2000.0, count=1000), long)
    assert card.issue.endswith(", 1,000 of them only 2.00 µs each on average.")
    assert card.priority is Priority.MEDIUM


def test_metrics() -> None:
    rows = [
        row("aten::mul", 40.0, tb_per_s=2.0, time_us=100.0, **CONTIGUOUS),
        row("aten::copy_", 75.0, tb_per_s=4.0, time_us=300.0, **CONTIGUOUS),
        row("aten::add_", 0.1, tb_per_s=0.1, bytes=1000.0, time_us=100.0, count=20)
        | {"roofline_time_us": 0.1},
    ]
    found = measure(category("elementwise", *rows))
    assert found["baseline_bandwidth_tbs"] == pytest.approx((100 * 2 + 300 * 4) / 400)
    assert found["baseline_row_count"] == 2
    assert found["mean_bandwidth_of_simple_ops_tbs"] == pytest.approx(6.1 / 3)
    assert found["launch_bound_percent"] == pytest.approx(20.0)
    assert found["time_ms_by_rating"] == {"excellent": 0.3, "fuse": 0.1, "launch bound": 0.1}


def test_a_baseline_is_not_invented() -> None:
    found = measure(category("elementwise", row("aten::add_", 2.0, bytes=1000.0)))
    assert found["baseline_bandwidth_tbs"] is None
    assert found["baseline_efficiency_percent"] is None
    assert found["baseline_row_count"] == 0


def test_an_efficiency_above_the_peak_is_never_praised() -> None:
    rows = [row(pct=150.0, **CONTIGUOUS)]
    assert column("rating", rows[0]) == "above the peak"
    assert not cards(low_efficiency, *rows)
    assert not cards(opportunity, *rows)
