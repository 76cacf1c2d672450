"""Effects of the options of a report."""

import polars as pl
import pytest

from jarvis.trace.links import BACKWARD_PREFIX
from jarvis.tracelens.options import ReportOptions
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, all_reduce, trace

MM = [[8, 4], [4, 2]]


def report(builder: TraceBuilder, **options: object) -> TraceLensReport:
    return TraceLensReport(builder.read(), None, options=ReportOptions(**options))  # type: ignore[arg-type]


def timeline(found: TraceLensReport) -> dict[str, float]:
    return dict(found.gpu_timeline.select("type", "time_ms").iter_rows())


def gaps() -> TraceBuilder:
    builder = trace().op("aten::mm")
    for start, us in ((2000, 10), (2014, 6), (2025, 5), (2130, 70)):  # gaps of 4, 5 and 100 us
        builder.launches("k", us=us, at_us=start)
    return builder


def test_idle_time_is_split_at_the_threshold() -> None:
    parts = timeline(report(gaps(), micro_idle_thresh_us=5))
    assert list(parts)[4:7] == ["micro_idle_time", "macro_idle_time", "total_time"]
    assert parts["micro_idle_time"] == pytest.approx(0.004)
    assert parts["macro_idle_time"] == pytest.approx(0.105)
    assert "idle_time" not in parts


def test_a_gap_is_between_all_work_before_and_what_comes_next() -> None:
    builder = trace().op("aten::mm").launches("long", us=50, at_us=2000)
    builder.launches("inside", us=5, at_us=2010, stream=8).launches("k", us=8, at_us=2052)
    parts = timeline(report(builder, micro_idle_thresh_us=3))
    assert parts["micro_idle_time"] == pytest.approx(0.002)
    assert parts["macro_idle_time"] == pytest.approx(0.0)


def test_unlinked_work_counts_in_the_timeline_alone() -> None:
    builder = trace().unlinked("early", us=30).op("aten::mm", MM).launches("gemm", us=10)
    ours, theirs = report(builder), report(builder, include_unlinked_kernels=True)
    assert timeline(ours)["busy_time"] == pytest.approx(0.010)
    assert timeline(theirs)["busy_time"] == pytest.approx(0.040)
    assert ours.ops_summary.equals(theirs.ops_summary)
    assert ours.unified_perf_summary.equals(theirs.unified_perf_summary)


def test_collectives_can_be_left_out() -> None:
    builder = trace().op("c10d::allreduce_")
    metadata = all_reduce(4, 2)
    builder.launches("ncclDevKernel", us=5, **metadata).op("aten::mm").launches("gemm")
    assert "coll_analysis" in report(builder).sheets()
    assert "coll_analysis" not in report(builder, disable_coll_analysis=True).sheets()


def test_the_first_occurrence_is_after_the_first_call_of_all() -> None:
    builder = trace().op("aten::neg", [[4]], us=7.0).launches("k", us=9)
    builder.op("aten::neg", [[8]]).launches("k", us=5)
    builder.op("aten::neg", [[8]]).launches("k", us=5)
    unique = report(builder, include_first_occurrence_time=True).ops_unique_args
    # The first call takes 7 us of host time; the second starts then.
    assert unique.select("input_dims", "first_occurrence_time").rows() == [
        ("((8,),)", 7.0),
        ("((4,),)", 0.0),
    ]
    columns = unique.columns
    assert columns[columns.index("operation_count") + 1] == "first_occurrence_time"


def test_calls_that_launch_another_number_of_kernels_are_another_row() -> None:
    builder = trace().op("aten::mm", MM).launches("gemm", us=9)
    builder.op("aten::mm", MM).launches("split", us=3).launches("sum", us=1)
    grouped = report(builder, group_by_num_kernels=True)
    rows = [("aten::mm", 1, 9.0), ("aten::mm", 2, 4.0)]
    unique = grouped.ops_unique_args
    assert unique.select("name", "num_kernels", "direct_kernel_time_us_sum").rows() == rows
    assert unique.columns[unique.columns.index("concrete_inputs") + 1] == "num_kernels"
    gemm = grouped.roofline_sheets["GEMM"]
    assert gemm.select("name", "num_kernels", "kernel_time_us_sum").rows() == rows
    assert grouped.unified_perf_summary.height == 1
    assert report(builder).ops_unique_args.height == 1


def test_a_roofline_row_without_gpu_work_has_no_kernels() -> None:
    builder = trace().op("aten::mm", MM).op("aten::mm", MM).launches("gemm", us=9)
    gemm = report(builder, group_by_num_kernels=True).roofline_sheets["GEMM"]
    assert gemm.select("num_kernels", "name_count").rows() == [(1, 1), (0, 1)]


