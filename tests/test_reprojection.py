"""Reprojecting a stored run equals analyzing its trace on the other hardware."""

import json
import re
import shutil
from pathlib import Path

import pytest

from jarvis.core.errors import (
    HardwareFileError,
    NotARunError,
    NotReprojectableError,
    OutdatedRunError,
    UnknownHardwareError,
)
from jarvis.core.workspace import RunPaths
from jarvis.pipeline import REPROJECTION_STEPS, Step, analyze, reproject
from jarvis.run import Run
from tests.builders import trace
from tests.good_runs import eventful_trace
from tests.recorded_runs import RecordedRun

CREATED = re.compile(rb'"created": *"[^"]*"')
OTHER = {"platform": "MI355X", "preset": "achievable"}
ARCH = {"name": "X100", "mem_bw_gbps": 3900, "memory_gb": 96}


def contents(root: Path) -> dict[str, bytes]:
    """Return every file of a run without its time stamp."""
    return {
        path.relative_to(root).as_posix(): CREATED.sub(b'"created":"..."', path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def assert_equal(one: Path, other: Path) -> None:
    first, second = contents(one), contents(other)
    assert list(first) == list(second)
    assert [name for name in first if first[name] != second[name]] == []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yield a trace that is moved away, so that a reprojection cannot read it."""
    return eventful_trace().write(tmp_path_factory.mktemp("built") / "built.json")


@pytest.fixture(scope="module")
def base(built: Path) -> Path:
    root = built.parent / "base"
    analyze(built, model_name="Tiny", output_dir=root)
    return root


def test_reprojection_equals_the_analysis_byte_for_byte(
    built: Path, base: Path, tmp_path: Path
) -> None:
    analyze(built, model_name="Tiny", output_dir=tmp_path / "analyzed", **OTHER)
    hidden = built.rename(tmp_path / "hidden.json")
    try:
        run = reproject(base, output_dir=tmp_path / "again", **OTHER)
    finally:
        hidden.rename(built)
    assert run.manifest.hardware.title == "MI355X (achievable)"
    assert run.table("operations")["pct_roofline"].drop_nulls().len() > 0
    saved_us = [each.table("operations")["saved_step_us"].sum() for each in (Run.load(base), run)]
    assert saved_us[0] != saved_us[1] > 0
    assert_equal(tmp_path / "again", tmp_path / "analyzed")


@pytest.mark.parametrize(
    "name", ["mi300-bert-small", "h100-vit-nsfw", "mi210-gpu-only", "sglang-qwen3-8b-decode"]
)
def test_recorded_traces_reproject_as_analyzed(
    reference_root: Path, recorded_run: RecordedRun, tmp_path: Path, name: str
) -> None:
    source = reference_root / "traces" / f"{name}.json.gz"
    analyze(source, output_dir=tmp_path / "analyzed", **OTHER)
    reproject(recorded_run(name), output_dir=tmp_path / "again", **OTHER)
    assert_equal(tmp_path / "again", tmp_path / "analyzed")


def test_reprojecting_there_and_back_restores_the_run(base: Path, tmp_path: Path) -> None:
    reproject(base, output_dir=tmp_path / "there", **OTHER)
    reproject(tmp_path / "there", output_dir=tmp_path / "back")
    assert_equal(tmp_path / "back", base)


def test_a_run_gets_and_loses_hardware(tmp_path: Path) -> None:
    mm = trace("Homebrew 9000").op("aten::mm", [[512, 512], [512, 512]])
    path = mm.launches("gemm", us=40.0).write(tmp_path / "trace.json")
    analyze(path, output_dir=tmp_path / "none")
    analyze(path, output_dir=tmp_path / "analyzed", platform="MI300X")
    run = reproject(tmp_path / "none", output_dir=tmp_path / "again", platform="MI300X")
    assert "pct_roofline_mean" in run.table("unified_perf_summary").columns
    assert_equal(tmp_path / "again", tmp_path / "analyzed")
    reproject(tmp_path / "again", output_dir=tmp_path / "lost")
    assert_equal(tmp_path / "lost", tmp_path / "none")


def test_a_gpu_description_without_peaks_gives_no_efficiency(
    built: Path, base: Path, tmp_path: Path
) -> None:
    file = tmp_path / "x100.json"
    file.write_text(json.dumps({**ARCH, "max_achievable_tflops": {}}))
    analyze(built, model_name="Tiny", output_dir=tmp_path / "analyzed", arch_json=file)
    run = reproject(base, output_dir=tmp_path / "again", arch_json=file)
    assert_equal(tmp_path / "again", tmp_path / "analyzed")
    assert run.manifest.options.gpu_arch_file == "x100.json"
    assert run.manifest.hardware.title == "X100 (custom)"
    assert run.table("operations")["peak_tflops"].null_count() == run.table("operations").height
    assert "pct_roofline_mean" not in run.table("unified_perf_summary").columns


def test_the_reference_is_compared_again(built: Path, base: Path, tmp_path: Path) -> None:
    options = {"model_name": "Tiny", "reference": str(base)}
    analyze(built, output_dir=tmp_path / "compared", **options)
    analyze(built, output_dir=tmp_path / "analyzed", **options, **OTHER)
    reproject(tmp_path / "compared", output_dir=tmp_path / "again", **OTHER)
    assert "comparison_operations" in Run.load(tmp_path / "again").manifest.tables
    assert_equal(tmp_path / "again", tmp_path / "analyzed")


def test_its_steps_are_reported(base: Path, tmp_path: Path) -> None:
    seen: list[Step] = []
    reproject(base, output_dir=tmp_path / "again", progress=seen.append, **OTHER)
    assert [step.name for step in seen if step.state == "done"] == list(REPROJECTION_STEPS)


def test_what_cannot_be_reprojected_is_rejected(base: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownHardwareError):
        reproject(base, platform="MI9999", output_dir=tmp_path / "again")
    with pytest.raises(NotARunError):
        reproject(tmp_path, platform="MI300X", output_dir=tmp_path / "again")
    with pytest.raises(HardwareFileError, match=r"no\.json"):
        reproject(base, arch_json=tmp_path / "no.json", output_dir=tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"extension_file": "mine.py", "extension_sha256": "0"}, "perf models of mine.py"),
        (None, "older version"),
    ],
)
def test_a_run_with_missing_data_is_rejected(
    base: Path, tmp_path: Path, change: dict[str, str] | None, words: str
) -> None:
    old = tmp_path / "old"
    shutil.copytree(base, old)
    path = RunPaths(old).manifest
    manifest = json.loads(path.read_text())
    manifest["options"].update(change or {})
    if change is None:
        manifest["tables"].remove("roofline_calls")
    path.write_text(json.dumps(manifest))
    with pytest.raises(NotReprojectableError, match=words):
        reproject(old, output_dir=tmp_path / "again", **OTHER)


def test_a_run_of_an_earlier_release_is_reprojected_without_newer_tables(
    base: Path, tmp_path: Path
) -> None:
    old, newer = tmp_path / "old", ("steps", "step_gaps", "timeline_states")
    shutil.copytree(base, old)
    path = RunPaths(old).manifest
    manifest = json.loads(path.read_text())
    manifest["tables"] = [name for name in manifest["tables"] if name not in newer]
    path.write_text(json.dumps(manifest))
    for name in newer:
        RunPaths(old).table(name).unlink()
    again = reproject(old, output_dir=tmp_path / "again", **OTHER)
    assert not set(newer) & set(again.manifest.tables)
    with pytest.raises(OutdatedRunError, match="the table steps"):
        again.table("steps")
