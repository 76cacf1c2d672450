"""``jarvis analyze``: analyze a trace into a run directory."""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.analyze_ranks import add_rank_options, analyze_several, beside, rank_files
from jarvis.cli.downloads import path_or_url
from jarvis.cli.options import (
    TRACE_HELP,
    Commands,
    add_flag,
    add_labels,
    add_options,
    complete_run,
    completed_by,
    labels_of,
    request_of,
    run_directory,
    stored_folder,
)
from jarvis.cli.output import (
    ExitCode,
    add_json,
    add_progress,
    note,
    print_line,
    print_result,
    progress_of,
    warn,
)
from jarvis.core.request import AnalysisRequest
from jarvis.core.workspace import HOME_VARIABLE, RunPaths, default_output_dir

if TYPE_CHECKING:
    from jarvis.run import Run
    from jarvis.server.submission import StoredAnalysis


FIRST_FINDINGS = 3
"""Findings that are printed before the paths."""

REPORT_HELP = "or a performance report: a workbook (.xlsx), or a folder or .zip of CSV files"


def add_analyze(commands: Commands) -> None:
    command = commands.add_parser(
        "analyze",
        help="analyze a trace: report, findings and advice in a folder",
        description="Analyze a trace and write a run directory: the performance report, the data "
        "and findings of each category, and the reports for stakeholders (fair) and for those who "
        "audit them (rough).",
    )
    command.add_argument(
        "traces",
        metavar="TRACE",
        type=path_or_url,
        nargs="*",
        help=f"{TRACE_HELP}; {REPORT_HELP}; or the traces of several ranks of a job, as a folder, "
        "as files, or as a .zip or .tar.gz of them; or their URLs (https, s3, sftp), also of a "
        "folder (ends with /) or a range (rank{0..63}.json)",
    )
    add_rank_options(command)
    options = add_options(
        command,
        [field.name for field in fields(AnalysisRequest)],
        reference="run directory or id of a stored analysis to compare with: adds the comparative "
        "reports (`jarvis compare` takes traces too)",
    )
    completed_by(options["reference"], complete_run)
    add_flag(
        command,
        "output_dir",
        metavar="DIR",
        type=Path,
        help="output folder (default: analysis_output next to the trace); it must be new or "
        "contain an analysis of this trace",
    )
    command.add_argument(
        "--plots",
        action="store_true",
        help="also render images for the reports",
    )
    command.add_argument(
        "--id",
        action="store_true",
        help=f"store the analysis under its id in {HOME_VARIABLE} (default ~/.jarvis) for "
        "`jarvis serve`; --output-dir writes a copy",
    )
    add_labels(command)
    add_progress(command)
    add_json(command)
    command.set_defaults(run=_analyze)


def _analyze(arguments: argparse.Namespace) -> int:
    with rank_files(arguments) as files:
        if len(files) > 1:
            return analyze_several(arguments, files)
        arguments.trace = files[0].path
        return _analyze_one(arguments)


def _analyze_one(arguments: argparse.Namespace) -> int:
    request = request_of(arguments, AnalysisRequest)
    if labels_of(arguments) and not arguments.id:
        arguments.usage_error("--project, --branch, --commit and --tag need --id")
    request = replace(request, reference=_reference(request.reference))
    stored = _store(arguments, request) if arguments.id else None
    root = _write(arguments, request) if stored is None else stored.root
    from jarvis.run import Run

    run = Run.load(root)
    warn(warnings_of(run))
    note(run.manifest.extension_notes)
    if arguments.plots:
        from jarvis.reports import add_plots

        copies = [arguments.output_dir] if stored is not None and arguments.output_dir else []
        for folder in (root, *copies):
            add_plots(run, folder)
    if arguments.progress == "text":
        for line in summary_of(run):
            print_line(line, sys.stderr)
    if stored is None:
        print_run(arguments, run)
    else:
        head = f"analysis {stored.id}{' (already stored)' if stored.is_reused else ''}"
        print_run(arguments, run, [head], id=stored.id, is_reused=stored.is_reused)
    return ExitCode.OK


def _store(arguments: argparse.Namespace, request: AnalysisRequest) -> "StoredAnalysis":
    from jarvis.server.storage.analysis_rows import labeled
    from jarvis.server.submission import Submission, submit

    submission = Submission.of(request, trace=arguments.trace, copy_to=arguments.output_dir)
    with labeled(labels_of(arguments)):
        return submit(submission, progress_of(arguments))


def _write(arguments: argparse.Namespace, request: AnalysisRequest) -> Path:
    from jarvis.pipeline import analyze

    root: Path = arguments.output_dir or default_output_dir(beside(arguments))
    analyze(arguments.trace, request, output_dir=root, progress=progress_of(arguments))
    return root


def _reference(reference: str | None) -> str | None:
    """Return the reference as an id or an absolute path."""
    if reference is None or stored_folder(reference):
        return reference
    return str(run_directory(reference).resolve())


def warnings_of(run: "Run") -> list[str]:
    """Return the warnings about a run."""
    from jarvis.findings import Status
    from jarvis.trace_health import TABLE, warning_lines

    manifest = run.manifest
    failed = [result for result in run.results.values() if result.status is Status.ERROR]
    return [
        *([manifest.platform_warning] if manifest.platform_warning else []),
        *manifest.extension_failures,
        *(
            f"The analysis {name} cannot be used: {why}."
            for name, why in manifest.load_failures.items()
        ),
        *(f"The analysis {result.title} failed: {result.error}." for result in failed),
        *warning_lines(run.table(TABLE)),
    ]


def summary_of(run: "Run") -> list[str]:
    """Return the time of a step, and the findings that save most of it, as lines of text."""
    from jarvis.reports.ranking import recommendations
    from jarvis.savings import per_step, step_count, whole_ms, whole_name
    from jarvis.text.format import counted, milliseconds, percent
    from jarvis.text.messages import to_text

    totals, ranked = run.manifest.totals, recommendations(run)
    name = whole_name(totals)
    steps = step_count(totals)
    mean = f" (mean of {counted(steps, 'step')})" if steps > 1 else ""
    lines = [f"{name[0].upper()}{name[1:]}: {milliseconds(whole_ms(totals))}{mean}"]
    for each in ranked[:FIRST_FINDINGS]:
        title, gain = to_text(each.finding.title), each.finding.impact
        saves = "saving unknown"
        if gain is not None and gain.gain_ms <= 0:
            saves = "no step time saved"
        elif gain is not None:
            limit = "up to " if gain.is_interval else ""
            saved = milliseconds(per_step(gain, totals).gain_ms)
            saves = f"saves {limit}{saved} ({percent(gain.gain_pct)})"
        lines.append(f"{each.label} {title}: {saves}")
    return lines


def print_run(
    arguments: argparse.Namespace, run: "Run", head: Iterable[str] = (), **more: object
) -> None:
    """Print the paths of a run; with ``--json`` also its hardware, notes and warnings.

    Args:
        head: lines to print first.
        more: additional JSON values.
    """
    paths = RunPaths(run.root or Path())
    kinds = ("fair", "rough")
    reports = [paths.standalone_report(kind) for kind in kinds]
    if run.manifest.reference is not None:
        reports += [paths.comparative_report(kind) for kind in kinds]
    hardware = run.manifest.hardware
    result = {
        **more,
        "run": paths.root,
        "reports": reports,
        "manifest": paths.manifest,
        "hardware": hardware and hardware.title,
        "notes": run.manifest.extension_notes,
        "warnings": warnings_of(run),
    }
    print_result(arguments, result, [*head, paths.root, *reports])
