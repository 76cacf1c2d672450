"""Triton: types by prefix, what to expect of them, many short kernels."""

import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.checks import low_efficiency, opportunity
from jarvis.analyses.compute.triton import many_short_kernels
from jarvis.findings import Priority
from tests.analyses.rows import category, operation, totals
from tests.worded import Worded, worded

RMSNORM = "triton_red_fused_add_mean_mul_pow_rsqrt_0"
SILU = "triton_poi_fused__unsafe_view_mul_silu_2"


def kernel(name: str = SILU, pct: float | None = 20.0, **values) -> dict:
    row = {"time_us": 2000.0, "pct_roofline": pct, "bound": "memory" if pct else None}
    return operation(name, **(row | values))


def found(row: dict) -> Worded | None:
    data = category("triton", row, top={1})
    findings = [*low_efficiency(data), *opportunity(data)]
    assert len(findings) <= 1
    return Worded(findings[0]) if findings else None


@pytest.mark.parametrize(
    ("name", "kernel_type", "fused"),
    [
        (SILU, "pointwise", "_unsafe_view, mul, silu"),
        (RMSNORM, "reduction", "add, mean, mul, pow, rsqrt"),
        ("triton_per_fused_sum_0", "persistent reduction", "sum"),
        ("triton_tem_fused_mm_3", "template", None),
        ("triton_for_fused_1", "foreach", None),
        ("hipModuleLaunchKernel->triton_poi_fused_add_0", "pointwise", "add"),
        ("my_triton_poi_kernel", "other", None),
        ("create_flashinfer_kv_indices_triton", "other", None),
    ],
)
def test_type_and_operators_by_name(name: str, kernel_type: str, fused: str | None) -> None:
    row = category("triton", kernel(name)).operations.row(0, named=True)
    assert (row["kernel_type"], row["fused"]) == (kernel_type, fused)


@pytest.mark.parametrize(
    ("name", "pct", "words"),
    [
        (SILU, 59.0, "where 60-80% is expected"),
        (SILU, 61.0, "within the 60-80%"),
        (RMSNORM, 29.0, "where 30-60% is expected"),
        (RMSNORM, 31.0, "within the 30-60%"),
        (RMSNORM, 61.0, None),
        ("my_triton_kernel", 61.0, "61.0% of the memory roofline (0.000500 of 5.30 TB/s): "),
    ],
)
def test_what_to_expect_of_a_type(name: str, pct: float, words: str | None) -> None:
    finding = found(kernel(name, pct))
    assert (words in finding.issue) if words else finding is None


def test_a_finding_names_the_operators_that_were_fused() -> None:
    finding = found(kernel(RMSNORM))
    assert "`add, mean, mul, pow, rsqrt`" in finding.issue
    assert f"`{RMSNORM}`" in finding.kernel
    assert "fusion decisions" in finding.capture
    custom = found(kernel("my_triton_kernel"))
    assert "library operator" in custom.algorithmic
    assert "fusion decisions" not in custom.capture


def short(number: int, **values) -> dict:
    row = {"time_us": 40.0, "count": 10}
    return kernel(f"triton_poi_fused_add_{number}", **(row | values))


@pytest.mark.parametrize(
    ("rows", "is_found"),
    [
        ([short(i) for i in range(10)], True),
        ([short(i) for i in range(9)], False),
        ([short(i, count=4) for i in range(25)], False),
        ([short(0, count=100)], False),
        ([short(i, time_us=9.0) for i in range(10)], False),
        ([short(i, time_us=51.0) for i in range(10)], False),
    ],
    ids=["100 calls", "90 calls", "10 µs each", "one kernel", "0.9% of compute", "0.5% each"],
)
def test_many_short_kernels(rows: list[dict], is_found: bool) -> None:
    findings = worded(many_short_kernels(category("triton", *rows)))
    assert bool(findings) == is_found
    for finding in findings:
        assert "10 compiled kernels" in finding.issue
        assert "100 times for 4.00 µs each" in finding.issue
        assert finding.priority is Priority.MEDIUM
        assert finding.impact is None
        assert "graph breaks" in finding.algorithmic


def test_many_short_kernels_must_matter_in_their_category() -> None:
    base = totals(compute_ms=100.0)
    rows = [short(i, time_us=80.0) for i in range(13)]
    long = kernel(pct=90.0, time_us=30_000.0)
    assert list(many_short_kernels(category("triton", *rows, base=base)))
    assert not list(many_short_kernels(category("triton", *rows, long, base=base)))


def test_bounds_are_those_of_the_roofline_or_of_the_intensity() -> None:
    rows = [
        kernel(),
        kernel(RMSNORM, bound="compute"),
        *(kernel("my_triton", None, flops_per_byte=f) for f in (100.0, 99.0, 50.0, 49.0)),
        kernel("your_triton", None),
    ]
    metrics = load_analyses()["triton"].measure(category("triton", *rows))
    assert metrics["compute_bound_count"] == 2
    assert metrics["mixed_bound_count"] == 2
    assert metrics["memory_bound_count"] == 2
    assert metrics["rows_by_type"] == {"other": 5, "pointwise": 1, "reduction": 1}


def test_tensors_updated_in_place_may_hide_traffic() -> None:
    assert "in place, its bytes count that tensor only once" in found(kernel()).caveat
