"""``jarvis ranks``."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from jarvis.cli import main
from jarvis.core.workspace import RunPaths
from jarvis.ranks.compared import compare_ranks
from jarvis.ranks.per_step import ranks_per_step
from jarvis.ranks.run import DistributedRun
from jarvis.sample import Faults, Job, write_job
from jarvis.sample.faults import Late
from jarvis.text.format import MINUS

STEPS, RANKS, LATE_RANK = 4, 3, 1


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> DistributedRun:
    """A job whose rank 1 waits for its data in each step."""
    folder = tmp_path_factory.mktemp("job")
    late = tuple(Late(LATE_RANK, 8.0, "loader", step) for step in range(STEPS))
    faults = Faults(late=late, is_even=True)
    job = Job(STEPS, RANKS, scale="tiny", faults=faults)
    write_job(job, {rank: folder / f"rank{rank}.json" for rank in range(RANKS)})
    assert main(["analyze", str(folder), "--output-dir", str(folder / "out"), "--jobs", "1"]) == 0
    return DistributedRun.load(folder / "out")


def test_each_rank_is_a_row(run: DistributedRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ranks", str(run.root)]) == 0
    title, finding, times, head, first, second, third = capsys.readouterr().out.splitlines()
    assert title == run.manifest.title == "3 of 3 ranks (0-2)"
    assert finding.startswith("Rank 1 is late in ")
    assert times == f"Times are per step, mean of {STEPS} steps."
    assert head.split()[:4] == ["Rank", "Step", "saved", "(ms)"]
    assert [line.split()[0] for line in (first, second, third)] == ["0", "1", "2"]
    assert second.endswith("rank1.json")


def test_why_names_the_cause(run: DistributedRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ranks", str(run.root), "--rank", str(LATE_RANK), "--why"]) == 0
    *_, delay = capsys.readouterr().out.splitlines()
    assert delay.split()[0] == str(LATE_RANK)
    assert "idle: data loading" in delay
    assert main(["ranks", str(run.root), "--rank", "0", "--why"]) == 0
    assert "No delay above 20 µs" in capsys.readouterr().out


def test_json_has_all_columns(run: DistributedRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ranks", str(run.root), "--why", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["times"] == f"per step, mean of {STEPS} steps"
    assert found["ranks"] == ranks_per_step(run.tables).to_dicts()
    step_ms = run.tables["rank_steps"].filter(rank=LATE_RANK)["compute_ms"].mean()
    assert found["ranks"][LATE_RANK]["compute_ms"] == pytest.approx(step_ms)
    longest = found["delays"][0]
    assert (longest["rank"], longest["cause"]) == (LATE_RANK, "idle: data loading")
    assert longest["new_ms"] == pytest.approx(8.0, rel=0.05)


def test_what_if_replays_the_stored_ranks_together(
    run: DistributedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    def saved(*changes: str) -> dict[str, Any]:
        arguments = [part for change in changes for part in ("--change", change)]
        assert main(["what-if", str(run.root), *arguments, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    gains = run.tables["ranks"]["gain_ms"].to_list()
    for rank in range(RANKS):
        assert saved(f"rank={rank}")["saved_low_ms"] == gains[rank]
    together = saved("rank=1", "scale=compute:0.5@1", "transfer=0.5")
    assert together["ranks"] == RANKS
    assert together["saved_low_ms"] == together["saved_high_ms"] > gains[LATE_RANK]
    assert [each["change"] for each in together["changes"]][-1] == "transfer=0.5"
    assert saved()["saved_high_ms"] == saved("transfer=1", "scale=compute:1")["saved_high_ms"] == 0
    assert main(["what-if", str(run.root), "--change", "rank=all"]) == 0
    headline, small_print = capsys.readouterr().out.splitlines()
    assert headline.startswith(f"Step {MINUS}")
    assert small_print.startswith("3 ranks replayed together")


def test_two_runs_are_compared_by_rank(
    run: DistributedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(STEPS, RANKS, scale="tiny", faults=Faults(is_even=True))
    write_job(job, {rank: tmp_path / "job" / f"rank{rank}.json" for rank in range(RANKS)})
    before = str(tmp_path / "out")
    assert main(["analyze", str(tmp_path / "job"), "--output-dir", before, "--jobs", "1"]) == 0
    capsys.readouterr()
    assert main(["compare", before, str(run.root), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for row in found["ranks"]:
        assert row["change_ms"] == pytest.approx(row["target_ms"] - row["reference_ms"])
    waits = {row["rank"]: row for row in found["ranks"] if row["measure"] == "exposed_wait_ms"}
    assert waits[0]["change_ms"] > 5 > waits[LATE_RANK]["change_ms"]
    steps = [row for row in found["ranks"] if row["measure"] == "duration_ms"]
    (median,) = [row for row in found["medians"] if row["measure"] == "duration_ms"]
    assert median["target_ms"] == pytest.approx(sorted(r["target_ms"] for r in steps)[1])
    assert main(["compare", before, str(run.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:4] == ["Per", "step", "Reference", "(ms)"]
    assert "Step time (ms) of each rank:" in lines
    with pytest.raises(SystemExit):
        main(["compare", before, str(run.root), "--fail-if", "gpu_time > +5%"])
    member = RunPaths(run.root).member(0)
    assert main(["compare", str(member), str(run.root)]) == 1
    assert "is the analysis of one trace" in capsys.readouterr().err


def test_ranks_with_one_place_are_compared_by_their_median(run: DistributedRun) -> None:
    def divided(stages: list[int | None]) -> DistributedRun:
        ranks = run.tables["ranks"].with_columns(pl.Series("pp", stages, pl.Int64))
        return replace(run, tables={**run.tables, "ranks": ranks})

    steps = run.tables["rank_steps"].group_by("rank").agg(pl.col("duration_ms").mean())
    first, last = (steps.filter(pl.col("rank").is_in(own)) for own in ([0, 1], [2]))
    places = compare_ranks(divided([0, 0, 1]), divided([0, 0, 1])).places
    found = places.filter(measure="duration_ms", role="pp")
    assert found["place"].to_list() == [0, 1]
    for row, own in zip(found["target_ms"], (first, last), strict=True):
        assert row == pytest.approx(own["duration_ms"].median())
    for other in ([0, 1, 2], [None, 0, 0], [0, 0, 0]):  # another division, or none
        assert compare_ranks(divided([0, 0, 1]), divided(other)).places.is_empty()


def test_a_change_that_no_rank_has_is_a_sentence(
    run: DistributedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for change, part in (
        ("rank=7", "There is no rank '7'; the ranks are 0-2."),
        ("scale=compute:0.5@7", "There is no rank '7'"),
        ("transfer=fast", "A factor is a number of at least 0, not 'fast'."),
        ("scale=aten::none:0.5", "No operation or category is named 'aten::none'"),
        ("finding=P1", "Unknown change 'finding=P1'. A change of a distributed run is one of"),
    ):
        assert main(["what-if", str(run.root), "--change", change]) == 1
        assert part in capsys.readouterr().err
    copy = shutil.copytree(run.root, tmp_path / "copy")
    shutil.rmtree(RunPaths(copy).member(2))
    assert main(["what-if", str(copy), "--change", "rank=1"]) == 1
    assert "analyses of these ranks were removed: 2." in capsys.readouterr().err


def test_findings_are_sentences_in_a_new_process(run: DistributedRun) -> None:
    command = [sys.executable, "-m", "jarvis.cli", "ranks", str(run.root)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert text.splitlines()[1].startswith("Rank 1 is late in ")


def test_what_is_not_there_is_a_sentence(
    run: DistributedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["ranks", str(run.root), "--rank", "7"])
    assert "the run has no rank 7: 3 of 3 ranks (0-2)" in capsys.readouterr().err
    assert main(["ranks", str(run.root / "members" / "rank_0")]) == 1
    assert "is the analysis of one trace" in capsys.readouterr().err
    (tmp_path / "manifest.json").write_text("{}", encoding="utf-8")
    assert main(["ranks", str(tmp_path)]) == 1
    assert "is not a run directory" in capsys.readouterr().err
