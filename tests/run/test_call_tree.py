"""What a page asks of the call tree: views, one operation, chains of frames, modules, search."""

import polars as pl
import pytest

from jarvis.perf_report.call_tree.stacks import MODULE_PREFIX
from jarvis.perf_report.call_tree.views import View
from jarvis.pipeline import analyze
from jarvis.run import Run
from jarvis.run.call_tree import (
    CallTree,
    call_tree,
    operations_below,
    view_of,
    views,
    with_shares,
)
from tests.builders import TraceBuilder, trace

LARGE, SMALL = [[512, 512], [512, 512]], [[64, 64], [64, 64]]


def layer(builder: TraceBuilder, number: int) -> TraceBuilder:
    """A module with code of its own that calls two products and, inside, one of its own class."""
    builder.python(f"{MODULE_PREFIX}Layer_{number}").python("net.py(7): forward")
    builder.child("aten::mm", LARGE).launches("gemm_large", us=40).up()
    builder.python(f"{MODULE_PREFIX}Layer_{number + 10}")
    builder.child("aten::mm", SMALL).launches("gemm_small", us=10).up(2)
    return builder.up(2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("call_tree")
    builder = trace().python("run.py(3): main").python(f"{MODULE_PREFIX}Net_0")
    layer(layer(builder, 0), 1).up(2)
    builder.op("aten::copy_").launches("Memcpy HtoD", us=20, cat="gpu_memcpy").unlinked("lost", 5)
    return analyze(builder.write(folder / "trace.json"), output_dir=folder / "run")


def named(tree: CallTree, name: str) -> int:
    return int(tree.nodes.filter(pl.col("label").str.contains(name))["node"][0])


def test_the_views_of_a_run_and_of_its_nodes(run: Run) -> None:
    assert views(run) == [View.CLASSES, View.MODULES, View.PYTHON]
    for view in views(run):
        tree = call_tree(run, view)
        assert view_of(run, tree.root) is view_of(run, int(tree.nodes["node"][-1])) is view
        assert tree.gpu_ns == 125_000
    assert view_of(run, 10**9) is None


def test_one_operation_has_its_time_and_the_nodes_above_it(run: Run) -> None:
    operations = run.table("operations")
    small = operations.row(by_predicate=pl.col("input_dims") == "((64, 64), (64, 64))", named=True)
    for view in views(run):
        tree = call_tree(run, view, small["uid"])
        assert tree.gpu_ns == 20_000
        root = tree.row(tree.root)
        assert root["label"] == "All calls of aten::mm"
        assert (root["launches"], root["modelled_pct"]) == (2, 100)
        assert root["efficiency_pct"] == pytest.approx(small["pct_roofline"])
        assert not tree.nodes["name"].str.contains("copy_|large|lost").any()


def test_efficiencies_are_those_of_the_work_below(run: Run) -> None:
    operations = run.table("operations").filter(pl.col("pct_roofline").is_not_null())
    tree = call_tree(run, View.CLASSES)
    net = tree.row(named(tree, "Net"))
    best_us = (operations["operation_count"] * operations["roofline_time_us"]).sum()
    assert net["efficiency_pct"] == pytest.approx(best_us / net["gpu_ns"] * 1e5)
    assert tree.row(named(tree, "copy_"))["efficiency_pct"] is None
    assert tree.row(named(tree, "copy_"))["modelled_pct"] == 0
    assert net["share_pct"] == 80


def test_frames_that_hand_everything_on_are_passed_over(run: Run) -> None:
    tree = call_tree(run, View.PYTHON)
    assert "run.py(3): main" not in tree.below(tree.root)["name"].to_list()
    main = named(tree, "main · run.py:3")
    assert tree.settled(main) == named(tree, "Net_0")
    net = tree.settled(main)
    assert tree.trail(net)["label"].to_list() == ["All GPU work", "Net_0"]
    assert sorted(tree.children(net)["label"]) == ["Layer_0", "Layer_1"]
    assert tree.children(net)["level"].to_list() == [2, 2]


def test_children_stand_side_by_side_without_a_gap(run: Run) -> None:
    for view in views(run):
        tree = call_tree(run, view)
        for node in tree.nodes["node"]:
            row, children = tree.row(tree.settled(node)), tree.children(tree.settled(node))
            starts = children.sort("start_ns")
            ends = starts["start_ns"] + starts["gpu_ns"]
            if starts.height:
                assert starts["start_ns"].to_list() == [row["start_ns"], *ends[:-1]]
                assert ends[-1] == row["start_ns"] + row["gpu_ns"]


def test_modules_inside_their_like_count_once(run: Run) -> None:
    tree = call_tree(run, View.CLASSES)
    modules = {row["label"]: row for row in tree.modules(tree.root).iter_rows(named=True)}
    assert modules["Layer"]["gpu_ns"] == modules["Net"]["gpu_ns"] == 100_000
    assert modules["Layer"]["launches"] == 4
    single = call_tree(run, View.MODULES)
    inner = single.modules(named(single, "Layer_0"))
    assert dict(inner.select("label", "gpu_ns").iter_rows()) == {
        "Layer_0": 50_000,
        "Layer_10": 10_000,
    }


def test_matches_can_be_added_up(run: Run) -> None:
    tree = call_tree(run, View.CLASSES)
    assert tree.matches(tree.root, "LAYER")["gpu_ns"].sum() == 100_000
    assert tree.matches(tree.root, "gemm_")["gpu_ns"].sum() == 100_000
    assert tree.matches(tree.root, "gemm_small")["gpu_ns"].sum() == 20_000
    assert tree.matches(tree.root, "nothing like it").is_empty()


def test_a_node_is_found_again_in_another_view(run: Run) -> None:
    trees = {view: call_tree(run, view) for view in views(run)}
    python, modules, classes = (trees[v] for v in (View.PYTHON, View.MODULES, View.CLASSES))
    layer_1 = named(python, "Layer_1")
    assert classes.row(classes.counterpart(python, layer_1))["label"] == "Layer"
    inner = named(modules, "Layer_11")
    found = classes.row(classes.counterpart(modules, inner))
    assert (found["label"], found["gpu_ns"]) == ("Layer", 20_000)
    assert python.row(python.counterpart(modules, inner))["gpu_ns"] == 10_000
    assert modules.counterpart(python, python.root) == modules.root


def test_shares_of_nothing_are_not_known(run: Run) -> None:
    tree = call_tree(run, View.CLASSES)
    assert with_shares(tree.nodes, 0)["share_pct"].null_count() == tree.nodes.height


def test_operations_below_a_node_have_the_time_they_take_there(run: Run) -> None:
    tree = call_tree(run, View.MODULES)
    whole = operations_below(run, tree, tree.root)
    linked = run.table("gpu_work").drop_nulls("operation_uid")["dur_ns"].sum()
    assert whole["gpu_ns"].sum() == linked
    layer_0 = operations_below(run, tree, named(tree, "Layer_0"))
    assert layer_0.select("name", "gpu_ns", "launches", "calls").rows() == [
        ("aten::mm", 40_000, 1, 1.0),
        ("aten::mm", 10_000, 1, 1.0),
    ]
