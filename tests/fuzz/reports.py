"""Mutated performance reports, as CSV files and as workbooks, analyzed and compared."""

import csv
import io
import random
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import openpyxl

from jarvis.cli import main
from tests.fuzz.commands import assert_analyses_work, run, run_well
from tests.fuzz.reading import mutated
from tests.fuzz.traces import FORMATS, PLATFORMS, seeds, write_trace
from tests.fuzz.values import TEXTS, odd

Sheets = dict[str, list[list[str]]]
"""Rows of each sheet, including the header."""

LITERALS = (
    *("1", "[1]", "[(1, 2)]", "[{}]", "[{'name': 1}]", "[{'name': 'k', 'count': 'x'}]", "{1: 2}"),
    *("[{'name': 'k', 'stream': 7, 'count': 1e400, 'total_duration_us': -5.0}]", "[None]", "((),)"),
    *("[" * 200 + "]" * 200, "[1, 2", "set()", "b'x'", "1j", "...", "'\\ud800'", "9" * 5_000),
    *("(((1,),), 'x')", "((2, -3), (2**3,))", "('float', 1)", "{'M': 1, 'N': [2]}", "nan", "-inf"),
)


def fuzz_csvs(count: int, seed: int, folder: Path) -> Counter[str]:
    """Read ``count`` mutated reports of CSV files, in a folder or a zip."""
    return _fuzz(count, seed, folder, _write_csvs)


def fuzz_workbooks(count: int, seed: int, folder: Path) -> Counter[str]:
    """Read ``count`` mutated workbooks."""
    return _fuzz(count, seed, folder, _write_workbook)


def _fuzz(
    count: int, seed: int, folder: Path, write: Callable[[Sheets, Path, random.Random], Path]
) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for number in range(seed, seed + count):
        draw = random.Random(number)
        place = folder / str(number)
        place.mkdir()
        sheets = {name: [list(row) for row in rows] for name, rows in draw.choice(_seeds()).items()}
        for _ in range(draw.choice((1, 1, 2, 3, 8))):
            _change(sheets, draw)
        outcomes[_outcome(write(sheets, place, draw), place, draw)] += 1
    return outcomes


def _outcome(report: Path, folder: Path, draw: random.Random) -> str:
    root = folder / "run"
    books = ("--output-csvs-dir", folder / "compared", "-o", folder / "compared.xlsx")
    compared = run("compare", report, report, *books)
    if run("analyze", report, "--output-dir", root, *draw.choice(PLATFORMS)).code:
        assert not root.exists()
        return "refused with a sentence"
    assert not compared.code, compared.err
    assert_analyses_work(root)
    run_well("validate", root)
    name = draw.choice(FORMATS)
    run_well("export", root, "--format", name, "-o", folder / name)
    return "analyzed"


def _change(sheets: Sheets, draw: random.Random) -> None:
    """Change a cell; sometimes a row, a column or a sheet."""
    name = draw.choice(list(sheets))
    rows = sheets[name]
    action = draw.random()
    if action < 0.03:
        sheets[draw.choice(TEXTS)] = sheets.pop(name)
    elif action < 0.06:
        del rows[draw.randrange(len(rows)) :]
        rows[:] = rows or [[""]]
    elif action < 0.12:
        rows.append(list(draw.choice(rows)))
    elif action < 0.2:
        column = draw.randrange(len(rows[0]) + 1)
        for row in rows:
            del row[column : column + 1]
    elif rows and (row := draw.choice(rows)):
        row[draw.randrange(len(row))] = _cell(draw, draw.choice(rows) or row)


def _cell(draw: random.Random, other: list[str]) -> str:
    kind = draw.randrange(4)
    if kind == 0:
        return draw.choice(other)
    return draw.choice(LITERALS) if kind == 1 else str(odd(draw))


def _csv(rows: list[list[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode(errors="surrogatepass")


def _file_name(sheet: str) -> str:
    """Return a name that a file system accepts."""
    text = sheet.encode(errors="replace").decode()
    return f"{text.replace('/', '_').replace(chr(0), '')[:60]}.csv"


def _write_csvs(sheets: Sheets, folder: Path, draw: random.Random) -> Path:
    contents = {_file_name(name): _csv(rows) for name, rows in sheets.items()}
    if draw.random() < 0.2:
        name = draw.choice(list(contents))
        contents[name] = mutated(contents[name], draw)
    if draw.random() < 0.3:
        place = folder / "report.zip"
        with zipfile.ZipFile(place, "w") as archive:
            for name, content in contents.items():
                archive.writestr(name, content)
        return place
    place = folder / "report"
    place.mkdir()
    for name, content in contents.items():
        (place / name).write_bytes(content)
    return place


def _write_workbook(sheets: Sheets, folder: Path, draw: random.Random) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        tab = book.create_sheet()
        tab.title = "".join(c for c in name if c.isprintable() and c not in "[]:*?/\\")[:31] or "x"
        for number, row in enumerate(rows):
            for column, text in enumerate(row):
                cell = tab.cell(number + 1, column + 1)
                cell.value = _value(text, draw)
                if cell.data_type == "f" and draw.random() < 0.5:
                    cell.data_type = "s"
    place = folder / "report.xlsx"
    book.save(place)
    return _with_broken_part(place, draw) if draw.random() < 0.3 else place


def _value(text: str, draw: random.Random) -> str | float | bool:
    text = openpyxl.cell.cell.ILLEGAL_CHARACTERS_RE.sub("?", text)[:30_000]
    text = text.encode(errors="replace").decode()
    if draw.random() < 0.02:
        return draw.random() < 0.5
    try:
        return float(text) if abs(float(text)) < 1e300 else text
    except ValueError:
        return text


def _with_broken_part(workbook: Path, draw: random.Random) -> Path:
    with zipfile.ZipFile(workbook) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = draw.choice(list(parts))
    parts[name] = mutated(parts[name], draw)
    with zipfile.ZipFile(workbook, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return workbook


@cache
def _seeds() -> tuple[Sheets, ...]:
    """Return the reports of the unmutated traces, with every sheet."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number, document in enumerate(seeds()):
            file = write_trace(document, Path(folder) / f"{number}.json")
            place = Path(folder) / str(number)
            words = ["--output-csvs-dir", str(place), "--platform", "MI300X"]
            flags = ("--enable-kernel-summary", "--short-kernel-study", "--include-overlap-info")
            assert main(["report", str(file), *words, *flags]) == 0
            found.append({path.stem: _rows(path) for path in sorted(place.glob("*.csv"))})
    return tuple(found)


def _rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines)) or [[""]]
