"""The trace for Perfetto: no slice is dropped, none is changed, and the tracks of the analysis."""

import json
import random
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis.changes import ScaleGpu, Work
from jarvis.core.errors import OtherTraceError
from jarvis.pipeline import analyze
from jarvis.reports import reporter
from jarvis.reports.perfetto import FORMAT, PerfettoReporter
from jarvis.reports.perfetto.analysis_tracks import (
    CRITICAL_PATH,
    IDLE_CAUSES,
    MAX_FINDINGS,
    SIMULATED_STEP,
    STEPS,
    all_changes,
)
from jarvis.reports.perfetto.document import EXACT_NS, write_document
from jarvis.reports.perfetto.lanes import assign_lanes
from jarvis.reports.perfetto.parts import ARROWS, Part, Track
from jarvis.reports.perfetto.trace_file import FROM_RUN, FROM_TRACE
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.run.timeline_events import recorded_gaps
from jarvis.schemas.names import C
from tests.builders import GPU, PID, trace
from tests.optional import trace_processor
from tests.reports.conftest import Analyzed
from tests.reports.perfetto_importer import assert_nested, imported, ns, read_document, slices_of

OVERLAPPING = 4000


def _slice(
    name: str, cat: str, tid: int, start_ns: int, dur_ns: int, **args: Any
) -> dict[str, Any]:
    event = {"ph": "X", "cat": cat, "name": name, "pid": GPU if cat == "kernel" else PID}
    return event | {"tid": tid, "ts": start_ns / 1e3, "dur": dur_ns / 1e3, "args": args}


def _overlapping_trace(folder: Path) -> Path:
    """Write a trace whose slices overlap on a thread and on two streams, none inside another."""
    chance = random.Random(7)
    builder = trace().op("aten::mm", [[64, 64], [64, 64]]).launches("gemm", us=5.0)
    document = builder.document()
    for number in range(OVERLAPPING):
        start_ns = 2_000_000 + 1_000 * number + chance.randrange(900)
        dur_ns = chance.choice((0, 1, 999, 1_001, 2_500 + chance.randrange(3_000)))
        document["traceEvents"] += [
            _slice(f"aten::op{number % 9}", "cpu_op", 1, start_ns, dur_ns),
            _slice(f"kernel{number % 7}", "kernel", 7 + number % 2, start_ns + 5, dur_ns + 1_700),
        ]
    path = folder / "overlapping.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def overlapping(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A trace with thousands of overlapping slices, and its trace for Perfetto."""
    folder = tmp_path_factory.mktemp("overlapping")
    path = _overlapping_trace(folder)
    run = analyze(path, platform="H200", output_dir=folder / "r")
    PerfettoReporter(path).render(run, folder / "out.json.gz")
    return path, folder / "out.json.gz"


def _recorded(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if "uid" in event.get("args", {})]


