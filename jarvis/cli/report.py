"""``jarvis report``: write only the performance report, with TraceLens's options."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis.cli.atomic_output import atomic_output, write_sheets
from jarvis.cli.options import (
    GPU_OPTIONS,
    TRACE_HELP,
    Commands,
    add_captures,
    add_flag,
    add_options,
    at_least,
    capture_places,
    check_gpu,
    positive,
)
from jarvis.cli.output import ExitCode, add_json, note, print_result, print_step, warn
from jarvis.core.errors import JarvisError
from jarvis.core.workspace import RunPaths

if TYPE_CHECKING:
    from jarvis.tracelens.report import TraceLensReport


REPORT_OPTIONS: dict[str, tuple[Callable[[str], object] | None, str]] = {
    "enable_kernel_summary": (None, "add kernel_summary: kernels by name, stream and operator"),
    "short_kernel_study": (None, "add sheets about kernels shorter than a threshold"),
    "short_kernel_threshold_us": (at_least(0), "short-kernel threshold in µs (default: 10)"),
    "short_kernel_histogram_bins": (positive, "bins of their histogram (default: 100)"),
    "topk_short_kernels": (positive, "maximum rows of short_kernels_summary"),
    "topk_ops": (positive, "maximum rows of ops_summary, ops_unique_args, unified_perf_summary"),
    "topk_roofline_ops": (positive, "maximum rows of each roofline sheet"),
    "include_unlinked_kernels": (
        None,
        "count GPU work whose launch was not recorded in gpu_timeline",
    ),
    "micro_idle_thresh_us": (
        at_least(0),
        "split idle time into gaps shorter than this (in µs) and others",
    ),
    "disable_coll_analysis": (None, "leave coll_analysis out"),
    "group_by_num_kernels": (None, "group calls by the number of kernels they launch"),
    "group_by_parent_module": (None, "group calls by the module that makes them"),
    "include_overlap_info": (None, "add *_kl_overlap: concurrent work on other streams"),
    "detect_recompute": (None, "separate recomputation by activation checkpointing"),
    "include_first_occurrence_time": (None, "add the first time of each row of ops_unique_args"),
    "include_call_stack": (None, "add entry points and call stacks to unified_perf_summary"),
    "enable_pseudo_ops": (None, "add pseudo operators for the kernels of fused layers"),
    "inference": (
        None,
        "layout of TraceLens's inference report: pseudo operators, call stacks, calls grouped by "
        "module and number of kernels",
    ),
}
"""Report options by TraceLens's names: parser of the value (None for a switch), and help text."""

NOT_OFFERED = {
    "enable-origami": "The Origami simulator is a separate program and not part of Jarvis.",
    "python_path": "The GEMM simulator is a separate program and not part of Jarvis.",
    "inductor_cache_dir": "Shapes are read only from the trace, not from a compiler cache.",
}
"""TraceLens's unsupported options, and why."""


