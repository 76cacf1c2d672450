"""Merge recommendations that differ only by category into one card of the fair report."""

from collections.abc import Iterable
from dataclasses import dataclass

from jarvis.analyses import unmodelled
from jarvis.findings import Priority
from jarvis.reports import sections
from jarvis.reports.details import Details, joined_labels
from jarvis.reports.messages import MESSAGES
from jarvis.text.markdown import Markdown, prose
from jarvis.text.messages import Message, Text, to_text


@dataclass(frozen=True)
class FairCard:
    """One recommendation, or several with the same reason and remedy; the first represents all."""

    parts: tuple[Details, ...]

    @property
    def first(self) -> Details:
        """Return the most urgent part, whose advice and saving are printed."""
        return self.parts[0]

    @property
    def label(self) -> str:
        """Return ``P2``, or ``P2, P3 and P4``."""
        return joined_labels([part.recommendation.label for part in self.parts])

    @property
    def _reason(self) -> str | None:
        """Return why several parts have no efficiency; None for a single part."""
        return unmodelled.shared_reason(self.first.finding) if len(self.parts) > 1 else None

    @property
    def title(self) -> Markdown:
        """Return the title of the only part, or the common title."""
        if self._reason is None:
            return self.first.recommendation.title
        return prose(to_text(unmodelled.shared_title(self._reason)))

    @property
    def operation(self) -> Markdown:
        """Return the operations of the only part, or those of all parts together."""
        references = (reference for part in self.parts for reference in part.finding.operations)
        return self.first.operation if len(self.parts) == 1 else sections.operation_line(references)

    @property
    def issue(self) -> Message | Text:
        """Return the issue of the only part, or the categories without efficiency for one
        reason."""
        if self._reason is None:
            return self.first.finding.issue
        *most, last = (
            MESSAGES("joined.part", title=part.recommendation.result.title, time=part.time)
            for part in self.parts
        )
        because = unmodelled.MESSAGES(f"{self._reason}.because")
        return MESSAGES("joined", because=because, parts=most, last=last)

    @property
    def links(self) -> Markdown:
        """Return links to the details of each part."""
        titles = [part.recommendation.result.title for part in self.parts]
        titles[0] = f"Detailed Analysis: {titles[0]}"
        links = (part.recommendation.link for part in self.parts)
        return Markdown(
            ", ".join(f"[{title}]({link})" for title, link in zip(titles, links, strict=True))
        )


def joined(details: Iterable[Details]) -> list[FairCard]:
    """Return the cards in order; a merged card takes the position of its first part."""
    parts: dict[object, list[Details]] = {}
    for place, detail in enumerate(details):
        parts.setdefault(_reason(detail) or place, []).append(detail)
    return [FairCard(tuple(found)) for found in parts.values()]


def _reason(detail: Details) -> tuple[Priority, str] | None:
    """Return why kernels without operators have no efficiency; None for all other findings."""
    finding = detail.finding
    reason = unmodelled.shared_reason(finding)
    names = (reference.name for reference in finding.operations)
    if reason is None or not all(map(sections.kernel_without_operator, names)):
        return None
    return finding.priority, reason
