"""Checks shared by reports: a short summary, and short, complete cards."""

from collections.abc import Iterator, Sequence

from jarvis.validation.check import Problem
from tests.layout.markdown import Part, plain

MAX_SUMMARY_LINES = 20
MAX_CARD_LINES = 10


def long_summary(part: Part) -> Iterator[Problem]:
    """Yield a problem if a summary has more than MAX_SUMMARY_LINES lines."""
    if (size := len(_filled(part)) - 1) > MAX_SUMMARY_LINES:
        text = f"The summary has {size} lines; at most {MAX_SUMMARY_LINES} expected."
        yield Problem(part.file, text, part.number)


def long_card(card: Part) -> Iterator[Problem]:
    """Yield a problem if a card has more than MAX_CARD_LINES lines."""
    if (size := len(_filled(card))) > MAX_CARD_LINES:
        text = f"The recommendation has {size} lines; at most {MAX_CARD_LINES} expected."
        yield Problem(card.file, text, card.number)


def missing_lines(card: Part, labels: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each missing label, and for a missing link."""
    starts = [plain(line.text).lstrip("- *") for line in card.lines]
    for label in labels:
        if not any(start.startswith(label) for start in starts):
            yield Problem(card.file, f"The recommendation has no line {label!r}.", card.number)
    if not any(True for _ in card.links):
        yield Problem(card.file, "The recommendation has no link to its details.", card.number)


def _filled(part: Part) -> list[str]:
    return [line.text for line in part.lines if line.text.strip()]
