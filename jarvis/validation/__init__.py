"""Checks of the data of a run directory, from its files alone.

``jarvis validate`` runs them for users; the tests run them on every run that they create.
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
"""Exceptions of a check for a file that differs from Jarvis's format."""

CHECKS: tuple[Check, ...] = tuple(check for checks in GROUPS.values() for check in checks)


def validate(root: Path | str) -> list[Outcome]:
    """Run every check on the run directory ``root``, or those for a comparison's folder.

    Raises:
        NotARunError: ``root`` is neither.
    """
    run = RunFiles(Path(root))
    if run.is_comparison:
        return [Outcome(check, _problems(check, run)) for check in COMPARISON]
    _ = run.manifest
    return [Outcome(check, _problems(check, run)) for check in CHECKS]


def is_valid(outcomes: list[Outcome]) -> bool:
    """Return whether no check failed; warnings are not failures."""
    return all(outcome.verdict is not Verdict.FAIL for outcome in outcomes)


def _problems(check: Check, run: RunFiles) -> tuple[Problem, ...]:
    if check.needs_steps and not run.knows_steps:
        return ()
    try:
        return tuple(check.find(run))
    except _UNEXPECTED as error:
        reason = f"{type(error).__name__}: {error}"
        text = f"The check could not run: a file does not have the expected layout ({reason})."
        return (Problem(run.name(run.root), text),)
