"""The facts that tell how far a trace can be trusted."""

from dataclasses import replace
from pathlib import Path

import pytest

from jarvis.schemas import columns
from jarvis.trace import Trace, read_trace
from jarvis.trace.repairs import Repair, RepairKind
from jarvis.trace_health import Fact, Severity, facts_of, trace_health, warning_lines
from tests.builders import TraceBuilder, trace
from tests.capture.test_merge import captured, merge, replaying

OK, NOTE, WARNING = Severity.OK, Severity.NOTE, Severity.WARNING


def facts(read: Trace) -> dict[str, Fact]:
    return {fact.key: fact for fact in facts_of(trace_health(read))}


def healthy() -> TraceBuilder:
    """Two steps with shapes, stacks, a named GPU and linked work."""
    built = trace().python("train.py(1): step")
    for number in (3, 4):
        built.child("aten::mm", [[8, 8], [8, 8]]).launches("gemm", us=30).launches("gemm", us=10)
        built.up()
        built.events.append(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{number}",
                "pid": 100,
                "tid": 1,
                "ts": 1000.0 * number,
                "dur": 100.0 * number,
            }
        )
    return built


def test_a_healthy_trace_raises_no_alarm() -> None:
    table = trace_health(healthy().read())
    assert set(table["severity"]) == {"ok"}
    assert set(table["affects"]) == set(table["remedy"]) == {""}
    assert table.columns == [column.name for column in columns("trace_health")]
    assert warning_lines(table) == []


def test_every_fact_is_stated_once() -> None:
    keys = trace_health(healthy().read())["key"]
    assert keys.n_unique() == keys.len() == 24


def test_warnings_come_first_and_say_what_to_do() -> None:
    built = trace().op("x").launches("a", us=30)
    table = trace_health(built.unlinked("b", us=10).read())
    assert table["severity"].to_list() == sorted(
        table["severity"], key=["warning", "note", "ok"].index
    )
    assert warning_lines(table) == [
        "75.0% of GPU time, summed over all streams, is linked to host calls of the trace, "
        "25.0% (10.0 µs) is not: it has no recorded launch. "
        "The GPU window and the tables of operations exclude the unlinked work; the step time "
        "counts it as busy. Synchronize the GPU before the recording begins.",
        "The trace contains no input shapes. No perf model can be applied: no FLOPs, no "
        "efficiency. Record with `record_shapes=True`.",
    ]


def test_unlinked_work_is_counted_by_its_reason() -> None:
    built = trace().op("x").launches("a", us=60).launches("b", us=20)
    built.unlinked("early", us=15).unlinked("earlier", us=5)
    # The arrow of the second launch starts nowhere, as single launches on some GPUs.
    starts = [event for event in built.events if event.get("ph") == "s"]
    built.events.remove(starts[1])
    found = facts(built.read())
    assert found["linked_gpu_time"].value == pytest.approx(60.0)
    assert found["linked_gpu_time"].severity is WARNING
    assert (found["launched_before"].value, found["launched_before"].severity) == (2, NOTE)
    assert "2 GPU events (20.0 µs)" in found["launched_before"].summary
    assert found["linked_gpu_time"].summary.endswith(
        "40.0% (40.0 µs) is not: 20.0 µs has no recorded launch; 20.0 µs has a recorded launch "
        "without an arrow."
    )
    assert (found["launches_without_arrow"].value, found["launches_without_arrow"].severity) == (
        1,
        NOTE,
    )


def test_a_little_unlinked_work_is_no_alarm() -> None:
    read = trace().op("x", [[1]]).launches("a", us=995).unlinked("b", us=5).read()
    assert facts(read)["linked_gpu_time"].severity is OK


def test_linked_time_is_summed_where_streams_work_at_once() -> None:
    built = trace().op("x").launches("a", us=100, stream=7, at_us=2000.0)
    built.launches("b", us=100, stream=8, at_us=2000.0).unlinked("c", us=100)
    assert facts(built.read())["linked_gpu_time"].summary.startswith("66.7% of GPU time, summed")


def test_replay_from_graphs() -> None:
    read = trace().op("x").launches("a", us=10).graph(("b", 60.0), ("c", 30.0)).read()
    fact = facts(read)["graph_replay"]
    assert (fact.value, fact.severity) == (pytest.approx(90.0), WARNING)
    assert (
        fact.summary == "Shapes missing: 90.0% of GPU time (90.0 µs) is replayed from GPU graphs."
    )


def test_replays_with_captures_are_no_lack_of_shapes(tmp_path: Path) -> None:
    fact = facts(merge(replaying(8), tmp_path, bs_8=captured(8)))["graph_replay"]
    assert fact.severity is Severity.OK
    assert fact.summary == "96.2% of GPU time (75.0 µs) is replayed from GPU graphs."


