"""Host threads over time: bins count every call exactly, slices have the longest ones."""

import random
from collections import Counter

import polars as pl
import pytest

from jarvis.perf_report import PerfReport
from jarvis.perf_report.timeline import host
from jarvis.perf_report.timeline.host import HOST_BINS
from tests.builders import TraceBuilder, trace

STATES = ("runtime_ns", "operator_ns", "python_ns")
CATEGORIES = {"cuda_runtime": 0, "cpu_op": 1, "python_function": 2}


WIDTH_NS = 700
"""Width of the bins of ``random_calls`` in relation to the recording."""


def built() -> TraceBuilder:
    builder = trace().process("python").thread(1, "main")
    builder.python("train.py(3): step", us=100.0)
    builder.child("aten::mm", [[8, 4], [4, 2]], us=20.0).launches("gemm", us=12)
    builder.thread(2, "pt_autograd_0").op("aten::mul", us=5.0)
    return builder


def test_threads_are_named_counted_and_ordered_by_operator_time() -> None:
    report = PerfReport(built().read(), None)
    rows = report.host_threads.rows(named=True)
    assert [(r["thread"], r["tid"], r["thread_name"]) for r in rows] == [
        (0, "1", "main"),
        (1, "2", "pt_autograd_0"),
    ]
    assert [r["call_count"] for r in rows] == [r["kept_count"] for r in rows] == [3, 1]
    assert {r["process_name"] for r in rows} == {"python"}
    assert (rows[0]["runtime_ns"], rows[0]["operator_ns"]) == (2_000, 18_000)
    assert rows[0]["python_ns"] == 80_000
    assert (rows[1]["runtime_ns"], rows[1]["operator_ns"], rows[1]["python_ns"]) == (0, 5_000, 0)


def test_slices_have_the_columns_of_the_tooltip() -> None:
    rows = PerfReport(built().read(), None).host_slices
    assert rows["kind"].to_list() == ["python", "operator", "runtime", "operator"]
    assert rows["name"].to_list()[1] == "aten::mm"
    assert rows["input_dims"].to_list() == [None, "((8, 4), (4, 2))", None, None]
    assert rows["dur_ns"].to_list() == [100_000, 20_000, 2_000, 5_000]


def random_calls(seed: int) -> TraceBuilder:
    """Calls of three kinds on two threads, nested, side by side and overlapping."""
    chance = random.Random(seed)
    builder = trace()
    whole_us = HOST_BINS * WIDTH_NS // 1000
    mark = {"ph": "X", "cat": "python_function", "name": "last", "pid": 9, "tid": 3, "dur": 0.4}
    builder.events.append({**mark, "ts": whole_us, "dur": 0})
    builder.events.append({**mark, "ts": 0, "dur": 0})
    for _ in range(120):
        category = chance.choice(list(CATEGORIES))
        start, length = chance.randrange(0, 5_000), chance.choice([0, 1, 7, 60, 400])
        event = {"ph": "X", "cat": category, "name": category, "pid": 9}
        builder.events.append({**event, "tid": chance.choice([1, 2]), "ts": start, "dur": length})
    return builder


def innermost_by_us(builder: TraceBuilder, tid: str) -> dict[int, int]:
    """Return the state of a thread, one of STATES, for each microsecond."""
    found: dict[int, int] = {}
    for event in builder.events:
        if str(event["tid"]) == tid:
            state = CATEGORIES[event["cat"]]
            for us in range(event["ts"], event["ts"] + event["dur"]):
                found[us] = min(found.get(us, state), state)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_bins_count_each_nanosecond_once_for_the_innermost_kind(seed: int) -> None:
    builder = random_calls(seed)
    bins = PerfReport(builder.read(), None).host_bins
    threads = PerfReport(builder.read(), None).host_threads
    width_ns = bins["dur_ns"][0]
    assert width_ns == WIDTH_NS
    assert bins["dur_ns"].unique().to_list() == [width_ns]
    first = min(event["ts"] for event in builder.events if "ts" in event) * 1000
    for thread, tid in threads.select("thread", "tid").iter_rows():
        innermost = innermost_by_us(builder, tid)
        expected = Counter[tuple[int, int]]()
        for us, state in innermost.items():
            for ns in range(us * 1000, (us + 1) * 1000, 100):
                expected[(ns - first) // width_ns, state] += 100
        mine = bins.filter(pl.col("thread") == thread)
        found = {
            ((row["start_ns"] - first) // width_ns, state): row[name]
            for row in mine.iter_rows(named=True)
            for state, name in enumerate(STATES)
            if row[name]
        }
        assert found == expected
        sums = tuple(mine[state].sum() for state in STATES)
        assert threads.filter(pl.col("thread") == thread).select(STATES).row(0) == sums
    assert (bins["start_ns"] - first).max() < HOST_BINS * width_ns


def test_the_longest_of_many_calls_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "MAX_SLICES", 3)
    builder = trace()
    for us in (5.0, 1.0, 9.0, 7.0, 5.0, 2.0):
        builder.op("aten::add", us=us)
    report = PerfReport(builder.read(), None)
    assert report.host_slices["dur_ns"].to_list() == [9_000, 7_000]
    assert report.host_threads.select("call_count", "kept_count").row(0) == (6, 2)
    every_us = sum(event["dur"] for event in builder.events)
    assert report.host_bins["operator_ns"].sum() == every_us * 1000


def test_a_trace_without_host_calls_has_empty_tables() -> None:
    builder = trace()
    gpu = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 3}
    builder.events.append({**gpu, "args": {"device": 0, "stream": 7}})
    report = PerfReport(builder.read(), None)
    assert report.host_threads.is_empty()
    assert report.host_slices.is_empty()
    assert report.host_bins.is_empty()


def test_times_far_apart_do_not_overflow() -> None:
    builder = trace().op("aten::add", us=5.0)
    builder.events.append(
        {"ph": "X", "cat": "cpu_op", "name": "late", "pid": 100, "tid": 1, "ts": 8e15, "dur": 2.0}
    )
    report = PerfReport(builder.read(), None)
    assert report.host_bins["operator_ns"].to_list() == [5_000, 2_000]
