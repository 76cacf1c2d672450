"""Markdown, HTML, CSV and workbook hold the same tables and the same sentences."""

import csv
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from jarvis.findings import TEXTS, Priority
from jarvis.reports.edits import UNEDITED
from jarvis.reports.html import html_document
from jarvis.text.messages import to_text
from tests.layout.markdown import Part, plain
from tests.reports.conftest import Analyzed

Rows = list[list[str]]


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
    report = sample.text("standalone_analysis_fair.md")
    assert (
        len(Tables(document).found) == len(markdown_tables(report)) - 1
    )  # its metrics are figures
    assert differing(document, report) == []
    cell = re.search(r"<td>(\d[\d.,]*)</td>", document)
    assert cell
    wrong = document.replace(cell[0], f"<td>{cell[1]}1</td>", 1)
    assert differing(wrong, report) != []


def test_both_have_the_sentences_of_the_findings(sample: Analyzed) -> None:
    text = flat(Tables(html_document(sample.run, sample.root, UNEDITED)).text)
    report = flat(plain(sample.text("standalone_analysis_fair.md")))
    count = 0
    for result in sample.run.results.values():
        for finding in result.findings:
            shown = TEXTS if finding.priority is not Priority.LOW else ("title",)
            for name in shown:
                sentence = flat(to_text(getattr(finding, name)).replace("`", ""))
                assert sentence in text, (name, sentence)
                assert sentence in report.replace("`", ""), (name, sentence)
                count += 1
    assert count > 50


def test_the_workbook_has_the_cells_of_the_sheets(sample: Analyzed) -> None:
    book = openpyxl.load_workbook(sample.root / "perf_report.xlsx", read_only=True)
    for name in book.sheetnames:
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
