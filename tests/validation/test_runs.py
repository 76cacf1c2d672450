"""Runs of recorded traces pass every check, and no test can make a run that does not."""

from pathlib import Path

import pytest

from jarvis.core.workspace import RunPaths
from jarvis.pipeline import analyze, assembly
from jarvis.reports import write_reports
from jarvis.run import Run
from jarvis.validation import Verdict, validate
from tests.good_runs import eventful_trace
from tests.layout import checks as layout
from tests.recorded_runs import RecordedRun


def test_runs_of_recorded_traces_pass_every_check(
    reference_root: Path, recorded_run: RecordedRun
) -> None:
    traces = sorted((reference_root / "traces").glob("*.json.gz"))
    assert len(traces) > 5
    for trace in traces:
        root = recorded_run(trace.name.removesuffix(".json.gz"))
        reported = [outcome for outcome in validate(root) if outcome.verdict is not Verdict.PASS]
        assert [str(problem) for outcome in reported for problem in outcome.problems] == []
        assert layout.problems(root) == {}


def test_a_run_that_fails_a_check_fails_the_test_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_run = write_reports

    def write_careless_reports(run: Run, root: Path) -> None:
        from_run(run, root)
        with RunPaths(root).standalone_report("rough").open("a", encoding="utf-8") as file:
            file.write("\nTry a CUDA graph.\n")

    monkeypatch.setattr(assembly, "write_reports", write_careless_reports)
    path = eventful_trace().write(tmp_path / "trace.json")
    with pytest.raises(AssertionError, match="'CUDA' is a vendor's word"):
        analyze(path, output_dir=tmp_path / "run")
