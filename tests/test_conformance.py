"""Our sheets against TraceLens's, cell by cell, on real traces."""

import importlib.util
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from jarvis.cli import main
from jarvis.hardware import load_hardware
from jarvis.reports.csv import write_csvs
from jarvis.reports.reading import read_report
from jarvis.trace import read_trace
from jarvis.tracelens.compare_report import NamedReport, compare_reports
from jarvis.tracelens.options import ReportOptions
from jarvis.tracelens.report import TraceLensReport
from tests.recorded_runs import RECORDED

DEVIATIONS = Path(__file__).parent.parent / "docs" / "deviations.toml"
ARCH = "arch_MI300X"
VARIANTS = {
    "default": ReportOptions(),
    ARCH: ReportOptions(),
    "kernels_short": ReportOptions(enable_kernel_summary=True, short_kernel_study=True),
    "callstack": ReportOptions(include_call_stack=True),
    "micro_idle5": ReportOptions(micro_idle_thresh_us=5),
    "recompute": ReportOptions(detect_recompute=True),
    "unlinked": ReportOptions(include_unlinked_kernels=True),
}
"""The reports that the reference folder has, of most traces all."""

WITH_STACKS = ("callstack", "recompute")
ONLY_WITH_STACKS = "frames lost to rounding"
"""A deviation that may excuse cells only where sheets show call stacks."""

NOT_IN_REFERENCES = ("helpers of a backward pass", "rows whose model gives up")
"""Deviations that no reference shows, so that they may not excuse a cell of any."""

COMPARED = "compare-qwen1.5-h100-mi300"
COMPARED_TRACES = {"h100": "h100-qwen1.5-0.5b", "mi300": "mi300-qwen1.5-0.5b"}
ONLY_COMPARED = (
    "kernels compared once",
    "reduction outputs, compared",
    "differences of times that are almost equal",
)
"""Deviations of compare reports, that may excuse no cell of the others."""

MULTI_RANK, MULTI_RANK_CELLS = "multirank-4", 2560
"""Four ranks, and the cells of their report."""

MAX_NAMED_PERCENT = 5.0
MIN_TOTAL_PERCENT = 99.9
MIN_SHEET_PERCENT = 99.0


class Cells(NamedTuple):
    """How the cells of one sheet compare: agreeing, counted, named deviations, what is wrong."""

    good: int
    counted: int
    named: int
    notes: list[str]


