"""Changes that the author of a report made before sharing it."""

from dataclasses import dataclass, field

from jarvis.reports.details import Details
from jarvis.text.markdown import Markdown


@dataclass(frozen=True, slots=True)
class Edits:
    """The numbers of the omitted findings, and a summary written by the author.

    ``left_out`` holds numbers of ``Recommendation``: 3 for P3. ``summary`` is Markdown; None uses
    the generated one.
    """

    left_out: frozenset[int] = field(default_factory=frozenset)
    summary: Markdown | None = None

    def partition(self, details: list[Details]) -> tuple[list[Details], list[Details]]:
        """Return the findings of the report, and the omitted ones."""
        included = [d for d in details if d.recommendation.number not in self.left_out]
        return included, [d for d in details if d.recommendation.number in self.left_out]


UNEDITED = Edits()
