"""Windows of a timeline: shares that add up, lanes without overlaps, nothing dropped."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from jarvis.perf_report.timeline.host import HostCall
from jarvis.perf_report.work import COMMUNICATION
from jarvis.pipeline import analyze
from jarvis.run import Run, timeline
from jarvis.run.timeline import BEFORE, IDLE, Timeline, Window
from jarvis.run.timeline_events import (
    HOST,
    LATENCY,
    NOT_LINKED,
    bin_edges,
    binned,
    idle_gaps,
    stacked,
    starter_frames,
)
from jarvis.sample import write_sample
from jarvis.simulation.path import HOST_PARTS, UNEXPLAINED
from tests.builders import PID, trace

ALL = tuple(HostCall)
SEEDS = range(8)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("timeline")
    path = write_sample(folder / "t.json.gz", steps=1, world_size=2, scale="tiny")
    return analyze(path, output_dir=folder / "run")


def events(seed: int, count: int = 60) -> pl.DataFrame:
    chance = random.Random(seed)
    return pl.DataFrame(
        {
            "row": [chance.choice("ab") for _ in range(count)],
            "what": [chance.choice(["x", "y"]) for _ in range(count)],
            "ts_ns": [chance.randrange(0, 400) for _ in range(count)],
            "dur_ns": [chance.choice([0, 1, 5, 30, 120]) for _ in range(count)],
        }
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_events_of_a_lane_overlap_and_none_is_lost(seed: int) -> None:
    placed = stacked(events(seed))
    assert placed.height == 60
    for _, lane in placed.group_by("row", "lane"):
        inside = lane.sort("ts_ns").with_columns(end=pl.col("ts_ns") + pl.col("dur_ns"))
        assert (inside["ts_ns"][1:] >= inside["end"][:-1]).all()


def test_calls_stand_below_the_calls_that_contain_them() -> None:
    placed = stacked(
        pl.DataFrame(
            {
                "row": ["t"] * 5,
                "name": ["outer", "overlaps", "inner", "after", "next"],
                "ts_ns": [0, 90, 10, 40, 100],
                "dur_ns": [100, 60, 20, 5, 10],
            }
        )
    )
    lanes = dict(placed.select("name", "lane").iter_rows())
    assert lanes == {"outer": 0, "inner": 1, "after": 1, "overlaps": 1, "next": 2}


@pytest.mark.parametrize("seed", SEEDS)
def test_bins_add_up_to_the_union_and_name_what_runs_most(seed: int) -> None:
    found = events(seed)
    edges = bin_edges(37, 401, 20)
    bins = binned(found, edges)
    for row in ("a", "b"):
        covered = {"x": np.zeros(600), "y": np.zeros(600)}
        for event in found.filter(pl.col("row") == row).iter_rows(named=True):
            covered[event["what"]][event["ts_ns"] : event["ts_ns"] + event["dur_ns"]] = 1
        union = np.maximum(covered["x"], covered["y"])
        mine = bins.filter(pl.col("row") == row)
        assert mine["busy_ns"].sum() == union[37:401].sum()
        for part in mine.iter_rows(named=True):
            span = slice(part["start_ns"], part["end_ns"])
            assert union[span].sum() == part["busy_ns"]
            other = "y" if part["what"] == "x" else "x"
            assert covered[part["what"]][span].sum() >= covered[other][span].sum()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [1, 7, 500])
def test_the_longest_events_are_those_of_the_window_in_order(seed: int, count: int) -> None:
    found, window = events(seed), Window(100, 200)
    longest = window.longest(found, count)
    inside = [row for row in found.rows() if row[2] < 200 and row[2] + row[3] > 100]
    expected = sorted(inside, key=lambda row: (-row[3], row[2]))[:count]
    assert [row[3] for row in longest.rows()] == [row[3] for row in expected]
    assert longest["ts_ns"].to_list() == [row[2] for row in expected]


def test_a_window_of_a_few_nanoseconds_has_bins_of_one() -> None:
    assert bin_edges(5, 8, 1200).tolist() == [5, 6, 7, 8]
    assert bin_edges(0, 2**62, 3).tolist() == [2**62 * n // 3 for n in range(4)]


def test_the_rows_of_the_gpu_are_the_totals_of_the_report(sample: Run) -> None:
    view = Timeline(sample)
    recording = view.recording
    assert recording is not None
    totals = sample.manifest.totals
    assert totals.step is not None
    for window in (recording, Window(recording.start_ns - 7, recording.end_ns + 900_000)):
        busy_ms = {row: ns / 1e6 for row, ns in view.shares_ns(window).items()}
        assert busy_ms["Compute"] == pytest.approx(totals.compute_time_ms)
        assert busy_ms["Communication"] == pytest.approx(totals.exposed_comm_time_ms)
        assert busy_ms["Copies"] == pytest.approx(totals.exposed_memcpy_time_ms)
        assert busy_ms[IDLE] == pytest.approx(totals.step.idle_ms)
        found = view.statistics(window)
        idle = found.filter(pl.col("row") == IDLE)
        assert idle["busy_ns"].sum() / 1e6 == pytest.approx(totals.step.idle_ms)
        assert idle["count"].sum() == view.gaps.height
        assert found["count"].sum() - view.gaps.height == view.gpu_events.height


def test_the_path_covers_the_replayed_window_without_gap_or_overlap(sample: Run) -> None:
    view = Timeline(sample)
    recorded = sample.simulation.recorded
    ends = view.path["ts_ns"] + view.path["dur_ns"]
    assert view.path["dur_ns"].sum() == recorded.window_ns
    assert ends[:-1].to_list() == view.path["ts_ns"][1:].to_list()
    on_gpu = view.path.drop_nulls("uid").join(view.gpu_events, on="uid", suffix="_recorded")
    assert on_gpu.height == view.path["uid"].count() > 10
    assert on_gpu.select((pl.col("ts_ns") >= pl.col("ts_ns_recorded")).all()).item()
    assert on_gpu.select((pl.col("dur_ns") <= pl.col("dur_ns_recorded")).all()).item()
    host_ns = view.path.filter(pl.col("what") == HOST)["dur_ns"].sum()
    parts = {part.name: part.ns for part in sample.simulation.path_parts(recorded)}
    of_host_ns = sum(parts.get(name, 0) for name in HOST_PARTS)
    assert of_host_ns <= host_ns <= of_host_ns + parts.get(UNEXPLAINED, 0)


def test_work_without_a_launch_has_a_row_of_its_own(tmp_path: Path) -> None:
    built = trace().op("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=10)
    gpu = {"ph": "X", "cat": "kernel", "name": "early", "pid": 0, "tid": 9, "ts": 10.0, "dur": 5.0}
    built.events.append({**gpu, "args": {"device": 0, "stream": 9}})
    sent = {**gpu, "name": "ncclDevKernel_AllReduce", "ts": 15.0, "dur": 2.0}
    built.events.append({**sent, "args": {"device": 0, "stream": 9}})
    view = Timeline(analyze(built.write(tmp_path / "t.json"), output_dir=tmp_path / "run"))
    assert view.recording is not None
    idle_ns = view.recording.length_ns - 17_000
    work = {"Compute": 10_000, "Communication": 2_000, NOT_LINKED: 5_000}
    assert view.shares_ns(view.recording) == work | {IDLE: idle_ns}
    assert view.unlinked_ns(view.recording, COMMUNICATION) == 2_000
    found = view.statistics(view.recording).filter(pl.col("row") != IDLE)
    found = found.select("what", "count", "busy_ns")
    sums = [("GEMM", 1, 10_000), (NOT_LINKED, 1, 5_000), ("Communication", 1, 2_000)]
    assert found.rows() == sums


def test_time_with_several_kinds_of_work_counts_once(tmp_path: Path) -> None:
    """A copy of 40 µs and work without a launch of 90 µs run beside a kernel of 50 µs."""
    built = trace().op("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=50, at_us=1100)
    built.launches("Memcpy DtoD", us=40, at_us=1130, stream=9, cat="gpu_memcpy")
    built.unlinked("early", us=90, stream=10)
    built.events[-1]["ts"] = 1100.0
    run = analyze(built.write(tmp_path / "t.json"), output_dir=tmp_path / "run")
    shares = Timeline(run).shares_ns(Window(1_100_000, 1_200_000))
    assert shares == {"Compute": 50_000, "Copies": 20_000, NOT_LINKED: 20_000}


def test_work_from_before_the_recording_is_no_idle_time(tmp_path: Path) -> None:
    """The second kernel was launched at once, and begins 400 ms later."""
    mark = "execute_context_0(0)_generation_8(8)"
    built = trace().annotation(mark, us=400_000).child("aten::mm", [[8, 4], [4, 2]])
    built.launches("gemm", us=4, at_us=1004).launches("gemm", us=1000, at_us=401_008)
    built.runtime("hipMemcpyWithStream", us=400_000).up(2)
    run = analyze(built.write(tmp_path / "t.json"), output_dir=tmp_path / "run")
    view = Timeline(run)
    assert view.recording is not None
    assert view.shares_ns(view.recording)[BEFORE] == 400_000_000
    (row,) = view.statistics(view.recording).filter(pl.col("what") == "carried_in").to_dicts()
    assert (row["row"], row["busy_ns"]) == ("", 400_000_000)
    assert view.steps is not None
    assert view.steps.length_ns == 1_000_000


def test_the_path_waits_for_work_from_before_the_recording(
    sample: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Timeline(sample).path.filter(pl.col("what") == LATENCY)
    first = waits.select(pl.col("ts_ns").alias("start_ns"), "dur_ns", cause=pl.lit("carried_in"))
    monkeypatch.setattr(timeline, "recorded_gaps", lambda _: first.head(1))
    path = Timeline(sample).path
    assert path.filter(pl.col("what") == BEFORE)["ts_ns"].to_list() == waits["ts_ns"][:1].to_list()
    assert path.filter(pl.col("what") == LATENCY).height == waits.height - 1


def test_host_bins_say_the_same_from_stored_spans_and_from_single_calls(
    sample: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = Timeline(sample)
    assert view.recording is not None
    threads = view.shown_threads(10)
    assert threads == sample.table("host_threads")["thread"].to_list()
    wide = view.host_bins(view.recording, threads)
    monkeypatch.setattr(timeline, "_MIN_BINS", 1e9)
    narrow = view.host_bins(view.recording, threads)
    key = ["row", "what"]
    sums = [bins.group_by(key).agg(pl.sum("busy_ns")).sort(key) for bins in (wide, narrow)]
    assert sums[0].equals(sums[1])
    for bins in (wide, narrow):
        full = bins.group_by("row", "start_ns").agg(
            pl.sum("busy_ns"), room=pl.col("end_ns").first() - pl.col("start_ns").first()
        )
        assert (full["busy_ns"] <= full["room"]).all()


def test_a_window_in_which_no_thread_does_anything_has_no_bins(sample: Run) -> None:
    view = Timeline(sample)
    assert view.recording is not None
    assert view.host_bins(view.recording, []).is_empty()


def test_an_example_of_an_operation_is_the_work_of_one_call(sample: Run) -> None:
    view = Timeline(sample)
    operations = sample.table("operations").filter(pl.col("operation_count") > 1)
    row = operations.row(0, named=True)
    found = view.example(row["uid"], row["launcher_uids"])
    assert 0 < found.height <= row["kernel_count"] / row["operation_count"]
    assert set(found["operation_uid"]) == {row["uid"]}
    assert view.example(row["uid"], []).height == 1
    assert view.example(-5, []).is_empty()


def test_an_event_is_found_by_its_uid_on_gpu_and_host(sample: Run) -> None:
    view = Timeline(sample)
    kernel = sample.table("gpu_work").row(3, named=True)
    call = sample.table("host_slices").row(3, named=True)
    for event in (kernel, call):
        found = view.event(event["uid"])
        assert found is not None
        assert found["name"] == event["name"]
    assert view.event(10**12) is None


def test_a_run_from_before_the_host_tables_shows_the_gpu_alone(sample: Run) -> None:
    tables = {n: sample.table(n) for n in sample.tables if not n.startswith("host_")}
    view = Timeline(replace(sample, tables=tables))
    assert view.recording is not None
    assert view.threads.is_empty()
    assert view.left_out_ns is None
    assert view.shown_threads(4) == []
    assert view.shares_ns(view.recording)
    assert view.host_calls(ALL).is_empty()
    assert view.host_bins(view.recording, []).is_empty()


def test_gaps_outside_the_steps_are_those_of_the_window(tmp_path: Path) -> None:
    """Two kernels run before the only step, and one in it."""
    mm = [[8, 4], [4, 2]]
    built = trace().op("aten::mm", mm).launches("a", us=10).waits(100)
    built.op("aten::mm", mm).launches("b", us=10).waits(100).op("aten::mm", mm)
    (start_us,) = (e["ts"] for e in built.events[-1:] if e["name"] == "aten::mm")
    built.launches("c", us=10)
    mark = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": PID, "tid": 1}
    built.events.append({**mark, "ts": start_us - 1, "dur": 100, "args": {}})
    run = analyze(built.write(tmp_path / "t.json"), output_dir=tmp_path / "run")
    start_ns = run.table("steps")["start_ns"][0]
    steps, all_gaps = idle_gaps(run), Timeline(run).gaps
    assert (steps["start_ns"] >= start_ns).all()
    assert (
        steps["dur_ns"].sum()
        == run.table("steps").select("idle_before_ns", "idle_after_ns").sum_horizontal().sum()
    )
    before = all_gaps.filter(pl.col("start_ns") < start_ns)
    first, second = run.table("idle_gaps").sort("start_ns").iter_rows(named=True)
    assert before["start_ns"].to_list() == [first["start_ns"], second["start_ns"]]
    assert before["dur_ns"].to_list() == [first["dur_ns"], start_ns - second["start_ns"]]
    assert all_gaps.height == steps.height + before.height


START, MAIN = "multiprocessing/spawn.py(122): spawn_main", "train.py(3): main"


def frames(*rows: tuple[int, str, int, int]) -> pl.DataFrame:
    """Return frames from rows of thread, name, start and duration, numbered from 0."""
    table = pl.DataFrame(rows, ["thread", "name", "ts_ns", "dur_ns"], orient="row")
    return table.with_row_index("uid")


def test_the_outermost_frames_of_the_interpreter_start_user_code() -> None:
    found = starter_frames(
        frames(
            (0, "<string>(1): <module>", 0, 100),
            (0, START, 1, 98),
            (0, MAIN, 2, 90),
            (0, "threading.py(655): wait", 3, 10),
            (1, "threading.py(1032): _bootstrap", 0, 50),
            (1, "tqdm/_monitor.py(60): run", 1, 40),
            (1, "torch/distributed/run.py(8): main", 60, 30),
            (1, "torch/nn/module.py(8): forward", 61, 5),
        )
    )
    assert sorted(found) == [0, 1, 4, 6]


def test_a_frame_of_the_interpreter_below_another_thread_or_after_user_code_stays() -> None:
    found = starter_frames(frames((0, START, 0, 100), (1, MAIN, 0, 100), (1, START, 10, 20)))
    assert found.to_list() == [0]
    assert starter_frames(frames((0, MAIN, 0, 5)).clear()).is_empty()
