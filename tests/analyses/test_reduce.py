"""Reductions and softmax: where the reduced elements lie, and what follows for both paths."""

import pytest

from jarvis.analyses import bandwidth, checks, load_analyses
from jarvis.analyses.access import reduced_dims
from jarvis.analyses.claims import claim_operations
from jarvis.analyses.compute.reduce import measure
from jarvis.perf_report import PerfReport
from tests.analyses.rows import MI300X, category, operation
from tests.analyses.test_elementwise import baseline
from tests.analyses.test_runner import report, run
from tests.builders import trace
from tests.worded import Worded, in_words

slow_kernel = in_words(bandwidth.slow_kernel)
low_efficiency = in_words(checks.low_efficiency)
opportunity = in_words(checks.opportunity)

LONG_ROWS = {"input_dims": "((8192, 1024),)", "input_strides": "((1024, 1),)"}
INNER = {"concrete_inputs": "('', '[-1]', 'False')"}
OUTER = {"concrete_inputs": "('', '[0]', 'False')"}


def reduction(name: str = "aten::sum", pct: float = 20.0, **values) -> dict:
    time_us = values.pop("time_us", 1000.0)
    values = {"roofline_time_us": 50.0, **LONG_ROWS, **INNER, **values}
    return operation(name, time_us=time_us, pct_roofline=pct, bound="memory", **values)


def column(name: str, made: dict, **options) -> object:
    return category("reduce", made, **options).operations[name][0]


def low(made: dict, **options) -> Worded:
    (card,) = low_efficiency(category("reduce", made, **options))
    return card


@pytest.mark.parametrize(
    ("name", "concrete", "dims"),
    [
        ("aten::sum", "('', '[0]', 'True')", (0,)),
        ("aten::sum", "('', '[-1, -2]', 'True')", (1, 2)),
        ("aten::mean", "('', '[]', 'False')", (0, 1, 2)),
        ("aten::all", "('',)", (0, 1, 2)),
        ("aten::all", None, (0, 1, 2)),
        ("aten::argmax", "('', '-1', 'False')", (2,)),
        ("aten::std", "('', 'False')", (0, 1, 2)),
        ("aten::linalg_vector_norm", "('', '2.', '[1]', 'False')", (1,)),
        ("aten::_softmax", "('', '-1', 'False')", (2,)),
        ("aten::_softmax_backward_data", "('', '', '1', '6')", (1,)),
    ],
)
def test_reduced_dims(name: str, concrete: str | None, dims: tuple[int, ...]) -> None:
    assert reduced_dims(name, concrete, 3) == dims


@pytest.mark.parametrize(
    ("values", "axis", "pattern"),
    [
        ({}, "inner", None),
        ({"input_dims": "((8192, 128),)", "input_strides": "((128, 1),)"}, "inner", None),
        ({"input_dims": "((8192, 127),)", "input_strides": "((127, 1),)"}, "inner", "short axis"),
        (OUTER, "outer", "strided axis"),
        ({"input_strides": "((1, 8192),)"}, "outer", "strided axis"),
        ({"input_dims": "((303, 9999),)", "input_strides": "((9999, 1),)"}, "inner", "few rows"),
        ({"input_dims": "((304, 9999),)", "input_strides": "((9999, 1),)"}, "inner", None),
        ({"concrete_inputs": "('', '[]', 'False')"}, "all", "one result"),
        ({"input_dims": "((1, 8192),)", "input_strides": "((8192, 1),)"}, "all", "one result"),
        ({"time_us": 4.0, "roofline_time_us": 0.1, **OUTER}, "outer", None),
        ({"input_strides": None}, None, None),
    ],
)
def test_axis_and_pattern(values: dict, axis: str | None, pattern: str | None) -> None:
    made = reduction(**values)
    assert (column("axis", made), column("pattern", made)) == (axis, pattern)


def test_few_rows_need_the_number_of_compute_units() -> None:
    made = reduction(input_dims="((32, 9999),)", input_strides="((9999, 1),)")
    assert column("pattern", made, compute_units=None) is None
    card = low(made)
    assert "32 rows of 9,999 elements" in card.issue
    assert card.hypothesis == "Only 32 of 304 compute units have a row to reduce."
    assert "split a row over several blocks" in card.kernel


