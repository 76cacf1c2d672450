"""The call tree page: links, numbers, drill-down, single operations, empty states."""

import json
from pathlib import Path

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from jarvis.perf_report.call_tree.views import View
from jarvis.run import Run
from jarvis.run.call_tree import CallTree, call_tree
from jarvis.server.submission import Submission
from jarvis.text.format import milliseconds
from jarvis.text.short_names import short_kernel_name
from tests.builders import TraceBuilder, trace
from tests.dashboard.conftest import SHARED, Draw, stored_in
from tests.dashboard.copied import copied_parameters


def analyzed(home: Path, folder: Path, builder: TraceBuilder) -> str:
    return stored_in(home, Submission(builder.write(folder / "trace.json")))


def metric(page: AppTest, label: str) -> str:
    return str(next(m.value for m in page.metric if m.label == label))


def boxes(page: AppTest) -> int:
    """Return the number of boxes in the icicle chart."""
    spec = json.loads(page.get("vega_lite_chart")[0].proto.spec)
    data = {d.name: len(d.data.data) for d in page.get("vega_lite_chart")[0].proto.datasets}
    assert spec["layer"][0]["mark"]["type"] == "rect"
    return max(data.values())


def output(page: AppTest) -> str:
    return " ".join(markdown.value for markdown in page.main.markdown)


def copied_link(page: AppTest) -> dict[str, str]:
    query = copied_parameters(page)
    return {name: values[0] for name, values in query.items()}


def module(tree: CallTree) -> int:
    """Return a module that is not the root."""
    found = tree.nodes.filter(pl.col("kind") == "module", pl.col("depth") == 3)
    return int(found["node"][0])


@pytest.fixture
def classes(sample_run: Run) -> CallTree:
    return call_tree(sample_run, View.CLASSES)


def test_the_page_shows_all_gpu_time_and_where_most_of_it_goes(
    filed: Draw, sample_id: str, sample_run: Run, classes: CallTree
) -> None:
    page = filed("call_tree", analysis=sample_id)
    assert not page.exception
    all_ms = sample_run.table("gpu_work")["dur_ns"].sum() / 1e6
    assert metric(page, "GPU time") == milliseconds(all_ms)
    assert metric(page, "Launches") == f"{sample_run.table('gpu_work').height:,}"
    assert f"`All GPU work`: {milliseconds(all_ms)}" in output(page)
    calls, modules, operations = (table.value for table in page.dataframe)
    linked = sample_run.table("gpu_work").drop_nulls("operation_uid")["dur_ns"].sum()
    assert operations["gpu_ms"].sum() == pytest.approx(linked / 1e6)
    assert calls["gpu_ms"].sum() == pytest.approx(all_ms)
    assert set(modules["label"]) == set(classes.modules(classes.root)["label"])


def test_kernels_operations_and_categories_have_short_names(
    filed: Draw, sample_id: str, classes: CallTree
) -> None:
    kernels = classes.nodes.filter(pl.col("kind") == "kernel")
    assert kernels["label"].to_list() == [short_kernel_name(name) for name in kernels["name"]]
    operations = filed("call_tree", analysis=sample_id).dataframe[2].value
    assert not any(operations["name"].str.contains("::"))
    assert {"GEMM", "Attention"} <= set(operations["category"])
    products = operations[operations["category"] == "GEMM"]["shapes"]
    assert all(products.str.contains("\N{MULTIPLICATION SIGN}"))


def test_every_control_comes_from_the_link_and_goes_into_it(
    filed: Draw, sample_id: str, sample_run: Run
) -> None:
    tree = call_tree(sample_run, View.MODULES)
    given = {
        "analysis": sample_id,
        "call_tree_view": "modules",
        "call_tree_colour": "efficiency",
        "call_tree_levels": "7",
        "call_tree_search": "linear",
        "call_tree_root": str(module(tree)),
    }
    page = filed("call_tree", **given)
    assert not page.warning
    assert page.session_state["call_tree_view"] == "modules"
    assert page.number_input(key="call_tree_levels").value == 7
    assert metric(page, "GPU time") == milliseconds(tree.row(module(tree))["gpu_ms"])
    assert copied_link(page) == given | SHARED


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("call_tree_view", "frames"),
        ("call_tree_levels", "1000"),
        ("call_tree_colour", "red"),
        ("call_tree_root", "99999999"),
        ("call_tree_root", "x" * 30),
        ("call_tree_op", "99999999999999999999999"),
    ],
)
def test_a_bad_parameter_is_corrected_with_a_word(
    filed: Draw, sample_id: str, parameter: str, value: str
) -> None:
    page = filed("call_tree", analysis=sample_id, **{parameter: value})
    assert not page.exception
    assert any(value in warning.value for warning in page.warning)
    assert metric(page, "GPU time").endswith("ms")
    assert parameter not in copied_link(page) or copied_link(page)[parameter] != value


