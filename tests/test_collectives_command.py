"""``jarvis collectives``."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from jarvis.cli import main
from jarvis.core.workspace import RunPaths
from tests.builders import all_reduce, trace

ARGUMENTS = all_reduce(1024, 2)


def write_rank(folder: Path, rank: int, name: str = "", **changes: Any) -> Path:
    built = trace().op("c10d::allreduce_")
    for index in range(2):
        own = changes if index else {}
        built.launches("ncclDevKernel_AllReduce", us=20 - 5 * rank, **{**ARGUMENTS, **own})
    return built.write(folder / (name or f"rank{rank}_trace.json"))


def sheet(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    write_rank(folder, 0)
    write_rank(folder, 1)
    return folder


FORMS = {
    "folder": lambda folder: [str(folder)],
    "files": lambda folder: [str(path) for path in sorted(folder.iterdir(), reverse=True)],
    "dir": lambda folder: ["--trace_dir", str(folder), "--world_size", "2"],
    "pattern": lambda f: ["--trace-pattern", str(f / "rank*_trace.json"), "--world-size", "2"],
    "glob": lambda f: ["--trace_glob", str(f / "*.json"), "--world_size", "2"],
    "workers": lambda f: [str(f), "--use_multiprocessing", "--max_workers", "2"],
}


def test_each_form_gives_the_same_sheets(ranks: Path, tmp_path: Path) -> None:
    written = {}
    for form, arguments in FORMS.items():
        out = tmp_path / form
        assert main(["collectives", *arguments(ranks), "--output_csvs_dir", str(out)]) == 0
        written[form] = {path.name: path.read_bytes() for path in out.iterdir()}
    assert len(written["folder"]) == 8
    assert all(files == written["folder"] for files in written.values())

    archive = shutil.make_archive(str(tmp_path / "job"), "zip", ranks)
    out = tmp_path / "archive"
    assert main(["collectives", archive, "--output-csvs-dir", str(out)]) == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written["folder"]
    assert main(["collectives", archive]) == 0
    assert RunPaths(tmp_path).multi_rank_xlsx.is_file()


def test_the_workbook_is_beside_the_traces_by_default(ranks: Path) -> None:
    assert main(["collectives", str(ranks)]) == 0
    assert RunPaths(ranks).multi_rank_xlsx.is_file()


def test_the_metrics_of_summaries_are_chosen(ranks: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["--output-csvs-dir", str(out), "--agg-metrics", "max", "sum"]
    assert main(["collectives", str(ranks), *arguments]) == 0
    (row,) = sheet(out, "nccl_summary_implicit_sync")
    assert [name for name in row if name.startswith("comm_latency")] == [
        "comm_latency_max",
        "comm_latency_sum",
    ]


def test_collectives_that_ranks_record_differently_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rank(tmp_path, 0)
    write_rank(tmp_path, 1, **{"In msg nelems": 7})
    out = tmp_path / "out"
    assert main(["collectives", str(tmp_path), "--output-csvs-dir", str(out), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert "0_1" in result["warnings"][0]
    assert [row["collective_id"] for row in sheet(out, "nccl_implicit_sync")] == ["0_0"]
    assert len(sheet(out, "nccl_long")) == 4


def test_missing_and_unknown_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rank(tmp_path, 1)
    assert main(["collectives", str(tmp_path), "--output-csvs-dir", str(tmp_path / "out")]) == 0
    assert (
        "missing ranks: 0 (1 of 2; the number of ranks is by ranks of groups)"
        in capsys.readouterr().err
    )
    write_rank(tmp_path, 0, "other.json")
    assert main(["collectives", str(tmp_path)]) == 1
    assert "The rank of other.json is not known" in capsys.readouterr().err
    assert main(["collectives", str(tmp_path), "--rank-by-order"]) == 0


@pytest.mark.parametrize("arguments", [[], ["x", "--trace-dir", "y"], ["--trace-dir", "y"]])
def test_conflicting_forms_are_usage_errors(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["collectives", *arguments])
    assert stopped.value.code == 2


def test_a_broken_trace_is_one_sentence(ranks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (ranks / "rank2_trace.json").write_text("no trace", encoding="utf-8")
    assert main(["collectives", str(ranks)]) == 1
    assert "rank2_trace.json" in capsys.readouterr().err
