"""The findings of a run with their numbers: P1 is the most urgent."""

from collections import Counter
from dataclasses import dataclass
from itertools import product

from jarvis.findings import AnalysisResult, Finding
from jarvis.run import Run
from jarvis.savings import ranked
from jarvis.text.markdown import Markdown, anchor, prose
from jarvis.text.messages import to_text


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A finding with its number in the whole run, and in its category or tier."""

    number: int
    local_number: int
    finding: Finding
    result: AnalysisResult

    @property
    def label(self) -> str:
        """Return ``P3``."""
        return f"P{self.number}"

    @property
    def local_label(self) -> str:
        """Return ``P3`` in a category, ``System P3`` or ``Fusion P3`` in another tier."""
        tier = "" if self.result.tier == "compute" else f"{self.result.tier.capitalize()} "
        return f"{tier}P{self.local_number}"

    @property
    def title(self) -> Markdown:
        """Return the title with names quoted."""
        return prose(self.finding.title)

    @property
    def heading(self) -> str:
        """Return the heading of its details, as text."""
        return f"{self.label}. {to_text(self.finding.title)}"

    @property
    def link(self) -> Markdown:
        """Return the target of a link to its details."""
        return Markdown(f"#{anchor(self.heading)}")


def recommendations(run: Run) -> list[Recommendation]:
    """Return all findings of the run, most urgent first.

    ``local_number`` counts within a category; outside the compute tier through the analyses of the
    tier in page order, so that GPU idle time precedes kernel overlap. Findings of low priority,
    which get no item, are counted last.
    """
    everything = (f for result in run.results.values() for f in result.findings)
    ordered = ranked(everything, run.manifest.totals)
    local_numbers: dict[int, int] = {}
    counters: Counter[str] = Counter()
    for has_card, (key, result) in product((True, False), run.results.items()):
        counter = key if result.tier == "compute" else result.tier
        for position, finding in enumerate(ordered):
            if finding.category == key and finding.has_agent_card is has_card:
                counters[counter] += 1
                local_numbers[position] = counters[counter]
    return [
        Recommendation(
            position + 1, local_numbers[position], finding, run.results[finding.category]
        )
        for position, finding in enumerate(ordered)
    ]
