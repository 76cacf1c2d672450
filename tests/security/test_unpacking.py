"""Decompression bombs are rejected early, with a message and little memory."""

import gzip
import io
import re
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pytest

from jarvis.core.errors import UnreadableReportError, UnreadableTraceError
from jarvis.core.unpacking import (
    ALWAYS_ALLOWED_BYTES,
    RATIO_VARIABLE,
    SIZE_VARIABLE,
    UnpackingLimitError,
)
from jarvis.reports import workbook_bounds
from jarvis.reports.reading import is_report, read_report
from jarvis.trace import read_trace

EVENT = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2}'
MB = 1 << 20


def spaces(megabytes: int) -> bytes:
    """Return a compressed trace that is almost only whitespace."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file:
        file.write(b'{"traceEvents": [' + EVENT)
        for _ in range(megabytes):
            file.write(b" " * MB)
        file.write(b"]}")
    return packed.getvalue()


def zipped(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def bare(path: Path) -> Path:
    path.write_bytes(spaces(80))
    return path


def inside(path: Path) -> Path:
    return zipped(path, **{"t.json": gzip.decompress(spaces(80))})


def twice(path: Path) -> Path:
    return zipped(path, **{"t.json.gz": spaces(80)})


def nothing_many_times(path: Path) -> Path:
    return zipped(path, **{"t.json.gz": gzip.compress(b"") * (80 * MB // 20)})


@pytest.mark.parametrize("bomb", [bare, inside, twice, nothing_many_times])
def test_a_trace_above_the_unpacking_ratio_is_rejected(
    tmp_path: Path, bomb: Callable[[Path], Path]
) -> None:
    path = bomb(tmp_path / "trace.zip")
    assert path.stat().st_size < ALWAYS_ALLOWED_BYTES // 100
    with pytest.raises(UnreadableTraceError, match="more than 200 times its size"):
        read_trace(path)


def test_the_limits_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bare(tmp_path / "trace.json.gz")
    monkeypatch.setenv(RATIO_VARIABLE, "1100")
    assert read_trace(path).info.event_counts == {"kernel": 1}
    monkeypatch.setenv(SIZE_VARIABLE, "0.05")
    with pytest.raises(UnreadableTraceError, match=r"more than 0\.05 GB \(JARVIS_MAX_UNPACKED_GB"):
        read_trace(path)


@pytest.mark.parametrize("given", ["much", "-1", "0", "nan", "inf"])
def test_an_invalid_limit_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + EVENT + b"]}"))
    monkeypatch.setenv(SIZE_VARIABLE, given)
    with pytest.raises(UnpackingLimitError, match=f"{SIZE_VARIABLE} is '{given}'"):
        read_trace(path)


def test_a_zip_of_a_million_names_is_rejected_unread(tmp_path: Path) -> None:
    path = zipped(tmp_path / "names.zip", **{"a.csv": b"x"})
    directory = path.read_bytes()
    start = directory.index(b"PK\x01\x02")
    end = directory.index(b"PK\x05\x06")
    entries = 1_000_000
    tail = bytearray(directory[end:])
    struct.pack_into("<L", tail, 12, entries * (end - start))
    path.write_bytes(directory[:start] + directory[start:end] * entries + bytes(tail))
    tracemalloc.start()
    try:
        assert not is_report(path)
        with pytest.raises(UnreadableTraceError, match="its list of files is longer than 4 MB"):
            read_trace(path)
        assert tracemalloc.get_traced_memory()[1] < 32 * MB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["../../outside.json", "/outside.json", "C:\\outside.json"])
def test_names_in_a_zip_are_not_used_as_paths(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    path = zipped(folder / "t.zip", **{name: b'{"traceEvents": [' + EVENT + b"]}"})
    assert read_trace(path).info.event_counts == {"kernel": 1}
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]


def test_a_damaged_zip_is_not_a_report(tmp_path: Path) -> None:
    path = zipped(tmp_path / "t.zip", **{"gpu_timeline.csv": b"type,time ms\n"})
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02")] = 0
    path.write_bytes(content)
    assert zipfile.is_zipfile(path)
    assert not is_report(path)
    with pytest.raises(UnreadableTraceError, match="the zip archive is damaged"):
        read_trace(path)


def test_declared_sizes_of_zip_entries_are_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zip may declare wrong sizes."""
    monkeypatch.setattr("jarvis.reports.reading.MAX_UNPACKED_BYTES", 10 * MB)
    path = zipped(tmp_path / "t.zip", **{"gpu_timeline.csv": b"a,b\n" + b"1,2\n" * (3 * MB)})
    content = bytearray(path.read_bytes())
    at = content.index(b"PK\x01\x02")
    struct.pack_into("<L", content, at + 24, 8)  # of the unpacked file
    path.write_bytes(content)
    with pytest.raises(UnreadableReportError, match="too large in total"):
        read_report(path)


