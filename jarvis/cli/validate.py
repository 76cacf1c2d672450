"""``jarvis validate``: whether a run directory is what it should be."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.shared import Commands, add_json, add_run, print_result, run_directory
from jarvis.core.workspace import is_comparison

if TYPE_CHECKING:
    from jarvis.validation import Outcome

PROBLEMS_SHOWN = 10
"""Problems of one check that are printed; ``--json`` has all."""


def add_validate(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "validate",
        help="check the data of an analysis or a comparison: files, totals, findings",
        description="Check the data of a run directory, or of the folder of a comparison: that its "
        "files are there and can be parsed, that its totals add up, and that its findings agree "
        f"with its tables. Exit code {ExitCode.CHECK_FAILED:d} where one fails.",
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
    told = ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number)
    yield f"{len(outcomes)} checks: {told}"
