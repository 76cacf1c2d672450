"""Checks of the data of a run directory, from its files alone.

``jarvis validate`` runs them for a user, the tests run them on every run that they make.
"""

from pathlib import Path

from polars.exceptions import PolarsError

from jarvis.validation.check import Check, Outcome, Problem, Verdict
from jarvis.validation.documentation import COMPARISON, GROUPS, validation_markdown
from jarvis.validation.run_files import RunFiles

__all__ = [
    "CHECKS",
    "Check",
    "Outcome",
    "Problem",
    "Verdict",
    "is_valid",
    "validate",
    "validation_markdown",
]

_UNEXPECTED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    PolarsError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a check raises for a file that is not as Jarvis writes it."""

CHECKS: tuple[Check, ...] = tuple(check for checks in GROUPS.values() for check in checks)


def validate(root: Path | str) -> list[Outcome]:
    """Every check on the run directory ``root``, or those that apply to a comparison's folder.

    NotARunError where it is neither.
    """
    run = RunFiles(Path(root))
    if run.is_comparison:
        return [Outcome(check, _problems(check, run)) for check in COMPARISON]
    _ = run.manifest
    return [Outcome(check, _problems(check, run)) for check in CHECKS]


def is_valid(outcomes: list[Outcome]) -> bool:
    """Whether no check failed; warnings are no failure."""
    return all(outcome.verdict is not Verdict.FAIL for outcome in outcomes)


def _problems(check: Check, run: RunFiles) -> tuple[Problem, ...]:
    try:
        return tuple(check.find(run))
    except _UNEXPECTED as error:
        reason = f"{type(error).__name__}: {error}"
        text = f"The check could not be made, for a file has not the expected layout ({reason})."
        return (Problem(run.name(run.root), text),)
