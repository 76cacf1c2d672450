"""A run at another target efficiency: its findings, reports, exports and id."""

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import openpyxl
import polars as pl
import pytest

from jarvis import cli, impact, savings
from jarvis.cli.options import explained
from jarvis.core.errors import NotReprojectableError
from jarvis.core.workspace import RunPaths
from jarvis.findings import Finding
from jarvis.pipeline import analyze, opened_at, reproject
from jarvis.reports import load_reporters, reporter
from jarvis.reports.finding_sheets import FINDINGS, SUMMARY
from jarvis.run import Options, Run, analysis_id
from jarvis.text.format import percent
from jarvis.validation import Verdict, validate
from tests.builders import TraceBuilder, trace
from tests.test_reprojection import assert_equal, contents

TARGET_PCT = 65.0
BF16 = ["c10::BFloat16", "c10::BFloat16"]
DEFAULT_IDS = {None: "98f50e6bf7b9", "m": "cfa87ba5afbc"}
"""Ids of the trace ``abc`` in the release without a target, by the name of the model."""

CREATED = re.compile(rb'"created": *"[^"]*"|20\d\d-\d\d-\d\dT[\d:]+\+00:00')
SCALE = re.compile(r"Scale: over .*")
OTHER_TARGET = re.compile(r".*(?<![\d-])80 ?%.*")
"""The default target, but not in a range such as 70-80%, which is typical for a pattern."""


def built_trace() -> TraceBuilder:
    """Return products far below the target, one between 65% and 80%, and one above both."""
    built = trace(device="AMD Instinct MI300X")
    for kernel, us in (("gemm_a", 900), ("gemm_b", 300), ("gemm_c", 210), ("gemm_d", 230)):
        size = 4096 + 256 * (ord(kernel[-1]) - ord("a"))
        built.op("aten::mm", [[size, size], [size, size]], types=BF16).launches(kernel, us=us)
    built.op("aten::add", [[4096, 8192], [4096, 8192]], types=BF16)
    built.launches("void at::native::vectorized_elementwise_kernel<4>", us=300)
    return built


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_trace().write(tmp_path_factory.mktemp("target") / "built.json")


@pytest.fixture(scope="module")
def default(source: Path) -> Run:
    return analyze(source, model_name="Tiny", output_dir=source.parent / "default")


@pytest.fixture(scope="module")
def lower(source: Path) -> Run:
    """Return the run at 65%."""
    root = source.parent / "lower"
    return analyze(source, model_name="Tiny", output_dir=root, target_pct=TARGET_PCT)


def root_of(run: Run) -> Path:
    assert run.root is not None
    return run.root


def findings(run: Run) -> list[Finding]:
    return [finding for result in run.results.values() for finding in result.findings]


def texts(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(root.rglob("*.md"))
    }


def exported(run: Run, name: str, folder: Path) -> Path:
    out = folder / name
    reporter(name).render(run, out)
    return out


def test_findings_are_those_of_the_formulas_at_the_target(default: Run, lower: Run) -> None:
    totals = lower.manifest.totals
    bases = {"compute_ms": totals.compute_time_ms, "total_ms": totals.total_time_ms}
    modelled = [
        found
        for finding in findings(lower)
        if (found := finding.impact) and found.target_pct == TARGET_PCT
    ]
    assert modelled
    for found in modelled:
        assert found.efficiency_pct is not None
        assert (
            found.saved_ms
            == impact.modelled_impact(
                found.time_ms, found.efficiency_pct, TARGET_PCT, **bases
            ).saved_ms
        )
    saved = [savings.together_ms(findings(run), run.manifest.totals) for run in (default, lower)]
    assert saved[0] > saved[1]
    titles = [[finding.title for finding in findings(run)] for run in (default, lower)]
    assert titles[0] != titles[1]  # the product between both targets is slow for one of them


def test_every_file_contains_the_target_of_the_run(lower: Run, tmp_path: Path) -> None:
    root = root_of(lower)
    output = texts(root)
    for name in ("html", "fair", "rough", "analysis"):
        output[f"export {name}"] = exported(lower, name, tmp_path).read_text(encoding="utf-8")
    for name, text in output.items():
        assert not OTHER_TARGET.findall(SCALE.sub("", text)), name
    for name in ("export fair", "export html", "standalone_analysis_fair.md"):
        assert "a target of 65% of the roofline" in output[name]
    assert "65% of peak" in output["category_findings/gemm_findings.md"]
    half = "half of the way to the target (65% of the roofline)"
    assert half in output["standalone_analysis_rough.md"]
    drawn = output["export html"]
    assert "what the operations below 65% of the roofline would save" in drawn
    assert "Dashed: 65% of it." in drawn
    assert "--target-pct 65" in output["export rough"]