def test_shapes_are_asked_for_only_where_they_are_missing() -> None:
    for dims, is_asked in ((None, True), ([[8, 8]], False)):
        built = trace().op("x", dims).launches("a", us=10).graph(("b", 60.0))
        assert ("record_shapes=True" in facts(built.read())["graph_replay"].remedy) is is_asked


def without_arrows(built: TraceBuilder) -> TraceBuilder:
    built.events = [event for event in built.events if event.get("cat") != "ac2g"]
    return built


def test_links_without_arrows_are_reported() -> None:
    built = without_arrows(trace().op("x").launches("a"))
    assert "linked by correlation." in facts(built.read())["link_basis"].summary
    for event in built.events:
        if event["cat"] in ("cuda_runtime", "kernel"):
            event["args"] = {"External id": 5}
    assert "linked by External id." in facts(built.read())["link_basis"].summary
    lost = facts(without_arrows(trace().op("x").runtime("cudaFree").unlinked("a")).read())
    assert lost["link_basis"].affects == "No operation has GPU time."


def test_calls_with_one_id_count_twice() -> None:
    built = trace().op("x").launches("a").launches("b")
    for event in built.events:
        if event.get("cat") == "cuda_runtime":
            event["args"]["correlation"] = 1
    fact = facts(built.read())["shared_correlations"]
    assert (fact.value, fact.severity) == (1, WARNING)


def test_gpu_events_alone() -> None:
    read = trace(device="").unlinked("ncclDevKernel_AllReduce").read()
    found = facts(read)
    assert found["operators"].severity is WARNING
    assert found["linked_gpu_time"].severity is NOTE
    assert found["device"].severity is NOTE
    assert found["rank"].severity is NOTE
    assert {"shapes", "stacks", "launched_before"}.isdisjoint(found)


def test_host_events_alone() -> None:
    found = facts(trace().op("x", [[1]]).read())
    assert (found["gpu_events"].value, found["gpu_events"].severity) == (0, WARNING)
    assert {"linked_gpu_time", "gpu_span"}.isdisjoint(found)


def test_steps_and_their_median_on_the_host() -> None:
    found = facts(healthy().read())
    assert found["steps"].summary == "2 profiler steps (3 to 4)."
    assert found["step_time"].value == pytest.approx(0.35)  # of 300 and 400 µs
    assert found["step_time"].summary == "2 profiler steps on the host, 0.350 ms in the median."
    assert facts(trace().op("x").read())["steps"].severity is NOTE


def test_steps_of_an_inference_engine() -> None:
    decode = trace().annotation("step[DECODE bs=4]").child("x").launches("a").up(2)
    found = facts(decode.read())
    assert found["steps"].summary == "1 inference step."
    assert "unread_steps" not in found


def test_annotations_like_those_of_steps_that_cannot_be_read() -> None:
    built = trace().annotation("step[VERIFY bs=4]").child("x").launches("a").up(2)
    found = facts(built.annotation("step one").up().read())
    assert found["steps"].summary == "The trace marks no steps."
    assert found["unread_steps"].summary == (
        "Not read, but named like inference steps: 1 annotation, such as `step[VERIFY bs=4]`."
    )


def test_the_gpu_time_with_and_without_unlinked_work() -> None:
    built = trace().op("x").launches("a", us=100, at_us=2000.0).launches("b", us=100, at_us=2400.0)
    built.unlinked("early", us=50)
    built.events[-1]["ts"] = 1500.0
    found = facts(built.read())
    assert found["gpu_span"].value == pytest.approx(0.5)
    assert (found["gpu_span_all"].value, found["gpu_span_all"].severity) == (
        pytest.approx(1.0),
        NOTE,
    )


def test_overlapping_host_events() -> None:
    built = healthy()
    for start in (1000.0, 1050.0):
        event = {"ph": "X", "cat": "cpu_op", "name": "x", "pid": 7, "tid": 7, "ts": start}
        built.events.append({**event, "dur": 100.0, "args": {"Input Dims": []}})
    fact = facts(built.read())["overlapping_events"]
    assert (fact.value, fact.severity) == (1, WARNING)  # of ten host events


def test_faulty_times() -> None:
    built = trace().op("x").launches("a").launches("b").launches("c").launches("d")
    kernels = [event for event in built.events if event.get("cat") == "kernel"]
    kernels[0]["dur"] = 0
    kernels[1]["dur"] = -3
    kernels[2]["dur"] = 86_400e6
    del kernels[3]["dur"]
    built.events[0]["dur"] = -1.0
    document = built.read
    found = facts(document())
    keys = ("zero_durations", "negative_durations", "overflowing_durations", "missing_times")
    assert [found[key].value for key in keys] == [1, 1, 1, 1]
    assert [found[key].severity for key in keys] == [NOTE, WARNING, WARNING, WARNING]


def test_the_rank() -> None:
    built = healthy()
    built.header["distributedInfo"] = {"rank": 3, "world_size": 8}
    assert facts(built.read())["rank"].summary == "Rank 3 of 8."


