"""Notes of a team in a report: findings left out, their order, own words, status and comments."""

from dataclasses import dataclass

from jarvis.core.notes import NO_NOTES, FindingNotes, ReportNotes, full_order
from jarvis.reports.details import Details
from jarvis.text.markdown import Markdown, escape_images


@dataclass(frozen=True, slots=True)
class Edits:
    """The notes on a report, by the keys of findings, so that they fit it at every target.

    ``summary`` is Markdown of the author; None uses the generated one.
    """

    left_out: frozenset[str] = frozenset()
    summary: Markdown | None = None
    order: tuple[str, ...] = ()
    notes: tuple[FindingNotes, ...] = ()

    @classmethod
    def of(cls, notes: ReportNotes) -> "Edits":
        """Return the edits of stored notes."""
        # Images are escaped: they could be fetched from any server.
        summary = None if notes.summary is None else escape_images(notes.summary)
        return cls(notes.left_out, summary, notes.order, tuple(notes.findings.values()))

    def partition(self, details: list[Details]) -> tuple[list[Details], list[Details]]:
        """Return the findings of the report and the omitted ones, both by saving."""
        included = [d for d in details if d.recommendation.key not in self.left_out]
        return included, [d for d in details if d.recommendation.key in self.left_out]

    def ordered(self, details: list[Details]) -> list[Details]:
        """Return findings, which are given by saving, in the author's order."""
        by_key = {each.recommendation.key: each for each in details}
        return [by_key[key] for key in full_order(self.order, list(by_key))]

    def of_finding(self, key: str) -> FindingNotes:
        """Return the notes on a finding; empty ones if there are none."""
        found = (notes for notes in self.notes if notes.key == key)
        return next(found, FindingNotes(key, ""))

    @property
    def has_decisions(self) -> bool:
        """Return whether any finding has a status or an owner."""
        return any(notes.has_decision for notes in self.notes)

    def unreported(self, details: list[Details]) -> list[FindingNotes]:
        """Return notes on findings that the report does not have."""
        known = {each.recommendation.key for each in details}
        return [each for each in self.notes if each.key not in known and not each.is_empty]


UNEDITED = Edits.of(NO_NOTES)
