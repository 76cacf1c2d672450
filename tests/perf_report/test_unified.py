"""Rows of the unified summary, and the GPU work of each."""

import polars as pl
import pytest

from jarvis.trace.links import BACKWARD_PREFIX
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

MM = [[8, 4], [4, 2]]
QKV = [[1, 2, 64, 16]] * 3
FLASH = "aten::_scaled_dot_product_flash_attention"
FLASH_ARGS = {
    "types": ["c10::BFloat16"] * 3 + ["Scalar", "Scalar"],
    "concrete": ["", "", "", "0.", "False"],
}


def report(builder: TraceBuilder, tracelens_only: bool = False) -> TraceLensReport:
    return TraceLensReport(builder.read(), None, tracelens_models_only=tracelens_only, strict=True)


def times(builder: TraceBuilder) -> dict[str, float]:
    return dict(report(builder).operations.select("name", "kernel_time_us").iter_rows())


def test_the_highest_op_with_a_model_takes_its_whole_subtree() -> None:
    dims, concrete = [[4, 8], [], [8], [8]], ["", "[8]", "", ""]
    builder = trace().op("module").child("aten::layer_norm", dims, concrete=concrete)
    builder.child("aten::native_layer_norm", dims, concrete=concrete).launches("norm", us=5)
    builder.up().launches("cast", us=2)
    assert times(builder) == {"aten::layer_norm": 7.0}


def test_without_a_model_the_launching_op_is_the_row() -> None:
    builder = trace().op("aten::softmax").child("aten::_softmax_x").launches("k", us=3)
    assert times(builder) == {"aten::_softmax_x": 3.0}


def test_an_op_above_a_modelled_one_loses_what_it_launches_itself() -> None:
    builder = trace().op("outer").launches("own", us=4).child("aten::mm", MM).launches("g", us=6)
    assert times(builder) == {"aten::mm": 6.0, "outer->own (Synthetic Op)": 4.0}


def test_driver_launches_make_no_leaf() -> None:
    builder = trace().op("my_op").launches("k", us=4, call="cuLaunchKernel", call_cat="cuda_driver")
    assert times(builder) == {"my_op->k (Synthetic Op)": 4.0}


def test_a_leaf_that_communicates_is_no_row_and_what_else_it_launched_is_synthetic() -> None:
    builder = trace().op("c10d::allreduce_").launches("ncclDevKernel", us=9).launches("k", us=1)
    assert times(builder) == {"c10d::allreduce_->k (Synthetic Op)": 1.0}


def test_communication_inside_a_modelled_op_counts_to_it() -> None:
    builder = trace().op("aten::mm", MM).launches("gemm", us=4).launches("ncclDevKernel", us=6)
    row = report(builder).operations.row(0, named=True)
    assert (row["kernel_time_us"], row["comm_time_us"], row["kernel_count"]) == (10.0, 6.0, 2)


def test_kernels_of_a_graph_get_a_row_by_name_under_their_launch() -> None:
    builder = trace().graph(("a", 2.0), ("b", 3.0), ("a", 4.0)).op("aten::mm", MM)
    builder.launches("gemm", us=1)
    found = report(builder).operations
    rows = found.select("name", "kernel_time_us", "operation_count", "host_time_us").rows()
    assert rows == [
        ("cudaGraphLaunch->a (Synthetic Op)", 6.0, 2, 2.0),
        ("cudaGraphLaunch->b (Synthetic Op)", 3.0, 1, 2.0),
        ("aten::mm", 1.0, 1, 4.0),
    ]


def test_synthetic_uids_follow_those_of_the_trace() -> None:
    builder = trace().graph(("a", 2.0), ("b", 3.0)).op("aten::mm", MM).launches("gemm", us=1)
    read = builder.read()
    uids = TraceLensReport(read, None).operations["uid"].sort().to_list()
    assert uids[-2:] == [read.event_count, read.event_count + 1]


def test_every_linked_kernel_without_communication_is_in_one_operation() -> None:
    builder = trace().op("outer").launches("a", us=4).child("aten::mm", MM).launches("g", us=6)
    builder.graph(("b", 1.0)).op("c10d::x").launches("ncclDevKernel", us=2)
    builder.unlinked("lost")
    work = report(builder).gpu_work
    linked = work.filter(pl.col("linked") & (pl.col("kind") != "communication"))
    assert linked["operation_uid"].null_count() == 0
    rest = work.join(linked, on="uid", how="anti")
    assert rest["operation_uid"].null_count() == rest.height


