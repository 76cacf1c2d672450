"""The sentences that reports compose around findings, as messages; the numbers are not computed."""

from functools import cache
from typing import NamedTuple

from jarvis.reports import sections
from jarvis.reports.agent_layout.cards import cards_of
from jarvis.reports.details import details_of
from jarvis.reports.measures import (
    additional_notes,
    measures_table,
    overview,
    whole_overview,
)
from jarvis.reports.messages import MESSAGES
from jarvis.run import Run
from jarvis.run.agent_layout.priorities import Recommended
from jarvis.text.markdown import prose
from jarvis.text.messages import Message, to_text
from tests.arithmetic.run_directory import RunDirectory


class Composed(NamedTuple):
    """A message of a report; ``end`` is the score that it is about."""

    message: Message
    end: str = "mid"

    @property
    def text(self) -> str:
        """Its words as Markdown."""
        return printed(to_text(self.message))


def printed(text: str) -> str:
    """A text as Markdown."""
    return str(prose(text))


def of_findings(run: RunDirectory) -> list[list[Composed]]:
    """What the reports say around each finding, in the order of their numbers."""
    loaded = Run.load(run.root)
    chosen = Recommended(loaded)
    found = []
    for details in details_of(loaded):
        messages = [details.saving, details.time, details.efficiency, details.short_saving]
        composed = [Composed(message) for message in messages]
        for card in cards_of(chosen, [details]):
            each = (card.score, card.extent, card.potential, card.left_out)
            composed += [Composed(message) for message in each if message is not None]
            composed += map(Composed, card.ends, ("low", "high"))
        found.append(composed)
    return found


def of_analyses(run: RunDirectory) -> dict[str, list[Composed]]:
    """What the reports say of each analysis: its overview, its title and its notes."""
    loaded = Run.load(run.root)
    found = {}
    for key, result in loaded.results.items():
        messages = [*result.notes]
        if result.tier == "compute" and (result.row_count or result.findings):
            values = {"title": result.title, "compute_pct": result.percent_of_compute}
            messages += [overview(result), whole_overview(result), MESSAGES("title", **values)]
            cut = sections.left_out(loaded.category_operations(key), sections.ROWS_SHOWN)
            messages += [] if cut is None else [cut]
        found[key] = [Composed(message) for message in messages]
    return found


@cache
def measured_lines(run: RunDirectory, key: str) -> frozenset[str]:
    """The lines with the measures of an analysis: of its table, and of its notes."""
    result = Run.load(run.root).results[key]
    notes = (f"- {printed(note)}" for note in additional_notes(result))
    return frozenset([*measures_table(result.metrics).splitlines(), *notes])