def test_merged_ranks_are_explained() -> None:
    built = healthy()
    first = list(built.events)
    for event in first:
        other = {**event, "args": dict(event.get("args", {}))}
        if "correlation" in other["args"]:
            other["args"]["correlation"] += 100
        if "id" in other:
            other["id"] += 100
        other["pid"] = {0: 1, 100: 200}[other["pid"]]
        built.events.append(other)
    fact = facts(built.read())["processes"]
    assert (fact.value, fact.severity) == (2, WARNING)
    assert fact.summary == "The file merges the traces of 2 processes."


def test_several_gpus_of_one_process() -> None:
    read = trace().op("x").launches("a", device=0).launches("b", device=1).read()
    fact = facts(read)["processes"]
    assert (fact.severity, fact.summary) == (NOTE, "The trace contains the work of 2 GPUs.")


def test_repairs_are_reported() -> None:
    read = healthy().read()
    repairs = (
        Repair(RepairKind.TRUNCATED, 1, lost_events=1, example='{"ph": "X", "na'),
        Repair(RepairKind.TRAILING_COMMA, 2),
    )
    repaired = replace(read, info=read.info.model_copy(update={"repairs": repairs}))
    found = facts(repaired)
    assert "repairs" not in found
    assert found["repair_truncated"].severity is WARNING
    assert found["repair_truncated"].summary == (
        'The file ends in the middle of its events: 1 place, first at `{"ph": "X", "na`; '
        "1 event lost."
    )
    assert found["repair_trailing_comma"].severity is NOTE
    assert found["repair_trailing_comma"].summary == "There are trailing commas: 2 places."


def test_every_kind_of_repair_has_its_words() -> None:
    read = healthy().read()
    repairs = tuple(Repair(kind, 1) for kind in RepairKind)
    repaired = replace(read, info=read.info.model_copy(update={"repairs": repairs}))
    assert {f"repair_{kind}" for kind in RepairKind} <= set(facts(repaired))


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("h100-qwen1.5-0.5b", "linked_gpu_time", 69.9),
        ("mi300-qwen1.5-0.5b", "linked_gpu_time", 69.1),
        ("mi300-resnet-ddp-checkpoint", "linked_gpu_time", 67.9),
        ("sglang-qwen3-8b-decode", "graph_replay", 98.8),
        ("mi210-gpu-only", "operators", 0.0),
    ],
)
def test_what_real_traces_warn_of(reference_root: Path, name: str, key: str, value: float) -> None:
    found = facts(read_trace(reference_root / "traces" / f"{name}.json.gz"))
    assert [fact.key for fact in found.values() if fact.severity is WARNING] == [key]
    assert found[key].value == pytest.approx(value, abs=0.05)


@pytest.mark.parametrize(
    "name", ["h100-bert-small", "mi300-bert-small", "h100-vit-nsfw", "mi300-vit-nsfw"]
)
def test_sound_real_traces_raise_no_alarm(reference_root: Path, name: str) -> None:
    table = trace_health(read_trace(reference_root / "traces" / f"{name}.json.gz"))
    assert set(table["severity"]) == {"ok"}


def test_spans_of_a_real_trace(reference_root: Path) -> None:
    path = reference_root / "traces" / "mi300-resnet-ddp-checkpoint.json.gz"
    found = facts(read_trace(path))
    assert found["gpu_span"].value == pytest.approx(56.517603)
    assert found["gpu_span_all"].value == pytest.approx(86.567708)
    assert found["step_time"].value == pytest.approx(15.950958)
    assert found["launches_without_arrow"].value == 81
    assert found["rank"].summary == "Rank 0 of 8."


def test_the_kinds_of_very_many_gpu_events_can_be_separated() -> None:
    built = trace()
    for _ in range(20_000):
        built.unlinked("kernel", us=1.0)
    assert facts(built.read())["rank"].summary == "Not distributed."


@pytest.mark.parametrize(
    ("count", "message"), [(1, "1 GPU event has no"), (2, "2 GPU events have no")]
)
def test_a_count_agrees_with_its_verb(count: int, message: str) -> None:
    built = trace()
    for number in range(3):
        built.op("aten::mm").launches("gemm")
        if number < count:
            next(e for e in reversed(built.events) if e.get("cat") == "kernel").pop("ts")
    (fact,) = [f for f in facts_of(trace_health(built.read())) if f.key == "missing_times"]
    assert fact.summary.startswith(message)


def test_work_before_all_linked_work_is_from_before_the_recording() -> None:
    before = trace().unlinked("early", us=40).op("x").launches("a", us=60)
    beside = trace().op("x").launches("a", us=60).unlinked("other", us=40)
    for built, is_said in ((before, True), (beside, False)):
        summary = facts(built.read())["linked_gpu_time"].summary
        assert ("is not: it was launched before the recording." in summary) is is_said
