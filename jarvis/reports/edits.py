"""What the author of a report changed in it before passing it on."""

from dataclasses import dataclass, field

from jarvis.reports.details import Details
from jarvis.text.markdown import Markdown


@dataclass(frozen=True, slots=True)
class Edits:
    """The numbers of the findings that are left out, and a summary in the author's own words.

    ``left_out`` holds numbers of ``Recommendation``: 3 for P3. ``summary`` is Markdown; None keeps
    the one that the report writes.
    """

    left_out: frozenset[int] = field(default_factory=frozenset)
    summary: Markdown | None = None

    def parted(self, details: list[Details]) -> tuple[list[Details], list[Details]]:
        """The findings of the report, and those that it leaves out."""
        kept = [d for d in details if d.recommendation.number not in self.left_out]
        return kept, [d for d in details if d.recommendation.number in self.left_out]


UNEDITED = Edits()
