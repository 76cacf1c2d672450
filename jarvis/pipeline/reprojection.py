"""Re-project a stored run onto other hardware or another target, without its trace."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from jarvis.core.extension_log import Log
from jarvis.extensions import load_extensions
from jarvis.hardware import HardwareSpec
from jarvis.perf_models import Registry
from jarvis.pipeline.assembly import write_analysis
from jarvis.pipeline.inputs import (
    StoredInput,
    choose_hardware,
    is_target_only,
    read_arch_json,
    reprojected_options,
)
from jarvis.pipeline.steps import REPROJECTION_STEPS, Progress, step
from jarvis.run import (
    Run,
    open_reference,
)
from jarvis.tracelens.imported import ImportedReport
from jarvis.tracelens.report import TABLES
from jarvis.tracelens.stored_report import StoredReport


def reproject(
    run_dir: Path | str,
    *,
    platform: str | None = None,
    preset: str | None = None,
    arch_json: Path | None = None,
    figures_sha256: str | None = None,
    target_pct: float | None = None,
    output_dir: Path | str,
    identifier: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Re-project a stored run onto other hardware and write it as a new run.

    The trace is not read: the result equals that of ``analyze`` with these choices and the run's
    other options. ``target_pct`` alone leaves the hardware unchanged; ``figures_sha256`` as in
    ``chosen_options``, ``identifier`` as in ``analyze``.

    Raises:
        HardwareError: The GPU, or its description, cannot be used.
        RunError: ``run_dir`` is no run or cannot be re-projected.
        OutputFolderError: ``output_dir`` has other content.
        ValueError: The target is not a percentage above 0.
    """
    root = Path(output_dir)
    given = None if arch_json is None else read_arch_json(arch_json)
    with step(0, progress, REPROJECTION_STEPS):
        stored = Run.load(run_dir)
        options = reprojected_options(
            stored, platform, preset, arch_json, figures_sha256, target_pct
        )
        compared_with = open_reference(options.reference) if options.reference else None
    manifest = stored.manifest
    with step(1, progress, REPROJECTION_STEPS):
        if is_target_only(platform, preset, arch_json, target_pct):
            hardware, warning = manifest.hardware, manifest.platform_warning
        else:
            hardware, warning = choose_hardware(manifest.trace, platform, preset, given)
    loaded = load_extensions()
    log = Log(list(manifest.extension_notes), list(manifest.extension_failures))
    source = StoredInput(
        _stored_report(stored, hardware, loaded.registry), stored, replace(loaded, log=log)
    )
    return write_analysis(source, options, warning, compared_with, root, progress, identifier)


@contextmanager
def opened_at(run_dir: Path | str, target_pct: float | None) -> Iterator[Run]:
    """Open a stored run, with its findings at another target if ``target_pct`` differs from its
    own.

    The stored run is not changed: the re-projected one is in a temporary folder that is removed
    after the block.

    Raises:
        RunError: As in ``reproject``.
        ValueError: The target is not a percentage above 0.
    """
    run = Run.load(run_dir)
    if target_pct is None or target_pct == run.target_pct:
        yield run
        return
    with TemporaryDirectory() as folder:
        yield reproject(run_dir, target_pct=target_pct, output_dir=Path(folder) / "run")


def _stored_report(
    stored: Run, hardware: HardwareSpec | None, registry: Registry
) -> StoredReport | ImportedReport:
    manifest = stored.manifest
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
