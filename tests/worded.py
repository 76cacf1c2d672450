"""Findings as their readers see them: messages as sentences, evidence by label."""

from collections.abc import Callable, Iterable
from typing import Any

from jarvis import findings
from jarvis.analyses import load_analyses
from jarvis.analyses.base import CategoryData, Check
from jarvis.findings import TEXTS, Finding
from jarvis.text.messages import to_text
from jarvis.text.quantities import title_of


class Worded:
    """A finding whose texts are strings (None where it has none); all else is the finding's own."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding

    @property
    def evidence(self) -> dict[str, float | int | str]:
        """The values by label."""
        return {title_of(name): v for name, v in findings.shown_evidence(self.finding).items()}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.finding, name)
        return to_text(value) or None if name in TEXTS else value


def worded(found: Iterable[Finding]) -> list[Worded]:
    """Each finding as its readers see it."""
    return [Worded(finding) for finding in found]


def in_words(check: Check) -> Callable[[CategoryData], list[Worded]]:
    """The check, with its findings as their readers see them."""
    return lambda data: worded(check(data))


def with_words(stored: dict[str, Any]) -> dict[str, Any]:
    """A finding of ``results.json`` with sentences in place of messages, evidence by label."""
    load_analyses()  # the templates
    return findings.worded(Finding.model_validate(stored))
