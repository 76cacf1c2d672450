"""A trace whose every name is an attack: in each report its names are text and nothing else."""

import csv
import re
import zipfile
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import openpyxl
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from jarvis.cli import main
from jarvis.core.workspace import RUN_ENTRIES
from jarvis.reports import load_reporters
from jarvis.run import Run
from tests.hostile import CALLED, NASTY, write_hostile

OWN_TAGS = re.compile(
    r"(<!-- [a-z]+(-[a-z]+)*( [a-z_]+=[A-Za-z0-9_.]+)* -->|<a id=\"[a-z0-9-]+\">|</a>|<br>"
    r"|</?details>|</?summary>|\s)+"
)
"""Tags and comments of our own reports: words and figures, no name of a trace."""

OWN_LINK = re.compile(r"#.*|(category|system)_findings/[a-z0-9_]+_findings\.md")

INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
FORMULA = re.compile(r"\s*[=+\-@]")
NUMBER = re.compile(r"-?[0-9.]+(e[+-][0-9]+)?|-inf")


class Attributes(HTMLParser):
    """Every attribute of a document with its tag; the tag alone where it has none."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [(tag, name, value or "") for name, value in attrs or [("", "")]]


@pytest.fixture(autouse=True)
def _reads_long_cells() -> Iterator[None]:
    before = csv.field_size_limit(1 << 27)
    yield
    csv.field_size_limit(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the trace and, in ``run``, its analysis by the command line."""
    folder = tmp_path_factory.mktemp("hostile")
    trace = write_hostile(folder)
    options = ["--platform", "MI300X", "--model", NASTY[0]]
    assert main(["analyze", str(trace), *options, "--output-dir", str(folder / "run")]) == 0
    return folder


@pytest.fixture(scope="module")
def documents(folder: Path) -> dict[str, str]:
    """Every Markdown file of the run."""
    files = sorted((folder / "run").rglob("*.md"))
    return {file.name: file.read_text(encoding="utf-8") for file in files}


def flat(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from flat(token.children or [])


def test_nothing_is_written_outside_the_run(folder: Path) -> None:
    files = [p.relative_to(folder) for p in folder.rglob("*") if p.is_file()]
    assert {path.parts[0] for path in files if len(path.parts) == 1} == {
        path.name for path in folder.glob("*.json")
    }
    inside = [path.parts[1:] for path in files if path.parts[0] == "run"]
    assert {parts[0] for parts in inside} <= RUN_ENTRIES
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", part) for parts in inside for part in parts)
    assert len(files) == len(inside) + 1


def test_names_in_markdown_are_text(documents: dict[str, str]) -> None:
    parser = MarkdownIt("commonmark").enable("table").enable("strikethrough")
    assert any(CALLED in text for text in documents.values())
    for name, text in documents.items():
        for token in flat(parser.parse(text)):
            if token.type in ("html_block", "html_inline"):
                assert OWN_TAGS.fullmatch(token.content), (name, token.content[:200])
            assert token.type not in ("image", "s_open"), name
            if token.type == "link_open":
                assert OWN_LINK.fullmatch(str(token.attrs["href"])), (name, token.attrs)


def test_no_invisible_character_reorders_or_hides_a_report(documents: dict[str, str]) -> None:
    for name, text in documents.items():
        assert not INVISIBLE.search(text), (name, INVISIBLE.search(text))


def test_a_name_of_any_length_leaves_a_report_readable(documents: dict[str, str]) -> None:
    for name, text in documents.items():
        assert "x" * 3_000 not in text, name


def test_no_cell_of_the_workbook_is_a_formula_or_a_link(folder: Path) -> None:
    path = folder / "run" / "perf_report.xlsx"
    book = openpyxl.load_workbook(path)
    cells = [cell for tab in book for row in tab.iter_rows() for cell in row]
    assert {cell.data_type for cell in cells} <= {"s", "n", "b"}
    assert not [cell for cell in cells if cell.hyperlink]
    assert any(str(cell.value).startswith("=HYPERLINK") for cell in cells)
    with zipfile.ZipFile(path) as parts:
        assert not [part for part in parts.namelist() if "external" in part.lower()]


def test_no_cell_of_a_csv_file_is_a_formula(folder: Path) -> None:
    files = list((folder / "run").rglob("*.csv"))
    assert len(files) > 5
    for file in files:
        with file.open(encoding="utf-8", newline="") as lines:
            for row in csv.reader(lines):
                for cell in row:
                    assert not FORMULA.match(cell) or NUMBER.fullmatch(cell), (file.name, cell[:80])


@pytest.mark.parametrize("name", load_reporters())
def test_every_report_format_can_be_written(folder: Path, name: str, tmp_path: Path) -> None:
    reporter = load_reporters()[name]
    out = tmp_path / "a" / f"report{reporter.suffix}"
    out.parent.mkdir()
    reporter.render(Run.load(folder / "run"), out)
    assert out.exists()
    assert list(tmp_path.iterdir()) == [out.parent]


def test_the_html_report_loads_no_resource(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    load_reporters()["html"].render(Run.load(folder / "run"), out)
    text = out.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    for tag, name, value in Attributes(text).found:
        assert CALLED not in value, (tag, name)
        assert not name.startswith("on")
        assert name not in ("src", "srcset", "action", "formaction", "xlink:href")
        assert name != "href" or value.startswith("#")
        assert tag not in ("script", "iframe", "object", "embed", "base", "link")
    assert escape(NASTY[0]) in text
    assert not INVISIBLE.search(text)
