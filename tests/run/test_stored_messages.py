"""Sentences of a stored run in a process that has computed nothing."""

import subprocess
import sys
from pathlib import Path

from jarvis.pipeline import analyze
from jarvis.text.messages import to_text
from tests.good_runs import eventful_trace

PROGRAM = """
import sys
from jarvis.text.messages import to_text
from jarvis.run import Run
for result in Run.load(sys.argv[1]).results.values():
    for finding in result.findings:
        print(to_text(finding.title), to_text(finding.algorithmic), to_text(finding.capture))
"""


def test_another_process_words_them_alike(tmp_path: Path) -> None:
    eventful_trace().write(tmp_path / "trace.json")
    run = analyze(tmp_path / "trace.json", output_dir=tmp_path / "run")
    here = [
        f"{to_text(f.title)} {to_text(f.algorithmic)} {to_text(f.capture)}"
        for result in run.results.values()
        for f in result.findings
    ]
    assert len(here) > 3
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == here
