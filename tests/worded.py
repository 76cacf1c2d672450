"""Findings as readers see them: messages as sentences, evidence by label."""

from collections.abc import Callable, Iterable
from typing import Any

from jarvis import findings
from jarvis.analyses import load_analyses
from jarvis.analyses.base import CategoryData, Check
from jarvis.analyses.runner import supported
from jarvis.findings import TEXTS, Finding
from jarvis.preconditions import Facts
from jarvis.text.messages import to_text
from jarvis.text.quantities import title_of


class Worded:
    """A finding with texts as strings, or None; other attributes are those of the finding."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding

    @property
    def evidence(self) -> dict[str, float | int | str]:
        """Return the values by label."""
        return {title_of(name): v for name, v in findings.shown_evidence(self.finding).items()}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.finding, name)
        return to_text(value) or None if name in TEXTS else value


def worded(found: Iterable[Finding]) -> list[Worded]:
    """Yield each finding as readers see it."""
    return [Worded(finding) for finding in found]


def supported_in(data: CategoryData, found: Iterable[Finding]) -> list[Worded]:
    """Return the findings with the actions that the analysis's tables support, as the runner
    does."""
    facts = Facts({"operations": data.operations, **data.tables}.get)
    return worded(supported(finding, facts) for finding in found)


def in_words(check: Check) -> Callable[[CategoryData], list[Worded]]:
    """Return the check, with its findings as readers see them."""
    return lambda data: worded(check(data))


def with_words(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a finding of ``results.json`` with sentences and evidence by label."""
    load_analyses()  # the templates
    return findings.worded(Finding.model_validate(stored))