def test_buttons_lead_down_and_up_and_the_trail_back(
    filed: Draw, sample_id: str, classes: CallTree
) -> None:
    page = filed("call_tree", analysis=sample_id)
    assert page.button(key="call_tree_arrow_upward").disabled
    for _ in range(2):
        page.button(key="call_tree_arrow_downward").click().run()
    first = classes.children(classes.root)["node"][0]
    second = classes.children(first)["node"][0]
    assert copied_link(page)["call_tree_root"] == str(second)
    page.button(key=f"call_tree_crumb_{first}").click().run()
    assert metric(page, "GPU time") == milliseconds(classes.row(first)["gpu_ms"])
    page.button(key="call_tree_arrow_upward").click().run()
    assert "call_tree_root" not in copied_link(page)


def test_another_view_shows_the_same_calls(
    filed: Draw, sample_id: str, sample_run: Run, classes: CallTree
) -> None:
    page = filed("call_tree", analysis=sample_id, call_tree_root=str(module(classes)))
    page.segmented_control(key="call_tree_view").set_value("modules").run()
    root = int(copied_link(page)["call_tree_root"])
    single = call_tree(sample_run, View.MODULES)
    assert single.row(root)["label"].startswith(classes.row(module(classes))["label"])


def test_fewer_levels_are_fewer_boxes(filed: Draw, sample_id: str) -> None:
    counts = [
        boxes(filed("call_tree", analysis=sample_id, call_tree_levels=levels))
        for levels in ("2", "4", "12")
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_search_finds_calls_by_name(filed: Draw, sample_id: str, classes: CallTree) -> None:
    page = filed("call_tree", analysis=sample_id, call_tree_search="LINEAR")
    found = classes.matches(classes.root, "linear")
    short = found["label"].str.replace(r"^\w+::", "")
    assert page.dataframe[0].value["label"].to_list() == short.to_list()
    assert f"{found.height} matches for" in output(page)
    page = filed("call_tree", analysis=sample_id, call_tree_search="no such call")
    assert "0 matches for" in output(page)


def test_an_operation_is_shown_alone_and_its_page_leads_here(
    filed: Draw, registered: Draw, sample_id: str, sample_run: Run
) -> None:
    row = sample_run.category_operations("gemm").row(0, named=True)
    uid = str(row["uid"])
    details = registered("gemm", gemm_op=uid)
    assert any("Where this is called" in link.proto.label for link in details.get("page_link"))
    page = filed("call_tree", analysis=sample_id, call_tree_op=uid)
    gpu_ns = sample_run.table("gpu_work").filter(operation_uid=row["uid"])["dur_ns"].sum()
    assert metric(page, "GPU time") == milliseconds(gpu_ns / 1e6)
    assert copied_link(page)["call_tree_op"] == uid
    page.button(key="call_tree_all_work").click().run()
    assert "call_tree_op" not in copied_link(page)


def test_without_stacks_operators_stand_alone_and_the_page_says_so(
    filed: Draw, home: Path, tmp_path: Path
) -> None:
    builder = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm", us=12)
    page = filed("call_tree", analysis=analyzed(home, tmp_path, builder))
    assert not page.exception
    assert any("no Python stacks" in caption.value for caption in page.caption)
    assert page.dataframe[0].value["label"].to_list() == ["mm"]
    assert len(page.dataframe) == 2


def test_without_gpu_work_there_is_a_next_step(filed: Draw, home: Path, tmp_path: Path) -> None:
    builder = trace().op("aten::mm", [[64, 32], [32, 16]])
    page = filed("call_tree", analysis=analyzed(home, tmp_path, builder))
    assert not page.exception
    assert any("The trace has no GPU work" in note.value for note in page.info)


def test_an_analysis_from_before_this_page_says_so(
    filed: Draw, home: Path, tmp_path: Path, sample_run: Run
) -> None:
    builder = trace().op("aten::mm", [[32, 32], [32, 16]]).launches("gemm", us=12)
    analysis_id = analyzed(home, tmp_path, builder)
    manifest = home / "analyses" / analysis_id / "manifest.json"
    content = json.loads(manifest.read_text())
    content["tables"] = [name for name in content["tables"] if not name.startswith("call_tree")]
    manifest.write_text(json.dumps(content))
    page = filed("call_tree", analysis=analysis_id)
    assert not page.exception
    assert any("has no call tree yet" in note.value for note in page.info)
