"""``jarvis validate``: what it prints and its exit codes."""

import json
from pathlib import Path

import pytest

from jarvis import cli
from jarvis.core.workspace import RunPaths
from jarvis.validation import CHECKS


def test_a_good_run_passes(made_once: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", str(made_once)]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines] == [check.name for check in CHECKS]
    assert last == f"{len(CHECKS)} checks: {len(CHECKS)} pass"


def test_problems_are_listed_with_their_file(
    good_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = RunPaths(good_run)
    manifest = json.loads(paths.manifest.read_text())
    manifest["tables"] += [f"no_{number}" for number in range(12)]
    paths.manifest.write_text(json.dumps(manifest))
    assert cli.main(["validate", str(good_run)]) == 3
    out = capsys.readouterr().out
    assert "        tables/no_0.parquet: The table cannot be read: FileNotFoundError.\n" in out
    assert out.count("cannot be read") == 10
    assert "        and 2 more\n" in out
    assert out.endswith(f"{len(CHECKS)} checks: {len(CHECKS) - 1} pass, 1 fail\n")


def test_a_warning_is_no_failure(good_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for manifest in RunPaths(good_run).category_manifests:
        content = json.loads(manifest.read_text())
        for category in content["categories"]:
            category["gpu_kernel_time_ms"] = 0.0
        manifest.write_text(json.dumps(content))
    assert cli.main(["validate", str(good_run)]) == 0
    assert "warn    category times add up\n" in capsys.readouterr().out


def test_json_has_every_problem(good_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunPaths(good_run).metadata("gemm").unlink()
    assert cli.main(["validate", "--json", str(good_run)]) == 3
    result = json.loads(capsys.readouterr().out)
    assert result["is_valid"] is False
    assert len(result["checks"]) == len(CHECKS)
    failed = [check for check in result["checks"] if check["verdict"] == "fail"]
    assert [check["name"] for check in failed] == ["metadata files are there"]
    assert failed[0]["problems"] == [
        {
            "file": "metadata/gemm_metadata.json",
            "line": None,
            "text": "The file is missing; a file of the category manifest for gemm was expected.",
        }
    ]


def test_what_is_no_run_has_an_exit_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["validate", str(tmp_path)]) == 1
    out, problem = capsys.readouterr()
    assert out == ""
    assert "is not a run directory" in problem


def test_a_run_of_another_layout_is_none(
    good_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = RunPaths(good_run).manifest
    manifest.write_text(manifest.read_text().replace('"schema_version": ', '"schema_version": 9'))
    assert cli.main(["validate", str(good_run)]) == 1
    assert "layout" in capsys.readouterr().err
