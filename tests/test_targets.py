"""Targets of an analysis and of its categories."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jarvis import cli
from jarvis.analyses.runner import AnalysisOutcome
from jarvis.cli.output import ExitCode
from jarvis.core.errors import TargetsError
from jarvis.core.request import AnalysisRequest, Targets
from jarvis.core.workspace import RunPaths
from jarvis.pipeline import analyze, at_targets, chosen_options, opened_at, reproject, reprojection
from jarvis.reports.figures import category_times, target_words
from jarvis.run import Run
from jarvis.sample import write_sample

OWN = "gemm=55,reduce=30"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("targets")
    trace = write_sample(folder / "sample.json")
    return analyze(trace, output_dir=folder / "run")


@pytest.mark.parametrize("text", ["", "gemm=55", " gemm = 55% , reduce=30.5 "])
def test_targets_are_read_and_written(text: str) -> None:
    targets = Targets.parse(80.0, text)
    assert Targets.parse(80.0, targets.own_text) == targets
    assert targets.of_category("gemm") == (55.0 if text else 80.0)
    assert targets.of_category(None) == targets.of_category("elementwise") == 80.0


def test_a_target_that_is_that_of_the_analysis_is_not_its_own() -> None:
    assert Targets.parse(55.0, "gemm=55").own == ()


@pytest.mark.parametrize("text", ["gemm", "gemm=0", "gemm=101", "gemm=-5", "=50", "GEMM=50"])
def test_other_texts_are_rejected(text: str) -> None:
    with pytest.raises(TargetsError, match="gemm=70"):
        Targets.parse(80.0, text)


def test_an_unknown_category_is_named() -> None:
    with pytest.raises(TargetsError, match=r"gem; there are .*gemm"):
        chosen_options(AnalysisRequest(category_targets="gem=50"))


@pytest.mark.parametrize("targets", [Targets(60.0), Targets.parse(90.0, OWN)])
def test_findings_at_targets_are_those_of_a_run_with_them(
    run: Run, targets: Targets, tmp_path: Path
) -> None:
    moved = at_targets(run, targets)
    own = targets.own_text
    written = reproject(
        run.root or "", target_pct=targets.pct, category_targets=own, output_dir=tmp_path / "run"
    )
    for key, result in written.results.items():
        assert moved.results[key].findings == result.findings
    assert moved.manifest.options == written.manifest.options
    assert moved.manifest.top_finding == written.manifest.top_finding
    assert moved.simulation is run.simulation
    assert at_targets(run, run.targets) is run


def test_each_category_saves_at_its_own_target(run: Run) -> None:
    alone = {pct: category_times(at_targets(run, Targets(pct))) for pct in (30.0, 55.0, 90.0)}
    mixed = category_times(at_targets(run, Targets.parse(90.0, OWN)))
    for category, pct in (("gemm", 55.0), ("reduce", 30.0), ("elementwise", 90.0)):
        saved = [t.filter(category=category)["saved_ms"].item() for t in (mixed, alone[pct])]
        assert saved[0] == pytest.approx(saved[1])
    run = at_targets(run, Targets.parse(90.0, OWN))
    gains = (finding.impact for finding in run.results["gemm"].findings)
    assert {gain.target_pct for gain in gains if gain} == {55.0}
    assert target_words(run) == "90% (GEMM 55%, Reduce 30%)"


def test_threads_that_need_findings_of_a_run_take_turns(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcomes(*_: object, **__: object) -> dict[str, AnalysisOutcome]:
        assert run.lock.locked()
        return {}

    monkeypatch.setattr(reprojection, "run_analyses", outcomes)
    at_targets(run, Targets(50.0))
    assert not run.lock.locked()


def test_a_run_of_another_release_keeps_its_findings(run: Run) -> None:
    manifest = run.manifest.model_copy(update={"jarvis_version": "0.0.9"})
    with pytest.raises(ValueError, match="another release"):
        at_targets(replace(run, manifest=manifest), Targets(50.0))


def test_commands_take_targets_of_categories(run: Run, tmp_path: Path) -> None:
    root, exported = tmp_path / "run", tmp_path / "run.json"
    words = ["reproject", str(run.root), "--category-targets", OWN, "--output-dir", str(root)]
    assert cli.main(words) == ExitCode.OK
    with opened_at(root, None) as same:
        assert same.targets == Targets.parse(80.0, OWN)
    rough = RunPaths(root).standalone_report("rough").read_text()
    assert f"--category-targets {OWN}" in rough
    words = ["export", str(root), "--target-pct", "70", "--category-targets", "", "-o"]
    assert cli.main([*words, str(exported)]) == ExitCode.OK
    options = json.loads(exported.read_text())["manifest"]["options"]
    assert options["target_pct"] == 70
    assert "category_targets" not in options
