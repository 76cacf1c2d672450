"""The difference of two traces: common and exclusive work."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jarvis.tracelens.options import ReportOptions
from jarvis.tracelens.report import TraceLensReport
from jarvis.tracelens.trace_diff import TraceDiff
from tests.builders import TraceBuilder, trace

Build = Callable[[TraceBuilder], TraceBuilder]


def diff(first: TraceBuilder, second: TraceBuilder) -> TraceDiff:
    return TraceDiff(first.read(), second.read())


def rows(found: TraceDiff, *columns: str) -> list[tuple[Any, ...]]:
    """Return ``source``, ``name`` and columns of the differences."""
    return found.diff_stats().select("source", "name", *columns).rows()


def model(*kernels: str) -> TraceBuilder:
    """One Python frame with an addmm for each kernel."""
    builder = trace().python("run.py(1): main")
    for kernel in kernels:
        builder.child("aten::addmm", [[8, 4]]).launches(kernel, us=10).up()
    return builder


def test_identical_traces_do_not_differ() -> None:
    assert rows(diff(model("a", "b", "a"), model("a", "b", "a"))) == []


def test_an_op_in_place_of_another_belongs_to_what_calls_both() -> None:
    def build(op: str, kernel: str, us: float) -> TraceBuilder:
        builder = trace().python("run.py(1): main").python("nn.Module: Linear_3")
        builder.child("aten::relu").launches("relu").up()
        return builder.child(op, [[8, 4], [4, 2]]).launches(kernel, us=us)

    found = diff(build("aten::mm", "gemm", 10), build("aten::addmm", "fused_gemm", 7))
    assert found.diff_stats().drop("row", "ts_ns", "dur_ns", "is_common", "gpu_uid").select(
        "name",
        "cpu_op_name",
        "source",
        "input_dims",
        "kernel_time_us",
        "busy_time_us",
        "lca_name",
        "nn_module_stack",
        "nn_module_parent",
    ).rows() == [
        (
            *("gemm", "aten::mm", "trace1", "((8, 4), (4, 2))", 10.0, 10.0),
            *("nn.Module: Linear_3", ["nn.Module: Linear"], "nn.Module: Linear"),
        ),
        (
            *("fused_gemm", "aten::addmm", "trace2", "((8, 4), (4, 2))", 7.0, 7.0),
            *("nn.Module: Linear_3", ["nn.Module: Linear"], "nn.Module: Linear"),
        ),
    ]


def test_another_kernel_belongs_to_its_launch_and_others_stay_out() -> None:
    found = diff(model("a", "b", "c"), model("a", "x", "c"))
    assert rows(found, "lca_name", "cpu_op_name") == [
        ("trace1", "b", "cudaLaunchKernel", "aten::addmm"),
        ("trace2", "x", "cudaLaunchKernel", "aten::addmm"),
    ]


def test_launches_of_two_runtimes_differ_below_their_op() -> None:
    def build(call: str) -> TraceBuilder:
        return trace().op("aten::addmm").launches("gemm", call=call)

    found = diff(build("cudaLaunchKernel"), build("hipLaunchKernel"))
    assert rows(found, "lca_name") == [
        ("trace1", "gemm", "aten::addmm"),
        ("trace2", "gemm", "aten::addmm"),
    ]
    assert rows(diff(build("cuLaunchKernel"), build("hipModuleLaunchKernel"))) == []


@pytest.mark.parametrize("is_swapped", [False, True])
def test_an_op_that_one_trace_has_more_is_the_only_difference(is_swapped: bool) -> None:
    def build(*ops: str) -> TraceBuilder:
        builder = trace()
        for op in ops:
            builder.op(op).launches(f"{op}_kernel")
        return builder

    both = [build("a", "b", "c"), build("a", "b", "extra", "c")]
    first, second = reversed(both) if is_swapped else both
    source = "trace1" if is_swapped else "trace2"
    assert rows(diff(first, second), "lca_name", "cpu_op_name", "nn_module_parent") == [
        (source, "extra_kernel", "root", "extra", "root")
    ]


def test_line_numbers_and_addresses_do_not_count() -> None:
    def build(line: int, address: str) -> TraceBuilder:
        builder = trace().python(f"run.py({line}): main")
        builder.python(f"<built-in function f at 0x{address}>")
        return builder.child("aten::mm").launches("a").up().child("aten::mm").launches("b")

    assert rows(diff(build(7, "7f00aa"), build(9, "55bb01"))) == []


def test_the_name_of_a_common_call_has_no_line_number() -> None:
    def build(line: int, op: str) -> TraceBuilder:
        return trace().python(f"run.py({line}): main").child(op).launches("a")

    found = diff(build(7, "aten::mm"), build(9, "aten::bmm"))
    assert rows(found, "lca_name") == [
        ("trace1", "a", "run.py: main"),
        ("trace2", "a", "run.py: main"),
    ]


def test_a_wrapper_around_one_call_is_looked_through() -> None:
    def build(*frames: str) -> TraceBuilder:
        builder = trace().python("run.py(1): main").child("aten::relu").launches("relu").up()
        for frame in frames:
            builder.python(frame)
        return builder.child("aten::linear").child("aten::addmm").launches("a")

    assert rows(diff(build(), build("wrap.py(3): call", "wrap.py(9): inner"))) == []
    assert rows(diff(build("old.py(3): call"), build("new.py(3): call", "new.py(5): more"))) == []


def test_a_wrapper_does_not_hide_that_ops_differ() -> None:
    def build(op: str) -> TraceBuilder:
        builder = trace().python("run.py(1): main").child("aten::relu").launches("relu").up()
        return builder.child(op).launches("a")

    assert len(rows(diff(build("aten::mm"), build("aten::bmm")))) == 2


@pytest.mark.parametrize(
    ("ours", "theirs", "lca_name"),
    [
        ("model.py(3): forward", "model.py(3): call", "model.py: forward | model.py: call"),
        ("/a/model.py(3): f", "/b/c/model.py(3): f", "/a/model.py: f | /b/c/model.py: f"),
        ("nn.Module: Layer_1", "nn.Module: Layer_7", "nn.Module: Layer_1 | nn.Module: Layer_7"),
    ],
)
def test_frames_match_by_file_and_modules_by_class_where_nothing_else_does(
    ours: str, theirs: str, lca_name: str
) -> None:
    def build(frame: str, op: str) -> TraceBuilder:
        builder = trace().python("run.py(1): main").child("aten::relu").launches("relu").up()
        builder.python(frame).child("aten::mm").launches("a").up()
        return builder.child(op).launches("b")

    found = diff(build(ours, "aten::neg"), build(theirs, "aten::exp"))
    assert rows(found, "lca_name") == [("trace1", "b", lca_name), ("trace2", "b", lca_name)]


def test_python_roots_match_by_position() -> None:
    def build(root: str) -> TraceBuilder:
        builder = trace().python(root)
        for op in ("aten::mm", "aten::relu"):
            builder.child(op).launches(f"{op}_kernel").up()
        return builder

    assert rows(diff(build("ours.py(1): main"), build("theirs.py(1): start"))) == []


def layers(*kernels: str) -> TraceBuilder:
    builder = trace().python("run.py(1): main")
    for kernel in kernels:
        builder.python("layer.py(1): forward").child("aten::mm").launches(kernel).up(2)
    return builder


def test_repeated_calls_match_by_their_work() -> None:
    found = diff(layers("a", "b", "c"), layers("b", "c"))
    assert rows(found) == [
        (
            "trace1",
            "a",
        )
    ]
    assert rows(diff(layers("b", "c"), layers("a", "b", "c"))) == [("trace2", "a")]


def test_repeated_calls_that_do_other_things_match_in_order() -> None:
    found = diff(layers("a", "b"), layers("x", "y"))
    assert rows(found, "lca_name") == [
        ("trace1", "a", "cudaLaunchKernel"),
        ("trace2", "x", "cudaLaunchKernel"),
        ("trace1", "b", "cudaLaunchKernel"),
        ("trace2", "y", "cudaLaunchKernel"),
    ]


def test_busy_time_is_that_of_all_events_of_one_trace_under_the_common_call() -> None:
    def build(*kernels: tuple[str, float, int]) -> TraceBuilder:
        builder = trace().op("aten::addmm")
        for name, us, stream in kernels:
            builder.launches(name, us=us, stream=stream, call=f"{name}Launch", at_us=2000.0)
        return builder

    found = diff(build(("a", 10, 7), ("b", 4, 8)), build(("c", 3, 7)))
    columns = ("kernel_time_us", "busy_time_us", "lca_id")
    # Both events of the first trace begin at once, so that it is busy for 10 µs.
    assert rows(found, *columns) == [
        ("trace1", "a", 10.0, 10.0, 1),
        ("trace1", "b", 4.0, 10.0, 1),
        ("trace2", "c", 3.0, 3.0, 1),
    ]


def test_python_frames_count_only_where_both_traces_have_them() -> None:
    with_frames = trace().python("run.py(1): main").child("aten::mm").launches("a")
    assert rows(diff(with_frames, trace().op("aten::mm").launches("a"))) == []


def test_a_trace_without_gpu_work_differs_in_everything() -> None:
    found = diff(trace().op("aten::mm").launches("a"), trace().op("aten::mm"))
    assert rows(found, "lca_name") == [("trace1", "a", "root")]
    assert rows(diff(trace().op("aten::mm"), trace().op("aten::mm"))) == []


def test_call_trees_may_be_deep() -> None:
    def build(kernel: str) -> TraceBuilder:
        builder = trace()
        for level in range(3000):
            builder.python(f"deep.py({level}): f")
        return builder.child("aten::mm").launches(kernel)

    assert [name for _, name in rows(diff(build("a"), build("b")))] == ["a", "b"]


TREES = st.recursive(
    st.sampled_from(["k1", "k2", "k3"]),
    lambda below: st.tuples(st.sampled_from(["f", "g", "h"]), st.lists(below, max_size=4)),
    max_leaves=12,
)


def grown(trees: list[Any]) -> TraceBuilder:
    builder = trace().python("run.py(1): main").child("aten::empty").up()

    def grow(tree: Any) -> None:
        if isinstance(tree, str):
            builder.launches(tree, us=3)
            return
        builder.child(tree[0])
        for below in tree[1]:
            grow(below)
        builder.up()

    for tree in trees:
        grow(tree)
    return builder


@settings(max_examples=30)
@example([("f", ["k1"]), ("g", ["k1"])], [("g", ["k1"]), ("f", ["k1"])])
@given(st.lists(TREES, max_size=4), st.lists(TREES, max_size=4))
def test_every_event_occurs_once_and_swapped_traces_mirror(
    first: list[Any], second: list[Any]
) -> None:
    one, other = grown(first).read(), grown(second).read()
    found, mirrored = TraceDiff(one, other), TraceDiff(other, one)
    for source, events in (("trace1", one.gpu_events), ("trace2", other.gpu_events)):
        seen = found.events.filter(pl.col("source") == source)["gpu_uid"].to_list()
        assert sorted(seen) == events["uid"].to_list()
    swapped = pl.col("source").replace({"trace1": "trace2", "trace2": "trace1"})
    key = ("source", "gpu_uid")
    columns = (*key, "lca_id", "is_common")
    assert (
        mirrored.events.with_columns(swapped)
        .select(columns)
        .sort(key)
        .equals(found.events.select(columns).sort(key))
    )
    common = found.events.filter("is_common").group_by("source").agg(pl.col("name").sort())
    assert common["name"].n_unique() <= 1
    assert TraceDiff(one, grown(first).read()).diff_stats().is_empty()


def compared(first: TraceBuilder, second: TraceBuilder, **options: Any) -> TraceLensReport:
    return TraceLensReport(
        first.read(), None, options=ReportOptions(**options), comparison=second.read()
    )


def test_the_unified_sheet_compares_each_row_with_its_counterpart() -> None:
    def build(linear: str, us: float, relu_us: float) -> TraceBuilder:
        builder = trace().python("run.py(1): main")
        for _ in range(2):
            builder.child("aten::addmm", [[2], [8, 4], [4, 2]]).launches(linear, us=us).up()
        return builder.child("aten::relu", [[8, 2]]).launches("relu", us=relu_us)

    report = compared(build("gemm", 10, 4), build("other_gemm", 15, 2))
    assert report.unified_perf_summary.select(
        "name",
        "kernel_time_us_sum",
        "time_ratio",
        "time_difference_us",
        "lca_count_trace2",
        "lca_name",
        "lca_kernel_time_us_trace1",
        "lca_kernel_time_us_trace2",
    ).rows() == [
        ("aten::addmm", 20.0, 1.5, 10.0, 2, "cudaLaunchKernel", 20.0, 30.0),
        ("aten::relu", 4.0, 0.5, -2.0, 1, "relu", 4.0, 2.0),
    ]
    differing = report.diff_stats.filter(pl.col("source") == "trace1")["lca_id"]
    (ids,) = report.unified_perf_summary.filter(pl.col("name") == "aten::addmm")["lca_id"]
    assert ids == "; ".join(str(i) for i in differing)


def test_work_that_the_other_trace_lacks_takes_no_time_there() -> None:
    mine = trace().op("aten::relu").launches("relu", us=4)
    report = compared(mine, trace().op("aten::mm"))
    assert report.unified_perf_summary.select(
        "time_ratio", "time_difference_us", "lca_count_trace2", "lca_name"
    ).rows() == [(0.0, -4.0, 0, "root")]


def test_sheets_have_the_comparison_columns_with_their_labels() -> None:
    sheets = compared(model("a"), model("b"), include_overlap_info=True).sheets()
    names = list(sheets)
    assert names[names.index("unified_perf_summary") + 1] == "diff_stats"
    labels = sheets["unified_perf_summary"].columns
    start = labels.index("Kernel Time (µs)_sum") + 1
    assert labels[start : start + 8] == [
        "speedup (trace2/trace1)",
        "delta_us (trace2 - trace1)",
        "lca_count_trace2",
        "lca_id",
        "lca_name",
        "lca_total_kernel_time_trace1_us",
        "lca_total_kernel_time_trace2_us",
        "duration_us_median",
    ]
    assert sheets["diff_stats"].columns == [
        "name",
        "cpu_op_name",
        "cpu_op_uid",
        "source",
        "Input Dims",
        "Input Strides",
        "Input type",
        "Concrete Inputs",
        "kernel_time",
        "busy_time",
        "lowest_common_ancestor_name",
        "lowest_common_ancestor_id",
        "gpu_op_uid",
        "nn_module_stack",
        "nn_module_parent",
    ]


def test_identical_traces_give_no_sheet_of_differences_but_compare_times() -> None:
    report = compared(model("a"), model("a"))
    assert "diff_stats" not in report.sheets()
    assert report.unified_perf_summary["time_ratio"].to_list() == [1.0]


def test_without_another_trace_a_report_has_no_comparison() -> None:
    report = TraceLensReport(model("a").read(), None)
    assert "diff_stats" not in report.sheets()
    assert report.table("diff_stats").is_empty()
    assert "time_ratio" not in report.unified_perf_summary.columns
