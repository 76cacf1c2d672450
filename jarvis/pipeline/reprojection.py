"""A stored run against other hardware, without its trace."""

from pathlib import Path

from jarvis.extensions import load_extensions
from jarvis.hardware import HardwareSpec
from jarvis.perf_report import TABLES
from jarvis.perf_report.imported import ImportedReport
from jarvis.perf_report.reprojection import StoredReport
from jarvis.pipeline.assembly import Base, analysed
from jarvis.pipeline.choices import choose_hardware, read_arch_json, reprojected_options
from jarvis.pipeline.steps import REPROJECTION_STEPS, Progress, step
from jarvis.run import (
    Run,
    open_reference,
)
from jarvis.trace_health import TABLE as HEALTH


def reproject(
    run_dir: Path | str,
    *,
    platform: str | None = None,
    preset: str | None = None,
    arch_json: Path | None = None,
    figures_sha256: str | None = None,
    output_dir: Path | str,
    identifier: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Judge a stored run against other hardware and write that as a run of its own.

    The trace is not read: the result is what ``analyze`` makes of it with these choices and the
    run's other ones; ``figures_sha256`` as in ``chosen_options``, ``identifier`` as in ``analyze``.
    Raises a HardwareError, a RunError where ``run_dir`` is no run or cannot be judged anew, or
    OutputFolderError.
    """
    root = Path(output_dir)
    given = None if arch_json is None else read_arch_json(arch_json)
    with step(0, progress, REPROJECTION_STEPS):
        stored = Run.load(run_dir)
        options = reprojected_options(stored, platform, preset, arch_json, figures_sha256)
        compared_with = open_reference(options.reference) if options.reference else None
    manifest = stored.manifest
    with step(1, progress, REPROJECTION_STEPS):
        hardware, warning = choose_hardware(manifest.trace, platform, preset, given)
    report = _stored_report(stored, hardware)
    base = Base(
        report=report,
        info=manifest.trace,
        sheets=lambda: manifest.sheets,
        health=lambda: stored.table(HEALTH),
        call_paths=lambda _: stored.paths_by_category,
        extension_notes=lambda: manifest.extension_notes,
        extension_failures=lambda: manifest.extension_failures,
    )
    return analysed(
        base, options, warning, compared_with, root, progress, REPROJECTION_STEPS, identifier
    )


def _stored_report(stored: Run, hardware: HardwareSpec | None) -> StoredReport | ImportedReport:
    manifest, registry = stored.manifest, load_extensions().registry
    if manifest.trace.form == "report":
        sheets = {name: stored.table(name) for name in manifest.sheets}
        return ImportedReport(sheets, hardware, registry)
    return StoredReport(
        stored=stored.tables,
        roofline_names=tuple(name for name in manifest.sheets if name not in TABLES),
        totals=manifest.totals,
        hardware=hardware,
        registry=registry,
        absent_tables=manifest.absent_tables,
    )
