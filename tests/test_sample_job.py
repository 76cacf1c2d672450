"""The traces of all ranks of a simulated job, with faults, and what is true of it."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from jarvis.cli import main
from jarvis.core.errors import JarvisError
from jarvis.sample import Faults, Job, simulate, write_job
from jarvis.sample.faults import (
    NO_FAULTS,
    Late,
    Slow,
    clock_offsets,
    late_ranks,
    numbers_by_rank,
    slow_ranks,
)

RANKS = 3


def written(
    folder: Path, faults: Faults = NO_FAULTS, steps: int = 2
) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Write a job; return what is true, and the traces that can be read by rank."""
    job = Job(steps, RANKS, scale="tiny", faults=faults)
    truth = write_job(job, {rank: folder / f"rank{rank}.json" for rank in range(RANKS)})
    found = {}
    for rank in range(RANKS):
        path = folder / f"rank{rank}.json"
        if path.exists() and rank not in faults.truncated:
            found[rank] = json.loads(path.read_bytes())
    return truth, found


def collectives(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        event
        for event in trace["traceEvents"]
        if event.get("cat") == "kernel" and "ncclDevKernel" in event["name"]
    ]


def test_a_job_without_faults_is_what_simulate_gives(tmp_path: Path) -> None:
    _, traces = written(tmp_path)
    assert traces == {r: simulate(rank=r, world_size=RANKS, scale="tiny") for r in range(RANKS)}


def test_the_truth_is_in_the_traces(tmp_path: Path) -> None:
    truth, traces = written(tmp_path)
    kernels = {rank: collectives(trace) for rank, trace in traces.items()}
    assert len(truth["instances"]) == len(kernels[0]) > 1
    for at, instance in enumerate(truth["instances"]):
        for rank in range(RANKS):
            kernel = kernels[rank][at]
            assert kernel["ts"] == pytest.approx(instance["arrivals_us"][rank], abs=1e-3)
            whole = instance["waits_us"][rank] + instance["transfer_us"]
            assert kernel["dur"] == pytest.approx(whole, abs=1e-3)
        assert min(instance["waits_us"]) == 0


def test_a_slow_rank_computes_longer_and_the_job_takes_longer(tmp_path: Path) -> None:
    truth, traces = written(tmp_path, Faults(slow=(Slow(1, 1.5),), is_even=True))

    def computing(rank: int) -> float:
        return sum(
            event["dur"]
            for event in traces[rank]["traceEvents"]
            if event.get("cat") == "kernel" and "ncclDevKernel" not in event["name"]
        )

    assert computing(1) / computing(0) == pytest.approx(1.5, abs=0.01)
    assert computing(2) / computing(0) == pytest.approx(1, abs=0.01)
    assert truth["makespan_ms_without"]["slow 1"] < truth["makespan_ms"]
    even, _ = written(tmp_path / "even", Faults(is_even=True))
    assert truth["makespan_ms_without"]["slow 1"] == pytest.approx(even["makespan_ms"])


def test_only_a_family_is_slow(tmp_path: Path) -> None:
    _, traces = written(tmp_path, Faults(slow=(Slow(1, 2.0, "gemm"),), is_even=True))

    def times(rank: int, part: str) -> float:
        events = traces[rank]["traceEvents"]
        return sum(e["dur"] for e in events if e.get("cat") == "kernel" and part in e["name"])

    assert times(1, "Cijk") > 1.2 * times(0, "Cijk")
    assert times(1, "multi_tensor") == pytest.approx(times(0, "multi_tensor"), rel=0.02)


@pytest.mark.parametrize("cause", ["loader", "host"])
def test_a_late_rank_is_waited_for(tmp_path: Path, cause: str) -> None:
    truth, _ = written(tmp_path, Faults(late=(Late(2, 50.0, cause, 1),), is_even=True))
    first = next(each for each in truth["instances"] if each["step"] == 1)
    assert first["arrivals_us"][2] == max(first["arrivals_us"])
    assert min(first["waits_us"][:2]) > 40_000
    removed = truth["makespan_ms_without"]["late 2 in step 1"]
    assert truth["makespan_ms"] - removed == pytest.approx(50, abs=10)


def test_a_slow_link_makes_every_transfer_longer(tmp_path: Path) -> None:
    fast, _ = written(tmp_path / "fast")
    slow, _ = written(tmp_path / "slow", Faults(slow_links={1: 0.5}))
    assert slow["instances"][0]["transfer_us"] > 1.1 * fast["instances"][0]["transfer_us"]


def test_clocks_and_bases(tmp_path: Path) -> None:
    _, even = written(tmp_path / "even")
    faults = Faults(clock_offset_us={1: -700.5}, clock_drift_ppm={2: 40}, has_own_base=True)
    _, traces = written(tmp_path / "off", faults)

    def absolute_us(trace: dict[str, Any]) -> list[float]:
        base_us = trace["baseTimeNanoseconds"] / 1e3
        return [kernel["ts"] + base_us for kernel in collectives(trace)]

    bases = {trace["baseTimeNanoseconds"] for trace in traces.values()}
    assert len(bases) == RANKS
    for rank, offset_us in ((0, 0.0), (1, -700.5)):
        moved = [
            new - old
            for new, old in zip(*map(absolute_us, (traces[rank], even[rank])), strict=True)
        ]
        assert moved == pytest.approx([offset_us] * len(moved), abs=0.6)  # doubles of 1.7e15 µs
    first, *_, last = zip(*map(absolute_us, (traces[2], even[2])), strict=True)
    drift_us = (last[0] - last[1]) - (first[0] - first[1])
    assert drift_us == pytest.approx(40e-6 * (last[1] - first[1]), abs=1.1)


