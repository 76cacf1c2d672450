"""The call tree of GPU time: exact sums, modules, backward work, views, the rest."""

import polars as pl
import pytest

from jarvis.perf_report import PerfReport
from jarvis.perf_report.call_tree.stacks import MODULE_PREFIX
from jarvis.trace.links import BACKWARD_PREFIX
from tests.builders import TraceBuilder, trace

MM = [[64, 32], [32, 16]]


def report_of(builder: TraceBuilder) -> PerfReport:
    return PerfReport(builder.read(), None)


def nodes(report: PerfReport, view: str = "classes") -> pl.DataFrame:
    return report.call_tree.filter(view=view)


def paths(table: pl.DataFrame) -> dict[tuple[str, ...], int]:
    """Return GPU time in µs by the names from below the root to each node."""
    found: dict[int, tuple[str, ...]] = {}
    for node, parent, name in table.select("node", "parent", "name").iter_rows():
        found[node] = () if parent is None else (*found[parent], name)
    times = dict(table.select("node", "gpu_ns").iter_rows())
    return {path: times[node] // 1000 for node, path in found.items()}


def layer(builder: TraceBuilder, number: int, us: float) -> TraceBuilder:
    """Add a module of class `Layer` with a product, and a frame of its code between."""
    builder.python(f"{MODULE_PREFIX}Layer_{number}").python("net.py(7): forward")
    return builder.child("aten::linear").child("aten::mm", MM).launches("gemm", us=us).up(4)


@pytest.fixture
def stacked() -> PerfReport:
    """Two layers of a class in one module, a copy outside of it, and an unlinked kernel."""
    builder = trace().python(f"{MODULE_PREFIX}Net_0")
    layer(layer(builder, 0, 30), 1, 50).up()
    builder.op("aten::copy_").launches("Memcpy HtoD", us=20, cat="gpu_memcpy")
    return report_of(builder.unlinked("mystery", us=5))


def assert_sums(table: pl.DataFrame) -> None:
    """Every node has the time and the launches of its children."""
    for column in ("gpu_ns", "backward_ns", "modelled_ns", "launches"):
        below = table.group_by(node="parent").agg(pl.col(column).sum().alias("below"))
        inner = table.join(below, on="node")
        assert inner[column].to_list() == inner["below"].to_list(), column
    leaves = table.filter(~pl.col("node").is_in(table["parent"].implode()))
    assert set(leaves["kind"]) <= {"kernel", "rest", "root"}


def assert_preorder(table: pl.DataFrame) -> None:
    first = int(table["node"][0])
    assert table["node"].to_list() == list(range(first, first + table.height))
    ends = dict(table.select("node", "subtree_end").iter_rows())
    for node, parent in table.select("node", "parent").drop_nulls().iter_rows():
        assert parent < node < ends[node] <= ends[parent]


def test_modules_of_a_class_are_one_node_and_python_is_left_out(stacked: PerfReport) -> None:
    found = paths(nodes(stacked))
    net = (f"{MODULE_PREFIX}Net",)
    assert found[()] == 105
    assert found[net] == 80
    assert found[(*net, f"{MODULE_PREFIX}Layer", "aten::linear", "aten::mm", "gemm")] == 80
    assert found[("aten::copy_", "Memcpy HtoD")] == 20
    assert found[("Launch not recorded", "mystery")] == 5
    layers = nodes(stacked).row(by_predicate=pl.col("name").str.ends_with("Layer"), named=True)
    assert (layers["calls"], layers["module_count"], layers["launches"]) == (2, 2, 2)


def test_single_modules_and_python_frames_have_views_of_their_own(stacked: PerfReport) -> None:
    net = (f"{MODULE_PREFIX}Net_0",)
    single = paths(nodes(stacked, "modules"))
    assert single[(*net, f"{MODULE_PREFIX}Layer_1")] == 50
    python = paths(nodes(stacked, "python"))
    assert python[(*net, f"{MODULE_PREFIX}Layer_0", "net.py(7): forward", "aten::linear")] == 30


def test_sums_are_exact_in_every_view(stacked: PerfReport) -> None:
    events = stacked.gpu_work
    assert set(stacked.call_tree["view"]) == {"classes", "modules", "python"}
    for _, table in stacked.call_tree.group_by("view", maintain_order=True):
        assert table["gpu_ns"][0] == events["dur_ns"].sum()
        unlinked = table.filter(kind="unlinked")["gpu_ns"].sum()
        linked = events.filter("linked")["dur_ns"].sum()
        assert table["gpu_ns"][0] - unlinked == linked
        assert table["self_ns"].filter(table["kind"] == "kernel").sum() == table["gpu_ns"][0]
        assert_sums(table)
    assert_preorder(stacked.call_tree)


def test_time_with_a_perf_model_is_separate(stacked: PerfReport) -> None:
    modelled = dict(nodes(stacked).select("name", "modelled_ns").iter_rows())
    assert modelled["aten::mm"] == 80_000
    assert modelled["aten::copy_"] == modelled["Launch not recorded"] == 0


def test_the_work_of_an_operation_is_found_at_its_kernels(stacked: PerfReport) -> None:
    work = stacked.call_tree_operations
    product = stacked.operations.row(by_predicate=pl.col("name") == "aten::mm", named=True)
    for view in ("classes", "modules", "python"):
        kernels = nodes(stacked, view).filter(kind="kernel", name="gemm")
        mine = work.filter(
            pl.col("operation_uid") == product["uid"],
            pl.col("node").is_in(kernels["node"].implode()),
        )
        assert mine["gpu_ns"].sum() == 80_000
        assert mine["launches"].sum() == 2
        assert mine["calls"].sum() == product["operation_count"] == 2


def backward(builder: TraceBuilder, seq: int, us: float) -> TraceBuilder:
    """The backward of a product, on the thread of autograd."""
    builder.thread(2).op(f"{BACKWARD_PREFIX} MmBackward0", seq=seq).child("MmBackward0", seq=seq)
    return builder.child("aten::mm", MM).launches("gemm_bwd", us=us)


def test_backward_work_is_under_the_module_of_its_forward() -> None:
    builder = trace().python(f"{MODULE_PREFIX}Net_0").python("net.py(7): forward")
    builder.child("aten::mm", MM, seq=3).launches("gemm", us=10).up(3)
    found = nodes(report_of(backward(builder, seq=3, us=25)))
    net = found.row(by_predicate=pl.col("name").str.ends_with("Net"), named=True)
    assert (net["gpu_ns"], net["backward_ns"]) == (35_000, 25_000)
    node = (f"{MODULE_PREFIX}Net", f"{BACKWARD_PREFIX} MmBackward0", "MmBackward0", "aten::mm")
    assert paths(found)[node] == 25
    assert_sums(found)


def test_unlinked_backward_work_is_not_moved() -> None:
    builder = trace().python(f"{MODULE_PREFIX}Net_0")
    builder.child("aten::mm", MM, seq=3).launches("gemm", us=10).up(2)
    found = paths(nodes(report_of(backward(builder, seq=4, us=25))))
    assert found[(f"{BACKWARD_PREFIX} MmBackward0",)] == 25


def test_a_trace_without_stacks_has_operators_alone() -> None:
    report = report_of(trace().op("aten::linear").child("aten::mm", MM).launches("gemm", us=12))
    assert set(report.call_tree["view"]) == {"classes"}
    assert paths(nodes(report))[("aten::linear", "aten::mm", "gemm")] == 12


def test_a_call_outside_operators_has_a_node_and_others_have_none() -> None:
    builder = trace().python("run.py(3): step").graph(("a", 5), ("b", 7)).up()
    builder.op("aten::mm", MM).launches("gemm", us=12)
    found = paths(nodes(report_of(builder)))
    assert found[("cudaGraphLaunch",)] == 12
    assert found[("aten::mm", "gemm")] == 12


def test_equal_calls_below_frames_of_any_number_are_one_node() -> None:
    builder = trace().python("run.py(3): step")
    builder.child("aten::mm", MM).launches("gemm", us=3).up()
    builder.python("run.py(9): deeper").child("aten::mm", MM).launches("gemm", us=4).up(3)
    found = nodes(report_of(builder)).filter(name="aten::mm")
    assert found["gpu_ns"].to_list() == [7_000]
    assert found["calls"].to_list() == [2]


def test_short_nodes_are_merged_into_the_rest_of_their_parent() -> None:
    builder = trace().op("aten::mm", MM).launches("gemm", us=100_000)
    for number in range(3):
        builder.op("aten::outer").child(f"aten::tiny{number}").launches(f"k{number}", us=9)
    report = report_of(builder)
    found = nodes(report)
    assert paths(found)[("aten::outer", "Rest")] == 27
    assert not found["name"].str.contains("tiny").any()
    assert_sums(found)
    rest = found.row(by_predicate=pl.col("kind") == "rest", named=True)
    assert rest["launches"] == 3
    of_rest = report.call_tree_operations.filter(node=rest["node"])
    assert of_rest["gpu_ns"].sum() == 27_000
    assert of_rest.height == 3


def test_unlinked_work_is_separate_however_short() -> None:
    builder = trace().op("aten::mm", MM).launches("gemm", us=100_000).unlinked("lost", us=2)
    found = nodes(report_of(builder))
    assert found.filter(kind="unlinked")["gpu_ns"].to_list() == [2_000]
    assert_sums(found)


def test_a_trace_without_gpu_work_has_a_root_alone() -> None:
    report = report_of(trace().op("aten::mm", MM))
    assert report.call_tree["kind"].to_list() == ["root"]
    assert report.call_tree_operations.is_empty()


def test_calls_without_any_duration_are_shared_out_evenly() -> None:
    builder = trace().op("aten::mm", MM).launches("a", us=0).launches("b", us=0)
    report = report_of(builder)
    assert report.call_tree_operations["calls"].to_list() == [0.5, 0.5]


def test_modules_that_run_again_in_the_backward_pass_are_where_they_ran_before() -> None:
    builder = trace().python(f"{MODULE_PREFIX}Net_0")
    layer(builder, 0, 30).python(f"{MODULE_PREFIX}ReLU_0")
    builder.child("aten::relu", seq=7).launches("relu", us=5).up(3)
    builder.thread(2).op(f"{BACKWARD_PREFIX} ReluBackward0", seq=7)
    layer(builder.python("checkpoint.py(9): unpack"), 0, 31).up()
    builder.child("ReluBackward0", seq=7).launches("relu_backward", us=6)
    report = report_of(builder)
    modules = nodes(report, "modules").filter(kind="module")
    rows = {row["name"]: row for row in modules.iter_rows(named=True)}
    assert set(rows) == {f"{MODULE_PREFIX}{name}" for name in ("Net_0", "Layer_0", "ReLU_0")}
    assert rows[f"{MODULE_PREFIX}Layer_0"]["gpu_ns"] == 61_000
    assert rows[f"{MODULE_PREFIX}Layer_0"]["calls"] == 2
    assert rows[f"{MODULE_PREFIX}ReLU_0"]["gpu_ns"] == 11_000
    assert_sums(report.call_tree)
