"""Every kind of broken trace gives a report or an error message, never a stack trace."""

from pathlib import Path

import pytest

from docs.broken_inputs import WHOLE, inputs, messages_for
from jarvis.cli import main

INPUTS = inputs()
REJECTED = {
    "Cut before the first event",
    "An HTML error page",
    "A CPU profile of a browser",
    "A database of another profiler",
    "A memory snapshot",
    "An empty file",
    "A trace without events",
}


@pytest.mark.parametrize("name", INPUTS)
def test_no_analysis_ends_in_a_traceback(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(INPUTS[name])
    code = main(["analyze", str(path), "--output-dir", str(tmp_path / "run")])
    stderr = capsys.readouterr().err
    assert "Traceback" not in stderr
    if name in REJECTED:
        assert code == 1
        assert stderr.splitlines()[-1].startswith("jarvis: ")
        assert not (tmp_path / "run").exists()
    else:
        assert code == 0
        assert (tmp_path / "run" / "standalone_analysis_fair.md").exists()
    assert main(["report", str(path), "--output_csvs_dir", str(tmp_path / "csv")]) == code


@pytest.fixture(scope="module")
def usual() -> set[str]:
    return set(messages_for(INPUTS[WHOLE]))


@pytest.mark.parametrize("name", sorted(set(INPUTS) - REJECTED - {WHOLE, "Unknown metadata"}))
def test_faults_are_reported(name: str, usual: set[str]) -> None:
    assert set(messages_for(INPUTS[name])) - usual
