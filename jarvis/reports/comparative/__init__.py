"""The reports of a comparison: for stakeholders (fair), for audits (rough), and its data as files.

They are in the folder of ``jarvis compare`` and in the run directory of a target that was analyzed
with a reference.
"""

from collections.abc import Mapping
from pathlib import Path

import orjson
import polars as pl

from jarvis.comparison import Comparison, Role
from jarvis.core.output import write_output
from jarvis.core.workspace import ComparisonPaths, RunPaths
from jarvis.findings import as_data
from jarvis.reports.comparative.fair import fair_markdown
from jarvis.reports.comparative.rough import rough_markdown
from jarvis.reports.comparative.subject import Subject
from jarvis.reports.csv import write_csvs
from jarvis.run import Run
from jarvis.tracelens.compare_report import hidden_columns

__all__ = ["write_comparison", "write_folder", "write_sheets"]


def write_comparison(comparison: Comparison, target: Run, reference: Run, root: Path) -> None:
    """Write both reports of a comparison of these runs below ``root``, and the data behind them."""
    subject = Subject(comparison, target, reference)
    paths = RunPaths(root)
    for kind, markdown in (("fair", fair_markdown), ("rough", rough_markdown)):
        write_output(paths.comparative_report(kind), markdown(subject))
    _write_data(subject, root)


def write_folder(
    comparison: Comparison,
    target: Run,
    reference: Run,
    sheets: Mapping[str, pl.DataFrame],
    root: Path,
) -> None:
    """Write a comparison below ``root``.

    The workbook of ``sheets``, the performance reports of both sides, the reports of the
    comparison, and the data behind them.
    """
    from jarvis.reports.xlsx import write_workbook

    paths = ComparisonPaths(root)
    write_sheets(sheets, paths.workbook)
    for role, run in ((Role.REFERENCE, reference), (Role.TARGET, target)):
        write_workbook(run.sheets(), paths.perf_report(role.value))
    write_comparison(comparison, target, reference, root)


def write_sheets(sheets: Mapping[str, pl.DataFrame], path: Path) -> Path:
    """Write the sheets of both sides as a workbook."""
    from jarvis.reports.xlsx import write_workbook  # a job process imports openpyxl while it waits

    return write_workbook(sheets, path, hidden_columns)


def _write_data(subject: Subject, root: Path) -> None:
    """Write the tables below ``root``, and the rest as ``comparison.json``.

    Its times are in ms; ``findings`` are in the order of their numbers.
    """
    path = RunPaths(root).comparison
    write_csvs(subject.comparison.tables(), path.parent)
    write_output(path, orjson.dumps(_facts(subject), option=orjson.OPT_INDENT_2))


def _facts(subject: Subject) -> dict[str, object]:
    compared = subject.comparison
    return {
        "title": subject.title,
        "tolerance": compared.tolerance,
        "sides": {role.value: _side(subject, role) for role in Role},
        "summary": compared.summary,
        "unknown": compared.unknown,
        "same_collectives": compared.same_collectives,
        "findings": [as_data(finding) for finding in compared.findings],
    }


def _side(subject: Subject, role: Role) -> dict[str, object]:
    manifest, side = subject.run(role).manifest, subject.side(role)
    return {
        "label": side.label,
        "model_name": manifest.model_name,
        "input": manifest.trace.file_name,
        "input_sha256": manifest.trace.sha256,
        "form": manifest.trace.form,
        "device_names": manifest.trace.device_names,
        "hardware": manifest.hardware.model_dump(mode="json") if manifest.hardware else None,
        "compute_ms": side.compute_ms,
    }
