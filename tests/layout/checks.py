"""All checks of the layout and wording of the documents of a run."""

from pathlib import Path

from jarvis.validation.check import Check, Problem
from tests.layout import (
    analysis_report,
    comparative_report,
    fair_report,
    figures,
    findings_files,
    wording,
)
from tests.layout.rendered import Rendered

CHECKS: tuple[Check, ...] = (
    *fair_report.CHECKS,
    *findings_files.CHECKS,
    *analysis_report.CHECKS,
    *comparative_report.CHECKS,
    *figures.CHECKS,
    *wording.CHECKS,
)


def problems(root: Path) -> dict[Check, list[Problem]]:
    """Return the problems of the documents of a run or comparison, by check."""
    run = Rendered(root)
    found = {check: list(check.find(run)) for check in CHECKS}
    return {check: problems for check, problems in found.items() if problems}
