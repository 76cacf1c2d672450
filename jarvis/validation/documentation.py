"""The page ``docs/validation.md``, from the checks themselves."""

from jarvis.validation import (
    analysis_report,
    comparative_report,
    fair_report,
    files,
    findings_files,
    numbers,
    wording,
)
from jarvis.validation.check import Check

INTRODUCTION = """\
# Validation

`jarvis validate RUN` reads the files of a run directory and checks them against each other: no
number is taken from the analyses, each is worked out anew. The folder that `jarvis compare
--output-dir` writes can be given too: its checks are those of the comparative reports, of links, of
JSON and of words. Every check is a line with its verdict:
`pass`, `warn` (worth a look, no failure) or `fail`. Below a check that fails stand the file, the
line, what is wrong and what was expected.

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
its check finds it. This page is made from the code by `make docs`.
"""

GROUPS: dict[str, tuple[Check, ...]] = {
    "Files": files.CHECKS,
    "The report for stakeholders": fair_report.CHECKS,
    "Findings files": findings_files.CHECKS,
    "The report for other tools": analysis_report.CHECKS,
    "The comparative reports": comparative_report.CHECKS,
    "Numbers": numbers.CHECKS,
    "Words": wording.CHECKS,
}
"""The checks by what they are about, in the order in which they run."""

COMPARISON: tuple[Check, ...] = (
    Check(files.json_is_strict),
    Check(fair_report.links_lead_somewhere),
    *comparative_report.CHECKS,
    *wording.CHECKS,
)
"""Those of them that the folder of ``jarvis compare`` must pass."""


def validation_markdown() -> str:
    """The page."""
    return "\n".join([INTRODUCTION, *(_group(title, GROUPS[title]) for title in GROUPS)])


def _group(title: str, checks: tuple[Check, ...]) -> str:
    rows = (f"| {check.name} | {check.description}{_note(check)} |" for check in checks)
    return "\n".join([f"## {title}", "", "| check | what must hold |", "|---|---|", *rows, ""])


def _note(check: Check) -> str:
    return " A warning, no failure." if check.is_warning else ""
