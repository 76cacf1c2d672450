"""From a trace, or a performance report, to a performance report or a run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jarvis.capture import capture_alone, merge_captures
from jarvis.core.request import DEFAULT_REQUEST, AnalysisRequest
from jarvis.core.workspace import default_output_dir
from jarvis.extensions import Extensions, load_extensions
from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_models.transformer import ServedModel
from jarvis.pipeline.assembly import write_analysis
from jarvis.pipeline.inputs import (
    AnalysisInput,
    ReportInput,
    TraceInput,
    choose_hardware,
    chosen_options,
    read_arch_json,
    read_served_model,
)
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
    Run,
    check_output_folder,
    open_reference,
)
from jarvis.simulation.stored import simulation_tables
from jarvis.trace import OnProgress, Trace, TraceInfo, read_trace
from jarvis.tracelens.imported import ImportedReport, report_info, typed_sheets
from jarvis.tracelens.options import DEFAULT_OPTIONS, ReportOptions
from jarvis.tracelens.report import TABLES, TraceLensReport


def read_replay(path: Path, captures: Sequence[Path], on_reading: OnProgress | None) -> Trace:
    """Return the trace, with captured calls if there are captures.

    Raises:
        TraceError: The trace cannot be read.
        CaptureError: The trace is a capture itself, or none of ``captures`` is one.
    """
    trace = read_trace(path, on_reading)
    if (error := capture_alone(trace)) is not None:
        raise error
    return merge_captures(trace, captures) if captures else trace


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
    captures: Sequence[Path] = (),
    model: ServedModel | None = None,
    progress: Progress | None = None,
) -> TraceLensReport:
    """Return the performance report alone; ``platform`` names a GPU, by default that of the trace.

    Args:
        arch_json: Description of a GPU to use instead (``read_arch_json``).
        extensions: By default those of installed packages.
        comparison_path: A trace to compare with.
        captures: Folders, archives and files with the captures of the graphs that the trace
            replays.
        model: The model of an inference trace, for steps without recorded shapes.

    Raises:
        TraceError: The trace cannot be read.
        CaptureError: The trace is a capture itself, or none of ``captures`` is one.
        HardwareError: The platform is unknown, or the description is invalid.
    """
    given = None if arch_json is None else read_arch_json(arch_json)
    registry = (extensions or load_extensions()).registry
    steps = REPORT_STEPS if comparison_path is None else COMPARISON_STEPS
    with step(0, progress, steps) as on_reading:
        trace = read_replay(Path(trace_path), captures, on_reading)
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
        model=model,
        comparison=comparison,
    )


def analyze(
    trace_path: Path | str,
    request: AnalysisRequest = DEFAULT_REQUEST,
    *,
    output_dir: Path | str | None = None,
    identifier: str | None = None,
    figures_sha256: str | None = None,
    recorded_path: Path | None = None,
    report_options: ReportOptions = DEFAULT_OPTIONS,
    progress: Progress | None = None,
    **options: Any,
) -> Run:
    """Analyze a trace and write its run directory.

    The directory appears whole or not at all.

    Args:
        trace_path: a trace, or a performance report in its place (``is_report``), whose tables are
            those that the report has; the run says what is missing.
        request: what the user chose.
        output_dir: the run directory; by default ``analysis_output`` beside the trace.
        identifier: id of the analysis; by default ``analysis_id`` of the trace and the options.
        figures_sha256: as in ``chosen_options``.
        recorded_path: the path that the run records, where ``trace_path`` is another name of the
            same file.
        report_options: add sheets of a trace to the run; fused layers always get pseudo ops.
        progress: called at each step; what it raises aborts the analysis.
        options: fields to change in the request, as ``platform="MI300X"``.

    Raises:
        CaptureError: the trace is a capture, or the captures cannot be used.
        ModelConfigError: the model's configuration cannot be used.
        TraceError: also UnreadableReportError and NotAReportError for a report.
        HardwareError: the GPU, or its description, cannot be used.
        OutputFolderError: ``output_dir`` holds something else.
        RunError: there is no such reference.
        ExtensionFileError: the file cannot be read.
        ValueError: the target is not a percentage above 0.
    """
    path = Path(trace_path)
    root = Path(output_dir) if output_dir else default_output_dir(path)
    request = replace(request, **options)
    chosen = chosen_options(request, figures_sha256)
    model = read_served_model(
        request.served_model, request.tensor_parallel, request.expert_parallel
    )
    given = None if request.arch_json is None else read_arch_json(request.arch_json)
    extensions = load_extensions(request.extension_file)
    is_imported = is_report(path) or path.is_dir()
    steps = IMPORT_STEPS if is_imported else STEPS
    with step(0, progress, steps) as on_reading:
        compared_with = open_reference(request.reference) if request.reference else None
        read: Trace | ImportedReport
        if is_imported:
            read = read_imported(path, extensions.registry)
            info = report_info(path, report_sha256(path), read)
        else:
            folder = request.capture_folder
            read = read_replay(path, () if folder is None else (folder,), on_reading)
            info = read.info
        if recorded_path is not None:
            info = info.model_copy(update={"path": str(recorded_path)})
        check_output_folder(root, info.sha256)
    with step(1, progress, steps):
        hardware, warning = choose_hardware(info, request.platform, request.preset, given)
    source: AnalysisInput
    if isinstance(read, Trace):
        report_options = replace(report_options, enable_pseudo_ops=True)
        report = TraceLensReport(
            read,
            hardware,
            options=report_options,
            registry=extensions.registry,
            model=model,
        )
        with step(2, progress, steps):
            _ = report.totals
        with step(3, progress, steps):
            for name in TABLES:
                report.table(name)
        with step(4, progress, steps):
            simulated = simulation_tables(read.recording, report.activity_of(read.recording))
        source = TraceInput(report, info, extensions, *simulated)
    else:
        imported = replace(read, hardware=hardware)
        with step(2, progress, steps):
            _ = imported.operations
        source = ReportInput(imported, info, extensions)
    return write_analysis(source, chosen, warning, compared_with, root, progress, identifier)


def read_info(path: Path, on_reading: OnProgress | None = None) -> TraceInfo:
    """Return the information that a trace, or a report in its place, has about itself; raise as
    ``analyze``."""
    if is_report(path) or path.is_dir():
        return report_info(path, report_sha256(path), read_imported(path, BUILTIN))
    return read_trace(path, on_reading).info


def read_imported(path: Path, registry: Registry) -> ImportedReport:
    """Return a report to analyze in place of a trace, without hardware.

    Raises:
        UnreadableReportError: The file cannot be read.
        NotAReportError: It has other sheets.
    """
    return ImportedReport(typed_sheets(read_report(path), path), None, registry)
