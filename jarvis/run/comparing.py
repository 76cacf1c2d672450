"""Runs as the two sides of a comparison."""

from pathlib import PurePath

from jarvis.comparison import Side
from jarvis.perf_report.unavailable import unavailable_reason
from jarvis.run.run import Run


def sides(target: Run, reference: Run) -> tuple[Side, Side]:
    """Return target and reference, named by GPU, and also by file if the GPUs are equal."""
    labels = [_gpu(run) for run in (target, reference)]
    if labels[0] == labels[1]:
        labels = [f"{_gpu(run)}, {_file(run)}" for run in (target, reference)]
    return _side(target, labels[0]), _side(reference, labels[1])


def _side(run: Run, label: str) -> Side:
    absent = run.manifest.absent_tables
    return Side(
        label=label,
        hardware=run.manifest.hardware,
        tables=run.tables,
        titles={key: result.title for key, result in run.results.items()},
        lacks={name: unavailable_reason(absent, [name]) or "" for name in absent},
    )


def _gpu(run: Run) -> str:
    hardware = run.manifest.hardware
    return hardware.title if hardware else run.manifest.trace.device_name or _file(run)


def _file(run: Run) -> str:
    return PurePath(run.manifest.trace.file_name).name
