"""``jarvis validate``: whether a run directory is what it should be."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.shared import Commands
from jarvis.errors import RunError

if TYPE_CHECKING:
    from jarvis.validation import Outcome

INVALID, NO_RUN = 1, 2
"""Exit codes: a check fails; there is no run directory to check."""

PROBLEMS_SHOWN = 10
"""Problems of one check that are printed; ``--json`` has all."""


def add_validate(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "validate",
        help="check an analysis: files, numbers, words, links",
        description="Check a run directory: that its files are there and agree, that its numbers "
        "add up, that its reports keep their layout and their words. Exit code 0 where all checks "
        f"pass, {INVALID} where one fails, {NO_RUN} where there is no run directory.",
    )
    command.add_argument("directory", metavar="RUN", type=Path, help="run directory of an analysis")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(run=_validate)


def _validate(arguments: argparse.Namespace) -> int:
    from jarvis.run import read_manifest
    from jarvis.validation import is_valid, validate

    try:
        read_manifest(arguments.directory)
        outcomes = validate(arguments.directory)
    except RunError as error:
        # A script tells a bad run from no run by the exit code.
        print(f"jarvis: {error}", file=sys.stderr)
        return NO_RUN
    if arguments.json:
        print(json.dumps(_as_json(outcomes), indent=2, ensure_ascii=False))
    else:
        _print(outcomes)
    return 0 if is_valid(outcomes) else INVALID


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


def _print(outcomes: list["Outcome"]) -> None:
    from jarvis.validation import Verdict

    for outcome in outcomes:
        print(f"{outcome.verdict:<8}{outcome.check.name}")
        for problem in outcome.problems[:PROBLEMS_SHOWN]:
            print(f"        {problem}")
        if (hidden := len(outcome.problems) - PROBLEMS_SHOWN) > 0:
            print(f"        and {hidden} more")
    counts = {v: sum(outcome.verdict is v for outcome in outcomes) for v in Verdict}
    told = ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number)
    print(f"{len(outcomes)} checks: {told}")
