"""Generate ``docs/validation.md`` from the checks."""

from jarvis.validation import comparison, evidence, files, findings, savings, shares, totals
from jarvis.validation.check import Check

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


def validation_markdown() -> str:
    """Return the page."""
    return "\n".join([INTRODUCTION, *(_group(title, GROUPS[title]) for title in GROUPS)])


def _group(title: str, checks: tuple[Check, ...]) -> str:
    rows = (f"| {check.name} | {check.description}{_note(check)} |" for check in checks)
    return "\n".join([f"## {title}", "", "| check | what must hold |", "|---|---|", *rows, ""])


def _note(check: Check) -> str:
    return " A warning, not a failure." if check.is_warning else ""
