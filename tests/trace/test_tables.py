"""Events as tables, whatever types their fields have."""

from typing import Any

import polars as pl
import pytest

from jarvis.trace import Trace, tables
from jarvis.trace.tables import Field, table
from tests.builders import trace


def one(read: Any, value: Any) -> Any:
    dtype = pl.String if read is tables._text else pl.Int64
    field = Field("x", "x", dtype, read)
    return table([(0, {"args": {"x": value}})], (field,))["x"][0]


@pytest.mark.parametrize(
    ("value", "nanoseconds"),
    [
        (12, 12_000),
        (0.001, 1),
        (1.9996, 2000),
        ("1712195496500267.9", 1712195496500267900),
        ("5", 5000),
        ("soon", None),
        (True, None),
        (None, None),
    ],
)
def test_times_become_whole_nanoseconds(value: Any, nanoseconds: int | None) -> None:
    assert one(tables._nanoseconds, value) == nanoseconds


@pytest.mark.parametrize(
    ("value", "integer"),
    [(7, 7), ("7", 7), (7.0, 7), ("", None), ("x", None), (True, None), (None, None), ([1], None)],
)
def test_integers_are_read_leniently(value: Any, integer: int | None) -> None:
    assert one(tables._integer, value) == integer


@pytest.mark.parametrize(
    ("value", "text"), [("a", "a"), ([1, [2]], "[1,[2]]"), (3, "3"), (True, "true"), (None, None)]
)
def test_nested_values_stay_json_text(value: Any, text: str | None) -> None:
    assert one(tables._text, value) == text


def test_arguments_are_lists_or_nothing() -> None:
    built = trace()
    for dims in ([[2]], "x", {}, 3):
        built.op("aten::mm")
        built.events[-1]["args"]["Input Dims"] = dims
    assert built.read().cpu_ops["input_dims"].to_list() == ["[[2]]", None, None, None]


def test_an_event_without_a_name_has_an_empty_one() -> None:
    built = trace().op("aten::mm")
    del built.events[0]["name"]
    assert built.read().cpu_ops["name"].to_list() == [""]


def test_each_kind_of_event_has_its_table() -> None:
    built = trace().python("f.py(1): g").child("aten::mm", [[2, 2], [2, 2]], seq=4)
    read: Trace = built.launches("gemm", us=3, bytes="16").read()
    assert read.python_functions["name"].to_list() == ["f.py(1): g"]
    op = read.cpu_ops.row(0, named=True)
    assert (op["name"], op["sequence_number"], op["input_dims"]) == ("aten::mm", 4, "[[2,2],[2,2]]")
    assert op["concrete_inputs"] == '["",""]'
    assert read.runtime["correlation"].to_list() == [1]
    gpu = read.gpu_events.row(0, named=True)
    assert (gpu["stream"], gpu["device"], gpu["bytes"], gpu["dur_ns"]) == (7, 0, 16, 3000)
    assert read.flows["ph"].to_list() == ["s", "f"]
    assert read.events.height == 6  # frame, op, launch, two arrows, kernel


def test_names_of_processes_and_threads_last_one_wins() -> None:
    built = trace().process("python3").thread(1, "first").thread(1, "main").op("aten::mm")
    built.events.append({"ph": "M", "name": "unheard_of", "pid": 100, "tid": 1, "args": {}})
    threads = {row["tid"]: row for row in built.read().threads.iter_rows(named=True)}
    assert threads["1"]["thread_name"] == "main"
    assert (threads["0"]["process_name"], threads["0"]["process_label"]) == ("python3", "CPU")


def test_what_the_trace_says_about_itself() -> None:
    built = trace("AMD Instinct MI300X").op("ProfilerStep#1").launches("gemm", us=5)
    built.header |= {"distributedInfo": {"rank": 3, "world_size": 8}}
    built.header["deviceProperties"][0]["numSms"] = 304
    built.events.append(
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "ts": 1000, "dur": 20}
    )
    info = built.read().info
    assert (info.device_name, info.compute_units) == ("AMD Instinct MI300X", 304)
    assert (info.rank, info.world_size, info.steps) == (3, 8, 1)
    assert (info.gpu_only, info.has_shapes, info.has_stacks) == (False, False, False)
    assert info.origin == "recorded"
    assert info.event_counts["kernel"] == 1
    assert info.span_us == 20.0


def test_a_simulated_sample_says_so() -> None:
    built = trace().op("aten::mm")
    built.header["metadata"] = {"jarvis_sample": "simulated"}
    assert built.read().info.origin == "simulated"


def test_a_trace_without_device_names_has_none() -> None:
    built = trace().launches("gemm")
    built.header = {}
    info = built.read().info
    assert (info.device_name, info.gpu_only) == (None, True)