def test_numbers_of_the_files_are_those_at_the_target(lower: Run) -> None:
    paths = RunPaths(root_of(lower))
    rows = json.loads(paths.metrics("gemm").read_text())["operations"]
    rated = [row for row in rows if row["saved_ms_at_target"] is not None]
    assert rated
    for row in rated:
        reached, time_ms = row["efficiency"]["efficiency_percent"], row["time_ms"]
        expected_ms = time_ms - impact.time_at_target(time_ms, reached, TARGET_PCT)
        assert row["saved_ms_at_target"] == pytest.approx(expected_ms)


def test_the_files_agree_with_each_other(lower: Run) -> None:
    failed = [o for o in validate(root_of(lower)) if o.verdict is Verdict.FAIL]
    assert not failed


def test_only_summary_and_findings_of_the_workbook_have_the_target(
    default: Run, lower: Run
) -> None:
    first, second = (cells(RunPaths(root_of(run)).perf_report_xlsx) for run in (default, lower))
    assert first.keys() == second.keys()
    differing = {name for name, rows in first.items() if rows != second[name]}
    assert differing == {SUMMARY, FINDINGS}
    assert ("Target", f"{percent(lower.target_pct)} of the roofline") in second[SUMMARY]


def cells(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each sheet of a workbook."""
    book = openpyxl.load_workbook(path, read_only=True)
    return {name: list(book[name].iter_rows(values_only=True)) for name in book.sheetnames}


def test_json_contains_a_target_that_is_not_the_default(
    default: Run, lower: Run, tmp_path: Path
) -> None:
    document = json.loads(exported(lower, "json", tmp_path).read_bytes())
    assert document["manifest"]["options"]["target_pct"] == TARGET_PCT
    assert "target_pct" not in RunPaths(root_of(default)).manifest.read_text()


def test_a_manifest_without_a_target_has_the_default(default: Run) -> None:
    options = json.loads(RunPaths(root_of(default)).manifest.read_text())["options"]
    assert Options(**options).target_pct == impact.TARGET_PCT
    assert Run.load(root_of(default)).target_pct == impact.TARGET_PCT


@pytest.mark.parametrize("model", DEFAULT_IDS)
def test_the_id_of_the_default_is_that_of_earlier_releases(model: str | None) -> None:
    assert analysis_id("abc", Options(model_name=model)) == DEFAULT_IDS[model]
    chosen = Options(model_name=model, target_pct=impact.TARGET_PCT)
    assert analysis_id("abc", chosen) == DEFAULT_IDS[model]


def test_another_target_is_another_analysis(default: Run, lower: Run) -> None:
    assert default.manifest.analysis_id != lower.manifest.analysis_id
    assert analysis_id("abc", Options(target_pct=65)) == analysis_id(
        "abc", Options(target_pct=65.0)
    )


@pytest.mark.parametrize("target_pct", [0.0, -5.0, 100.5, float("nan"), float("inf")])
def test_an_invalid_target_is_rejected(target_pct: float, default: Run) -> None:
    with pytest.raises(ValueError, match="target_pct"):
        Options(target_pct=target_pct)
    with pytest.raises(ValueError, match="target_pct"), opened_at(root_of(default), target_pct):
        pass


def test_reprojection_at_a_target_equals_an_analysis_at_it(
    default: Run, lower: Run, tmp_path: Path
) -> None:
    reproject(root_of(default), target_pct=TARGET_PCT, output_dir=tmp_path / "again")
    assert_equal(root_of(lower), tmp_path / "again")
    reproject(tmp_path / "again", target_pct=impact.TARGET_PCT, output_dir=tmp_path / "back")
    assert_equal(root_of(default), tmp_path / "back")


def test_a_target_alone_leaves_the_gpu_as_it_is(source: Path, tmp_path: Path) -> None:
    analyze(source, platform="MI355X", preset="achievable", output_dir=tmp_path / "run")
    there = reproject(tmp_path / "run", target_pct=TARGET_PCT, output_dir=tmp_path / "there")
    expected = tmp_path / "expected"
    analyze(
        source, platform="MI355X", preset="achievable", output_dir=expected, target_pct=TARGET_PCT
    )
    assert_equal(expected, tmp_path / "there")
    assert there.manifest.platform_warning is not None


def test_another_gpu_leaves_the_target_as_it_is(lower: Run, tmp_path: Path) -> None:
    run = reproject(root_of(lower), platform="MI325X", output_dir=tmp_path / "again")
    assert run.target_pct == TARGET_PCT


def without_created(file: Path) -> bytes:
    content = file.read_bytes()
    is_packed = content.startswith(b"\x1f\x8b")
    return CREATED.sub(b"", gzip.decompress(content) if is_packed else content)


@pytest.mark.parametrize("name", [n for n, made in load_reporters().items() if made.suffix])
def test_an_export_at_a_target_is_that_of_the_run_at_it(
    default: Run, lower: Run, tmp_path: Path, name: str
) -> None:
    stored = contents(root_of(default))
    out = tmp_path / "out"
    format_name = ["--format", name, "--output"]
    words = ["export", str(root_of(default)), *format_name, str(out), "--target-pct", "65"]
    assert cli.main(words) == 0
    expected = tmp_path / "expected"
    assert cli.main(["export", str(root_of(lower)), *format_name, str(expected)]) == 0
    assert without_created(out) == without_created(expected)
    assert contents(root_of(default)) == stored


def test_an_export_without_a_target_has_that_of_the_run(lower: Run, tmp_path: Path) -> None:
    with opened_at(root_of(lower), None) as run:
        assert run.root == lower.root
    with opened_at(root_of(lower), TARGET_PCT) as run:
        assert run.root == lower.root


def test_a_run_that_cannot_be_reprojected_is_rejected(default: Run, tmp_path: Path) -> None:
    options = replace(default.manifest.options, extension_file="mine.py")
    manifest = default.manifest.model_copy(update={"options": options})
    root = tmp_path / "extended"
    root.mkdir()
    RunPaths(root).results.write_bytes(RunPaths(root_of(default)).results.read_bytes())
    RunPaths(root).manifest.write_text(manifest.model_dump_json())
    with (
        pytest.raises(NotReprojectableError, match=r"mine\.py.* or target"),
        opened_at(root, TARGET_PCT),
    ):
        pass


def test_the_command_analyzes_at_the_target(source: Path, lower: Run, tmp_path: Path) -> None:
    words = ["analyze", str(source), "--model", "Tiny", "--output-dir", str(tmp_path / "run")]
    assert cli.main([*words, "--target-pct", "65"]) == 0
    assert_equal(root_of(lower), tmp_path / "run")


def test_the_command_stores_the_analysis_at_the_target_with_its_reference(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    assert cli.main(["analyze", str(source), "--id"]) == 0
    (reference,) = (tmp_path / "home" / "analyses").iterdir()
    words = ["analyze", str(source), "--id", "--reference", reference.name, "--target-pct=65"]
    assert cli.main([*words, "--output-dir", str(tmp_path / "copy")]) == 0
    run = Run.load(tmp_path / "copy")
    assert (run.target_pct, run.manifest.reference) == (TARGET_PCT, reference.name)
    assert (tmp_path / "home" / "analyses" / run.manifest.analysis_id).is_dir()


def test_the_command_reprojects_a_run_at_the_target(
    default: Run, lower: Run, tmp_path: Path
) -> None:
    words = ["reproject", str(root_of(default)), "--output-dir", str(tmp_path / "again")]
    assert cli.main([*words, "--target-pct", "65"]) == 0
    assert_equal(root_of(lower), tmp_path / "again")


@pytest.mark.parametrize("text", ["0", "-1", "101", "nan", "inf", "much"])
@pytest.mark.parametrize("command", ["analyze", "export", "reproject", "push"])
def test_commands_reject_an_invalid_target(
    command: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "x", f"--target-pct={text}"])
    assert ended.value.code == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "argument --target-pct" in message
    assert "percentage" in message


def test_the_help_gives_the_default() -> None:
    assert f"(default: {impact.TARGET_PCT:g})" in explained("target_pct")


def test_only_the_saving_of_rows_depends_on_the_target(default: Run, lower: Run) -> None:
    rows, others = (run.table("operations") for run in (default, lower))
    assert rows.drop("saved_step_us").equals(others.drop("saved_step_us"))
    assert rows["saved_step_us"].sum() > others["saved_step_us"].sum() > 0
    reached = default.table("operations").filter(pl.col("pct_roofline").is_between(65, 80))
    assert reached.height, "no row tells the two targets apart"
