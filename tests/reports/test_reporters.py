"""The registry of formats, and the formats of a run directory as a whole."""

import json
from pathlib import Path

import pytest

from jarvis.core.workspace import RunPaths
from jarvis.replay import write_packages
from jarvis.reports import load_reporters, write_reports
from jarvis.run import Run
from tests.reports.conftest import Analyzed


def test_the_formats() -> None:
    assert set(load_reporters()) >= {
        "analysis",
        "csv",
        "fair",
        "findings",
        "html",
        "json",
        "plot",
        "rough",
        "xlsx",
    }


@pytest.mark.parametrize("name", load_reporters())
def test_a_format_is_described_and_has_a_place(name: str) -> None:
    reporter = load_reporters()[name]
    assert reporter.name == name
    assert type(reporter).__doc__
    assert reporter.place(RunPaths(Path("r"))).parts[0] == "r"


def test_the_same_run_gives_the_same_bytes(sample: Analyzed, tmp_path: Path) -> None:
    run = Run.load(sample.root)
    write_packages(run, tmp_path)
    write_reports(run, tmp_path)
    made = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(made) > 20
    for path in made:
        assert path.read_bytes() == (sample.root / path.relative_to(tmp_path)).read_bytes(), path


def test_the_whole_run_as_json(sample: Analyzed, tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    load_reporters()["json"].render(sample.run, out)

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    document = json.loads(out.read_text(encoding="utf-8"), parse_constant=refuse)
    left_out = document["tables_left_out"]
    assert set(left_out) == {"host_slices", "host_bins"}
    assert set(document["tables"]) == set(sample.run.manifest.tables) - set(left_out)
    slices = left_out["host_slices"]
    assert slices["rows"] == sample.run.table("host_slices").height > 0
    assert "tables/host_slices.parquet" in slices["reason"]
    assert document["manifest"]["analysis_id"] == sample.run.manifest.analysis_id
    operations = document["tables"]["operations"]
    assert len(operations) == sample.run.table("operations").height
    assert "findings" in document["results"]["gemm"]


def test_gpu_events_are_left_out_of_json_where_they_are_many(
    sample: Analyzed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = sample.run.table("gpu_work").height
    out = tmp_path / "run.json"
    for most, is_left_out in ((rows, False), (rows - 1, True)):
        monkeypatch.setattr("jarvis.reports.json.MAX_GPU_EVENTS", most)
        load_reporters()["json"].render(sample.run, out)
        document = json.loads(out.read_bytes())
        assert ("gpu_work" in document["tables_left_out"]) is is_left_out
        assert ("gpu_work" in document["tables"]) is not is_left_out


def test_reports_hold_no_path_of_this_machine(sample: Analyzed) -> None:
    for name, text in sample.markdown().items():
        assert str(sample.root.parent) not in text, name
