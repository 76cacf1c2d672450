"""Run commands and reject every outcome except success and an error message."""

import io
import json
import re
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from jarvis.cli import main

SENTENCE = re.compile(r"^jarvis: .*[.!?)]$")
RAW_PYTHON = re.compile(
    r"Traceback|\b[A-Z]\w+(Error|Exception)\b:|' object |polars|got an unexpected|NoneType"
)
"""Text of Python exceptions."""


class Outcome(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


def run(*words: object) -> Outcome:
    """Run one command.

    Raises AssertionError if it neither succeeds nor prints an error message.
    """
    out, err = io.StringIO(), io.StringIO()
    argv = [str(word) for word in words]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(argv)
    except (Exception, SystemExit) as error:
        raise AssertionError(f"{argv}: {''.join(traceback.format_exception(error))}") from error
    outcome = Outcome(code, out.getvalue(), err.getvalue())
    printed = outcome.out + outcome.err
    hidden = {c for c in printed if c != "\n" and not c.isprintable()}
    assert not hidden, f"{argv} prints {hidden}:\n{printed!r}"
    assert not RAW_PYTHON.search(printed), f"{argv}:\n{printed}"
    assert code in (0, 1), f"{argv} ends with {code}:\n{printed}"
    if code == 1:
        last = outcome.err.splitlines()[-1] if outcome.err else ""
        assert SENTENCE.match(last), f"{argv} ends without a sentence:\n{printed}"
    return outcome


def run_well(*words: object) -> Outcome:
    """Run one command that must succeed."""
    outcome = run(*words)
    assert outcome.code == 0, f"{[str(word) for word in words]}:\n{outcome.out}{outcome.err}"
    return outcome


def assert_analyses_work(root: Path) -> None:
    """Raise AssertionError if an analysis of a run failed."""
    content = json.loads((root / "results.json").read_text(encoding="utf-8"))
    results = content["analyses"].values()
    failed = [result["traceback"] for result in results if result["status"] == "ERROR"]
    assert not failed, "\n".join(failed)
