"""Events as tables, whatever types their fields have."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from jarvis.trace import Trace, read_trace, tables
from jarvis.trace.repairs import RepairKind
from jarvis.trace.tables import CPU_OPS, Field, table
from jarvis.trace_health import Severity, facts_of, trace_health
from tests.builders import TraceBuilder, trace


def one(value: Any, dtype: Any, read: Any) -> Any:
    built = trace().op("aten::mm")
    built.events[-1]["args"]["x"] = value
    return table(built.read().store, ["cpu_op"], (Field("x", "x", dtype, read),))["x"][0]


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("12", 12_000),
        ("0.001", 1),
        ("1.9996", 2000),
        ("1.9994999", 1999),
        ("-2.5", -2500),
        ("1712195496500267.951", 1712195496500267951),
        ("9223372036854775.807", 2**63 - 1),
        ("9223372036854775.808", None),
        ("12345678901234567890123", None),
        ("1.5e3", 1_500_000),
        ("25E-4", 3),
        ("1e400", None),
        ('"5"', None),
        ("true", None),
        ("null", None),
        ("[1]", None),
    ],
)
def test_times_become_whole_nanoseconds(tmp_path: Path, text: str, nanoseconds: int | None) -> None:
    path = tmp_path / "t.json"
    path.write_text(f'[{{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 0, "dur": {text}}}]')
    assert read_trace(path).cpu_ops["dur_ns"].to_list() == [nanoseconds]


@pytest.mark.parametrize(
    ("value", "integer"),
    [
        (7, 7),
        (-(2**63), -(2**63)),
        (2**63, None),
        ("7", 7),
        (7.0, 7),
        ("", None),
        ("x", None),
        (True, None),
        (None, None),
        ([1], None),
    ],
)
def test_integers_are_read_leniently(value: Any, integer: int | None) -> None:
    assert one(value, pl.Int64, tables._integer) == integer


@pytest.mark.parametrize(
    ("value", "text"), [("a", "a"), ([1, [2]], "[1,[2]]"), (3, "3"), (True, "true"), (None, None)]
)
def test_nested_values_stay_json_text(value: Any, text: str | None) -> None:
    assert one(value, pl.String, tables._text) == text


def test_a_key_can_have_values_of_every_kind() -> None:
    built = trace()
    for value in (1, "1", [1], 1.5, None, 2**40):
        built.op("aten::mm")
        built.events[-1]["args"]["x"] = value
    fields = (
        Field("number", "x", pl.Int64, tables._integer),
        Field("text", "x", pl.String, tables._text),
    )
    read = table(built.read().store, ["cpu_op"], fields)
    assert read["number"].to_list() == [1, 1, None, 1, None, 2**40]
    assert read["text"].to_list() == ["1", "1", "[1]", "1.5", None, str(2**40)]


def test_arguments_are_lists_or_null() -> None:
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
    assert read.event_count == 6  # frame, op, launch, two arrows, kernel


def test_names_of_processes_and_threads_last_one_wins() -> None:
    built = trace().process("python3").thread(1, "first").thread(1, "main").op("aten::mm")
    built.events.append({"ph": "M", "name": "unheard_of", "pid": 100, "tid": 1, "args": {}})
    threads = {row["tid"]: row for row in built.read().threads.iter_rows(named=True)}
    assert threads["1"]["thread_name"] == "main"
    assert (threads["0"]["process_name"], threads["0"]["process_label"]) == ("python3", "CPU")


def test_metadata_of_the_trace() -> None:
    built = trace("AMD Instinct MI300X").op("ProfilerStep#1").launches("gemm", us=5)
    built.header |= {"distributedInfo": {"rank": 3, "world_size": 8}}
    built.header["deviceProperties"][0] |= {
        "numSms": 304,
        "totalGlobalMem": 206141652992,
        "warpSize": 64,
        "computeMajor": 9,
        "computeMinor": 4,
    }
    built.events.append(
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "ts": 1000, "dur": 20}
    )
    info = built.read().info
    assert (info.device_name, info.compute_units) == ("AMD Instinct MI300X", 304)
    assert (info.memory_bytes, info.warp_size) == (206141652992, 64)
    assert info.compute_capability == (9, 4)
    assert (info.rank, info.world_size, info.steps) == (3, 8, 1)
    assert (info.gpu_only, info.has_shapes, info.has_stacks) == (False, False, False)
    assert info.origin == "recorded"
    assert info.event_counts["kernel"] == 1
    assert info.span_us == 20.0


def test_a_simulated_sample_is_marked() -> None:
    built = trace().op("aten::mm")
    built.header["metadata"] = {"jarvis_sample": "simulated"}
    assert built.read().info.origin == "simulated"


def test_a_trace_without_device_names_has_none() -> None:
    built = trace().launches("gemm")
    built.header = {}
    info = built.read().info
    assert (info.device_name, info.gpu_only) == (None, True)
    assert (info.memory_bytes, info.compute_capability) == (None, None)


@pytest.mark.parametrize("value", ["[" * 300 + "]" * 300, "[NaN, 18446744073709551617]"])
def test_values_that_json_cannot_hold_are_missing(tmp_path: Path, value: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        f'[{{"ph": "X", "cat": "cpu_op", "name": {value}, "pid": {value}, "ts": 0, "dur": 1, '
        f'"args": {{"Input Dims": {value}}}}}]'
    )
    read = read_trace(path).cpu_ops
    assert read.select("name", "pid").rows() == [("", None)]
    assert set(json.loads(read["input_dims"][0])[0]) == set()


@pytest.mark.parametrize(
    ("key", "given", "taken"),
    [
        (
            "Input Dims",
            [[8, 4], [-8, 4], [[2], []], [True], [1.5], "x", None, {}],
            "[[8,4],[],[[2],[]],[],[],[],[],[]]",
        ),
        ("Input Dims", [[2**32, 2**32], [1] * 65, [[[2]]], [2**62]], f"[[],[],[],[{2**62}]]"),
        ("Input Strides", [[4, 1], [-1], [2**70], [[1], [0]]], "[[4,1],[],[],[[1],[0]]]"),
        ("Input type", ["float", 1, None, ["float"], {}], '["float","","","",""]'),
        ("Concrete Inputs", ["1", 2, None, [3], {}], '["1",2,null,"",""]'),
    ],
)
def test_invalid_arguments_are_skipped_and_counted(key: str, given: list[Any], taken: str) -> None:
    built = trace().op("aten::mm").launches("gemm")
    built.events[0]["args"] = {key: given}
    read = built.read()
    column = {field.key: field.column for field in CPU_OPS}[key]
    assert read.cpu_ops[column].to_list() == [taken]
    (repair,) = read.info.repairs
    assert (repair.kind, repair.example) == (RepairKind.ODD_ARGUMENT, key)


@pytest.mark.parametrize("phase", ["B", "E", "M", "0x10", "", "x", None, 1, "missing"])
def test_calls_and_kernels_of_another_phase_are_skipped_and_counted(phase: object) -> None:
    built = trace().op("aten::mm").launches("gemm").op("aten::add").launches("add")
    for event in built.events:
        if event["name"] in ("aten::mm", "gemm"):
            event["ph"] = phase
            if phase == "missing":
                del event["ph"]
    read = built.read()
    assert read.cpu_ops["name"].to_list() == ["aten::add"]
    assert read.gpu_events["name"].to_list() == ["add"]
    assert read.gpu_events["correlation"].to_list() == [2]
    assert read.info.event_counts["kernel"] == 1
    (repair,) = read.info.repairs
    assert (repair.kind, repair.count, repair.lost_events) == (RepairKind.NOT_A_SLICE, 2, 2)
    facts = {fact.key: fact for fact in facts_of(trace_health(read))}
    fact = facts[f"repair_{RepairKind.NOT_A_SLICE}"]
    assert "2 events lost" in fact.summary
    assert fact.severity is Severity.WARNING


def test_a_trace_with_operators_of_another_phase_only_has_no_host_calls() -> None:
    built = trace().op("aten::mm").launches("gemm")
    built.events[0]["ph"] = "B"
    assert built.read().info.gpu_only


OLD_CATEGORIES = {
    "cpu_op": "Operator",
    "python_function": "Python",
    "cuda_runtime": "Runtime",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
    "ac2g": "async",
}


def as_before_1_12(built: TraceBuilder) -> TraceBuilder:
    """Return the trace with the category names and argument names of PyTorch before 1.12."""
    for event in built.document()["traceEvents"]:
        event["cat"] = OLD_CATEGORIES.get(event.get("cat"), event.get("cat"))
        args = event.get("args", {})
        if "Input Dims" in args:
            args["Input dims"] = args.pop("Input Dims")
    return built


def step_of_mm() -> TraceBuilder:
    built = trace().op("ProfilerStep#3").child("Optimizer.step#SGD.step").up()
    built.child("autograd::engine::evaluate_function: MmBackward0")
    built.child("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=12)
    built.launches("Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy", bytes=64)
    return built.launches("Memset (Device)", cat="gpu_memset")


def test_categories_of_old_traces_are_read_as_those_of_today() -> None:
    today, old = step_of_mm().read(), as_before_1_12(step_of_mm()).read()
    ops = today.cpu_ops.filter(~pl.col("name").str.contains("#"))
    assert_frame_equal(old.cpu_ops, ops)
    assert_frame_equal(old.gpu_events, today.gpu_events)
    assert_frame_equal(old.runtime, today.runtime)
    assert_frame_equal(old.launches, today.launches)
    assert old.annotations["name"].to_list() == ["ProfilerStep#3", "Optimizer.step#SGD.step"]
    assert old.annotations["cat"].unique().to_list() == ["user_annotation"]
    assert old.info.steps == 1
    assert old.info.has_shapes
    assert set(old.info.event_counts) == {*OLD_CATEGORIES, "user_annotation"} - {"python_function"}


def test_a_category_of_today_is_not_replaced_by_an_old_one() -> None:
    built = trace().op("aten::mm").launches("gemm").op("aten::add").launches("add")
    for event in built.document()["traceEvents"]:
        if event["name"] == "aten::mm":
            event["cat"] = "Operator"
        if event.get("cat") == "ac2g" and event["id"] == 1:
            event["cat"] = "async"
    read = built.read()
    assert read.cpu_ops["name"].to_list() == ["aten::add"]
    assert read.launches.height == 1
    assert read.flows["cat"].to_list() == ["ac2g", "ac2g"]


def test_the_old_sample_of_pytorch_has_operators_kernels_and_steps(reference_root: Path) -> None:
    read = read_trace(reference_root / "counterfactual" / "kineto-resnet50-w0.json.gz")
    assert (read.cpu_ops.height, read.gpu_events.height) == (33384 - 24, 9564 + 439 + 12)
    assert read.info.steps == 6
    assert set(read.annotations["name"].str.extract("#(_.*)").drop_nulls()) == {
        "_SingleProcessDataLoaderIter.__next__"
    }
    linked = read.launches["gpu_uid"].n_unique()
    assert linked / read.gpu_events.height > 0.9
