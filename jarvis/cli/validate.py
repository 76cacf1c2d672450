"""``jarvis validate``: check the data of a run directory or a comparison."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.options import Commands, add_run, run_directory
from jarvis.cli.output import ExitCode, add_json, print_result
from jarvis.core.workspace import is_comparison

if TYPE_CHECKING:
    from jarvis.validation import Outcome

PROBLEMS_SHOWN = 10
"""Maximum number of printed problems per check; ``--json`` has all."""


def add_validate(commands: Commands) -> None:
    command = commands.add_parser(
        "validate",
        help="check the data of an analysis or a comparison: files, totals, findings",
        description="Check the data of a run directory, or of the folder of a comparison: its "
        "files exist and can be parsed, its totals add up, and its findings agree with its "
        f"tables. Exits with code {ExitCode.CHECK_FAILED:d} if a check fails.",
    )
    add_run(command)
    add_json(command)
    command.set_defaults(run=_validate)


def _validate(arguments: argparse.Namespace) -> int:
    root = Path(arguments.directory)
    if not is_comparison(root):
        from jarvis.run import read_manifest

        root = run_directory(arguments.directory)
        read_manifest(root)
    from jarvis.validation import is_valid, validate

    outcomes = validate(root)
    print_result(arguments, _as_json(outcomes), _lines(outcomes))
    return ExitCode.OK if is_valid(outcomes) else ExitCode.CHECK_FAILED


def _as_json(outcomes: list["Outcome"]) -> dict[str, object]:
    from jarvis.validation import is_valid

    return {
        "is_valid": is_valid(outcomes),
        "checks": [
            {
                "name": outcome.check.name,
                "description": outcome.check.description,
                "verdict": str(outcome.verdict),
                "problems": [
                    {"file": problem.file, "line": problem.line, "text": problem.text}
                    for problem in outcome.problems
                ],
            }
            for outcome in outcomes
        ],
    }


def _lines(outcomes: list["Outcome"]) -> Iterator[str]:
    from jarvis.validation import Verdict

    for outcome in outcomes:
        yield f"{outcome.verdict:<8}{outcome.check.name}"
        for problem in outcome.problems[:PROBLEMS_SHOWN]:
            yield f"        {problem}"
        if (hidden := len(outcome.problems) - PROBLEMS_SHOWN) > 0:
            yield f"        and {hidden} more"
    counts = {v: sum(outcome.verdict is v for outcome in outcomes) for v in Verdict}
    summary = ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number)
    yield f"{len(outcomes)} checks: {summary}"
