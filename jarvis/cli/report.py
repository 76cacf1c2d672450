"""``jarvis report``: the performance report alone, with TraceLens's options."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.shared import (
    GPU_OPTIONS,
    TRACE_HELP,
    Commands,
    add_flag,
    add_json,
    add_options,
    check_gpu,
    note,
    print_result,
    print_step,
    warn,
)
from jarvis.cli.whole import whole
from jarvis.core.errors import JarvisError
from jarvis.core.workspace import RunPaths

if TYPE_CHECKING:
    from jarvis.tracelens.report import TraceLensReport


def _positive(text: str) -> int:
    """A whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _not_negative(text: str) -> float:
    """A number from 0 on."""
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return number


REPORT_OPTIONS: dict[str, tuple[Callable[[str], object] | None, str]] = {
    "enable_kernel_summary": (None, "add kernel_summary: kernels by name, stream and operator"),
    "short_kernel_study": (None, "add sheets about kernels shorter than a threshold"),
    "short_kernel_threshold_us": (_not_negative, "that threshold in µs (default: 10)"),
    "short_kernel_histogram_bins": (_positive, "bins of their histogram (default: 100)"),
    "topk_short_kernels": (_positive, "rows of short_kernels_summary to keep"),
    "topk_ops": (_positive, "rows of ops_summary, ops_unique_args, unified_perf_summary to keep"),
    "topk_roofline_ops": (_positive, "rows of each roofline sheet to keep"),
    "include_unlinked_kernels": (
        None,
        "count GPU work whose launch was not recorded in gpu_timeline",
    ),
    "micro_idle_thresh_us": (
        _not_negative,
        "split idle time into gaps shorter than this and others",
    ),
    "disable_coll_analysis": (None, "leave coll_analysis out"),
    "group_by_num_kernels": (None, "tell calls apart by how many kernels they launch"),
    "include_overlap_info": (None, "add *_kl_overlap: what other streams do at the same time"),
    "detect_recompute": (None, "tell work apart that activation checkpointing runs again"),
    "include_first_occurrence_time": (None, "add when each row of ops_unique_args first occurs"),
    "include_call_stack": (None, "add entry points and call stacks to unified_perf_summary"),
    "enable_pseudo_ops": (None, "give the kernels of fused layers operators of their own"),
}
"""Options of a report by TraceLens's names: what reads the value (None: a switch), and the help."""

NOT_OFFERED = {
    "enable-origami": "The Origami simulator is a program of its own and not part of Jarvis.",
    "python_path": "The GEMM simulator is a program of its own and not part of Jarvis.",
    "inductor_cache_dir": "Shapes come from the trace alone, never from a compiler cache.",
}
"""TraceLens's options that have no equivalent here, and why."""


def add_report(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "report",
        help="write the performance report alone, as CSV, xlsx or parquet",
        description="Write the performance report of a trace under TraceLens's sheet and column "
        "names. Without an output option: a workbook beside the trace. Options have TraceLens's "
        "names; dashes do for underscores.",
    )
    command.add_argument("trace", metavar="TRACE", nargs="?", type=Path, help=TRACE_HELP)
    add = partial(add_flag, command)
    add("profile_json_path", metavar="TRACE", type=Path, help="the trace, in TraceLens's spelling")
    add("output_xlsx_path", metavar="FILE", type=Path, help="workbook with one tab per sheet")
    add("output_csvs_dir", metavar="DIR", type=Path, help="folder for one CSV per sheet")
    add(
        "output_parquet_dir",
        metavar="DIR",
        type=Path,
        help="folder for one parquet table per sheet, with the column names of docs/metrics.md",
    )
    add_options(command, (*GPU_OPTIONS, "extension_file"))
    command.add_argument(
        "--models",
        choices=("all", "tracelens"),
        default="all",
        help="tracelens: only the perf models that TraceLens has (default: all)",
    )
    add(
        "comparison_json_path",
        metavar="TRACE",
        type=Path,
        help="another trace: add diff_stats, and its times to unified_perf_summary",
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
        arguments.usage_error("give the trace once, as TRACE or with --profile_json_path")
    check_gpu(arguments)
    given = vars(arguments)
    for name, reason in NOT_OFFERED.items():
        if given[name.replace("-", "_")] is not None:
            raise JarvisError(f"{reason} Leave out --{name}.")
    from jarvis.extensions import load_extensions
    from jarvis.pipeline import generate_report
    from jarvis.trace_health import trace_health, warning_lines
    from jarvis.tracelens.options import ReportOptions

    trace = arguments.trace or arguments.profile_json_path
    options = {name: given[name] for name in REPORT_OPTIONS if name in given}
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
        progress=print_step,
    )
    warnings = [*warning_lines(trace_health(report.trace)), *_not_comparable(report)]
    warn(warnings)
    written = list(_write_report(report, arguments, trace))
    warn(extensions.failures)  # formulas fail when the sheets are made
    result = {
        "files": written,
        "hardware": report.hardware and report.hardware.title,
        "notes": extensions.notes,
        "warnings": [*warnings, *extensions.failures],
    }
    print_result(arguments, result, written)
    return ExitCode.OK


def _not_comparable(report: "TraceLensReport") -> Iterator[str]:
    """What a comparison lacks."""
    if report.comparison is None:
        return
    for which, trace in (("trace", report.trace), ("compared trace", report.comparison)):
        if trace.launches.is_empty():
            yield (
                f"The {which} does not say which host calls launched its GPU work, so there is "
                "nothing to compare by. Record both with ProfilerActivity.CPU."
            )


def _write_report(
    report: "TraceLensReport", arguments: argparse.Namespace, trace: Path
) -> Iterator[Path]:
    """Write what the output options ask for; by default a workbook beside the trace."""
    from jarvis.reports.csv import write_csvs
    from jarvis.reports.parquet import write_parquets
    from jarvis.reports.xlsx import write_workbook

    workbook = arguments.output_xlsx_path
    folder, tables = arguments.output_csvs_dir, arguments.output_parquet_dir
    if workbook is folder is tables is None:
        workbook = _workbook_beside(trace)
    sheets = report.sheets() if workbook or folder else {}
    if workbook is not None:
        with whole(workbook) as place:
            write_workbook(sheets, place)
        yield workbook
    if folder is not None:
        with whole(folder) as place:
            written = write_csvs(sheets, place)
        yield from (folder / path.name for path in written)
    if tables is not None:
        with whole(tables) as place:
            written = write_parquets(report.sheet_tables(), place)
        yield from (tables / path.name for path in written)


def _workbook_beside(trace: Path) -> Path:
    """As TraceLens names it: the path up to its last ``.json``, and what it is."""
    stem = trace.name.rpartition(".json")[0] or trace.stem
    return trace.with_name(f"{stem}_{RunPaths(trace.parent).perf_report_xlsx.name}")
