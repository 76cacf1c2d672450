"""From a trace, or a report in its place, to a performance report or a run."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from jarvis.core.workspace import default_output_dir
from jarvis.extensions import Extensions, load_extensions
from jarvis.hardware import HardwareSpec
from jarvis.impact import TARGET_PCT
from jarvis.perf_models import BUILTIN, Registry
from jarvis.pipeline.assembly import Base, analysed
from jarvis.pipeline.choices import choose_hardware, chosen_options, read_arch_json
from jarvis.pipeline.steps import (
    COMPARISON_STEPS,
    IMPORT_STEPS,
    REPORT_STEPS,
    STEPS,
    Progress,
    step,
)
from jarvis.reports.reading import content_sha256 as report_sha256
from jarvis.reports.reading import is_report, read_report
from jarvis.run import (
    Options,
    Run,
    check_output_folder,
    main_call_paths,
    open_reference,
)
from jarvis.trace import OnProgress, TraceInfo, read_trace
from jarvis.trace_health import report_health, trace_health
from jarvis.tracelens.imported import ImportedReport, report_info, typed_sheets
from jarvis.tracelens.options import DEFAULT_OPTIONS, ReportOptions
from jarvis.tracelens.report import TABLES, TraceLensReport
from jarvis.tracelens.sheets import sheet_names


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
) -> TraceLensReport:
    """The performance report alone; ``platform`` names a GPU, by default that of the trace.

    ``arch_json`` describes a GPU in its place (``read_arch_json``); ``extensions`` are those of
    installed packages where none are given; ``comparison_path`` is a trace to compare with. Raises
    a TraceError, or a HardwareError for a platform that is not described and for a description
    that is malformed.
    """
    given = None if arch_json is None else read_arch_json(arch_json)
    registry = (extensions or load_extensions()).registry
    steps = REPORT_STEPS if comparison_path is None else COMPARISON_STEPS
    with step(0, progress, steps) as on_reading:
        trace = read_trace(trace_path, on_reading)
    with step(1, progress, steps):
        hardware = given or choose_hardware(trace.info, platform, preset)[0]
    comparison = None
    if comparison_path is not None:
        with step(2, progress, steps) as on_reading:
            comparison = read_trace(comparison_path, on_reading)
    return TraceLensReport(
        trace,
        hardware,
        tracelens_models_only=tracelens_models_only,
        options=options,
        registry=registry,
        comparison=comparison,
    )


def analyze(
    trace_path: Path | str,
    *,
    platform: str | None = None,
    preset: str | None = None,
    model_name: str | None = None,
    output_dir: Path | str | None = None,
    identifier: str | None = None,
    reference: str | None = None,
    extension_file: Path | None = None,
    arch_json: Path | None = None,
    figures_sha256: str | None = None,
    recorded_path: Path | None = None,
    target_pct: float = TARGET_PCT,
    report_options: ReportOptions = DEFAULT_OPTIONS,
    progress: Progress | None = None,
) -> Run:
    """Analyse a trace and write its run directory (default: ``analysis_output`` beside the trace).

    A performance report may stand in place of the trace (``is_report``): its tables are those that
    the report tells, and the run says what it cannot.
    ``reference`` names another run (``open_reference``) to compare operations with,
    ``extension_file`` a Python file with perf models and categories; ``arch_json`` describes a GPU
    in place of ``platform`` (``read_arch_json``); ``figures_sha256`` as in ``chosen_options``.
    ``recorded_path`` is the path that the run records where ``trace_path`` is another name of the
    same file. ``identifier`` is the id of the analysis, by default ``analysis_id`` of the trace and
    the options. The directory appears whole or not at all.
    ``target_pct`` is the efficiency that savings are projected to, in percent of the roofline;
    ``report_options`` add sheets of a trace to the run.
    Raises a TraceError, UnreadableReportError or ForeignReportError for a report, a
    HardwareError, OutputFolderError where ``output_dir`` holds something else, a RunError where
    there is no such reference, ExtensionFileError, or ValueError for a target that is not a
    percentage above 0.
    """
    root = Path(output_dir) if output_dir else default_output_dir(Path(trace_path))
    options = chosen_options(
        platform,
        preset,
        model_name,
        reference,
        extension_file,
        arch_json=arch_json,
        figures_sha256=figures_sha256,
        target_pct=target_pct,
    )
    recorded = {} if recorded_path is None else {"path": str(recorded_path)}
    given = None if arch_json is None else read_arch_json(arch_json)
    extensions = load_extensions(extension_file)
    if is_report(Path(trace_path)) or Path(trace_path).is_dir():
        return _analyse_report(
            Path(trace_path),
            recorded,
            options,
            given,
            extensions,
            reference,
            root,
            progress,
            identifier,
        )
    with step(0, progress) as on_reading:
        compared_with = open_reference(reference) if reference else None
        trace = read_trace(trace_path, on_reading)
        check_output_folder(root, trace.info.sha256)
    with step(1, progress):
        hardware, warning = choose_hardware(trace.info, platform, preset, given)
    report = TraceLensReport(trace, hardware, options=report_options, registry=extensions.registry)
    with step(2, progress):
        _ = report.totals
    with step(3, progress):
        for name in TABLES:
            report.table(name)
    base = Base(
        report=report,
        info=trace.info.model_copy(update=recorded),
        sheets=lambda: tuple(sheet_names(report.sheet_tables())),
        health=lambda: trace_health(trace),
        call_paths=partial(main_call_paths, report),
        extension_notes=lambda: extensions.notes,
        extension_failures=lambda: extensions.failures,
        analyses=extensions.analyses,
    )
    return analysed(base, options, warning, compared_with, root, progress, STEPS, identifier)


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
    recorded: dict[str, str],
    options: Options,
    given: HardwareSpec | None,
    extensions: Extensions,
    reference: str | None,
    root: Path,
    progress: Progress | None,
    identifier: str | None,
) -> Run:
    with step(0, progress, IMPORT_STEPS):
        compared_with = open_reference(reference) if reference else None
        read = read_imported(path, extensions.registry)
        info = report_info(path, report_sha256(path), read).model_copy(update=recorded)
        check_output_folder(root, info.sha256)
    with step(1, progress, IMPORT_STEPS):
        hardware, warning = choose_hardware(info, options.platform, options.preset, given)
    report = replace(read, hardware=hardware)
    with step(2, progress, IMPORT_STEPS):
        _ = report.operations
    base = Base(
        report=report,
        info=info,
        sheets=lambda: tuple(sheet_names(report.sheets)),
        health=lambda: report_health(report),
        call_paths=lambda _: {},
        extension_notes=lambda: extensions.notes,
        extension_failures=lambda: extensions.failures,
        analyses=extensions.analyses,
    )
    return analysed(base, options, warning, compared_with, root, progress, IMPORT_STEPS, identifier)
