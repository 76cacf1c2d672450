"""Checks of folders, files and tables: that they exist and can be parsed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import polars as pl
from polars.exceptions import PolarsError

from jarvis.validation.check import Check, Problem
from jarvis.validation.run_files import REPORT_KINDS, RunFiles

LISTED_FILES = ("csv_file", "tree_data_file", "metrics_file", "data_file")
"""Entries of the category manifest that name a file, except metadata and findings."""

OPERATOR_EVENTS = "cpu_op"
SUMMARY_SHEET = "unified_perf_summary"


def folders_are_there(run: RunFiles) -> Iterator[Problem]:
    """The folders for metadata, prepared data and findings exist."""
    paths = run.paths
    places = (
        paths.metadata("any"),
        paths.metrics("any"),
        paths.findings("any", "compute"),
        paths.findings("any", "system"),
    )
    for folder in (place.parent for place in places):
        if not folder.is_dir():
            yield Problem(run.name(folder), "The folder is missing.")


def reports_are_there(run: RunFiles) -> Iterator[Problem]:
    """The reports exist: fair for stakeholders, rough for audits, and the one for other tools."""
    for kind in REPORT_KINDS:
        yield from _missing(run, run.paths.standalone_report(kind), f"the {kind} report")
    yield from _missing(run, run.paths.analysis_report, "the report for other tools")
    yield from _missing(run, run.paths.priority_data[0], "the findings by score")
    yield from _missing(run, run.paths.model_info, "the model facts of the trace")


def sheets_are_there(run: RunFiles) -> Iterator[Problem]:
    """Every sheet of the report exists as CSV; with operators that ran, so does their summary."""
    sheets = list(run.manifest["sheets"])
    has_rows = any(category.get("csv_file") for category in run.categories)
    if has_rows and run.manifest["trace"]["event_counts"].get(OPERATOR_EVENTS):
        sheets.append(SUMMARY_SHEET)
    for name in dict.fromkeys(sheets):
        path = run.paths.perf_report_csvs / f"{name}.csv"
        yield from _missing(run, path, f"the sheet {name} of the report")


def metadata_files_are_there(run: RunFiles) -> Iterator[Problem]:
    """Every analysis of the category manifest has its metadata file."""
    for category in run.categories:
        yield from _missing(run, run.root / category["metadata_file"], _listed(category))


def prepared_files_are_there(run: RunFiles) -> Iterator[Problem]:
    """Rows, call paths, metrics and data that the category manifest lists exist."""
    for category in run.categories:
        for entry in LISTED_FILES:
            if file := category.get(entry):
                yield from _missing(run, run.root / file, _listed(category))


def findings_are_in_the_folder_of_their_tier(run: RunFiles) -> Iterator[Problem]:
    """Every analysis has a findings file in the folder of its tier, and none is elsewhere."""
    expected = {run.findings_file(category) for category in run.categories}
    for category in run.categories:
        yield from _missing(run, run.findings_file(category), _listed(category))
    for folder in sorted({path.parent for path in expected}):
        for path in sorted(folder.glob("*.md")):
            if path not in expected:
                text = "No analysis of this tier is listed in the category manifest."
                yield Problem(run.name(path), text)


def json_is_strict(run: RunFiles) -> Iterator[Problem]:
    """Every JSON file can be parsed strictly: no NaN, no Infinity, not truncated."""
    for path in sorted(run.root.rglob("*.json")):
        text = path.read_text(encoding="utf-8")
        try:
            json.loads(text, parse_constant=_refuse)
        except json.JSONDecodeError as error:
            yield Problem(run.name(path), f"This is not JSON: {error.msg}.", error.lineno)
        except ValueError as error:
            constant = str(error)
            line = 1 + text[: text.index(constant)].count("\n")
            text = f"{constant} is not a JSON number; null was expected."
            yield Problem(run.name(path), text, line)


def category_manifests_agree(run: RunFiles) -> Iterator[Problem]:
    """The category manifest and its copy at the root are identical, byte for byte."""
    yield from _not_the_same(run, *run.paths.category_manifests)


def priority_data_agree(run: RunFiles) -> Iterator[Problem]:
    """The priority data and their copy at the root are identical, byte for byte."""
    yield from _not_the_same(run, *run.paths.priority_data)


def tables_can_be_read(run: RunFiles) -> Iterator[Problem]:
    """Every table of the manifest is a Parquet file."""
    for name in run.manifest["tables"]:
        path = run.paths.table(name)
        try:
            with path.open("rb") as file:
                pl.read_parquet_schema(file)
        except (OSError, PolarsError) as error:
            yield Problem(run.name(path), f"The table cannot be read: {type(error).__name__}.")


def _not_the_same(run: RunFiles, canonical: Path, copy: Path) -> Iterator[Problem]:
    contents = [path.read_bytes() if path.is_file() else None for path in (canonical, copy)]
    if None in contents or contents[0] != contents[1]:
        yield Problem(run.name(copy), f"It differs from {run.name(canonical)}.")


def _missing(run: RunFiles, path: Path, what: str) -> Iterator[Problem]:
    if not path.is_file():
        yield Problem(run.name(path), f"The file is missing; {what} was expected.")


def _listed(category: dict[str, object]) -> str:
    return f"a file of the category manifest for {category['name']}"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


CHECKS = (
    Check(folders_are_there),
    Check(reports_are_there),
    Check(sheets_are_there),
    Check(metadata_files_are_there),
    Check(prepared_files_are_there),
    Check(findings_are_in_the_folder_of_their_tier),
    Check(json_is_strict),
    Check(category_manifests_agree),
    Check(priority_data_agree),
    Check(tables_can_be_read),
)