def _tracks(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the slices by the name of their thread."""
    events = document["traceEvents"]
    named = [event for event in events if event["name"] == "thread_name"]
    name_of = {(event["pid"], event["tid"]): event["args"]["name"] for event in named}
    assert len(name_of) == len(named)
    found: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] == "X":
            found.setdefault(name_of[event["pid"], event["tid"]], []).append(event)
    return found


def test_perfetto_drops_thousands_of_slices_of_the_trace_and_none_of_ours(
    overlapping: tuple[Path, Path],
) -> None:
    path, made = overlapping
    assert len(imported(read_document(path)["traceEvents"]).dropped) > 2_000
    events = read_document(made)["traceEvents"]
    found = imported(events)
    assert not found.dropped
    assert found.kept == slices_of(events)
    assert not found.lost_flows


def test_the_slices_are_those_of_the_trace(overlapping: tuple[Path, Path]) -> None:
    path, made = overlapping
    document = read_document(made)
    expected = slices_of(read_document(path)["traceEvents"])
    assert sum(expected.values()) > 2 * OVERLAPPING
    assert slices_of(_recorded(document)) == expected
    assert document["otherData"]["slices_without_time"] == 0
    assert document["otherData"]["source"] == FROM_TRACE


def test_slices_on_each_track_are_inside_each_other_or_disjoint(
    overlapping: tuple[Path, Path],
) -> None:
    tracks = _tracks(read_document(overlapping[1]))
    assert {"thread 1", "thread 1 (lane 2)", "thread 7", "thread 7 (lane 2)"} <= tracks.keys()
    for events in tracks.values():
        times = [(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in events]
        assert_nested(times)


_SLICES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=80
)


@given(slices=_SLICES, most=st.integers(1, 4))
def test_lanes_of_any_slices(slices: list[tuple[int, int, int]], most: int) -> None:
    ordered = sorted(slices, key=lambda each: (each[0], each[1], -each[2]))
    track, start, duration = (np.array(column, np.int64) for column in zip(*ordered, strict=True))
    lane, *working = (np.zeros(track.size, np.int32) for _ in range(4))
    assign_lanes(track, start, start + duration, most, lane, *working)
    for chosen in set(zip(track.tolist(), lane.tolist(), strict=True)):
        own = (track == chosen[0]) & (lane == chosen[1])
        times = list(zip(start[own].tolist(), (start + duration)[own].tolist(), strict=True))
        assert_nested(times)
        assert _depth(times) <= most
    for number in set(track.tolist()):
        assert set(lane[track == number].tolist()) == set(range(lane[track == number].max() + 1))


def _depth(slices: list[tuple[int, int]]) -> int:
    deepest, stack = 0, list[tuple[int, int]]()
    for start, end in slices:
        while stack and stack[-1][1] <= start and not stack[-1] == (start, end) == (end, end):
            stack.pop()
        stack.append((start, end))
        deepest = max(deepest, len(stack))
    return deepest


@given(slices=_SLICES, scale=st.integers(1, 1_234_567), base=st.sampled_from([0, 5 * 10**14]))
def test_a_file_of_any_slices(
    tmp_path_factory: pytest.TempPathFactory,
    slices: list[tuple[int, int, int]],
    scale: int,
    base: int,
) -> None:
    rows = pl.DataFrame(
        {
            "track": [track for track, _, _ in slices],
            C.uid: range(len(slices)),
            C.name: [f"s{n % 3}" for n in range(len(slices))],
            C.ts_ns: [base + scale * start for _, start, _ in slices],
            C.dur_ns: [scale * duration for _, _, duration in slices],
        },
        schema_overrides={"track": pl.Int64, C.uid: pl.Int64},
    )
    out = tmp_path_factory.mktemp("any") / "out.json.gz"
    tracks = [Track("process", f"thread {n}", "1", str(n)) for n in range(3)]
    # Slices of two categories share tracks: the order across categories matters, too.
    parts = [Part("even", rows[::2]), Part("odd", rows[1::2])]
    write_document(out, parts, tracks, pl.DataFrame(schema=ARROWS), {})
    events = read_document(out)["traceEvents"]
    expected = Counter(rows.select(C.name, C.ts_ns, C.dur_ns).iter_rows())
    found = imported(events)
    assert not found.dropped
    assert found.kept == expected
    out.unlink()


def test_slices_nested_more_deeply_than_perfetto_keeps(tmp_path: Path) -> None:
    deep = [(10 * n, 20_000 - 20 * n) for n in range(600)]
    instants = [(30_000, 0)] * 600
    rows = pl.DataFrame(
        {
            "track": [0] * 1200,
            C.uid: range(1200),
            C.name: ["x"] * 1200,
            C.ts_ns: [start for start, _ in deep + instants],
            C.dur_ns: [duration for _, duration in deep + instants],
        }
    ).cast({"track": pl.Int64, C.uid: pl.Int64})
    out = tmp_path / "out.json.gz"
    written = write_document(
        out, [Part("x", rows)], [Track("p", "t")], pl.DataFrame(schema=ARROWS), {}
    )
    found = imported(read_document(out)["traceEvents"])
    assert not found.dropped
    assert sum(found.kept.values()) == written.slices == 1200


def test_times_that_floating_point_numbers_cannot_hold_have_an_origin(tmp_path: Path) -> None:
    since_1970_ns = 1_763_000_000_123_456_789
    assert since_1970_ns > EXACT_NS
    builder = trace().op("aten::mm", [[64, 64], [64, 64]]).launches("gemm", us=5.0)
    text = json.dumps(builder.document())
    document = json.loads(text)
    for event in document["traceEvents"]:
        if "ts" in event:
            at = since_1970_ns + round(event["ts"] * 1e3)
            event["ts"] = f"@{at // 1000}.{at % 1000:03d}@"
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document).replace('"@', "").replace('@"', ""), encoding="utf-8")
    run = analyze(path, platform="H200", output_dir=tmp_path / "r")
    PerfettoReporter(path).render(run, tmp_path / "out.json.gz")
    made = read_document(tmp_path / "out.json.gz")
    origin_ns = made["otherData"]["origin_ns"]
    assert 0 < since_1970_ns - origin_ns < 10**9
    starts = {start for _, start, _ in slices_of(_recorded(made), origin_ns)}
    events = json.loads(text)["traceEvents"]
    assert starts == {since_1970_ns + round(e["ts"] * 1e3) for e in events if e["ph"] == "X"}


def test_older_importers_truncate_no_duration(overlapping: tuple[Path, Path]) -> None:
    durations = [e["dur"] for e in read_document(overlapping[1])["traceEvents"] if e["ph"] == "X"]
    assert any(int(float(f"{ns(us) / 1e3:.3f}") * 1000.0) != ns(us) for us in durations)
    assert all(int(float(us) * 1000.0) == ns(us) for us in durations)
    assert all(str(us)[: str(us).index(".") + 4] == f"{ns(us) / 1e3:.3f}" for us in durations)


def test_arrows_lead_from_launches_to_kernels(tmp_path: Path) -> None:
    builder = trace()
    for number in range(3):
        builder.op(f"aten::op{number}", [[64, 64]]).launches(f"kernel{number}", us=5.0)
    builder.op("aten::graph").graph(("g1", 3.0), ("g2", 3.0))
    path = builder.unlinked("lonely").write(tmp_path / "t.json")
    run = analyze(path, platform="H200", output_dir=tmp_path / "r")
    for trace_path, launch in ((path, "cudaLaunchKernel"), (None, "cudaLaunchKernel")):
        PerfettoReporter(trace_path).render(run, tmp_path / "out.json.gz")
        found = imported(read_document(tmp_path / "out.json.gz")["traceEvents"])
        assert not found.lost_flows
        assert sorted(found.flows) == [
            ("ac2g", "cudaGraphLaunch", "g1"),
            ("ac2g", "cudaGraphLaunch", "g2"),
            *(("ac2g", launch, f"kernel{number}") for number in range(3)),
        ]


def test_arguments_are_those_of_the_trace(tmp_path: Path) -> None:
    hostile = 'quote " backslash \\ line\nend \x07 ü'
    builder = (
        trace().op(hostile, [[64, 32]]).launches(hostile, us=5.0, grid=[1, 2, 3], note=hostile)
    )
    path = builder.write(tmp_path / "t.json")
    run = analyze(path, platform="H200", output_dir=tmp_path / "r")
    PerfettoReporter(path).render(run, tmp_path / "out.json.gz")
    by_category = {e["cat"]: e for e in _recorded(read_document(tmp_path / "out.json.gz"))}
    assert by_category["cpu_op"]["name"] == by_category["kernel"]["name"] == hostile
    assert by_category["cpu_op"]["args"]["Input Dims"] == [[64, 32]]
    arguments = by_category["kernel"]["args"]
    assert (arguments["grid"], arguments["note"], arguments["stream"]) == ([1, 2, 3], hostile, 7)


def test_without_the_trace_the_file_has_what_the_run_has(sample: Analyzed, tmp_path: Path) -> None:
    out = tmp_path / "out.json.gz"
    reporter(FORMAT).render(sample.run, out)
    document = read_document(out)
    assert document["otherData"]["source"] == FROM_RUN
    expected: Counter[tuple[str, int, int]] = Counter()
    for name in ("gpu_work", "host_slices"):
        expected.update(sample.run.table(name).select(C.name, C.ts_ns, C.dur_ns).iter_rows())
    assert slices_of(_recorded(document)) == expected
    assert not imported(document["traceEvents"]).dropped


def test_tracks_of_the_analysis(sample: Analyzed, tmp_path: Path) -> None:
    run, out = sample.run, tmp_path / "out.json.gz"
    reporter(FORMAT).render(run, out)
    tracks = _tracks(read_document(out))
    simulation = run.simulation
    begin_ns = simulation.graph.first_ns
    gaps = recorded_gaps(run)
    assert sum(ns(e["dur"]) for e in tracks[IDLE_CAUSES]) == gaps[C.dur_ns].sum()
    assert {ns(e["ts"]) for e in tracks[IDLE_CAUSES]} == set(gaps[C.start_ns])
    steps = run.table("steps").drop_nulls(C.dur_ns)
    assert [e["name"] for e in tracks[STEPS]] == steps[C.name].to_list()
    path_ns = sum(ns(e["dur"]) for e in tracks[CRITICAL_PATH])
    assert path_ns == simulation.recorded.window_ns
    first_ns = min(ns(e["ts"]) for e in tracks[CRITICAL_PATH])
    assert first_ns == begin_ns + int(simulation.graph.time[simulation.graph.begin])
    listed = [each for each in recommendations(run)[:MAX_FINDINGS] if each.finding.operations]
    assert listed
    for each in listed:
        (name,) = (n for n in tracks if n.startswith(f"Finding {each.label}:") and "(lane" not in n)
        work = run.table("gpu_work").filter(pl.col(C.operation_uid).is_in(each.finding.row_uids))
        names = each.finding.kernels or work[C.name].unique().to_list()
        own = [event for n in tracks if n.startswith(name) for event in tracks[n]]
        assert len(own) == work.filter(pl.col(C.name).is_in(names)).height
        assert all(e["name"].startswith(f"{each.label}: ") for e in own)


def test_the_simulated_step(sample: Analyzed, tmp_path: Path) -> None:
    run, out = sample.run, tmp_path / "out.json.gz"
    none = [ScaleGpu(work=Work(category="compute"), factor=1.0)]
    gone = [ScaleGpu(work=Work(category="compute"), factor=0.0)]
    lengths = {}
    for name, changes in (("all", None), ("none", none), ("gone", gone)):
        PerfettoReporter(changes=changes).render(run, out)
        (step,) = _tracks(read_document(out))[SIMULATED_STEP]
        lengths[name] = ns(step["dur"])
    steps = [int(each) for each in run.simulation.recorded.steps_ns]
    assert lengths["none"] in steps
    assert lengths["all"] in run.simulation.replay(all_changes(run)).steps_ns
    assert lengths["gone"] < lengths["none"]


def test_the_same_run_gives_the_same_file(sample: Analyzed, tmp_path: Path) -> None:
    for name in ("a", "b"):
        reporter(FORMAT).render(Run.load(sample.root), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_another_trace_is_rejected(sample: Analyzed, tmp_path: Path) -> None:
    path = trace().op("aten::mm").launches("k").write(tmp_path / "t.json")
    with pytest.raises(OtherTraceError, match=r"t\.json is not the trace of this analysis"):
        PerfettoReporter(path).render(sample.run, tmp_path / "out.json.gz")


def test_a_run_that_is_not_simulated_says_so(tmp_path: Path) -> None:
    path = trace().op("aten::mm", [[64, 64]]).launches("k", us=9.0).write(tmp_path / "t.json")
    run = analyze(path, platform="H200", output_dir=tmp_path / "r")
    old = Run(
        run.manifest.model_copy(update={"simulation": None}),
        run.results,
        run.tables,
        run.paths_by_category,
    )
    reporter(FORMAT).render(old, tmp_path / "out.json.gz")
    document = read_document(tmp_path / "out.json.gz")
    left_out = document["otherData"]["left_out"]
    assert {CRITICAL_PATH, SIMULATED_STEP} <= left_out.keys()
    assert "analyze the trace again" in left_out[SIMULATED_STEP]
    assert SIMULATED_STEP not in _tracks(document)


def test_a_recorded_trace(reference_root: Path, recorded_run: Any, tmp_path: Path) -> None:
    name = "mi300-resnet-ddp-checkpoint"
    path = reference_root / "traces" / f"{name}.json.gz"
    out = tmp_path / "out.json.gz"
    PerfettoReporter(path).render(Run.load(recorded_run(name)), out)
    document = read_document(out)
    expected = slices_of(read_document(path)["traceEvents"])
    assert slices_of(_recorded(document), document["otherData"]["origin_ns"]) == expected
    found = imported(document["traceEvents"])
    assert not found.dropped
    assert not found.lost_flows


def test_perfetto_itself_drops_nothing(overlapping: tuple[Path, Path]) -> None:
    """Skipped where JARVIS_TRACE_PROCESSOR is not the path of a trace_processor_shell."""
    program = trace_processor()
    if program is None:
        pytest.skip("JARVIS_TRACE_PROCESSOR does not name a trace_processor_shell")
    path, made = overlapping

    def ask(query: str, file: Path) -> int:
        answer = subprocess.run(
            [program, "-q", "/dev/stdin", str(file)],
            input=query,
            capture_output=True,
            text=True,
            check=True,
        )
        return int(answer.stdout.split()[-1])

    lost = (
        "select sum(value) as lost from stats where name in ("
        "'slice_drop_overlapping_complete_event', 'slice_spill_overlapping_complete_event')"
    )
    assert ask(lost, path) > 2_000
    assert ask(lost, made) == 0
    written = read_document(made)["otherData"]["slices"]
    assert ask("select count(*) as slices from slice", made) == written