def test_the_rows_with_most_time_are_selected() -> None:
    builder = trace()
    for size, us in ((1, 5.0), (2, 30.0), (3, 20.0)):
        builder.op("aten::mm", [[size, 4], [4, 2]]).launches("gemm", us=us)
        builder.op(f"aten::other{size}").launches("k", us=us / 10)
    kept = report(builder, topk_ops=2, topk_roofline_ops=1)
    assert kept.ops_summary["name"].to_list() == ["aten::mm", "aten::other2"]
    assert kept.ops_unique_args["direct_kernel_time_us_sum"].to_list() == [30.0, 20.0]
    assert kept.unified_perf_summary["kernel_time_us_sum"].to_list() == [30.0, 20.0]
    assert kept.roofline_sheets["GEMM"]["kernel_time_us_sum"].to_list() == [30.0]
    # Shares stay those of all rows.
    assert kept.ops_summary["percent"].to_list()[0] == pytest.approx(100 * 55 / 60.5)


def checkpointed() -> TraceBuilder:
    builder = trace().op("aten::mm", MM, seq=1).launches("gemm", us=10, at_us=2000).up()
    frame = "torch/utils/checkpoint.py(1500): recompute_fn"
    builder.thread(2).op(f"{BACKWARD_PREFIX} CheckpointBackward").python(frame)
    builder.child("aten::mm", MM).launches("gemm", us=20, at_us=2100).up(2)
    return builder.child("aten::mm", MM).launches("gemm", us=40, at_us=2200).up(2)


def test_recomputed_work_is_marked_in_every_sheet() -> None:
    found = report(checkpointed(), detect_recompute=True)
    assert found.ops_summary.select("name", "is_recompute", "count").rows() == [
        ("aten::mm", False, 2),
        ("aten::mm", True, 1),
    ]
    by_category = found.ops_summary_by_category
    assert by_category.select("is_recompute", "direct_kernel_time_ms").rows() == [
        (False, 0.05),
        (True, 0.02),
    ]
    for table in (found.ops_unique_args, found.unified_perf_summary, found.roofline_sheets["GEMM"]):
        recomputed = table.filter("is_recompute")
        assert recomputed.height == 1
        assert recomputed.select(pl.col("^.*kernel_time_us_sum$")).row(0)[0] == 20.0


def test_recomputed_work_has_a_timeline_of_its_own() -> None:
    table = report(checkpointed(), detect_recompute=True).gpu_timeline
    total = table.filter(pl.col("type") == "total_time")
    assert total.select("time_ms", "is_recompute").rows() == [(0.24, False), (0.02, True)]
    assert table.height == 16
    none = report(trace().op("aten::mm").launches("gemm"), detect_recompute=True).gpu_timeline
    assert none["is_recompute"].to_list() == [False] * 8


def test_only_checkpointing_recomputes() -> None:
    builder = trace().python("my/checkpoint.py(3): recompute_fn").child("aten::mm", MM)
    found = report(builder.launches("gemm"), detect_recompute=True)
    assert found.ops_summary["is_recompute"].to_list() == [False]


def test_calls_of_python_roots_come_first() -> None:
    builder = trace().thread(1).op("aten::a").launches("k", us=1)
    builder.thread(2).waits(50).python("train.py(1): main").child("aten::a").launches("k", us=1)
    read = builder.read()
    first, second = read.cpu_ops.sort("ts_ns")["uid"].to_list()
    plain = TraceLensReport(read, None).unified_perf_summary
    stacked = TraceLensReport(read, None, options=ReportOptions(include_call_stack=True))
    assert plain["ex_uid"].to_list() == [first]
    assert stacked.unified_perf_summary["ex_uid"].to_list() == [second]


def test_pseudo_ops_are_optional() -> None:
    builder = trace().op("vllm::moe_forward", [[2, 8], [2, 4]])
    tensors = [[2, 8], [4, 8, 8], [4, 8, 4], [2, 2]]
    types = ["c10::BFloat16", "c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "int"]
    builder.child("vllm::rocm_aiter_fused_moe", tensors, types=types)
    builder.launches("aiter::fmoe_bf16_g1u1", us=10)
    assert report(builder).unified_perf_summary["name"].to_list() == ["vllm::rocm_aiter_fused_moe"]
    asked = report(builder, enable_pseudo_ops=True)
    assert asked.unified_perf_summary["name"].to_list() == ["pseudo_op::moe_aiter_fused_1stage"]
    assert asked.trace.cpu_ops.height == 2
