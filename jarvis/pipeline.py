"""From a trace to a run directory: the only place that knows the order of the steps."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Literal

import polars as pl

from jarvis.analyses import Registry as Analyses
from jarvis.analyses import load_registry
from jarvis.analyses.runner import Outcome, Slices, divide, run_analyses
from jarvis.comparison import TOLERANCE, Comparison
from jarvis.comparison import compare as compare_sides
from jarvis.errors import HardwareFileError, NotReprojectableError, UnknownHardwareError
from jarvis.extensions import Extensions, content_sha256, load_extensions
from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_report import DEFAULT_OPTIONS, TABLES, CallPath, PerfReport, ReportOptions
from jarvis.perf_report.imported import ImportedReport, report_info, typed_sheets
from jarvis.perf_report.reprojection import NEEDED, StoredReport
from jarvis.perf_report.sheets import sheet_names
from jarvis.replay import write_packages
from jarvis.reports import write_reports
from jarvis.reports.comparative import write_comparison
from jarvis.reports.reading import content_sha256 as report_sha256
from jarvis.reports.reading import is_report, read_report
from jarvis.run import (
    CategorySummary,
    Manifest,
    Options,
    PerfModelFailure,
    Preparation,
    Run,
    TopOperation,
    analysis_id,
    category_table,
    check_output_folder,
    main_call_paths,
    open_reference,
    staged,
    write_run,
)
from jarvis.run.comparing import sides
from jarvis.trace import OnProgress, ReadProgress, TraceInfo, read_trace
from jarvis.trace_health import TABLE as HEALTH
from jarvis.trace_health import report_health, trace_health
from jarvis.workspace import default_output_dir

DISTRIBUTION = "jarvis-perf"

STEPS = (
    "Read the trace",
    "Match the hardware",
    "GPU timeline",
    "Operations and rooflines",
    "Categories",
    "Analyses",
    "Reports",
    "Save",
)
REPORT_STEPS = STEPS[:2]
IMPORT_STEPS = ("Read the report", STEPS[1], *STEPS[3:])
REPROJECTION_STEPS = ("Open the analysis", STEPS[1], *STEPS[4:])
COMPARISON_STEPS = (*REPORT_STEPS, "Read the compared trace")


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the pipeline that starts, goes on or has ended.

    ``elapsed_s`` is None until the end; ``reading`` says how far a trace has been read.
    """

    name: str
    number: int
    total: int
    state: Literal["started", "running", "done"]
    elapsed_s: float | None = None
    reading: ReadProgress | None = None


Progress = Callable[[Step], None]
"""Called at each step; what it raises ends the work, and nothing of it is left behind."""


def generate_report(
    trace_path: Path | str,
    platform: str | None = None,
    preset: str | None = None,
    *,
    arch_json: Path | None = None,
    options: ReportOptions = DEFAULT_OPTIONS,
    tracelens_models_only: bool = False,
    extensions: Extensions | None = None,
    comparison_path: Path | str | None = None,
    progress: Progress | None = None,
) -> PerfReport:
    """The performance report alone; ``platform`` names a GPU, by default that of the trace.

    ``arch_json`` describes a GPU in its place (``read_arch_json``); ``extensions`` are those of
    installed packages where none are given; ``comparison_path`` is a trace to compare with. Raises
    a TraceError, or a HardwareError for a platform that is not described and for a description
    that is malformed.
    """
    given = None if arch_json is None else read_arch_json(arch_json)
    registry = (extensions or load_extensions()).registry
    steps = REPORT_STEPS if comparison_path is None else COMPARISON_STEPS
    with _step(0, progress, steps) as on_reading:
        trace = read_trace(trace_path, on_reading)
    with _step(1, progress, steps):
        hardware = given or choose_hardware(trace.info, platform, preset)[0]
    comparison = None
    if comparison_path is not None:
        with _step(2, progress, steps) as on_reading:
            comparison = read_trace(comparison_path, on_reading)
    return PerfReport(
        trace,
        hardware,
        tracelens_models_only=tracelens_models_only,
        options=options,
        registry=registry,
        comparison=comparison,
    )