def backward(helper_us: float, attention_name: str) -> TraceBuilder:
    """One attention forward and its backward, with a helper that fills a buffer beside it."""
    node = "ScaledDotProductFlashAttentionBackward0"
    builder = trace().op(FLASH, QKV, seq=5, **FLASH_ARGS).launches("flash_fwd", us=20).up()
    builder.thread(2).op(BACKWARD_PREFIX + " " + node, seq=5)
    builder.child("aten::zero_").launches("fill", us=helper_us).up()
    builder.child(attention_name).child("aten::_flash_attention_backward")
    return builder.launches("flash_bwd", us=40).up(3)


def test_only_the_op_named_like_the_autograd_node_gets_the_forward_model() -> None:
    found = report(backward(5, "ScaledDotProductFlashAttentionBackward0")).operations
    rows = {row["name"]: row for row in found.iter_rows(named=True)}
    priced = rows["ScaledDotProductFlashAttentionBackward0"]
    assert priced["op_category"] == "SDPA_bwd"
    assert priced["direction"] == "backward"
    assert priced["kernel_time_us"] == 40.0  # its own subtree, not the helper's
    # Five products of N x N x d for each head: recompute, dV, dP, dQ, dK.
    assert priced["flops"] == 5 * 2 * 2 * 64 * 64 * 16
    assert rows["aten::zero_"]["flops"] is None
    assert rows["aten::zero_"]["kernel_time_us"] == 5.0


def test_an_op_with_another_name_under_the_node_gets_no_model() -> None:
    found = report(backward(5, "SomethingElse")).operations
    assert found.filter(pl.col("kernel_time_us") == 40.0)["flops"].to_list() == [None]


def test_a_model_that_tracelens_lacks_prices_a_row_in_place() -> None:
    softmax = {"types": ["c10::BFloat16", "Scalar", "Scalar"], "concrete": ["", "-1", "False"]}
    builder = trace().op("aten::softmax").child("aten::_softmax", [[4, 8], [], []], **softmax)
    ours = report(builder.launches("softmax", us=3))
    theirs = TraceLensReport(ours.trace, None, tracelens_models_only=True)
    assert ours.unified_perf_summary["name"].to_list() == ["aten::_softmax"]
    assert ours.unified_perf_summary["has_perf_model"].to_list() == [True]
    assert theirs.unified_perf_summary["has_perf_model"].to_list() == [False]
    assert theirs.unified_perf_summary["gflops"].to_list() == [None]
    for each in (ours, theirs):
        row = each.operations.row(0, named=True)
        assert (row["model_origin"], row["bytes"]) == ("jarvis", 2 * 4 * 8 * 2)


def test_a_formula_that_fails_leaves_the_row_with_its_time_and_is_reported() -> None:
    builder = trace().op("aten::mm", [[8, 4]]).launches("gemm", us=12)
    found = TraceLensReport(builder.read(), None)
    row = found.operations.row(0, named=True)
    assert row["kernel_time_us"] == 12.0
    assert row["has_perf_model"] is False
    assert row["flops"] is None
    assert row["roofline_note"].startswith("The perf model failed")
    failures = found.perf_model_failures.row(0, named=True)
    assert (failures["name"], failures["input_dims"]) == ("aten::mm", "((8, 4),)")
    assert failures["reason"]


def test_invalid_dtypes_count_as_not_recorded() -> None:
    rows = []
    for types in ([1, 2], ["", ""]):
        builder = trace().op("aten::mul", [[4], [4]], types=types).launches("k", us=2)
        rows.append(TraceLensReport(builder.read(), None).operations)
    assert rows[0].equals(rows[1])


def test_a_modelled_op_without_shapes_is_reported_too() -> None:
    found = TraceLensReport(trace().op("aten::mm").launches("gemm", us=12).read(), None)
    assert found.perf_model_failures["reason"].to_list() == [
        "the trace records no argument shapes for the call"
    ]


def test_the_example_call_is_the_one_that_starts_first_on_any_thread() -> None:
    builder = trace().thread(1).waits(50).op("aten::a").launches("k", us=1)
    builder.thread(2).op("aten::a").launches("k", us=1)
    read = builder.read()
    first = read.cpu_ops.sort("ts_ns")["uid"].to_list()[0]
    assert first != read.cpu_ops["uid"].min()
    assert TraceLensReport(read, None).unified_perf_summary["ex_uid"].to_list() == [first]


@pytest.mark.parametrize(
    "name",
    [
        "aten::instance_norm_backward",
        "vllm::gdn_attention_core",
        "vllm::unified_attention_with_output",
    ],
)
def test_a_row_whose_model_fails_has_its_time(name: str) -> None:
    builder = trace().op(name, [[4, 8, 16]] * 4).launches("a", us=5)
    read = builder.child("inner").launches("b", us=3).read()
    summary = TraceLensReport(read, None).unified_perf_summary
    assert summary.select("name", "kernel_time_us_sum", "gflops").rows() == [(name, 8.0, None)]
