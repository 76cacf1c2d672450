"""Launchers and their summary sheets."""

import polars as pl
import pytest

from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4>"


def report(builder: TraceBuilder) -> TraceLensReport:
    return TraceLensReport(builder.read(), None)


def names(frame: pl.DataFrame) -> list[str]:
    return frame["name"].to_list()


def test_the_leaf_launches_and_its_parents_do_not() -> None:
    builder = trace().op("aten::linear").child("aten::addmm").launches("gemm", us=12)
    summary = report(builder).ops_summary
    assert names(summary) == ["aten::addmm"]
    assert summary.row(0, named=True) == {
        "name": "aten::addmm",
        "direct_kernel_time_us": 12.0,
        "subtree_kernel_time_us": 12.0,
        "direct_kernel_time_ms": 0.012,
        "subtree_kernel_time_ms": 0.012,
        "count": 1,
        "categories": ["GEMM"],
        "percent": 100.0,
        "cumulative_percent": 100.0,
    }


def test_direct_time_is_the_ops_own_and_subtree_time_all_below() -> None:
    builder = trace().op("outer").launches("a", us=5).child("inner").launches("b", us=7)
    rows = {row["name"]: row for row in report(builder).ops_summary.iter_rows(named=True)}
    assert rows["outer"]["direct_kernel_time_us"] == 5
    assert rows["outer"]["subtree_kernel_time_us"] == 12
    assert rows["inner"]["subtree_kernel_time_us"] == 7


def test_communication_is_not_direct_work() -> None:
    builder = trace().op("c10d::allreduce_").launches("ncclDevKernel_AllReduce", us=9)
    builder.op("aten::mul").launches(ELEMENTWISE, us=4).launches("ncclDevKernel_x", us=6)
    summary = report(builder).ops_summary
    assert names(summary) == ["aten::mul"]
    assert summary["direct_kernel_time_us"].to_list() == [4.0]
    assert summary["subtree_kernel_time_us"].to_list() == [10.0]


def test_execute_passes_the_launch_on_to_its_parent() -> None:
    builder = trace().op("aten::conv2d").child("execute").launches("conv", us=3)
    assert names(report(builder).ops_summary) == ["aten::conv2d"]


def test_a_launch_without_an_op_is_its_own_launcher() -> None:
    builder = trace().launches("gemm", us=3, call="hipLaunchKernel").op("aten::mm")
    assert names(report(builder).ops_summary) == ["hipLaunchKernel"]


@pytest.mark.parametrize(
    ("op", "kernel", "category"),
    [
        ("aten::mm", ELEMENTWISE, "GEMM"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0", "triton"),
        ("aten::tanh", ELEMENTWISE, "elementwise"),
        ("aten::softmax", "void at::native::reduce_kernel<512>", "reduce"),
        ("optimizer", "void at::native::multi_tensor_apply_kernel<x>", "multi_tensor_apply"),
        ("aten::tanh", "vectorized_elementwise_kernel", "other"),
        ("aten::topk", "void at::native::sbtopk", "other"),
    ],
)
def test_op_category_by_name_then_by_first_kernel(op: str, kernel: str, category: str) -> None:
    summary = report(trace().op(op).launches(kernel, us=2)).ops_summary_by_category
    assert summary["op_category"].to_list() == [category]


def test_the_first_kernel_is_the_one_that_starts_first() -> None:
    builder = trace().op("aten::x").launches("void at::native::reduce_kernel", at_us=3000.0)
    builder.launches(ELEMENTWISE, at_us=2000.0, stream=8)
    assert report(builder).ops_summary_by_category["op_category"].to_list() == ["elementwise"]


def test_shares_add_up_over_categories() -> None:
    builder = trace().op("aten::mm").launches("g", us=30).op("aten::add").launches("e", us=10)
    summary = report(builder).ops_summary_by_category
    assert summary.rows() == [
        ("GEMM", 1, 0.03, 75.0, 75.0),
        ("elementwise", 1, 0.01, 25.0, 100.0),
    ]


def test_arguments_and_threads_tell_rows_apart() -> None:
    builder = trace().process("python3").thread(1, "main").thread(2, "autograd")
    for tid, dims in ((1, [[4]]), (1, [[4]]), (1, [[8]]), (2, [[4]])):
        builder.thread(tid).op("aten::neg", dims).launches("k", us=1).up()
    unique = report(builder).ops_unique_args
    assert unique.select("thread_name", "input_dims", "operation_count").rows() == [
        ("main", "((4,),)", 2),
        ("main", "((8,),)", 1),
        ("autograd", "((4,),)", 1),
    ]
    assert unique["process_name"].unique().to_list() == ["python3"]
    assert unique["process_label"].unique().to_list() == ["CPU"]


def test_statistics_over_the_calls_of_a_row() -> None:
    builder = trace()
    for us in (1.0, 2.0, 6.0):
        builder.op("aten::neg", [[4]]).launches("k", us=us)
    row = report(builder).ops_unique_args.row(0, named=True)
    assert row["direct_kernel_time_us_mean"] == 3.0
    assert row["direct_kernel_time_us_median"] == 2.0
    assert row["direct_kernel_time_us_std"] == pytest.approx(7**0.5)
    assert row["direct_kernel_time_us_min"] == 1.0
    assert row["direct_kernel_time_us_max"] == 6.0
    assert row["direct_kernel_time_us_sum"] == 9.0
    assert row["ex_uid"] == 0
    assert row["trunc_kernel_details"] == "[{'name': 'k', 'stream': 7, 'mean_duration_us': 3.0}]"


def test_calls_without_arguments_have_none_not_an_empty_tuple() -> None:
    unique = report(trace().op("aten::mm").launches("k")).ops_unique_args
    assert unique["input_dims"].to_list() == [None]
    assert unique["process_name"].to_list() == ["Unknown"]
