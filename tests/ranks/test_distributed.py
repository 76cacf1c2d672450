"""``jarvis analyze`` of the traces of several ranks."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from jarvis.cli import analyze_ranks, main
from jarvis.core.errors import DistributedRunError, NotARunError, NotDistributedError
from jarvis.core.workspace import RunPaths, analyses_dir
from jarvis.pipeline.distributed import OTHER_JOB
from jarvis.ranks.manifest import Coverage, StoredOptions
from jarvis.ranks.run import DistributedRun
from jarvis.reports.perfetto import several_ranks
from jarvis.reports.ranks import NO_FINDING
from jarvis.run import Run
from jarvis.text.messages import to_text
from tests.builders import TraceBuilder, all_reduce, trace
from tests.reports.perfetto_importer import ns, read_document

RANKS = 3
BOMB = b" " * (80 << 20)
"""Packs to a thousandth."""


def rank_trace(rank: int, size: int = RANKS, instances: int = 4) -> TraceBuilder:
    """A rank of a job: rank 1 arrives last at each collective."""
    built = trace()
    built.header["distributedInfo"] = {"rank": rank, "world_size": size, "backend": "nccl"}
    group = all_reduce(1 << 20, size, **{"Process Group Description": "default_pg"})
    for number in range(instances):
        end_us = 3_000 + 1_000 * number
        start_us = end_us - (50 if rank == 1 else 90 + rank)
        built.op("aten::mm", [[64, 64], [64, 64]]).launches("gemm", us=20)
        built.op("c10d::allreduce_").launches(
            "ncclDevKernel_AllReduce", us=end_us - start_us, at_us=start_us, stream=20, **group
        )
    return built


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    for rank in range(RANKS):
        rank_trace(rank).write(folder / f"rank{rank}.json")
    return folder


@pytest.fixture(scope="module")
def analyzed(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("analyzed") / "out"
    arguments = ["analyze", str(traces), "--output-dir", str(root), "--jobs", "1"]
    assert main(arguments) == 0
    return root


def copied(traces: Path, place: Path) -> Path:
    return Path(shutil.copytree(traces, place / "copied"))


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["analyze", *arguments, "--jobs", "1", "--json"]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_a_folder_of_ranks_is_one_run(analyzed: Path, traces: Path) -> None:
    run = DistributedRun.load(analyzed)
    manifest = run.manifest
    assert manifest.name == traces.name
    assert manifest.title == "3 of 3 ranks (0-2)"
    assert (manifest.world_size.value, manifest.world_size.source) == (3, "header")
    assert [(m.rank, m.rank_source, m.state) for m in manifest.members] == [
        (rank, "header", "usable") for rank in range(RANKS)
    ]
    assert (manifest.missing, manifest.duplicates, manifest.conflicts) == ((), {}, ())
    rows = run.tables["instances"]
    assert rows["last_rank"].to_list() == [1] * 4
    assert rows["wait_us"].to_list() == [40 + 42] * 4
    assert rows["transfer_us"].to_list() == [50] * 4
    assert not rows["transfer_is_bound"].any()
    ranks = run.tables["ranks"]
    assert ranks["rank"].to_list() == [0, 1, 2]
    assert ranks["comm_ms"].to_list() == pytest.approx([0.36, 0.2, 0.368])
    assert ranks["hidden_comm_pct"].to_list() == [0] * RANKS
    assert manifest.clock.is_waiting_known
    assert (manifest.clock.median_us, manifest.clock.p95_us) == (0, 0)
    assert manifest.matching.instances == 4
    coverage = Coverage(ranks=3, expected_ranks=3, ranks_pct=100, complete_instances=4)
    assert (manifest.coverage, manifest.options) == (coverage, StoredOptions())


def test_a_run_of_an_earlier_version_is_read(analyzed: Path, tmp_path: Path) -> None:
    root = tmp_path / "earlier"
    shutil.copytree(analyzed, root)
    manifest = json.loads((root / "manifest.json").read_bytes())
    del manifest["coverage"], manifest["options"]
    (root / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    path = RunPaths(root).table("ranks")
    pl.read_parquet(path).drop("node").write_parquet(path)
    run = DistributedRun.load(root)
    assert run.manifest.coverage is None
    assert run.tables["ranks"]["node"].to_list() == [None] * RANKS


def test_each_rank_is_an_ordinary_run(analyzed: Path, traces: Path, tmp_path: Path) -> None:
    assert main(["analyze", str(traces / "rank1.json"), "--output-dir", str(tmp_path / "o")]) == 0
    alone, member = Run.load(tmp_path / "o"), Run.load(RunPaths(analyzed).member(1))
    assert alone.manifest.analysis_id == member.manifest.analysis_id
    for name in alone.manifest.tables:
        assert alone.table(name).equals(member.table(name)), name
    listed = DistributedRun.load(analyzed).manifest.members[1]
    assert listed.analysis_id == member.manifest.analysis_id


def test_findings_and_their_report(
    analyzed: Path, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = DistributedRun.load(analyzed)
    (result,) = run.results.values()
    assert (result.key, result.findings) == ("ranks", run.findings) == ("ranks", ())
    assert to_text(result.notes) == "No steps are marked, so what a step gains is not known."
    report = RunPaths(analyzed).ranks_report.read_text(encoding="utf-8")
    assert report.startswith("# Ranks\n\n3 of 3 ranks (0-2), 4 matched collectives.\n")
    assert NO_FINDING in report
    found = run_json(capsys, str(traces), "--output-dir", str(tmp_path / "out"))
    assert found["findings"] == []


def test_sheets_and_the_workbook(analyzed: Path) -> None:
    paths = RunPaths(analyzed)
    names = {path.stem for path in paths.perf_report_csvs.iterdir()}
    assert names == set(DistributedRun.load(analyzed).manifest.sheets)
    waiting = pl.read_csv(paths.perf_report_csvs / "straggler_summary.csv")
    assert waiting["rank"].to_list() == [1, 0, 2]
    book = pl.read_excel(paths.multi_rank_xlsx, sheet_name="instances", engine="openpyxl")
    assert book.height == 4
    sheets = pl.read_excel(
        paths.multi_rank_xlsx, sheet_id=0, engine="openpyxl", raise_if_empty=False
    )
    asked = {"ranks", "instances", "rank_steps", "lateness_causes", "missing"}
    assert asked <= sheets.keys()
    assert sheets["missing"].is_empty()


def test_the_report_as_html_and_a_trace_of_chosen_ranks(
    analyzed: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    html, merged = tmp_path / "report.html", tmp_path / "ranks.json.gz"
    assert main(["export", str(analyzed), "--format", "html", "-o", str(html)]) == 0
    document = html.read_text(encoding="utf-8")
    assert "<h1>Ranks</h1>" in document
    assert "3 of 3 ranks (0-2)" in document
    assert "default-src 'none'" in document
    asked = ["export", str(analyzed), "--format", "perfetto", "-o", str(merged)]
    assert main([*asked, "--ranks", "0,2"]) == 0
    trace = read_document(merged)
    events = trace["traceEvents"]
    assert trace["otherData"]["ranks"] == "0, 2"
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert named == {1: "rank 0", 3: "rank 2"}
    threads = [e["tid"] for e in events if e["name"] == "thread_name"]
    assert len(threads) == len(set(threads))
    run = DistributedRun.load(analyzed)
    placed = run.tables["instance_ranks"].filter(pl.col("rank") != 1)
    origin_ns = trace["otherData"]["origin_ns"]
    found = {
        (e["pid"] - 1, e["args"]["collective"]): (ns(e["ts"]) + origin_ns, ns(e["dur"]))
        for e in events
        if "collective" in e.get("args", {})
    }
    assert found == {
        (row["rank"], row["instance_id"]): (row["start_ns"], row["end_ns"] - row["start_ns"])
        for row in placed.iter_rows(named=True)
    }
    arrows = [e["id"] for e in events if e["ph"] == "s"]
    assert len(arrows) == len(set(arrows)) > 0
    assert main([*asked, "--ranks", "0,7"]) == 1
    assert "There is no rank 7; the ranks are 0-2." in capsys.readouterr().err
    assert main(["export", str(analyzed), "-o", str(tmp_path / "x")]) == 1
    assert "Choose one of html, perfetto." in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*asked, "--ranks", "some"])
    monkeypatch.setattr(several_ranks, "MAX_BYTES", 1_000)
    assert main([*asked[:-1], str(tmp_path / "large.gz")]) == 1
    assert "Choose fewer ranks." in capsys.readouterr().err
    assert not (tmp_path / "large.gz").exists()


def test_the_order_of_files_and_processes_change_nothing(
    analyzed: Path, traces: Path, tmp_path: Path
) -> None:
    files = [str(traces / f"rank{rank}.json") for rank in (2, 0, 1)]
    other = tmp_path / "out"
    assert main(["analyze", *files, "--output-dir", str(other), "--jobs", "2"]) == 0
    paths = RunPaths(analyzed)
    files_of_run = [paths.results, paths.ranks_report, paths.multi_rank_xlsx]
    tables = (*analyzed.glob("tables/*"), *analyzed.glob("perf_report_csvs/*"))
    for path in (*files_of_run, *tables, *analyzed.glob("members/*/tables/*")):
        relative = path.relative_to(analyzed)
        assert path.read_bytes() == (other / relative).read_bytes(), relative
    manifests = [json.loads(RunPaths(root).manifest.read_bytes()) for root in (analyzed, other)]
    for manifest in manifests:
        manifest["created"] = ""
        for member in manifest["members"]:
            member["file_name"] = Path(member["file_name"]).name
    assert manifests[0] == manifests[1]


def test_broken_ranks_cost_themselves_alone(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(traces, tmp_path)
    (folder / "rank2.json").write_text("no trace", encoding="utf-8")
    trace().op("aten::mm").write(folder / "rank3.json")
    with zipfile.ZipFile(folder / "rank7.json.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("rank7.json", BOMB)
    (folder / "rank1.json").rename(folder / f"rank{1 << 40}.json")
    out = tmp_path / "out"
    found = run_json(capsys, str(folder), "--output-dir", str(out), code=3)
    manifest = DistributedRun.load(out).manifest
    assert {m.file_name: (m.rank, m.state) for m in manifest.members} == {
        "rank0.json": (0, "usable"),
        f"rank{1 << 40}.json": (1, "usable"),
        "rank2.json": (2, "failed"),
        "rank3.json": (3, "no_gpu_work"),
        "rank7.json.zip": (7, "failed"),
    }
    assert manifest.missing == ((2, 2),)
    assert manifest.coverage is not None
    assert (manifest.coverage.ranks, manifest.coverage.complete_instances) == (2, 0)
    assert "rank2.json: " in found["warnings"][0]
    (bomb,) = (line for line in found["warnings"] if line.startswith("rank7.json.zip: "))
    assert "it unpacks to more than 200 times its size" in bomb
    assert any("missing ranks: 2 (1 of 3" in line for line in found["notes"])
    assert DistributedRun.load(out).tables["instances"]["transfer_is_bound"].all()
    assert sorted(path.name for path in out.glob("members/*")) == ["rank_0", "rank_1"]


def test_a_second_file_of_a_rank_is_left_out(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(traces, tmp_path)
    rank_trace(1, instances=1).write(folder / "rank1_again.json")
    found = run_json(capsys, str(folder), "--output-dir", str(tmp_path / "out"))
    assert found["warnings"] == ["Rank 1 has other traces, too; left out: rank1_again.json."]
    chosen = ["--take", "1=rank1_again.json", "--output-dir", str(tmp_path / "other")]
    found = run_json(capsys, str(folder), *chosen)
    assert "left out: rank1.json" in found["warnings"][0]
    (folder / "rank1_again.json").unlink()
    shutil.copy(folder / "rank1.json", folder / "rank1_copy.json")
    found = run_json(capsys, str(folder), "--output-dir", str(tmp_path / "copy"))
    assert found["warnings"] == ["Rank 1: the same trace again in rank1_copy.json."]
    options = DistributedRun.load(tmp_path / "other").manifest.options
    assert options == StoredOptions(taken={1: "rank1_again.json"})


def test_recordings_and_other_jobs_are_runs_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = tmp_path / "traces", tmp_path / "out"
    for name, base_ns in (("old", 0), ("new", 10**12)):
        (folder / name).mkdir(parents=True)
        for rank in (0, 1):
            built = rank_trace(rank)
            built.header["baseTimeNanoseconds"] = base_ns
            built.write(folder / name / f"rank{rank}.json")
    rank_trace(2, size=64).write(folder / "rank2.json")
    monkeypatch.setattr(analyze_ranks, "MAX_SPLIT_UNASKED", 1)
    asked = [str(folder), "--output-dir", str(out)]
    assert main(["analyze", *asked, "--jobs", "1"]) == 1
    error = capsys.readouterr().err
    assert "2 files: new/rank0.json, new/rank1.json" in error
    assert "Nothing was written: confirmation needs a terminal. Pass --yes" in error
    assert not out.exists()
    first = run_json(capsys, *asked, "--yes", code=3)
    (second,) = first["others"]
    assert [first["run"], second["run"]] == [str(out / "job_1"), str(out / "job_2")]
    assert first["warnings"] == [f"rank2.json: {OTHER_JOB}"]
    manifests = [DistributedRun.load(each["run"]).manifest for each in (first, second)]
    assert [manifest.title for manifest in manifests] == ["2 of 3 ranks (0-1)"] * 2
    used = [{entry.file_name for entry in manifest.usable} for manifest in manifests]
    assert {frozenset(each) for each in used} == {
        frozenset({f"{name}/rank0.json", f"{name}/rank1.json"}) for name in ("old", "new")
    }


def test_fewer_than_two_ranks_are_no_distributed_run(
    traces: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = copied(traces, tmp_path)
    for rank in (1, 2):
        (folder / f"rank{rank}.json").write_text("no trace", encoding="utf-8")
    out = tmp_path / "out"
    assert main(["analyze", str(folder), "--output-dir", str(out), "--jobs", "1"]) == 1
    said = capsys.readouterr().err
    assert "at least 2 ranks" in said
    assert f"One trace could be analyzed, on its own: {out}" in said
    assert Run.load(out).manifest.trace.rank == 0
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    assert main(["analyze", str(folder), "--id", "--jobs", "1"]) == 1
    assert Run.load(analyses_dir() / Run.load(out).manifest.analysis_id).manifest.trace.rank == 0
    (folder / "rank0.json").write_text("no trace", encoding="utf-8")
    assert main(["analyze", str(folder), "--output-dir", str(tmp_path / "none")]) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"copied", "home", "out"}


def test_a_folder_with_one_trace_is_an_ordinary_analysis(traces: Path, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    shutil.copy(traces / "rank0.json", folder)
    assert main(["analyze", str(folder), "--output-dir", str(tmp_path / "out")]) == 0
    assert Run.load(tmp_path / "out").manifest.trace.file_name == "rank0.json"


def test_a_distributed_run_is_no_run_of_a_trace(analyzed: Path, tmp_path: Path) -> None:
    with pytest.raises(DistributedRunError, match="rank_0"):
        Run.load(analyzed)
    with pytest.raises(NotDistributedError):
        DistributedRun.load(RunPaths(analyzed).member(0))
    with pytest.raises(NotARunError):
        DistributedRun.load(tmp_path)


def test_only_the_same_ranks_replace_a_distributed_run(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, first = tmp_path / "out", [str(traces / f"rank{rank}.json") for rank in (0, 1)]
    run_json(capsys, *first, "--output-dir", str(out))
    run_json(capsys, str(traces), "--output-dir", str(out))
    assert len(DistributedRun.load(out).manifest.usable) == 3
    assert main(["analyze", *first, "--output-dir", str(out), "--jobs", "1"]) == 1
    assert "a distributed run of other traces" in capsys.readouterr().err
    assert len(DistributedRun.load(out).manifest.usable) == 3
    assert main(["analyze", str(traces), "--output-dir", str(traces), "--jobs", "1"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--id", "--plots"],
        ["--rank", "x"],
        ["--take", "a=b"],
        ["--rank", "f=x"],
        ["--rank", "f=1099511627776"],
    ],
)
def test_options_that_do_not_fit(traces: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["analyze", str(traces), *arguments])
    assert stopped.value.code == 2
