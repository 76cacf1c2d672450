"""Paths, file names and sheet names that lead elsewhere: refused, and nothing is written there."""

import io
import os
import re
import zipfile
from pathlib import Path
from xml.sax.saxutils import quoteattr

import polars as pl
import pytest

from jarvis.core.errors import NotAReportError
from jarvis.core.workspace import is_file_name, safe_name, uploads_dir
from jarvis.pipeline import analyze
from jarvis.reports import xlsx
from jarvis.sample import write_sample
from jarvis.server.errors import IntakeError
from jarvis.server.ingest.intake import output_folder, server_trace, store_upload
from tests.hostile import NASTY

SHEETS = [
    "../../../outside",
    "/outside",
    "..",
    "a\\b",
    "C:outside",
    "",
    "x" * 300,
    "a\nb",
    "\u202ea",
]


@pytest.fixture(scope="module")
def sheets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """The sheets of a report."""
    folder = tmp_path_factory.mktemp("sample")
    return dict(analyze(write_sample(folder / "s.json.gz"), output_dir=folder / "r").sheets())


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder whose traces may be named, with a secret beside it."""
    monkeypatch.setenv("JARVIS_TRACE_ROOTS", str(tmp_path / "traces"))
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    (tmp_path / "traces").mkdir()
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "secret.csv").write_text("type,time ms\n")
    return tmp_path / "traces"


@pytest.mark.parametrize("name", SHEETS)
def test_a_sheet_name_cannot_be_a_path(
    tmp_path: Path, sheets: dict[str, pl.DataFrame], name: str
) -> None:
    """A workbook may hold tabs that no spreadsheet program would let anyone name."""
    good = xlsx.write_workbook(sheets | {"Odd": sheets["GEMM"]}, tmp_path / "good.xlsx")
    path = tmp_path / "r.xlsx"
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(path, "w") as target:
        for part in source.namelist():
            content = source.read(part)
            if part == "xl/workbook.xml":
                content = content.replace(b'name="Odd"', f"name={quoteattr(name)}".encode())
            target.writestr(part, content)
    good.unlink()
    with pytest.raises(NotAReportError):
        analyze(path, platform="MI300X", output_dir=tmp_path / "a" / "b" / "run")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]


@pytest.mark.parametrize("name", SHEETS)
def test_invalid_file_names(name: str) -> None:
    assert not is_file_name(name)


def test_sheet_names_of_reports_are_valid_file_names(sheets: dict[str, pl.DataFrame]) -> None:
    assert all(map(is_file_name, [*sheets, "My sheet (2)", "größe", "GEMM-1.5"]))


@pytest.mark.parametrize("text", NASTY)
def test_every_text_becomes_the_name_of_a_visible_file(text: str) -> None:
    assert is_file_name(safe_name(text))
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", safe_name(text))


@pytest.mark.parametrize(
    "text",
    [
        "../secret.json",
        "/etc/passwd",
        "~root/trace.json",
        "~nobody-of-that-name/trace.json",
        "a\0b.json",
        "x" * 5_000 + ".json",
        "\ud800.json",
        "link.json",
        "loop.json",
        "folder",
        "linked-sheets",
        *NASTY,
    ],
)
def test_a_path_outside_the_roots_is_rejected(roots: Path, text: str) -> None:
    (roots / "link.json").symlink_to(roots.parent / "secret.json")
    (roots / "loop.json").symlink_to(roots / "loop.json")
    (roots / "folder").symlink_to(roots.parent)
    (roots / "linked-sheets").mkdir()
    (roots / "linked-sheets" / "gpu_timeline.csv").symlink_to(roots.parent / "secret.csv")
    with pytest.raises(IntakeError) as reported:
        server_trace(text)
    assert len(str(reported.value)) < 1_000


@pytest.mark.parametrize(
    "text", ["../out", "/etc", "folder/out", "a\0b", "\ud800", "loop/out", "."]
)
def test_a_copy_is_not_written_outside_the_roots(roots: Path, text: str) -> None:
    (roots / "folder").symlink_to(roots.parent)
    (roots / "loop").symlink_to(roots / "loop")
    with pytest.raises(IntakeError):
        output_folder(text)


def test_a_pipe_is_not_a_trace(roots: Path) -> None:
    os.mkfifo(roots / "pipe.json")
    with pytest.raises(IntakeError, match="There is no file"):
        server_trace("pipe.json")


@pytest.mark.parametrize("text", NASTY)
def test_an_upload_stays_in_its_folder_whatever_its_name(roots: Path, text: str) -> None:
    stored = store_upload(f"{text}.json.gz", io.BytesIO(b"content"))
    assert stored.parent.parent == uploads_dir()
    assert stored.name.endswith(".json.gz")
    assert [p for p in roots.parent.rglob("*.gz") if p.is_file()] == [stored]