def test_traces_that_are_missing_broken_or_twice_there(tmp_path: Path) -> None:
    faults = Faults(skipped=frozenset({0}), truncated=frozenset({1}), duplicated=frozenset({2}))
    truth, traces = written(tmp_path, faults)
    assert sorted(traces) == [2]
    assert truth["files"] == {"1": "rank1.json", "2": "rank2.json"}
    with pytest.raises(json.JSONDecodeError):
        json.loads((tmp_path / "rank1.json").read_bytes())
    assert (tmp_path / "copy_rank2.json").read_bytes() == (tmp_path / "rank2.json").read_bytes()


def test_a_recording_that_begins_a_step_later(tmp_path: Path) -> None:
    _, traces = written(tmp_path, Faults(steps_shift={1: 1}))

    def names(rank: int) -> list[str]:
        return sorted(
            event["name"]
            for event in traces[rank]["traceEvents"]
            if event["name"].startswith("ProfilerStep") and event["cat"] == "user_annotation"
        )

    assert names(0) == ["ProfilerStep#10", "ProfilerStep#11"]
    assert names(1) == ["ProfilerStep#11", "ProfilerStep#12"]
    assert len(collectives(traces[0])) == len(collectives(traces[1]))


def test_dropped_collectives_leave_nothing_behind(tmp_path: Path) -> None:
    whole, before = written(tmp_path / "whole", steps=3)
    truth, traces = written(tmp_path / "dropped", Faults(dropped={1: 2}), steps=3)
    (gone,) = truth["dropped"].values()
    assert len(gone) == 2
    kept = [each for at, each in enumerate(collectives(before[1])) if at not in gone]
    assert [k["ts"] for k in collectives(traces[1])] == [k["ts"] for k in kept]
    ids = {e["args"]["correlation"] for e in collectives(before[1])} - {
        k["args"]["correlation"] for k in kept
    }
    assert not [e for e in traces[1]["traceEvents"] if e.get("id") in ids and e["cat"] == "ac2g"]
    assert whole["instances"] == truth["instances"]


def test_metadata_sequence_numbers_and_gpus(tmp_path: Path) -> None:
    _, bare = written(tmp_path / "bare", Faults(has_metadata=False))
    assert "distributedInfo" not in bare[0]
    assert "Collective name" not in collectives(bare[0])[0]["args"]
    _, traces = written(tmp_path / "seq", Faults(has_seq=True, gpus={1: "A100"}))
    numbers = [kernel["args"]["Seq"] for kernel in collectives(traces[0])]
    assert numbers == list(range(1, len(numbers) + 1))
    names = [traces[rank]["deviceProperties"][0]["name"] for rank in range(RANKS)]
    assert "MI300X" in names[0]
    assert "A100" in names[1]


def test_texts_of_faults() -> None:
    assert slow_ranks(["1:1.05", "2:2:gemm"]) == (Slow(1, 1.05), Slow(2, 2.0, "gemm"))
    assert late_ranks(["1:5", "2:3:host:0"], 6) == (Late(1, 5, "loader", 3), Late(2, 3, "host", 0))
    assert numbers_by_rank(["0:2"]) == {0: 2.0}
    drawn = clock_offsets(["uniform:5000", "2:7"], 4, 0)
    assert sorted(drawn) == [1, 2, 3]
    assert drawn[2] == 7
    assert all(abs(offset) <= 5000 for offset in drawn.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--slow", "1"], "is not RANK:VALUE"),
        (["--slow", "x:2"], "is not the number of a rank"),
        (["--slow", "1:fast"], "is not a number"),
        (["--late", "1:5:rain"], "loader or host"),
        (["--late", "1:5:host:9"], "Step 9 is not one of 2 steps"),
        (["--skip", "9"], "Rank 9 is not one of 2 ranks"),
        (["--mixed-gpus", "1:Z"], "Unknown GPU"),
    ],
)
def test_faults_that_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    out = tmp_path / "s.json"
    assert main(["sample", "-o", str(out), "--ranks", "2", "--scale", "tiny", *options]) != 0
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_name_of_ranks_is_not_doubled(tmp_path: Path) -> None:
    options = ("--ranks", "2", "--scale", "tiny")
    assert main(["sample", "-o", str(tmp_path / "rank.json"), *options]) == 0
    assert {path.name for path in tmp_path.glob("rank*")} == {"rank0.json", "rank1.json"}


def test_the_command_writes_ranks_and_what_is_true(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "s.json.gz")
    options = ("--world-size", "3", "--ranks", "3", "--scale", "tiny", "--skip", "1", "--late")
    assert main(["sample", "-o", out, *options, "2:5:host", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [Path(path).name for path in result["traces"]] == ["rank0_s.json.gz", "rank2_s.json.gz"]
    truth = json.loads(Path(result["truth"]).read_bytes())
    assert truth["faults"]["late"] == [{"rank": 2, "ms": 5.0, "cause": "host", "step": 1}]
    assert truth["faults"]["skipped"] == [1]
    assert json.loads(gzip.decompress((tmp_path / "rank2_s.json.gz").read_bytes()))["traceEvents"]


def test_the_job_has_as_many_ranks_as_traces(tmp_path: Path) -> None:
    options = ("--ranks", "2", "--scale", "tiny")
    assert main(["sample", "-o", str(tmp_path / "s.json"), *options]) == 0
    trace = json.loads((tmp_path / "rank1_s.json").read_bytes())
    assert trace["distributedInfo"]["world_size"] == 2


def test_a_scale_that_does_not_exist() -> None:
    with pytest.raises(JarvisError, match="choose one of"):
        Job(1, 2, scale="huge")


def test_traces_that_a_folder_would_not_show_are_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["sample", "-o", str(tmp_path / "job"), "--ranks", "2", "--scale", "tiny"])
    assert "--output needs a name with .json or .json.gz" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