def add_report(commands: Commands) -> None:
    command = commands.add_parser(
        "report",
        help="write only the performance report, as CSV, xlsx or parquet",
        description="Write the performance report of a trace with TraceLens's sheet and column "
        "names, by default as a workbook next to the trace. Options have TraceLens's names; "
        "dashes and underscores are equivalent.",
    )
    command.add_argument("trace", metavar="TRACE", nargs="?", type=Path, help=TRACE_HELP)
    add = partial(add_flag, command)
    add("profile_json_path", metavar="TRACE", type=Path, help="same as TRACE")
    add("output_xlsx_path", metavar="FILE", type=Path, help="workbook with one tab per sheet")
    add("output_csvs_dir", metavar="DIR", type=Path, help="folder for one CSV per sheet")
    add(
        "output_parquet_dir",
        metavar="DIR",
        type=Path,
        help="folder for one parquet table per sheet, with the column names of docs/metrics.md",
    )
    add_options(command, (*GPU_OPTIONS, "extension_file"))
    add_captures(command)
    command.add_argument(
        "--models",
        choices=("all", "tracelens"),
        default="all",
        help="tracelens: use only TraceLens's perf models (default: all)",
    )
    add(
        "comparison_json_path",
        metavar="TRACE",
        type=Path,
        help="another trace; adds diff_stats, and its times to unified_perf_summary",
    )
    sheets = command.add_argument_group("sheets and columns")
    for name, (read, explanation) in REPORT_OPTIONS.items():
        kind: dict[str, Any] = {"type": read, "metavar": "N"} if read else {"action": "store_true"}
        add_flag(sheets, name, help=explanation, default=argparse.SUPPRESS, **kind)
    for name in NOT_OFFERED:
        add_flag(command, name, nargs="?", const=True, help=argparse.SUPPRESS)
    add_json(command)
    command.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> int:
    if (arguments.trace is None) == (arguments.profile_json_path is None):
        arguments.usage_error("give the trace exactly once, as TRACE or with --profile_json_path")
    check_gpu(arguments)
    values = vars(arguments)
    for name, reason in NOT_OFFERED.items():
        if values[name.replace("-", "_")] is not None:
            raise JarvisError(f"{reason} Remove --{name}.")
    from jarvis.extensions import load_extensions
    from jarvis.pipeline import generate_report
    from jarvis.trace_health import trace_health, warning_lines
    from jarvis.tracelens.options import INFERENCE, ReportOptions

    trace = arguments.trace or arguments.profile_json_path
    options = {name: values[name] for name in REPORT_OPTIONS if name in values}
    if options.get("inference"):
        options |= dict.fromkeys(INFERENCE, True)
    extensions = load_extensions(arguments.extension_file)
    note(extensions.notes)
    report = generate_report(
        trace,
        arguments.platform,
        arguments.preset,
        arch_json=arguments.arch_json,
        options=ReportOptions(**options),
        tracelens_models_only=arguments.models == "tracelens",
        extensions=extensions,
        comparison_path=arguments.comparison_json_path,
        captures=capture_places(arguments),
        progress=print_step,
    )
    warnings = [*warning_lines(trace_health(report.trace)), *_not_comparable(report)]
    warn(warnings)
    written = list(_write_report(report, arguments, trace))
    warn(extensions.failures)  # formulas are evaluated when the sheets are written
    result = {
        "files": written,
        "hardware": report.hardware and report.hardware.title,
        "notes": extensions.notes,
        "warnings": [*warnings, *extensions.failures],
    }
    print_result(arguments, result, written)
    return ExitCode.OK


def _not_comparable(report: "TraceLensReport") -> Iterator[str]:
    """Yield why traces cannot be compared."""
    if report.comparison is None:
        return
    for which, trace in (("trace", report.trace), ("compared trace", report.comparison)):
        if trace.launches.is_empty():
            yield (
                f"The {which} has no host calls that launch its GPU work, so the traces cannot be "
                "compared. Record both with ProfilerActivity.CPU."
            )


def _write_report(
    report: "TraceLensReport", arguments: argparse.Namespace, trace: Path
) -> Iterator[Path]:
    """Write the requested outputs, by default a workbook next to the trace; yield the paths."""
    from jarvis.run.store import write_parquet

    workbook = arguments.output_xlsx_path
    folder, tables = arguments.output_csvs_dir, arguments.output_parquet_dir
    if workbook is folder is tables is None:
        workbook = _workbook_beside(trace)
    sheets = report.sheets() if workbook or folder else {}
    yield from write_sheets(sheets, workbook, folder)
    if tables is not None:
        frames = {f"{name}.parquet": frame for name, frame in report.sheet_tables().items()}
        with atomic_output(tables) as place:
            place.mkdir()
            for name, frame in frames.items():
                write_parquet(frame, place / name)
        yield from (tables / name for name in frames)


def _workbook_beside(trace: Path) -> Path:
    """Return TraceLens's name: the trace's path before its last ``.json``, and a suffix."""
    stem = trace.name.rpartition(".json")[0] or trace.stem
    return trace.with_name(f"{stem}_{RunPaths(trace.parent).perf_report_xlsx.name}")
