"""Reports that their author edited: findings left out, a summary in other words."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

import openpyxl
import pytest
from markdown_it import MarkdownIt

from jarvis.core.notes import Comment, FindingNotes, FindingStatus, Stamp
from jarvis.findings import Priority
from jarvis.reports import reporter
from jarvis.reports.edits import UNEDITED, Edits
from jarvis.reports.fair import MAX_WORDS, fair_markdown
from jarvis.reports.finding_sheets import FINDINGS, SUMMARY
from jarvis.reports.html import html_document
from jarvis.reports.ranking import recommendations
from jarvis.reports.rough import rough_markdown
from jarvis.savings import per_step
from jarvis.text.markdown import Markdown
from jarvis.text.messages import to_text
from tests.reports.conftest import Analyzed


def part(text: str, heading: str) -> str:
    """The text below a heading, up to the next one of its level."""
    level = heading.partition(" ")[0]
    return text.partition(f"{heading}\n")[2].partition(f"\n{level} ")[0]


def test_a_finding_left_out_has_no_card_and_is_in_the_appendix(sample: Analyzed) -> None:
    first, second, *_ = recommendations(sample.run)
    text = fair_markdown(sample.run, sample.root, Edits(frozenset({first.key})))
    cards = part(text, "## Recommendations")
    assert f" {first.label} (" not in cards
    assert f" {second.label} (" in cards or f"| {second.label} |" in cards
    assert f"| {first.label} | {first.title} |" in part(text, "### Left Out by the Author")
    summary = part(text, "## Executive Summary")
    urgent = (r for r in recommendations(sample.run) if r.finding.priority is not Priority.LOW)
    title = next(r for r in urgent if r.number > 1).title
    assert f'The first finding, "{title}", saves ' in summary
    assert "The author left out 1 finding; the appendix lists it." in summary


def test_a_report_without_its_urgent_findings_does_not_say_that_there_are_none(
    sample: Analyzed,
) -> None:
    urgent = {r.key for r in recommendations(sample.run) if r.finding.priority is not Priority.LOW}
    text = fair_markdown(sample.run, sample.root, Edits(frozenset(urgent)))
    assert "No finding of this report is above low priority." in text
    everything = frozenset(r.key for r in recommendations(sample.run))
    text = fair_markdown(sample.run, sample.root, Edits(everything))
    assert "No check found a problem of this report." in text


def test_a_summary_of_the_author_takes_the_place_of_ours_and_is_marked_as_theirs(
    sample: Analyzed,
) -> None:
    ours = part(fair_markdown(sample.run, sample.root), "## Executive Summary")
    assert "author" not in ours
    edits = Edits(summary=Markdown("Fuse the **norms** first."))
    theirs = part(fair_markdown(sample.run, sample.root, edits), "## Executive Summary")
    assert theirs.strip().startswith("Fuse the **norms** first.")
    assert "The author of this report wrote the summary." in theirs
    assert "The first finding" not in theirs


ANN = Stamp("ann", datetime(2026, 11, 24, 8, 30, tzinfo=UTC))
HOSTILE = "Ann | <b>*x*</b> [y](http://e.example) `z`"
COMMENT = "# no heading\n- no list\n```\n<script>alert(1)</script> ![i](http://e.example/i.png)"


@pytest.fixture(scope="module")
def noted(sample: Analyzed) -> Edits:
    """Notes on the second finding, and on one that is not reported."""
    second = recommendations(sample.run)[1]
    comment = Comment(1, COMMENT, ANN)
    return Edits(
        notes=(
            FindingNotes(
                second.key,
                "old title",
                status=FindingStatus.PLANNED,
                owner=HOSTILE,
                comments=(comment,),
            ),
            FindingNotes("gemm.gone.0", "Gone: `aten::mm`", status=FindingStatus.DONE),
            FindingNotes("gemm.gone.1", "Only left out", is_included=False),
        )
    )


def test_the_order_of_the_author_is_that_of_table_and_cards(sample: Analyzed) -> None:
    ranked = recommendations(sample.run)
    order = tuple(item.key for item in (*reversed(ranked[:3]), *ranked[3:]))
    text = fair_markdown(sample.run, sample.root, Edits(order=order))
    body = part(text, "## Recommendations")
    assert "Listed in the order of the author. Numbered by" in body
    labels = re.findall(r"^\| \[?(P\d+)\]?", body, re.M)
    assert labels[:3] == ["P3", "P2", "P1"]
    cards = re.findall(r"^### \S+ (P\d+) ", body, re.M)
    assert cards == [label for label in labels if label in cards]
    unedited = part(fair_markdown(sample.run, sample.root), "## Executive Summary")
    assert part(text, "## Executive Summary") == unedited


def test_the_fair_report_has_status_and_owner_and_the_length_of_before(
    sample: Analyzed, noted: Edits
) -> None:
    text = fair_markdown(sample.run, sample.root, noted)
    body = part(text, "## Recommendations")
    (second,) = (line for line in body.splitlines() if re.match(r"\| \[?P2\b", line))
    assert second.count(" planned ") == 1
    assert r"Ann \| \<b\>\*x\*\</b\>" in second
    others = [line for line in body.splitlines() if re.match(r"\| \[?P[13]\b", line)]
    assert len(others) == 2
    assert all(line.endswith("| open | — |") for line in others)
    assert "no heading" not in text
    appendix = part(text, "### Notes on Other Findings")
    assert "| Gone: `aten::mm` | done | — |" in appendix
    assert "Only left out" not in text
    assert len(text.split()) <= MAX_WORDS


def test_without_decisions_a_report_has_no_columns_for_them(sample: Analyzed) -> None:
    text = fair_markdown(sample.run, sample.root)
    assert "Status" not in part(text, "## Recommendations")
    assert "Notes on Other Findings" not in text


def test_the_rough_report_has_the_comments_as_they_were_written(
    sample: Analyzed, noted: Edits
) -> None:
    assert "Team Notes" not in rough_markdown(sample.run)
    text = rough_markdown(sample.run, noted)
    html = MarkdownIt("commonmark").enable("table").render(text.partition("## Team Notes")[2])
    assert "<script>" not in html
    assert "<img" not in html
    assert "e.example/i.png)\n</code>" in html
    assert "<h1>" not in html
    assert "2026-11-24 08:30 UTC" in html
    assert "Not reported: Gone: <code>aten::mm</code>" in html
    code = re.findall(r"<pre><code[^>]*>(.*?)</code></pre>", html, re.S)
    assert unescape(code[0]).strip() == COMMENT


def test_the_html_report_shows_decisions_contents_and_a_link_to_the_page(
    sample: Analyzed, noted: Edits
) -> None:
    text = html_document(sample.run, sample.root, noted, "https://j.example/report?analysis=1")
    assert 'href="https://j.example/report?analysis=1"' in text
    assert "<script>" not in text
    assert "<b>*x*</b>" not in text
    (row,) = re.findall(r'<tr id="P2">.*?</tr>', text, re.S)
    assert "<td>planned</td>" in row
    assert "&lt;b&gt;*x*&lt;/b&gt;" in row
    ids = set(re.findall(r'id="([^"]+)"', text))
    contents = text.partition("<nav")[2].partition("</nav>")[0]
    targets = re.findall(r'href="#([^"]+)"', contents)
    assert set(targets) <= ids
    cards = re.findall(r'<article class="[^"]*" id="([^"]+)"', text)
    assert cards
    assert [target for target in targets if target in cards] == cards
    assert {f"P{n}" for n in range(1, 4)} <= ids


@pytest.mark.parametrize("url", [None, "javascript:alert(1)", "//e.example", ""])
def test_only_an_address_of_the_web_is_linked(sample: Analyzed, url: str | None) -> None:
    text = html_document(sample.run, sample.root, page_url=url)
    assert "Open this report" not in text


def test_the_workbook_has_a_summary_and_the_findings_with_their_notes(
    sample: Analyzed, noted: Edits, tmp_path: Path
) -> None:
    out = tmp_path / "report.xlsx"
    reporter("xlsx").with_notes(replace(noted, left_out=frozenset({noted.notes[0].key}))).render(
        sample.run, out
    )
    book = openpyxl.load_workbook(out)
    head, *rows = [list(row) for row in book[FINDINGS].iter_rows(values_only=True)]
    cells = [dict(zip(head, row, strict=True)) for row in rows]
    ranked = recommendations(sample.run)
    assert [c["Finding"] for c in cells] == [
        *(r.label for r in ranked if r.number != 2),
        "P2",
        None,
    ]
    by_label = {cell["Finding"]: cell for cell in cells}
    for item in ranked:
        cell, gain = by_label[item.label], item.finding.impact
        assert cell["Title"] == to_text(item.finding.title)
        of_step = gain and per_step(gain, sample.run.manifest.totals)
        assert cell["Saving (ms)"] == (of_step and pytest.approx(of_step.gain_ms))
        assert cell["Saving (%)"] == (gain and pytest.approx(gain.gain_pct))
    second = by_label["P2"]
    assert (second["Status"], second["Owner"], second["In the report"]) == (
        "planned",
        HOSTILE,
        "no",
    )
    assert second["Comments"] == f"ann, 2026-11-24 08:30 UTC: {COMMENT}"
    assert by_label["P1"]["Status"] == "open"
    assert (cells[-1]["Title"], cells[-1]["In the report"]) == ("Gone: `aten::mm`", "not reported")
    subjects = [row[0] for row in book[SUMMARY].iter_rows(values_only=True)]
    assert {"Model", "GPU", "Target", "Summary"} <= set(subjects)


def test_a_format_without_notes_is_not_changed_by_them(sample: Analyzed, noted: Edits) -> None:
    assert reporter("html").edits == UNEDITED
    assert reporter("html").with_notes(noted).edits == noted
    assert reporter("html").edits == UNEDITED