@pytest.fixture(scope="module")
def tool(reference_root: Path) -> ModuleType:
    """The comparison, as the reference folder brings it."""
    path = reference_root / "tools" / "conformance.py"
    spec = importlib.util.spec_from_file_location("conformance", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def produced(reference_root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A CSV folder of ours for each trace and variant, by the path of the reference folder."""
    folders = {}
    for name in RECORDED:
        trace = read_trace(reference_root / "traces" / f"{name}.json.gz")
        for variant, options in VARIANTS.items():
            if not (reference_root / "reference" / name / variant).is_dir():
                continue
            hardware = load_hardware().get("MI300X") if variant == ARCH else None
            report = TraceLensReport(
                trace, hardware, tracelens_models_only=True, strict=True, options=options
            )
            folder = tmp_path_factory.mktemp(name) / variant
            write_csvs(report.sheets(), folder)
            folders[f"{name}/{variant}"] = folder
    return folders


@pytest.fixture(scope="module")
def compared(
    reference_root: Path, tool: ModuleType, produced: dict[str, Path]
) -> dict[tuple[str, str], Cells]:
    """What the comparison says of each sheet, by reference folder and sheet."""
    return {
        (key, sheet.stem): Cells(
            *tool.compare_sheet(sheet, folder / sheet.name, 5, deviations(key))
        )
        for key, folder in produced.items()
        for sheet in sheets(reference_root, key)
    }


def deviations(key: str) -> list[dict[str, Any]]:
    """The named deviations that may excuse cells of this reference folder."""
    entries: list[dict[str, Any]] = tomllib.loads(DEVIATIONS.read_text(encoding="utf-8"))[
        "deviation"
    ]
    without = NOT_IN_REFERENCES + (() if key.endswith(WITH_STACKS) else (ONLY_WITH_STACKS,))
    without += () if key == COMPARED else ONLY_COMPARED
    assert {entry["id"] for entry in entries}.issuperset(without)
    return [entry for entry in entries if entry["id"] not in without]


def sheets(reference_root: Path, key: str) -> Iterator[Path]:
    """The sheets with rows; TraceLens also writes files for tables without any."""
    yield from sheets_of(reference_root / "reference" / key)


def sheets_of(folder: Path) -> Iterator[Path]:
    """The sheets of a folder that have rows."""
    for path in sorted(folder.glob("*.csv")):
        if path.read_text(encoding="utf-8").strip().count("\n"):
            yield path


def test_every_reference_folder_is_compared(
    reference_root: Path, produced: dict[str, Path]
) -> None:
    stems = {p.name.removesuffix(".json.gz") for p in (reference_root / "traces").glob("*.gz")}
    assert stems == set(RECORDED)
    folders = (f for name in RECORDED for f in (reference_root / "reference" / name).iterdir())
    assert {f"{folder.parent.name}/{folder.name}" for folder in folders} == set(produced)


def test_every_sheet_agrees_with_the_reference(compared: dict[tuple[str, str], Cells]) -> None:
    wrong = {
        place: cells.notes
        for place, cells in compared.items()
        if cells.counted and 100 * cells.good / cells.counted < MIN_SHEET_PERCENT
    }
    assert wrong == {}


def test_every_report_agrees_with_the_reference(compared: dict[tuple[str, str], Cells]) -> None:
    for key in {key for key, _ in compared}:
        of_report = [cells for (of, _), cells in compared.items() if of == key]
        good, counted = sum(c.good for c in of_report), sum(c.counted for c in of_report)
        assert counted > 0, key
        assert 100 * good / counted >= MIN_TOTAL_PERCENT, key


def test_few_cells_need_a_named_deviation(compared: dict[tuple[str, str], Cells]) -> None:
    named = sum(cells.named for cells in compared.values())
    everything = named + sum(cells.counted for cells in compared.values())
    assert 100 * named / everything < MAX_NAMED_PERCENT


def test_sheets_and_columns_are_those_of_the_reference(
    reference_root: Path, produced: dict[str, Path]
) -> None:
    for key, folder in produced.items():
        theirs = {p.stem: header(p) for p in sheets(reference_root, key)}
        ours = {p.stem: header(p) for p in folder.glob("*.csv")}
        assert ours == theirs, key


def header(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return next(lines).strip()


def test_every_deviation_whose_ops_occur_still_excuses_a_cell(
    reference_root: Path, tool: ModuleType, produced: dict[str, Path]
) -> None:
    folders = {
        key: folder for key, folder in produced.items() if key.endswith((ARCH, *WITH_STACKS))
    }
    named = [
        (key, sheet, {str(row.get("name")) for row in tool.read(sheet)[1]})
        for key in folders
        for sheet in sheets(reference_root, key)
    ]
    for entry in deviations(WITH_STACKS[0]):
        reached = [
            (key, sheet)
            for key, sheet, names in named
            if any(fnmatchcase(sheet.stem, glob) for glob in entry["sheets"])
            and any(fnmatchcase(name, glob) for name in names for glob in entry["names"])
        ]
        excused = (
            tool.compare_sheet(sheet, folders[key] / sheet.name, 0, [entry])[2]
            for key, sheet in reached
        )
        assert not reached or any(excused), entry["id"]


def test_the_collective_report_of_several_ranks_agrees_with_the_reference(
    reference_root: Path, tool: ModuleType, tmp_path: Path
) -> None:
    traces, reference = (reference_root / kind / MULTI_RANK for kind in ("traces", "reference"))
    assert main(["collectives", str(traces), "--output-csvs-dir", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in reference.iterdir()}
    counted = 0
    for sheet in sorted(reference.glob("*.csv")):
        assert header(tmp_path / sheet.name) == header(sheet)
        cells = Cells(*tool.compare_sheet(sheet, tmp_path / sheet.name, 5, []))
        assert cells.good == cells.counted, cells.notes
        counted += cells.counted
    assert counted == MULTI_RANK_CELLS


def compare_report(folders: dict[str, Path], place: Path) -> None:
    """Write the compare report of reports by label."""
    reports = [NamedReport(label, read_report(folder)) for label, folder in folders.items()]
    write_csvs(compare_reports(reports), place)


def compared_cells(
    tool: ModuleType, reference: Path, place: Path, named: list[dict[str, Any]]
) -> list[Cells]:
    """How the sheets of a compare report agree with the reference."""
    found = []
    for sheet in sorted(reference.glob("*.csv")):
        assert header(place / sheet.name) == header(sheet)
        found.append(Cells(*tool.compare_sheet(sheet, place / sheet.name, 5, named)))
        assert found[-1].good >= MIN_SHEET_PERCENT / 100 * found[-1].counted, found[-1].notes
    return found


@pytest.mark.parametrize("source", ["tracelens", "ours"])
def test_a_compare_report_agrees_with_the_reference(
    reference_root: Path, tool: ModuleType, produced: dict[str, Path], tmp_path: Path, source: str
) -> None:
    reference = reference_root / "reference"
    keys = {label: f"{name}/kernels_short" for label, name in COMPARED_TRACES.items()}
    folders = {
        label: produced[key] if source == "ours" else reference / key for label, key in keys.items()
    }
    compare_report(folders, tmp_path)
    cells = compared_cells(tool, reference / COMPARED, tmp_path, deviations(COMPARED))
    good, counted = sum(c.good for c in cells), sum(c.counted for c in cells)
    assert good >= MIN_TOTAL_PERCENT / 100 * counted > 0
    assert sum(c.named for c in cells) < MAX_NAMED_PERCENT / 100 * counted
    for entry in deviations(COMPARED):
        if entry["id"] in (ONLY_COMPARED if source == "ours" else ONLY_COMPARED[:1]):
            excused = (
                tool.compare_sheet(sheet, tmp_path / sheet.name, 0, [entry])[2]
                for sheet in (reference / COMPARED).glob("*.csv")
            )
            assert any(excused), entry["id"]
