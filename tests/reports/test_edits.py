"""Reports that their author edited: findings left out, a summary in other words."""

from jarvis.findings import Priority
from jarvis.reports.edits import Edits
from jarvis.reports.fair import fair_markdown
from jarvis.reports.ranking import recommendations
from jarvis.text.markdown import Markdown
from tests.reports.conftest import Analyzed


def part(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one of its level."""
    level = heading.partition(" ")[0]
    return text.partition(f"{heading}\n")[2].partition(f"\n{level} ")[0]


def test_a_finding_left_out_has_no_card_and_stands_in_the_appendix(sample: Analyzed) -> None:
    first, second, *_ = recommendations(sample.run)
    text = fair_markdown(sample.run, sample.root, Edits(frozenset({first.number})))
    cards = part(text, "## Recommendations")
    assert f" {first.label} (" not in cards
    assert f" {second.label} (" in cards or f"| {second.label} |" in cards
    assert f"| {first.label} | {first.title} |" in part(text, "### Left Out by the Author")
    summary = part(text, "## Executive Summary")
    urgent = (r for r in recommendations(sample.run) if r.finding.priority is not Priority.LOW)
    assert f'The first finding, "{next(r for r in urgent if r.number > 1).title}" (' in summary
    assert "The author left out 1 finding; the appendix lists it." in summary


def test_a_report_without_its_urgent_findings_does_not_say_that_there_are_none(
    sample: Analyzed,
) -> None:
    urgent = {
        r.number for r in recommendations(sample.run) if r.finding.priority is not Priority.LOW
    }
    text = fair_markdown(sample.run, sample.root, Edits(frozenset(urgent)))
    assert "No finding of this report is above low priority." in text
    everything = frozenset(r.number for r in recommendations(sample.run))
    text = fair_markdown(sample.run, sample.root, Edits(everything))
    assert "No check found a problem of this report." in text


def test_a_summary_of_the_author_takes_the_place_of_ours_and_is_said_to_be_theirs(
    sample: Analyzed,
) -> None:
    ours = part(fair_markdown(sample.run, sample.root), "## Executive Summary")
    assert "author" not in ours
    edits = Edits(summary=Markdown("Fuse the **norms** first."))
    theirs = part(fair_markdown(sample.run, sample.root, edits), "## Executive Summary")
    assert theirs.strip().startswith("Fuse the **norms** first.")
    assert "The author of this report wrote the summary." in theirs
    assert "The first finding" not in theirs
