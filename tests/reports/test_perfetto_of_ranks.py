"""The merged trace of several ranks: every slice of each rank, on the common clock."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from jarvis.cli import main
from jarvis.core.workspace import RunPaths
from jarvis.run import Run
from tests.builders import TraceBuilder, all_reduce, trace
from tests.reports.perfetto_importer import assert_nested, imported, ns, read_document, slices_of

RANKS, CHOSEN = 3, (0, 2)
COLLECTIVES, EVERY_US = 40, 50_000
OFFSETS_US, DRIFT_PPM = (0, -4_321, 5_000), 50.0
DRIFTING_RANK = 2
SHORT_US = 40


def _rank(rank: int) -> TraceBuilder:
    """A rank with kernels that touch each other on one stream, and host calls in host calls."""
    built = trace()
    built.header["distributedInfo"] = {"rank": rank, "world_size": RANKS, "backend": "nccl"}
    group = all_reduce(1 << 20, RANKS, **{"Process Group Description": "default_pg"})
    for number in range(COLLECTIVES):
        end_us = 3_000 + EVERY_US * number
        us = 3 + (rank * 7 + number * 5) % SHORT_US
        built.op("aten::linear", [[64, 64], [64, 64]]).child("aten::mm", [[64, 64], [64, 64]])
        for place in range(3):
            built.launches(f"gemm{rank}", us=20, at_us=end_us - 200 + 20 * place)
        built.launches("beside", us=50, at_us=end_us - 150)
        for place in range(2):
            at_us = end_us + EVERY_US / 2 * place
            built.launches("long", us=EVERY_US / 2, at_us=at_us, stream=30)
        built.op("c10d::allreduce_").launches(
            "ncclDevKernel_AllReduce", us=us, at_us=end_us - us, stream=20, **group
        )
    return built


def _written(folder: Path, offsets_us: tuple[int, ...], drift_ppm: float) -> Path:
    """Write the traces of ranks with clocks of their own, and analyze them."""
    for rank in range(RANKS):
        document = _rank(rank).document()
        ppm = drift_ppm if rank == DRIFTING_RANK else 0.0
        for event in document["traceEvents"]:
            if "ts" in event:
                times_us = (event["ts"], event["ts"] + event.get("dur", 0))
                start_ns, end_ns = (
                    time_ns + offsets_us[rank] * 1_000 + round(time_ns * ppm / 1e6)
                    for time_ns in (round(time_us * 1e3) for time_us in times_us)
                )
                event["ts"] = start_ns / 1e3
                if "dur" in event:
                    event["dur"] = (end_ns - start_ns) / 1e3
        (folder / f"rank{rank}.json").write_text(json.dumps(document), encoding="utf-8")
    arguments = ["analyze", str(folder), "--output-dir", str(folder / "out"), "--jobs", "1"]
    assert main(arguments) == 0
    return folder / "out"


def _own(run: Path, rank: int) -> pl.DataFrame:
    """Return the recorded slices of a rank."""
    member = Run.load(RunPaths(run).member(rank))
    tables = [member.table(name) for name in ("gpu_work", "host_slices")]
    return pl.concat([rows.select("name", "ts_ns", "dur_ns") for rows in tables])


@pytest.fixture(scope="module", params=[0.0, DRIFT_PPM], ids=["offsets", "drift"])
def merged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], float]:
    """A run whose ranks have clocks of their own, its merged trace, and the drift of one of
    them."""
    run = _written(tmp_path_factory.mktemp("ranks"), OFFSETS_US, request.param)
    out = run.parent / "merged.json.gz"
    ranks = ",".join(map(str, CHOSEN))
    asked = ["export", str(run), "--format", "perfetto", "--ranks", ranks, "-o", str(out)]
    assert main(asked) == 0
    return run, read_document(out), request.param


def test_slices_are_those_of_the_ranks_moved_to_the_common_clock(
    merged: tuple[Path, dict[str, Any], float],
) -> None:
    run, document, drift_ppm = merged
    origin_ns = document["otherData"]["origin_ns"]
    found = {
        rank: slices_of((e for e in document["traceEvents"] if e["pid"] == rank + 1), origin_ns)
        for rank in CHOSEN
    }
    first_ns = min(start_ns for slices in found.values() for _, start_ns, _ in slices)
    own = {rank: _own(run, rank) for rank in CHOSEN}

    def true_ns(rank: int, own_ns: int) -> int:
        """Return a time on the clock before it was changed, which is that of rank 0."""
        ppm = drift_ppm if rank == DRIFTING_RANK else 0.0
        return round((own_ns - OFFSETS_US[rank] * 1_000) / (1 + ppm / 1e6))

    true = {
        rank: Counter(
            (name, start_ns := true_ns(rank, ts_ns), true_ns(rank, ts_ns + dur_ns) - start_ns)
            for name, ts_ns, dur_ns in own[rank].iter_rows()
        )
        for rank in CHOSEN
    }
    first_true_ns = min(start_ns for slices in true.values() for _, start_ns, _ in slices)
    tolerance_ns = 500 if drift_ppm else 0
    for rank in CHOSEN:
        moved = sorted((n, s - first_ns, d) for n, s, d in found[rank].elements())
        expected = sorted((n, s - first_true_ns, d) for n, s, d in true[rank].elements())
        assert [name for name, *_ in moved] == [name for name, *_ in expected]
        apart = [(a[1] - b[1], a[2] - b[2]) for a, b in zip(moved, expected, strict=True)]
        assert max(abs(start) for start, _ in apart) <= tolerance_ns
        assert max(abs(duration) for _, duration in apart) <= (1 if drift_ppm else 0)


def test_slices_that_touch_each_other_are_on_one_lane(
    merged: tuple[Path, dict[str, Any], float],
) -> None:
    events = merged[1]["traceEvents"]
    further = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and "(lane" in event["args"]["name"]
    }
    on_further = (e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) in further)
    assert {event["name"] for event in on_further} == {"beside"}


def test_slices_on_each_track_are_inside_each_other_or_disjoint(
    merged: tuple[Path, dict[str, Any], float],
) -> None:
    events = merged[1]["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in slices:
        start_ns = ns(event["ts"])
        times = tracks.setdefault((event["pid"], event["tid"]), [])
        times.append((start_ns, start_ns + ns(event["dur"])))
    for times in tracks.values():
        assert_nested(times)
    found = imported(events)
    assert not found.dropped
    assert not found.lost_flows
    assert found.kept == slices_of(events)