def test_a_workbook_above_the_unpacking_limit_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbook_bounds, "MAX_UNPACKED_BYTES", 10 * MB)
    book = openpyxl.Workbook()
    book.active["A1"] = "x" * 30_000
    book.save(tmp_path / "r.xlsx")
    with zipfile.ZipFile(tmp_path / "r.xlsx", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/more.xml", b" " * (20 * MB))
    with pytest.raises(UnreadableReportError, match="unpacks to more than"):
        read_report(tmp_path / "r.xlsx")


@pytest.mark.parametrize(
    ("row", "column", "output"),
    [
        (1_048_576, 16_384, "row 1,048,576 and column 16,384"),
        (1, 16_384, "row 1 and column 16,384"),
        (1_048_576, 1_000, "row 1,048,576 and column 1,000"),
    ],
)
def test_a_sheet_larger_than_memory_is_rejected(
    tmp_path: Path, row: int, column: int, output: str
) -> None:
    """One distant cell makes a reader allocate all cells before it, which exhausts memory."""
    book = openpyxl.Workbook()
    book.active.title = "gpu_timeline"
    book.active.cell(row, column).value = 1
    book.save(tmp_path / "r.xlsx")
    with pytest.raises(UnreadableReportError, match=re.escape(output)):
        read_report(tmp_path / "r.xlsx")


def test_a_boundary_between_two_pieces_counts(tmp_path: Path) -> None:
    for shift in range(12):
        path = zipped(
            tmp_path / f"{shift}.xlsx",
            **{"xl/worksheets/s.xml": b" " * (MB - 8 + shift) + b'<c r="XFD9">' + b" " * MB},
        )
        with pytest.raises(ValueError, match="row 9 and column 16,384"):
            workbook_bounds.check_workbook(path, 2_000)


def sheet(rows: int, columns: int, row: str = "<row>", cell: str = "<c><v>1</v></c>") -> bytes:
    """Return a sheet whose rows and cells have no position."""
    return f"<sheetData>{(row + cell * columns + '</row>') * rows}</sheetData>".encode()


@pytest.mark.parametrize(
    ("content", "output"),
    [
        (sheet(3, 2_500), "row 3 and column 2,500"),
        (sheet(600, 900, cell="<c/>"), "row [0-9]+ and column 900"),
        (sheet(600, 900, row="<x:row s='1'\n>", cell="<x:c\n/>"), "row [0-9]+ and column 900"),
        (sheet(1, 1_000_000), "row 1 and column [0-9,]+"),
        (sheet(250, 4) + sheet(1, 1_900), "row 251 and column 1,900"),
    ],
)
def test_cells_without_a_position_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, output: str
) -> None:
    monkeypatch.setattr(workbook_bounds, "MAX_CELLS", 400_000)
    path = zipped(tmp_path / "r.xlsx", **{"xl/worksheets/s.xml": content})
    with pytest.raises(ValueError, match=output):
        workbook_bounds.check_workbook(path, 2_000)


def test_cells_without_a_position_are_counted_across_pieces(tmp_path: Path) -> None:
    for shift in range(30):
        text = b" " * (MB - 20 + shift) + sheet(1, 2_001, cell="<c a='b'/>")
        path = zipped(tmp_path / f"{shift}.xlsx", **{"xl/worksheets/s.xml": text})
        with pytest.raises(ValueError, match="row 1 and column 2,001"):
            workbook_bounds.check_workbook(path, 2_000)
        text = text.replace(b"<c a='b'/>", b"", 1)
        path = zipped(tmp_path / f"{shift}.xlsx", **{"xl/worksheets/s.xml": text})
        workbook_bounds.check_workbook(path, 2_000)


def test_an_invalid_list_of_cells_is_not_a_sheet(tmp_path: Path) -> None:
    chain = b"<calcChain>" + b'<c r="A1"/>' * 10_000 + b"</calcChain>"
    workbook_bounds.check_workbook(
        zipped(tmp_path / "r.xlsx", **{"xl/calcChain.xml": chain}), 2_000
    )


@pytest.mark.parametrize("columns", [1_999, 1_000_000])
def test_a_sheet_of_a_million_columns_is_rejected(tmp_path: Path, columns: int) -> None:
    heads = ",".join(f"c{number}" for number in range(columns))
    (tmp_path / "gpu_timeline.csv").write_text(f"type,{heads}\nbusy_time{',1' * columns}\n")
    if columns < 2_000:
        assert read_report(tmp_path)["gpu_timeline"].width == 1 + columns
    else:
        with pytest.raises(UnreadableReportError, match="1,000,001 columns, more than 2,000"):
            read_report(tmp_path)
