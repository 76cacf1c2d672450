"""The requirements page: each row has an existing place and test, or a note."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from jarvis.analyses import load_analyses
from jarvis.pipeline import analyze
from tests.requirements.conftest import busy_trace

ROOT = Path(__file__).parent.parent
REQUIREMENTS = 288
WIDTH = 5
NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Row:
    """One requirement; places and tests as written in backticks."""

    label: str
    text: str
    places: tuple[str, ...]
    tests: tuple[str, ...]
    note: str


def in_backticks(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))


def read_rows() -> list[Row]:
    page = (ROOT / "docs" / "maintainers" / "requirements.md").read_text(encoding="utf-8")
    rows = []
    for line in re.findall(r"^\| (R.*) \|$", page, re.MULTILINE):
        cells = [cell.strip() for cell in line.split(" | ")]
        assert len(cells) == WIDTH, line
        label, text, places, tests, note = cells
        rows.append(Row(label, text, in_backticks(places), in_backticks(tests), note))
    return rows


ROWS = read_rows()


@cache
def defined(path: Path) -> frozenset[str]:
    """Return the names of a module, with members of its classes as ``Class.member``."""
    return frozenset(names_of(ast.parse(path.read_text(encoding="utf-8"))))


def names_of(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    for child in node.body:
        if isinstance(child, NAMED):
            yield f"{prefix}{child.name}"
        if isinstance(child, ast.ClassDef):
            yield from names_of(child, f"{prefix}{child.name}.")
        if isinstance(child, ast.AnnAssign | ast.Assign):
            targets = [child.target] if isinstance(child, ast.AnnAssign) else child.targets
            yield from (f"{prefix}{t.id}" for t in targets if isinstance(t, ast.Name))


def exists(named: str) -> bool:
    path, _, symbol = named.partition("::")
    return (ROOT / path).is_file() and (not symbol or symbol in defined(ROOT / path))


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("requirements")
    analyze(busy_trace().write(folder / "trace.json"), output_dir=folder / "run")
    return folder / "run"


def test_all_requirements_are_listed_once_and_in_order() -> None:
    assert [row.label for row in ROWS] == [f"R{n}" for n in range(1, REQUIREMENTS + 1)]
    assert all(len(row.text) > 5 for row in ROWS)
    assert len({row.text for row in ROWS}) == REQUIREMENTS


def test_rows_without_a_place_or_a_test_have_a_note() -> None:
    for row in ROWS:
        if not (row.places and row.tests):
            assert re.match(r"(?:Not yet|Superseded|Measured|Document): .{5,}", row.note), row.label


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
def test_places_exist(row: Row, run_directory: Path) -> None:
    pages = {*load_analyses(), *(path.stem for path in (ROOT / "pages").glob("*.py"))}
    has_writer = any("::" in place or place.startswith("jarvis/") for place in row.places)
    for place in row.places:
        if place.startswith("/"):
            assert place[1:] in pages
        elif not exists(place):
            assert not re.search(r"::|^jarvis/", place), f"{place} does not exist"
            assert (run_directory / place).is_file(), f"{place} is no file of a run"
            assert has_writer, f"{place}: nothing says what writes it"
        else:
            assert "::" in place or not place.endswith(".py"), f"{place} names no symbol"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
def test_tests_exist(row: Row) -> None:
    for test in row.tests:
        assert re.fullmatch(r"tests/(?:\w+/)*test_\w+\.py::test_\w+", test), test
        assert exists(test), f"{test} does not exist"


def test_a_missing_name_is_detected() -> None:
    assert exists("jarvis/impact.py::project")
    assert exists("jarvis/core/workspace.py::RunPaths.findings")
    assert exists("jarvis/findings.py::Finding.kernel")
    assert not exists("jarvis/impact.py::projects")
    assert not exists("jarvis/core/workspace.py::RunPaths.nothing")
    assert not exists("jarvis/nothing.py")
