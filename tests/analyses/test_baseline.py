"""The bandwidth that simple operators reach on large tensors, and how it reaches the analyses."""

from dataclasses import replace

import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.access import access, tensor
from jarvis.analyses.baseline import BASELINE_BYTES, measure_baseline, plain_mean_tb_per_s
from jarvis.findings import Finding, OpRef, Priority
from tests.analyses.rows import operation, operations
from tests.analyses.test_runner import report, run
from tests.worded import worded

LARGE = 2.0 * BASELINE_BYTES


def simple(name: str, tb_per_s: float, *, time_us: float = 100.0, nbytes=LARGE, **values) -> dict:
    row = {"tb_per_s": tb_per_s, "bytes": nbytes, "pct_roofline": tb_per_s / 5.3 * 100}
    return operation(name, time_us=time_us, bound="memory", **(row | values))


def baseline(*rows: dict):
    return measure_baseline(operations(*rows))


def test_large_rows_weigh_by_their_time() -> None:
    rows = [
        simple("aten::mul", 2.0, time_us=100.0),
        simple("aten::copy_", 4.0, time_us=300.0, count=3),
        simple("aten::add_", 0.001, time_us=9000.0, nbytes=1000.0),
        simple("aten::silu", 5.0, time_us=900.0),
    ]
    found = baseline(*rows)
    assert found.tb_per_s == pytest.approx((100 * 2 + 300 * 4) / 400)
    assert found.efficiency_pct == pytest.approx(100 * 3.5 / 5.3)
    assert found.best_efficiency_pct == pytest.approx(100 * 4 / 5.3)
    assert found.uids == (1, 2)
    assert (found.calls, found.time_us) == (4, 400.0)
    assert plain_mean_tb_per_s(operations(*rows)) == pytest.approx((2 + 4 + 0.001) / 3)


@pytest.mark.parametrize(
    "row",
    [
        simple("aten::add_", 2.0, nbytes=BASELINE_BYTES - 1.0),
        simple("aten::add", 2.0),
        {**simple("aten::add_", 2.0), "tb_per_s": None, "bytes": None},
        simple("aten::copy_", 8.0),
        simple("aten::copy_", 0.02, kernels=[("Memcpy HtoD (Pageable -> Device)", 100.0)]),
        simple("aten::copy_", 0.02, kernels=[("Memcpy DtoH (Device -> Pinned)", 100.0)]),
        simple("aten::mul", 2.0, time_us=0.0),
    ],
)
def test_no_baseline_is_invented(row: dict) -> None:
    assert baseline(row) is None


def test_the_smallest_size_and_copies_inside_the_gpu_count() -> None:
    dtod = [("Memcpy DtoD (Device -> Device)", 100.0)]
    assert baseline(simple("aten::add_", 2.0, nbytes=float(BASELINE_BYTES))).calls == 1
    assert baseline(simple("aten::copy_", 2.0, kernels=dtod)).tb_per_s == pytest.approx(2.0)


def test_a_rate_is_known_without_a_peak() -> None:
    found = baseline(simple("aten::mul", 2.0, pct_roofline=None))
    assert found.tb_per_s == pytest.approx(2.0)
    assert found.efficiency_pct is None


def test_share_of_contiguous_operands() -> None:
    dims, strides = "((8, 4), (8, 4))", "((4, 1), (4, 1))"
    rows = [
        simple("aten::mul", 2.0, input_dims=dims, input_strides=strides),
        simple("aten::mul", 2.0, time_us=300.0, input_dims=dims, input_strides="((4, 1), (1, 8))"),
    ]
    assert baseline(*rows).contiguous_pct == pytest.approx(25.0)


@pytest.mark.parametrize(
    ("dims", "strides", "expected"),
    [
        ("((8, 4), (8, 4))", "((4, 1), (4, 1))", "contiguous"),
        ("((8, 4), ())", "((4, 1), ())", "contiguous"),
        ("((8, 4), (1,))", "((4, 1), (1,))", "contiguous"),
        ("((8, 4), (8, 4))", "((4, 1), (1, 8))", "strided"),
        ("((8, 4),)", "((8, 1),)", "strided"),
        ("((8, 4), (4,))", "((4, 1), (1,))", "broadcast"),
        ("((8, 4), (8, 1))", "((4, 1), (1, 1))", "broadcast"),
        ("((8, 4), (8, 4))", "((4, 1), (0, 1))", "broadcast"),
        ("((8, 1, 4), (8, 1, 4))", "((4, 4, 1), (4, 99, 1))", "contiguous"),
        ("((8, 4),)", "((1, 8),)", "contiguous"),
        ("(((8, 4), (2,)),)", "(((4, 1), (1,)),)", None),
        ("((8, 4),)", None, None),
        (None, None, None),
    ],
)
def test_access(dims: str | None, strides: str | None, expected: str | None) -> None:
    assert access("aten::add", dims, strides) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_C::silu_and_mul", "contiguous"),
        ("aiter::gelu_tanh_and_mul", "contiguous"),
        ("mylib::glu_out", "contiguous"),
        ("_C::rotary_embedding", None),
        ("aiter::rope_cached_positions_2c_fwd_impl", None),
        ("aten::mul", "broadcast"),
        ("mylib::add_and_multiply", "broadcast"),
        ("mylib::with_outputs", "broadcast"),
        ("mylib::europe", "broadcast"),
    ],
)
def test_an_output_among_the_arguments_is_no_operand(name: str, expected: str | None) -> None:
    assert access(name, "((8, 4), (8, 8))", "((4, 1), (8, 1))") == expected


def test_one_argument() -> None:
    assert tensor("((8, 4), ())", "((4, 1), ())") == ((8, 4), (4, 1))
    assert tensor("((8, 4), ())", "((4, 1), ())", 1) is None
    assert tensor("((8, 4),)", "((4, 1),)", 2) is None


def test_every_analysis_is_given_the_baseline_of_all_operations() -> None:
    seen = {}

    def looks(data):
        seen[data.key] = data.baseline
        return iter(())

    analyses = {
        key: replace(load_analyses()[key], checks=(looks,)) for key in ("elementwise", "reduce")
    }
    rows = [
        simple("aten::mul", 2.0, op_category="elementwise"),
        operation("aten::sum", op_category="reduce", time_us=10.0),
    ]
    run(report(*rows), analyses)
    assert seen["reduce"] == seen["elementwise"]
    assert seen["reduce"].tb_per_s == pytest.approx(2.0)


def test_rows_that_a_specific_check_explains_are_not_reported_again() -> None:
    def explains(data):
        yield Finding(
            check="explains",
            category=data.key,
            title="It is the weather",
            operations=(OpRef(uid=1, name="aten::mul", operation_count=1),),
            issue="i",
            algorithmic="a",
            kernel="k",
            priority_local=Priority.LOW,
            priority=Priority.LOW,
        )

    rows = [
        simple("aten::mul", 1.0, op_category="elementwise", time_us=1000.0),
        simple("aten::add_", 1.0, op_category="elementwise", time_us=1000.0),
    ]
    analysis = replace(load_analyses()["elementwise"], specific=(explains,))
    found = worded(run(report(*rows), {"elementwise": analysis})["elementwise"].result.findings)
    assert {f.title for f in found if "aten::mul" in f.title} == set()
    assert any("aten::add_" in f.title for f in found)
    assert any(f.check == "explains" for f in found)
