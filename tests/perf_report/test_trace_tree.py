"""Calls by name, their callers and subtrees."""

from pathlib import Path

import polars as pl
import pytest

from jarvis.core.errors import NotAProfilerTraceError, UnknownCallError
from jarvis.perf_report import PerfReport
from jarvis.perf_report.call_tree import trace_tree
from jarvis.perf_report.call_tree.trace_tree import CALL_SCHEMA, TraceTree, read_trace_tree
from jarvis.trace.links import BACKWARD_PREFIX
from tests.builders import TraceBuilder, trace


def training() -> TraceBuilder:
    """A forward op of a module with two kernels that overlap, and its backward pass."""
    built = trace().python("train.py(3): step").python("nn.Module: Block_0")
    built.child("aten::linear", [[8, 4], [2, 4]], seq=5)
    built.child("aten::mm", [[8, 4], [4, 2]])
    built.launches("gemm", us=30, at_us=2000, stream=7)
    built.launches("gemm", us=30, at_us=2010, stream=8).up(2)
    built.up(2).thread(2).op(f"{BACKWARD_PREFIX} LinearBackward0", seq=5)
    return built.child("aten::mm", [[4, 8], [8, 2]]).launches("gemm_back", us=7)


@pytest.fixture
def read(tmp_path: Path) -> TraceTree:
    return read_trace_tree(training().write(tmp_path / "trace.json"))


def uid_of(read: TraceTree, name: str, nth: int = 0) -> int:
    return int(read.find(name)["uid"][nth])


def test_a_subtree_holds_calls_and_their_kernels_in_order(read: TraceTree) -> None:
    rows = read.subtree(uid_of(read, "aten::linear"))
    assert dict(rows.schema) == CALL_SCHEMA
    assert rows.select("depth", "kind", "name", "stream").rows() == [
        (0, "op", "aten::linear", None),
        (1, "op", "aten::mm", None),
        (2, "runtime", "cudaLaunchKernel", None),
        (3, "kernel", "gemm", 7),
        (2, "runtime", "cudaLaunchKernel", None),
        (3, "kernel", "gemm", 8),
    ]
    linear, mm, *_ = rows.iter_rows(named=True)
    assert mm["parent_uid"] == linear["uid"]
    assert rows["parent_uid"][3] == rows["uid"][2]
    assert (mm["input_dims"], mm["input_types"]) == (
        "((8, 4), (4, 2))",
        "('c10::BFloat16', 'c10::BFloat16')",
    )


def test_kernel_time_counts_what_overlaps_once(read: TraceTree) -> None:
    rows = read.subtree(uid_of(read, "aten::linear"))
    # 30 us from 2000 and 30 us from 2010
    assert rows["kernel_time_us"].to_list() == [40.0, 40.0, 30.0, 30.0, 30.0, 30.0]
    assert read.parents(uid_of(read, "aten::mm"))["kernel_time_us"].to_list() == [40.0, 40.0, 40.0]


def test_depth_limits_the_levels_below(read: TraceTree) -> None:
    uid = uid_of(read, "aten::linear")
    whole = read.subtree(uid)
    for depth in range(5):
        assert read.subtree(uid, depth).equals(whole.filter(pl.col("depth") <= depth))


def test_parents_are_ordered_from_the_outermost_call(read: TraceTree) -> None:
    above = read.parents(uid_of(read, "gemm", 1))
    assert above.select("depth", "kind", "name").rows() == [
        (0, "python", "train.py(3): step"),
        (1, "module", "nn.Module: Block_0"),
        (2, "op", "aten::linear"),
        (3, "op", "aten::mm"),
        (4, "runtime", "cudaLaunchKernel"),
    ]
    assert read.parents(uid_of(read, "train*")).is_empty()


def test_the_subtree_of_a_kernel_is_one_row(read: TraceTree) -> None:
    (row,) = read.subtree(uid_of(read, "gemm")).iter_rows(named=True)
    assert (row["name"], row["depth"], row["dur_us"], row["module"]) == ("gemm", 0, 30.0, "Block_0")


def test_a_backward_call_is_in_the_module_of_its_forward_op(read: TraceTree) -> None:
    found = read.find("*")
    modules = dict(found.filter(kind="op").select("name", "module").rows())
    assert modules[f"{BACKWARD_PREFIX} LinearBackward0"] == "Block_0"
    assert found.filter(name="gemm_back")["module"].to_list() == ["Block_0"]
    assert found.filter(name="train.py(3): step")["module"].to_list() == [None]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("aten::mm", ["aten::mm", "aten::mm"]),
        ("ATEN::M*", ["aten::mm", "aten::mm"]),
        ("aten::m", []),
        ("*Block*", ["nn.Module: Block_0"]),
        ("gemm*", ["gemm", "gemm", "gemm_back"]),
        ("train.py(3): *", ["train.py(3): step"]),
        ("trainXpy*", []),
    ],
)
def test_names_are_patterns_with_stars_alone(
    read: TraceTree, pattern: str, names: list[str]
) -> None:
    assert sorted(read.find(pattern)["name"]) == sorted(names)


def test_the_uid_of_a_row_is_its_example_call(read: TraceTree) -> None:
    report = PerfReport(trace().op("mylib::x").launches("a").launches("b").read(), None)
    built = trace().unlinked("lost").op("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=9)
    built.up().runtime("cudaDeviceSynchronize").launches("alone", us=3)
    opened = TraceTree(**vars_of(built))
    synthetic = PerfReport(opened, None).operations.filter(pl.col("name").str.contains("alone"))
    (uid,) = synthetic["uid"]
    assert uid >= opened.event_count
    assert opened.subtree(uid)["name"].to_list() == ["cudaLaunchKernel", "alone"]
    assert report.event_of_row(10**9) is None


def vars_of(built: TraceBuilder) -> dict[str, object]:
    read = built.read()
    return {name: getattr(read, name) for name in TraceTree.__dataclass_fields__}


def test_an_unknown_uid_is_reported(read: TraceTree) -> None:
    for uid in (-1, read.event_count, 10**9):
        with pytest.raises(UnknownCallError, match=rf"trace\.json has no call {uid}:"):
            read.subtree(uid)
        with pytest.raises(UnknownCallError):
            read.parents(uid)


def test_an_invalid_trace_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}')
    with pytest.raises(NotAProfilerTraceError, match="is not a trace"):
        read_trace_tree(tmp_path / "x.json")


def test_kernel_times_are_those_of_the_report(
    read: TraceTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_tree, "MAX_PAIRS_PER_BATCH", 2)  # several batches must agree with one
    operations = PerfReport(read, None).operations.filter(operation_count=1)
    found = read.find("*").select("uid", own_us="kernel_time_us")
    both = operations.join(found, on="uid")
    assert both.height == 2
    assert both["own_us"].to_list() == both["kernel_time_us"].to_list()


def test_a_trace_without_host_calls_has_kernels(tmp_path: Path) -> None:
    read = read_trace_tree(trace().unlinked("gemm", us=4).write(tmp_path / "trace.json"))
    (row,) = read.find("*").iter_rows(named=True)
    assert (row["name"], row["kernel_time_us"], row["parent_uid"]) == ("gemm", 4.0, None)
    assert read.parents(row["uid"]).is_empty()
    assert read.subtree(row["uid"])["name"].to_list() == ["gemm"]
