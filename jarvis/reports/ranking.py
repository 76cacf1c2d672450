"""The findings of a run with their numbers: P1 is the most urgent."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from jarvis.findings import AnalysisResult, Finding
from jarvis.run import Run
from jarvis.savings import ranked
from jarvis.text.markdown import Markdown, prose


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A finding with its number in the whole run, and among the items of its category or tier.

    Findings without an item, those of low priority, have the local number of the item before them.
    ``key`` identifies the finding in notes: unlike the number, it is the same at every target.
    """

    number: int
    local_number: int
    finding: Finding
    result: AnalysisResult
    key: str

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


def recommendations(run: Run) -> list[Recommendation]:
    """Return all findings of the run, most urgent first: the one order of all reports."""
    everything = [f for result in run.results.values() for f in result.findings]
    keys = _keys(everything)
    counters: Counter[str] = Counter()
    found = []
    for number, finding in enumerate(ranked(everything, run.manifest.totals), start=1):
        result = run.results[finding.category]
        counter = result.key if result.tier == "compute" else result.tier
        counters[counter] += finding.has_agent_card
        found.append(Recommendation(number, counters[counter], finding, result, keys[id(finding)]))
    return found


def nested(ranked: Sequence[Recommendation]) -> list[tuple[Recommendation, bool]]:
    """Return recommendations in their order, each followed by those that it contains, which are
    marked.

    A finding contains another if it concerns all of its rows, with all of their kernels, others
    too, and saves as much.
    """
    uids = {item.number: item.finding.row_uids for item in ranked}

    def contains(whole: Recommendation, part: Recommendation) -> bool:
        if not uids[part.number] or not uids[part.number] < uids[whole.number]:
            return False
        if whole.finding.kernels or whole.finding.events:
            return False
        gains = [i.finding.impact.gain_ms if i.finding.impact else 0.0 for i in (whole, part)]
        return gains[0] >= gains[1]

    outer = [item for item in ranked if not any(contains(other, item) for other in ranked)]
    parts: dict[int, list[Recommendation]] = {item.number: [] for item in outer}
    for item in ranked:
        if item.number not in parts:
            parts[next(o.number for o in outer if contains(o, item))].append(item)
    return [(each, each is not item) for item in outer for each in (item, *parts[item.number])]


def _keys(findings: list[Finding]) -> dict[int, str]:
    """Return the key of each finding by its ``id``; those of equal subjects are numbered."""
    keys: dict[int, str] = {}
    counts: Counter[str] = Counter()
    for finding in sorted(findings, key=lambda finding: sorted(finding.row_uids)):
        subject = finding.subject_key
        counts[subject] += 1
        keys[id(finding)] = f"{subject}-{counts[subject]}" if counts[subject] > 1 else subject
    return keys