def test_a_strided_axis_names_its_strides() -> None:
    card = low(reduction(**OUTER))
    assert "(strided axis)" in card.title
    assert (
        "1,024 rows of 8,192 elements are not contiguous in memory (strides [1024,1])" in card.issue
    )
    assert "innermost" in card.algorithmic


def test_long_contiguous_rows_are_expected_at_50_to_70_percent() -> None:
    assert "where 50-70% is expected" in low(reduction(pct=20.0)).issue
    (card,) = opportunity(category("reduce", reduction(pct=60.0), top={1}))
    assert "within the 50-70%" in card.issue
    assert not list(opportunity(category("reduce", reduction(pct=72.0), top={1})))


SCORES = {
    "input_dims": "((8, 16, 512, 512),)",
    "input_strides": "((4194304, 262144, 512, 1),)",
    "concrete_inputs": "('', '-1', 'False')",
}
LOGITS = {"input_dims": "((4096, 32000),)", "input_strides": "((32000, 1),)"}


@pytest.mark.parametrize(
    ("name", "values", "pattern"),
    [
        ("aten::_softmax", SCORES, "attention softmax"),
        ("aten::_softmax_backward_data", SCORES, "attention softmax"),
        ("aten::_softmax", {**LOGITS, "module_path": ["SelfAttention_0"]}, "attention softmax"),
        ("aten::_softmax", {**LOGITS, "module_path": ["Classifier_0"]}, "softmax"),
        ("aten::_log_softmax", LOGITS, "softmax"),
        ("aten::_softmax", {"input_dims": None}, "softmax"),
    ],
)
def test_softmax_inside_attention(name: str, values: dict, pattern: str) -> None:
    made = reduction(name, **values)
    assert column("pattern", made) == pattern
    assert column("is_softmax", made) is True
    is_attention = pattern == "attention softmax"
    assert ("scaled_dot_product_attention" in low(made).algorithmic) is is_attention


def test_softmax_of_a_trace_is_modelled_and_claimed() -> None:
    made = (
        trace()
        .op(
            "aten::_softmax",
            [[8, 16, 512, 512], [], []],
            types=["c10::BFloat16", "Scalar", "Scalar"],
            concrete=["", "-1", "False"],
        )
        .launches("softmax_warp_forward", us=200)
    )
    table = PerfReport(made.read(), MI300X, strict=True).table("operations")
    (row,) = claim_operations(table, load_analyses().values()).iter_rows(named=True)
    assert row["category"] == "reduce"
    elements = 8 * 16 * 512 * 512
    assert row["bytes"] == 2 * elements * 2
    assert row["flops"] == 5 * elements
    assert row["pct_roofline"] == pytest.approx(100 * row["bytes"] / 5.3e12 / 200e-6)


def test_a_softmax_far_below_the_baseline_is_a_slow_kernel() -> None:
    data = category("reduce", reduction("aten::_softmax", 8.0, **SCORES), baseline=baseline(80.0))
    (card,) = slow_kernel(data)
    assert "not the hardware" in card.issue
    assert "scaled_dot_product_attention" in card.algorithmic


def test_an_efficiency_above_the_peak_is_an_anomaly_and_no_success() -> None:
    made = reduction(pct=150.0, op_category="reduce")
    findings = run(report(made))["reduce"].result.findings
    assert [card.check for card in findings] == ["above_peak"]


def test_metrics() -> None:
    rows = [
        reduction("aten::_softmax", time_us=600.0),
        reduction("aten::sum", 60.0, time_us=300.0),
        reduction("aten::argmax", time_us=100.0),
    ]
    found = measure(category("reduce", *rows))
    assert found["softmax_count"] == 1
    assert found["softmax_time_ms"] == pytest.approx(0.6)
    assert found["time_ms_by_type"] == {"max": 0.1, "softmax": 0.6, "sum": 0.3}
    assert found["time_ms_by_rating"] == {"good": 0.3, "slow": pytest.approx(0.7)}
