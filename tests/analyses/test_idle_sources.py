"""Findings on idle time name the function, the annotation, the copy and the slow steps."""

import pytest

from jarvis.analyses.base import CategoryData
from jarvis.analyses.system.cpu_idle.causes import idle_causes
from jarvis.perf_report.timeline.steps import PARTS
from tests.analyses.rows import system, table, totals
from tests.worded import Worded, worded

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
ITEM = {"host_call": "cudaStreamSynchronize", "host_call_us": 9e3, "host_copy_uid": 5}


ZEROS = dict.fromkeys((*PARTS, "host_dur_ns", "carried_in_ns"), 0)


def gap(cause: str, ms: float, **values: object) -> dict[str, object]:
    return {"start_ns": 0, "dur_ns": round(ms * 1e6), "cause": cause, "launch_uid": 1, **values}


def data(*gaps: dict[str, object], **tables: object) -> CategoryData:
    rows = [*gaps, gap("queued", 4), gap("unknown", 3)]
    step = {**ZEROS, "source": "profiler", "timed_by": "marks", "dur_ns": 100_000_000}
    found = {
        "idle_gaps": table("idle_gaps", *rows),
        "step_gaps": table("step_gaps", *({**row, "place": "between"} for row in rows)),
        "steps": table("steps", step),
        **tables,
    }
    return system("cpu_idle", totals(40, idle_ms=60), tables=found)


def finding(*gaps: dict[str, object], **tables: object) -> Worded:
    first, *_ = worded(idle_causes(data(*gaps, **tables)))
    return first


@pytest.mark.parametrize(("call", "is_alone"), [(LOADER, True), (WORKERS, False)])
def test_a_loader_without_workers_is_recognized(call: str, is_alone: bool) -> None:
    issue = finding(gap("data_loading", 40, host_call=call, host_call_us=4e4)).issue
    assert ("without worker processes" in issue) is is_alone


@pytest.mark.parametrize(("python_ns", "is_missing"), [(0, True), (7, False)])
def test_missing_stacks_are_stated(python_ns: int, is_missing: bool) -> None:
    threads = table("host_threads", {"python_ns": python_ns})
    issue = finding(gap("data_loading", 40), host_threads=threads).issue
    assert ("recorded without stacks" in issue) is is_missing
    edge = finding(gap("launch_bound", 40), host_threads=threads).issue
    assert "without stacks" not in edge


def test_each_place_has_a_line_with_its_count() -> None:
    tokenize = {"host_frame": "data.py(9): tokenize", "host_annotation": "## prepare ##"}
    read = {**ITEM, "host_op": "aten::item", "host_frame": "train.py(40): log_loss"}
    found = finding(
        gap("host_work", 20, **tokenize), gap("host_work", 5, **tokenize), gap("host_work", 9)
    )
    assert (
        found.evidence["Host in the gaps"]
        == "2 gaps mostly in `data.py(9): tokenize` during `## prepare ##` (25.0 ms)"
    )
    found = finding(gap("synchronization", 20, **read))
    assert "`cudaStreamSynchronize` of `aten::item` in `train.py(40): log_loss`" in found.issue


@pytest.mark.parametrize(
    ("operator", "nbytes", "direction", "words"),
    [
        ("aten::_local_scalar_dense", 4, "D2H", "`.item()`"),
        ("aten::nonzero", 8, "D2H", "a few bytes"),
        ("aten::copy_", 4_000_000, "D2H", "`.cpu()`"),
        ("aten::copy_", 4_000_000, "H2D", "sends to the GPU"),
    ],
)
def test_a_blocking_copy_is_explained_by_its_size(
    operator: str, nbytes: int, direction: str, words: str
) -> None:
    kinds = {"src_kind": "Pageable"} if direction == "H2D" else {"dst_kind": "Pageable"}
    work = table("gpu_work", {"uid": 5, "direction": direction, "bytes": nbytes, **kinds})
    found = finding(gap("synchronization", 40, host_op=operator, **ITEM), gpu_work=work)
    assert words in found.hypothesis
    assert (".item()" in found.hypothesis) is (operator == "aten::_local_scalar_dense")
    assert "(pageable memory)" in found.issue


def test_an_explicit_synchronization_is_recognized() -> None:
    call = {"host_call": "cudaDeviceSynchronize", "host_call_us": 9e3}
    assert "explicitly" in finding(gap("synchronization", 40, **call)).hypothesis


def test_slow_steps_of_the_cause_are_named() -> None:
    step = {**ZEROS, "source": "profiler", "timed_by": "marks", "dur_ns": 50_000_000}
    slow = {"name": "ProfilerStep#7", "slow_cause": "data_loading", "excess_ns": 12_000_000}
    steps = table("steps", {**step, **slow}, {**step, "name": "ProfilerStep#8"})
    assert "`ProfilerStep#7` (up to 12.0 ms" in finding(gap("data_loading", 40), steps=steps).issue
    assert "ProfilerStep" not in finding(gap("host_work", 40), steps=steps).issue


@pytest.mark.parametrize(("operator", "is_named"), [("aten::item", True), (None, False)])
def test_a_sync_that_prevents_a_graph_is_named_beside_the_advice(
    operator: str | None, is_named: bool
) -> None:
    sync = gap("synchronization", 3, host_op=operator, **ITEM)
    advice = finding(gap("launch_bound", 40), sync).kernel
    assert ("cannot contain blocking calls" in advice) is is_named


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/opt/venv/lib/engine/srt/runner.py(27): replay", "engine/srt/runner.py(27): replay"),
        ("engine/srt/deep/runner.py(27): replay", "engine/srt/deep/runner.py(27): replay"),
        ("/runner.py(27): replay", "/runner.py(27): replay"),
    ],
)
def test_an_absolute_path_is_shown_by_its_last_folders(path: str, shown: str) -> None:
    assert (
        f"1 gap mostly in `{shown}`"
        in finding(gap("host_work", 40, host_frame=path)).evidence["Host in the gaps"]
    )
