"""The data behind the reports of a comparison: its tables as CSV, the rest as JSON."""

from pathlib import Path

import orjson

from jarvis.comparison import Role
from jarvis.core.output import write_output
from jarvis.core.workspace import RunPaths
from jarvis.findings import as_data
from jarvis.reports.comparative.subject import Subject
from jarvis.reports.csv import write_csvs


def write_data(subject: Subject, root: Path) -> None:
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
