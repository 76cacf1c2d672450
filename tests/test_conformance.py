"""Our sheets against TraceLens's, cell by cell, on real traces."""

import importlib.util
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.perf_report import PerfReport
from jarvis.trace import read_trace

DEVIATIONS = Path(__file__).parent.parent / "docs" / "deviations.toml"
TRACES = (
    "h100-bert-small",
    "h100-qwen1.5-0.5b",
    "h100-vit-nsfw",
    "mi210-gpu-only",
    "mi300-bert-small",
    "mi300-qwen1.5-0.5b",
    "mi300-resnet-ddp-checkpoint",
    "mi300-vit-nsfw",
    "normalization-layers",
    "sglang-qwen3-8b-decode",
    "torch-compile-triton",
)
VARIANTS = ("default", "arch_MI300X")
LEAST_TOTAL_PERCENT = 99.9
LEAST_SHEET_PERCENT = 99.0


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
    hardware: dict[str, HardwareSpec | None] = {
        "default": None,
        "arch_MI300X": load_hardware().get("MI300X"),
    }
    folders = {}
    for name in TRACES:
        trace = read_trace(reference_root / "traces" / f"{name}.json.gz")
        for variant in VARIANTS:
            report = PerfReport(trace, hardware[variant], tracelens_models_only=True, strict=True)
            folder = tmp_path_factory.mktemp(name) / variant
            folder.mkdir()
            for sheet, frame in report.sheets().items():
                frame.write_csv(folder / f"{sheet}.csv")
            folders[f"{name}/{variant}"] = folder
    return folders


def deviations() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = tomllib.loads(DEVIATIONS.read_text(encoding="utf-8"))[
        "deviation"
    ]
    return entries


def sheets(reference_root: Path, key: str) -> Iterator[Path]:
    yield from sorted((reference_root / "reference" / key).glob("*.csv"))


def test_the_list_of_traces_is_complete(reference_root: Path) -> None:
    stems = {p.name.removesuffix(".json.gz") for p in (reference_root / "traces").glob("*.gz")}
    assert stems == set(TRACES)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", TRACES)
def test_sheets_agree_with_the_reference(
    reference_root: Path, tool: ModuleType, produced: dict[str, Path], name: str, variant: str
) -> None:
    key = f"{name}/{variant}"
    good = total = 0
    for sheet in sheets(reference_root, key):
        agree, cells, _, notes = tool.compare_sheet(
            sheet, produced[key] / sheet.name, 5, deviations()
        )
        good, total = good + agree, total + cells
        percent = 100 * agree / cells if cells else 100.0
        assert percent >= LEAST_SHEET_PERCENT, f"{sheet.stem}: {percent:.2f} %: {notes}"
    assert total > 0
    assert 100 * good / total >= LEAST_TOTAL_PERCENT


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
    folders = {key: folder for key, folder in produced.items() if key.endswith("arch_MI300X")}
    named = [
        (key, sheet, {str(row.get("name")) for row in tool.read(sheet)[1]})
        for key in folders
        for sheet in sheets(reference_root, key)
    ]
    for entry in deviations():
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
