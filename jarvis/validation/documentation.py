"""The page ``docs/validation.md``, from the checks themselves."""

from jarvis.validation import comparison, files, findings, totals
from jarvis.validation.check import Check

INTRODUCTION = """\
# Validation

`jarvis validate RUN` checks the data of a run directory: the files that it should have, the totals,
and the findings of [results.json](results.md) against the tables. The folder that `jarvis compare
--output-dir` writes can be given too. Every check is a line with its verdict: `pass`, `warn` (worth
a look, no failure) or `fail`. Below a check that fails are the file, what is wrong and what was
expected.

The layout and the words of the reports are not checked here: the tests of the reports do that
(`tests/layout`).

```sh
jarvis validate out              # a line for each check
jarvis validate out --json       # the same for a script, with every problem
```

| exit code | meaning |
|---|---|
| 0 | every check passes; warnings are no failure |
| 1 | there is no run directory, or one of another layout |
| 3 | a check fails |

The tests run these checks on every run that they make, and plant a fault of each kind to show that
its check finds it. `make docs` generates this page.
"""

GROUPS: dict[str, tuple[Check, ...]] = {
    "Files": files.CHECKS,
    "Totals": totals.CHECKS,
    "Findings": findings.CHECKS,
    "Comparison": comparison.CHECKS,
}
"""The checks by what they are about, in the order in which they run."""

COMPARISON: tuple[Check, ...] = (Check(files.json_is_strict), *comparison.CHECKS)
"""Those of them that the folder of ``jarvis compare`` must pass."""


def validation_markdown() -> str:
    """The page."""
    return "\n".join([INTRODUCTION, *(_group(title, GROUPS[title]) for title in GROUPS)])


def _group(title: str, checks: tuple[Check, ...]) -> str:
    rows = (f"| {check.name} | {check.description}{_note(check)} |" for check in checks)
    return "\n".join([f"## {title}", "", "| check | what must hold |", "|---|---|", *rows, ""])


def _note(check: Check) -> str:
    return " A warning, no failure." if check.is_warning else ""
