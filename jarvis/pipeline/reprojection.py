"""Re-project a stored run onto other hardware or another target, without its trace."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from jarvis.analyses import load_analyses
from jarvis.analyses.baseline import measure_baseline
from jarvis.analyses.runner import SplitOperations, run_analyses
from jarvis.core.errors import MissingTableError
from jarvis.core.extension_log import Log
from jarvis.core.product import product_version
from jarvis.core.request import Targets
from jarvis.extensions import load_extensions
from jarvis.findings import Status
from jarvis.hardware import HardwareSpec
from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_report import Totals
from jarvis.pipeline.assembly import with_results, write_analysis
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
from jarvis.schemas.serving import TABLES as INFERENCE
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
    category_targets: str | None = None,
    output_dir: Path | str,
    identifier: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Re-project a stored run onto other hardware and write it as a new run.

    The trace is not read: the result equals that of ``analyze`` with these choices and the run's
    other options. Targets alone leave the hardware unchanged; ``figures_sha256`` as in
    ``chosen_options``, ``identifier`` as in ``analyze``.

    Raises:
        HardwareError: The GPU, or its description, cannot be used.
        RunError: ``run_dir`` is no run or cannot be re-projected.
        OutputFolderError: ``output_dir`` has other content.
        ValueError: The target is not a percentage above 0.
        TargetsError: The targets of categories cannot be used.
    """
    root = Path(output_dir)
    given = None if arch_json is None else read_arch_json(arch_json)
    with step(0, progress, REPROJECTION_STEPS):
        stored = Run.load(run_dir)
        options = reprojected_options(
            stored, platform, preset, arch_json, figures_sha256, target_pct, category_targets
        )
        compared_with = open_reference(options.reference) if options.reference else None
    manifest = stored.manifest
    with step(1, progress, REPROJECTION_STEPS):
        if is_target_only(platform, preset, arch_json, target_pct, category_targets):
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
def opened_at(
    run_dir: Path | str, target_pct: float | None, category_targets: str | None = None
) -> Iterator[Run]:
    """Open a stored run, with its findings at other targets if they differ from its own.

    The stored run is not changed: the re-projected one is in a temporary folder that is removed
    after the block.

    Raises:
        RunError: As in ``reproject``.
        ValueError: The target is not a percentage above 0.
        TargetsError: The targets of categories cannot be used.
    """
    run = Run.load(run_dir)
    pct = run.target_pct if target_pct is None else target_pct
    own = run.targets.own_text if category_targets is None else category_targets
    if Targets.parse(pct, own) == run.targets:
        yield run
        return
    with TemporaryDirectory() as folder:
        root = Path(folder) / "run"
        yield reproject(run_dir, target_pct=pct, category_targets=own, output_dir=root)


def has_fixed_findings(run: Run) -> bool:
    """Return whether the findings of a run keep their targets, as another release made them."""
    return run.manifest.jarvis_version != product_version()


def at_targets(run: Run, targets: Targets) -> Run:
    """Return a stored run with its findings at other targets; itself if those are its own.

    The findings equal those of ``reproject``; nothing is written. Analyses that failed or whose
    code is not installed keep their findings. Threads that need them for one run take turns: what
    is the same at every target is computed once, and the first gets its findings first.

    Raises:
        ValueError: Another release made the findings, which stay as they are.
    """
    if targets == run.targets:
        return run
    if has_fixed_findings(run):
        raise ValueError("another release made the findings of this run")
    options = replace(
        run.manifest.options, target_pct=targets.pct, category_targets=targets.own_text
    )
    analyses = load_analyses()
    made = {
        key: analyses[key]
        for key, result in run.results.items()
        if key in analyses
        and result.status is Status.OK  # no data at one target, no data at another
        and result.tier != "system"  # their findings depend on no efficiency
    }
    with run.lock:
        outcomes = run_analyses(
            _OwnTables(run),
            made,
            _split(run),
            targets=targets,
            simulation=run.simulation_if_any,
            described={
                key: run.category_operations(key)
                for key, analysis in made.items()
                if analysis.tier == "compute"
            },
            known=run.known,
        )
    results = {key: outcome.result for key, outcome in outcomes.items()}
    return with_results(run, {**run.results, **results}, options)


def _split(run: Run) -> SplitOperations:
    if SplitOperations not in run.known:
        operations, top = run.table("operations"), run.table("top_operations")
        baseline = measure_baseline(operations)
        run.known[SplitOperations] = SplitOperations(operations, top, baseline)
    split: SplitOperations = run.known[SplitOperations]
    return split


@dataclass(frozen=True, slots=True)
class _OwnTables:
    """The tables of a run as the input of its analyses."""

    run: Run

    @property
    def registry(self) -> Registry:
        return BUILTIN  # only the split into categories needs it, which is stored

    @property
    def totals(self) -> Totals:
        return self.run.manifest.totals

    @property
    def hardware(self) -> HardwareSpec | None:
        return self.run.manifest.hardware

    @property
    def absent_tables(self) -> Mapping[str, str]:
        return self.run.manifest.absent_tables

    def table(self, name: str) -> pl.DataFrame:
        if name in INFERENCE and name not in self.run.tables:
            raise MissingTableError(name, "the trace has no steps of inference")
        return self.run.table(name)


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