def read_arch_json(path: Path) -> HardwareSpec:
    """The GPU that a file describes as TraceLens takes it; HardwareFileError where it is bad."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise HardwareFileError(path.name, f"the file cannot be read ({error})") from error
    return HardwareSpec.parse_arch_json(content, path.name)


def analyze(
    trace_path: Path | str,
    *,
    platform: str | None = None,
    preset: str | None = None,
    model_name: str | None = None,
    output_dir: Path | str | None = None,
    reference: str | None = None,
    extension_file: Path | None = None,
    arch_json: Path | None = None,
    report_options: ReportOptions = DEFAULT_OPTIONS,
    progress: Progress | None = None,
) -> Run:
    """Analyse a trace and write its run directory (default: ``analysis_output`` beside the trace).

    A performance report may stand in place of the trace (``is_report``): its tables are those that
    the report tells, and the run says what it cannot.
    ``reference`` names another run (``open_reference``) to compare operations with,
    ``extension_file`` a Python file with perf models and categories; ``arch_json`` describes a GPU
    in place of ``platform`` (``read_arch_json``). The directory appears whole or not at all.
    ``report_options`` add sheets of a trace to the run.
    Raises a TraceError, UnreadableReportError or ForeignReportError for a report, a
    HardwareError, OutputFolderError where ``output_dir`` holds something else, a RunError where
    there is no such reference, or ExtensionFileError.
    """
    root = Path(output_dir) if output_dir else default_output_dir(Path(trace_path))
    options = chosen_options(
        platform, preset, model_name, reference, extension_file, arch_json=arch_json
    )
    given = None if arch_json is None else read_arch_json(arch_json)
    extensions = load_extensions(extension_file)
    if is_report(Path(trace_path)) or Path(trace_path).is_dir():
        return _analyse_report(
            Path(trace_path), options, given, extensions, reference, root, progress
        )
    with _step(0, progress) as on_reading:
        compared_with = open_reference(reference) if reference else None
        trace = read_trace(trace_path, on_reading)
        check_output_folder(root, trace.info.sha256)
    with _step(1, progress):
        hardware, warning = choose_hardware(trace.info, platform, preset, given)
    report = PerfReport(trace, hardware, options=report_options, registry=extensions.registry)
    with _step(2, progress):
        _ = report.totals
    with _step(3, progress):
        for name in TABLES:
            report.table(name)
    base = _Base(
        report=report,
        info=trace.info,
        sheets=lambda: tuple(sheet_names(report.sheet_tables())),
        health=lambda: trace_health(trace),
        call_paths=partial(main_call_paths, report),
        extension_notes=lambda: extensions.notes,
        extension_failures=lambda: extensions.failures,
        analyses=extensions.analyses,
    )
    return _analysed(base, options, warning, compared_with, root, progress, STEPS)


def read_info(path: Path, on_reading: OnProgress | None = None) -> TraceInfo:
    """What a trace, or a report in its place, says about itself; raises what ``analyze`` does."""
    if is_report(path) or path.is_dir():
        return report_info(path, report_sha256(path), read_imported(path, BUILTIN))
    return read_trace(path, on_reading).info


def read_imported(path: Path, registry: Registry) -> ImportedReport:
    """A report to analyse in place of a trace, not judged against a GPU yet.

    Raises UnreadableReportError, or ForeignReportError where its sheets are others.
    """
    return ImportedReport(typed_sheets(read_report(path), path), None, registry)


def _analyse_report(
    path: Path,
    options: Options,
    given: HardwareSpec | None,
    extensions: Extensions,
    reference: str | None,
    root: Path,
    progress: Progress | None,
) -> Run:
    with _step(0, progress, IMPORT_STEPS):
        compared_with = open_reference(reference) if reference else None
        read = read_imported(path, extensions.registry)
        info = report_info(path, report_sha256(path), read)
        check_output_folder(root, info.sha256)
    with _step(1, progress, IMPORT_STEPS):
        hardware, warning = choose_hardware(info, options.platform, options.preset, given)
    report = replace(read, hardware=hardware)
    with _step(2, progress, IMPORT_STEPS):
        _ = report.operations
    base = _Base(
        report=report,
        info=info,
        sheets=lambda: tuple(sheet_names(report.sheets)),
        health=lambda: report_health(report),
        call_paths=lambda _: {},
        extension_notes=lambda: extensions.notes,
        extension_failures=lambda: extensions.failures,
        analyses=extensions.analyses,
    )
    return _analysed(base, options, warning, compared_with, root, progress, IMPORT_STEPS)


def compare(target: Run, reference: Run, *, tolerance: float = TOLERANCE) -> Comparison:
    """Compare two runs: what differs, and what the figures of their GPUs explain of it.

    ``tolerance`` is the factor by which a call may be off the expected ratio; ValueError below 1.
    """
    return compare_sides(*sides(target, reference), tolerance)


def reproject(
    run_dir: Path | str,
    *,
    platform: str | None = None,
    preset: str | None = None,
    arch_json: Path | None = None,
    output_dir: Path | str,
    progress: Progress | None = None,
) -> Run:
    """Judge a stored run against other hardware and write that as a run of its own.

    The trace is not read: the result is what ``analyze`` makes of it with these choices and the
    run's other ones. Raises a HardwareError, a RunError where ``run_dir`` is no run or cannot be
    judged anew, or OutputFolderError.
    """
    root = Path(output_dir)
    given = None if arch_json is None else read_arch_json(arch_json)
    with _step(0, progress, REPROJECTION_STEPS):
        stored = Run.load(run_dir)
        options = reprojected_options(stored, platform, preset, arch_json)
        compared_with = open_reference(options.reference) if options.reference else None
    manifest = stored.manifest
    with _step(1, progress, REPROJECTION_STEPS):
        hardware, warning = choose_hardware(manifest.trace, platform, preset, given)
    report = _stored_report(stored, hardware)
    base = _Base(
        report=report,
        info=manifest.trace,
        sheets=lambda: manifest.sheets,
        health=lambda: stored.table(HEALTH),
        call_paths=lambda _: stored.paths_by_category,
        extension_notes=lambda: manifest.extension_notes,
        extension_failures=lambda: manifest.extension_failures,
    )
    return _analysed(base, options, warning, compared_with, root, progress, REPROJECTION_STEPS)


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


def reprojected_options(
    run: Run, platform: str | None, preset: str | None, arch_json: Path | None = None
) -> Options:
    """The options of a run with other hardware.

    Raises a RunError where the run lacks what that needs: the tables of this version, or a file
    with perf models, which a run does not keep.
    """
    manifest = run.manifest
    if manifest.options.extension_file is not None:
        raise NotReprojectableError(
            f"it was made with the perf models of {manifest.options.extension_file}, which it does "
            "not keep"
        )
    if missing := [name for name in NEEDED if name not in manifest.tables]:
        raise NotReprojectableError(f"an older version made it, without {' and '.join(missing)}")
    chosen = chosen_options(platform, preset, None, None, None, arch_json=arch_json)
    kept = {"model_name": manifest.options.model_name, "reference": manifest.options.reference}
    return chosen.model_copy(update=kept)


@dataclass(frozen=True, slots=True)
class _Base:
    """What an analysis stands on: a trace that was just read, or a stored run."""

    report: PerfReport | StoredReport | ImportedReport
    info: TraceInfo
    sheets: Callable[[], tuple[str, ...]]
    health: Callable[[], pl.DataFrame]
    call_paths: Callable[[Mapping[str, pl.DataFrame]], Mapping[str, Mapping[int, CallPath]]]
    extension_notes: Callable[[], tuple[str, ...]]
    extension_failures: Callable[[], tuple[str, ...]]
    analyses: Analyses = field(default_factory=load_registry)


def _analysed(
    base: _Base,
    options: Options,
    warning: str | None,
    compared_with: Run | None,
    root: Path,
    progress: Progress | None,
    steps: tuple[str, ...],
) -> Run:
    """Run the analyses and write the run: the last four of ``steps``."""
    report, analyses = base.report, base.analyses.analyses
    first = len(steps) - 4
    with _step(first, progress, steps):
        slices = divide(report, analyses)
    with _step(first + 1, progress, steps):
        units = base.info.compute_units
        outcomes = run_analyses(report, analyses, slices, compute_units=units)
    with staged(root, base.info.sha256) as folder:
        with _step(first + 2, progress, steps):
            run = _run(base, slices, outcomes, options, warning)
            if compared_with is not None:
                comparison = compare(run, compared_with)
                run = run.with_tables(comparison.tables())
                write_comparison(comparison, run, compared_with, folder)
            prepared = {key: o.prepared for key, o in outcomes.items() if o.prepared is not None}
            Preparation(run, folder).write(prepared)
            write_packages(run, folder)
            write_reports(run, folder)
        with _step(first + 3, progress, steps):
            write_run(run, folder)
    return Run.load(root)


def chosen_options(
    platform: str | None,
    preset: str | None,
    model_name: str | None,
    reference: str | None,
    extension_file: Path | None,
    *,
    arch_json: Path | None = None,
) -> Options:
    """What the user chose, files by name and content."""
    return Options(
        platform=platform,
        preset=preset,
        model_name=model_name,
        reference=reference,
        extension_file=None if extension_file is None else extension_file.name,
        extension_sha256=None if extension_file is None else content_sha256(extension_file),
        gpu_arch_file=None if arch_json is None else arch_json.name,
        gpu_arch_sha256=None if arch_json is None else read_arch_json(arch_json).sha256,
    )


def choose_hardware(
    info: TraceInfo,
    platform: str | None,
    preset: str | None,
    given: HardwareSpec | None = None,
) -> tuple[HardwareSpec | None, str | None]:
    """The GPU to judge against, and a warning where that is none or not the trace's own.

    ``given`` is the description of one that needs no choice. Raises UnknownHardwareError for a
    platform that is not described, and for a preset without a GPU to have it.
    """
    hardware = load_hardware()
    found = hardware.match(info.device_name) if info.device_name else None
    if platform is None and given is None:
        if found is None:
            if preset is not None:
                raise UnknownHardwareError(info.device_name or "(none)", hardware.names())
            device = (
                f"No GPU named {info.device_name!r} is described"
                if info.device_name
                else f"The {info.form} does not name its GPU"
            )
            return None, (
                f"{device}, so there are no peaks to judge against. Name a GPU to get efficiencies."
            )
        return hardware.get(found.name, preset), None
    chosen = given or hardware.get(platform or "", preset)
    if info.device_name and (found is None or found.name != chosen.name):
        return chosen, (
            f"The trace was recorded on {info.device_name!r}, but is judged against {chosen.title}."
        )
    return chosen, None


def _run(
    base: _Base,
    slices: Slices,
    outcomes: dict[str, Outcome],
    options: Options,
    warning: str | None,
) -> Run:
    report, info = base.report, base.info
    classified = {key: o.operations for key, o in outcomes.items() if o.operations is not None}
    tables = {name: report.table(name) for name in TABLES}
    tables |= {name: report.table(name) for name in base.sheets() if name not in tables}
    tables |= {"operations": slices.operations, "top_operations": slices.top_operations}
    tables[HEALTH] = base.health()
    tables |= {category_table(key): rows for key, rows in classified.items()}
    manifest = Manifest(
        jarvis_version=_version(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        analysis_id=analysis_id(info.sha256, options),
        model_name=options.model_name,
        trace=info,
        hardware=report.hardware,
        platform_warning=warning,
        options=options,
        reference=options.reference,
        totals=report.totals,
        top_operations=tuple(
            TopOperation(**row) for row in slices.top_operations.iter_rows(named=True)
        ),
        categories=tuple(_summary(outcome) for outcome in outcomes.values()),
        perf_model_failures=tuple(
            PerfModelFailure(**row) for row in tables["perf_model_failures"].iter_rows(named=True)
        ),
        load_failures=dict(base.analyses.failures),
        added_analyses=tuple(base.analyses.cards.values()),
        extension_notes=base.extension_notes(),
        extension_failures=base.extension_failures(),
        sheets=base.sheets(),
        tables=tuple(tables),
        absent_tables=dict(report.absent_tables),
    )
    return Run(
        manifest=manifest,
        results={key: outcome.result for key, outcome in outcomes.items()},
        tables=tables,
        paths_by_category=base.call_paths(classified),
    )


def _summary(outcome: Outcome) -> CategorySummary:
    result = outcome.result
    return CategorySummary(
        key=result.key,
        title=result.title,
        tier=result.tier,
        status=result.status,
        row_count=result.row_count,
        gpu_time_ms=result.gpu_time_ms,
        percent_of_compute=result.percent_of_compute,
        efficiency_pct=result.efficiency_pct,
        finding_count=len(result.findings),
    )


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


@contextmanager
def _step(
    index: int, progress: Progress | None, steps: tuple[str, ...] = STEPS
) -> Iterator[OnProgress]:
    """Report the start and end of a step; gives what reports how far it has read."""
    step = Step(steps[index], index + 1, len(steps), "started")
    report = progress or (lambda _: None)
    begin = perf_counter()
    report(step)
    yield lambda reading: report(replace(step, state="running", reading=reading))
    report(replace(step, state="done", elapsed_s=perf_counter() - begin))
