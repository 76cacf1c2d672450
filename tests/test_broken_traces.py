"""Every kind of broken input, from the file to the report: a sentence, never a stack trace."""

from pathlib import Path

import pytest

from docs.broken_inputs import WHOLE, inputs, what_is_said
from jarvis.cli import main

INPUTS = inputs()
REFUSED = {
    "Cut before the first event",
    "An error page in place of the trace",
    "A CPU profile of a browser",
    "A database of another profiler",
    "A memory snapshot",
    "An empty file",
    "A trace without work",
}


@pytest.mark.parametrize("name", INPUTS)
def test_an_analysis_of_it_ends_well(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(INPUTS[name])
    code = main(["analyze", str(path), "--output-dir", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert "Traceback" not in said
    if name in REFUSED:
        assert code == 1
        assert said.splitlines()[-1].startswith("jarvis: ")
        assert not (tmp_path / "run").exists()
    else:
        assert code == 0
        assert (tmp_path / "run" / "standalone_analysis_fair.md").exists()
    assert main(["report", str(path), "--output_csvs_dir", str(tmp_path / "csv")]) == code


@pytest.mark.parametrize(
    "name", sorted(set(INPUTS) - REFUSED - {WHOLE, "Metadata of unknown kinds"})
)
def test_what_is_wrong_is_said(name: str) -> None:
    assert set(what_is_said(INPUTS[name])) - set(what_is_said(INPUTS[WHOLE]))
