"""Checks of the data of a run directory, from its files alone.

``jarvis validate`` runs them for users; the tests run them on every run that they create.
"""

from pathlib import Path

from polars.exceptions import PolarsError

from jarvis.validation import comparison, evidence, files, findings, savings, shares, totals
from jarvis.validation.check import Check, Outcome, Problem, Verdict
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

GROUPS: dict[str, tuple[Check, ...]] = {
    "Files": files.CHECKS,
    "Totals": totals.CHECKS,
    "Findings": findings.CHECKS,
    "Savings": savings.CHECKS,
    "Shares": shares.CHECKS,
    "Evidence": evidence.CHECKS,
    "Comparison": comparison.CHECKS,
}
"""The checks by subject, in the order in which they run."""

COMPARISON: tuple[Check, ...] = (Check(files.json_is_strict), *comparison.CHECKS)
"""The checks that the folder of ``jarvis compare`` must pass."""

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


INTRODUCTION = """\
# Validation

`jarvis validate RUN` checks the data of a run directory: the files that it should have, the totals,
and the findings of [results.json](results.md) against the tables. It also accepts the folder that
`jarvis compare --output-dir` writes. Every check prints a line with its verdict: `pass`, `warn` (no
failure) or `fail`. Below a failed check are the file, the problem and the expected content.

Runs of versions that do not record what bounds the step time are not checked for what these
versions did not promise, such as the order of findings by step time.

The layout and wording of the reports are not checked here, but by the tests in `tests/layout`.

```sh
jarvis validate out              # a line for each check
jarvis validate out --json       # the same for a script, with every problem
```

| exit code | meaning |
|---|---|
| 0 | every check passes; warnings are not failures |
| 1 | there is no run directory, or one of another layout |
| 3 | a check fails |

The tests run these checks on every run that they create, and inject a fault of each kind to show
that its check finds it. `make docs` generates this page.
"""


def validation_markdown() -> str:
    """Return the page."""
    return "\n".join([INTRODUCTION, *(_group(title, GROUPS[title]) for title in GROUPS)])


def _group(title: str, checks: tuple[Check, ...]) -> str:
    rows = (f"| {check.name} | {check.description}{_note(check)} |" for check in checks)
    return "\n".join([f"## {title}", "", "| check | what must hold |", "|---|---|", *rows, ""])


def _note(check: Check) -> str:
    return " A warning, not a failure." if check.is_warning else ""
