"""Call paths as they are stored: shared, complete, and as the last release stored them."""

from typing import Any

import orjson
import pytest

from jarvis.perf_report import PerfReport
from jarvis.perf_report.call_tree.paths import CallPath
from jarvis.run.tree_data import read_tree_data, tree_data
from jarvis.text.format import MAX_NAME_LENGTH
from tests import growing
from tests.builders import TraceBuilder, trace

MM = [[64, 64], [64, 64]]


def paths_of(built: TraceBuilder, uids: list[int] | None = None) -> dict[int, CallPath]:
    found = PerfReport(built.read(), None)
    return found.call_paths(found.operations["uid"].to_list() if uids is None else uids)


def surroundings(path: CallPath) -> dict[str, Any]:
    """What the last release stored of a call."""
    return {
        "uid": path.uid,
        "op_name": path.op_name,
        "input_dims": path.input_dims,
        "parent_chain": [frame._asdict() for frame in path.parent_chain],
        "nn_module_chain": list(path.nn_module_chain),
        "entry_point": path.entry_point,
        "subtree": [entry._asdict() for entry in path.subtree],
        "kernels": [
            {"name": kernel.name, "dur_us": kernel.dur_us, "stream": kernel.stream}
            for kernel in path.kernels
        ],
    }


def two_branches() -> TraceBuilder:
    built = trace().python("m.py(1): main").python("nn.Module: Net_0")
    for number in range(3):
        built.child("aten::linear", MM).child("aten::t").up().child("aten::mm", MM)
        built.launches(f"gemm_{number}", us=5 + number).launches("split", us=2).up(2)
    return built.thread(2).op("aten::add", MM).launches("add_kernel")


@pytest.mark.parametrize(
    "built",
    [two_branches(), growing.chained_operators(6), growing.backward(3), growing.graph_kernels(3)],
)
def test_what_is_written_is_read_again(built: TraceBuilder) -> None:
    paths = paths_of(built)
    assert paths
    text = b"".join(tree_data(paths))
    read = read_tree_data(text)
    assert {uid: surroundings(path) for uid, path in read.items()} == {
        uid: surroundings(path) for uid, path in paths.items()
    }
    again = b"".join(tree_data(read))
    assert read_tree_data(again).keys() == paths.keys()
    assert len(again) == len(text)


def test_some_of_the_operations_take_only_what_is_around_them() -> None:
    paths = paths_of(two_branches())
    uid, path = list(paths.items())[-1]
    text = b"".join(tree_data({uid: path}))
    assert surroundings(read_tree_data(text)[uid]) == surroundings(path)
    assert len(text) < len(b"".join(tree_data(paths)))


def test_call_paths_of_the_last_release_are_read() -> None:
    paths = paths_of(two_branches())
    old = orjson.dumps({str(uid): surroundings(path) for uid, path in paths.items()})
    read = read_tree_data(old)
    assert [surroundings(path) for path in read.values()] == [
        surroundings(path) for path in paths.values()
    ]
    stored_again = read_tree_data(b"".join(tree_data(read)))
    assert [surroundings(path) for path in stored_again.values()] == [
        surroundings(path) for path in paths.values()
    ]


def test_long_names_are_cut_and_stored_once() -> None:
    text = b"".join(tree_data(paths_of(growing.nested(4, operations=30, letters=9_000))))
    assert len(text) < 6 * MAX_NAME_LENGTH + 20_000  # modules also without what is before the name
    assert b"x" * MAX_NAME_LENGTH not in text
