"""Markdown, HTML, CSV and workbook hold the same tables and the same sentences."""

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from jarvis.core.workspace import RunPaths
from jarvis.findings import as_data
from jarvis.reports import load_reporters
from jarvis.reports.details import Details, details_of
from jarvis.reports.edits import UNEDITED
from jarvis.reports.fair import fair_parts
from jarvis.reports.finding_sheets import FINDINGS, SUMMARY
from jarvis.reports.html import html_document
from jarvis.run import Run
from jarvis.text.format import percent
from jarvis.text.messages import to_text
from tests.layout.markdown import Part, plain
from tests.reports.conftest import Analyzed
from tests.reports.markdown import section

Rows = list[list[str]]


@pytest.fixture(params=["sample", "hostile"])
def analyzed(request: pytest.FixtureRequest) -> Analyzed:
    found: Analyzed = request.getfixturevalue(request.param)
    return found


class Tables(HTMLParser):
    """The cells of all tables of an HTML document, header first, and its text."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.found: list[Rows] = []
        self.text = ""
        self.cell: str | None = None
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "table":
            self.found.append([])
        elif tag == "tr":
            self.found[-1].append([])
        elif tag in ("td", "th"):
            self.cell = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self.cell is not None:
            self.found[-1][-1].append(flat(self.cell))
            self.cell = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.cell is not None:
            self.cell += data


def flat(text: str) -> str:
    return " ".join(text.split())


def markdown_tables(text: str) -> list[Rows]:
    return [
        [
            [flat(header) for header in table.headers],
            *([flat(plain(cell)) for cell in row.cells.values()] for row in table.rows),
        ]
        for table in Part.of_file("fair", text).tables
    ]


def differing(document: str, report: str) -> list[Rows]:
    """The tables of an HTML document that the Markdown report does not have in this order."""
    known = iter(markdown_tables(report))
    return [found for found in Tables(document).found if not any(t == found for t in known)]


def test_the_document_has_the_tables_of_the_report(sample: Analyzed) -> None:
    document = html_document(sample.run, sample.root, UNEDITED)
    report = re.sub(r"\[(P\d+)\]\([^)]*\)", r"\1", sample.text("standalone_analysis_fair.md"))
    assert (
        len(Tables(document).found) == len(markdown_tables(report)) - 1
    )  # its metrics are figures
    assert differing(document, report) == []
    cell = re.search(r"<td>(\d[\d.,]*)</td>", document)
    assert cell
    wrong = document.replace(cell[0], f"<td>{cell[1]}1</td>", 1)
    assert differing(wrong, report) != []


def test_both_have_the_sentences_of_the_cards(sample: Analyzed) -> None:
    text = flat(Tables(html_document(sample.run, sample.root, UNEDITED)).text)
    cards = fair_parts(sample.run, sample.root)["cards"]
    report = flat(plain(sample.text("standalone_analysis_fair.md"))).replace("`", "")
    assert cards
    for card in cards:
        for sentence in (card.issue, card.saving, *(action for _, action in card.actions)):
            words = flat(plain(sentence).replace("`", ""))
            assert words in text
            assert words in report


def test_titles_order_and_savings_are_the_same_in_every_format(
    analyzed: Analyzed, tmp_path: Path
) -> None:
    run = analyzed.run
    expected = [
        (d.recommendation.label, to_text(d.finding.title), to_text(d.short_saving), d)
        for d in details_of(run)
    ]
    shares = [_share_of(d) for *_, d in expected]
    fair = [row for table in _tables_of(analyzed, "fair") for row in table if len(row) == 3][1:]
    assert min(3, len(expected)) <= len(fair) <= len(expected)
    for (label, title, saving), known, share in zip(fair, expected, shares, strict=False):
        assert (label, title, saving) == (known[0], bare(known[1]), share)
    cards = re.findall(
        r"^### \S+ (P\d+) \(\w+\): (.*)\n(?:.*\n)*?- \*\*Impact\*\*: (.*) →",
        analyzed.text("standalone_analysis_fair.md"),
        re.MULTILINE,
    )
    by_label = {
        label: (bare(title), saving.replace("—", "not known"))
        for label, title, saving, _ in expected
    }
    assert cards
    for label, title, saving in cards:
        assert (bare(flat(plain(title))), saving) == by_label[label]
    rough = next(t for t in _tables_of(analyzed, "rough") if t[0][1:3] == ["Finding", "Check"])
    assert [(row[0], row[1], row[-1]) for row in rough[1:]] == [
        (label, bare(title), saving) for label, title, saving, _ in expected
    ]
    html = Tables(html_document(run, analyzed.root, UNEDITED)).found
    assert fair in [table[1:] for table in html]
    order = [(d.finding.category, bare(title)) for _, title, _, d in expected]
    details = [d for *_, d in expected]
    agent = [o for o, d in zip(order, details, strict=True) if d.finding.has_agent_card]
    _assert_agent_order(analyzed, run, agent)
    out = tmp_path / "run.json"
    load_reporters()["json"].render(run, out)
    results = json.loads(out.read_bytes())["results"]
    for key, result in results.items():
        mine = [d.finding for *_, d in expected if d.finding.category == key]
        wanted = [(to_text(f.title), as_data(f)["impact"]) for f in mine]
        stored = [(found["title"], found["impact"]) for found in result["findings"]]
        assert sorted(map(json.dumps, stored)) == sorted(map(json.dumps, wanted))


def _assert_agent_order(analyzed: Analyzed, run: Run, agent: list[tuple[str, str]]) -> None:
    """Compare ``analysis.md``, the findings files and ``priority_data.json`` with the order."""
    text = analyzed.text("analysis.md")
    tiers = {
        "compute": "Compute Kernel Optimizations",
        "fusion": "Kernel Fusion Opportunities (Experimental)",
        "system": "System-Level Optimizations",
    }
    for tier, heading in tiers.items():
        wanted = [title for key, title in agent if run.results[key].tier == tier]
        assert _items(section(text, heading)) == [comparable(title) for title in wanted]
    for key, result in run.results.items():
        own = analyzed.text(str(RunPaths(Path()).findings(key, result.tier)))
        wanted = [comparable(title) for of, title in agent if of == key]
        assert _items(section(own, "Recommendations")) == wanted
    data = json.loads(analyzed.text("priority_data.json"))["findings"]
    compute = [pair for pair in agent if run.results[pair[0]].tier == "compute"]
    assert [(f["category"], bare(f["title"])) for f in data] == compute


def _items(text: str) -> list[str]:
    found = re.findall(r"^### (?:\S+ )?(?:\w+ )?P\d+: (.*)$", text, re.MULTILINE)
    return [comparable(re.sub(r" \(`[^`]*`\)$", "", title)) for title in found]


def comparable(title: str) -> str:
    """The letters of a title: its last parentheses become a comma in files for tools."""
    return re.sub(r"\W", "", title)


def bare(title: str) -> str:
    return title.replace("`", "")


def _share_of(detail: Details) -> str:
    gain = detail.finding.impact
    if gain is None:
        return "—"
    return f"{'up to ' if gain.is_interval else ''}{percent(gain.gain_pct)}"


def _tables_of(analyzed: Analyzed, name: str) -> list[Rows]:
    text = analyzed.text(f"standalone_analysis_{name}.md")
    return markdown_tables(re.sub(r"\[(P\d+)\]\([^)]*\)", r"\1", text))


def test_the_workbook_has_the_cells_of_the_sheets(sample: Analyzed) -> None:
    book = openpyxl.load_workbook(sample.root / "perf_report.xlsx", read_only=True)
    assert book.sheetnames[:2] == [SUMMARY, FINDINGS]
    for name in book.sheetnames[2:]:
        written = cells_of(sample.root / "perf_report_csvs" / f"{name}.csv")
        rows = [list(row) for row in book[name].iter_rows(values_only=True)]
        assert len(rows) == len(written), name
        for row, expected in zip(rows, written, strict=True):
            padded = [*row, *[None] * (len(expected) - len(row))]
            for cell, text in zip(padded, expected, strict=True):
                assert same(cell, text), (name, cell, text)


def cells_of(path: Path) -> Rows:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def same(cell: Any, text: str) -> bool:
    """Whether a cell of the workbook is the text of the CSV file, cut where it is long."""
    if cell is None:
        return text == ""
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return text.casefold().startswith(str(cell).casefold())
    return float(text) == pytest.approx(cell, rel=1e-12)
