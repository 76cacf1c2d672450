"""The command line: ``jarvis report | analyze | export | sample | hardware | serve``.

Steps go to stderr, what was written to stdout. Exit code 1 with a sentence where something cannot
be done, 2 where the command is not understood. Heavy parts are imported by the commands.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis.errors import JarvisError
from jarvis.workspace import HOME_VARIABLE, RunPaths, default_output_dir, home, resource

if TYPE_CHECKING:
    from jarvis.perf_report import PerfReport
    from jarvis.pipeline import Step

DESCRIPTION = "Turns a PyTorch profiler trace into a performance report, findings and advice."
EPILOG = """\
a first try, without a trace of your own:
  jarvis sample --output sample.json.gz
  jarvis analyze sample.json.gz --output-dir out
  jarvis serve
"""
TRACE_HELP = "trace of the PyTorch profiler (.json or .json.gz)"
PLATFORM_HELP = "GPU to judge against, as `jarvis hardware` lists it (default: the trace's own)"
PRESET_HELP = "which figures of that GPU, where there are several (default: its first)"

LONG_STEP_S = 1.0
"""A step that takes longer says so."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except JarvisError as error:
        print(f"jarvis: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(
            f"jarvis: {where}{error.strerror or error}. Check that it exists and may be written, "
            "or choose another place.",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("jarvis: stopped.", file=sys.stderr)
        return 130
    return code


def parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    root = argparse.ArgumentParser(
        prog="jarvis",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = root.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_analyze(commands)
    _add_report(commands)
    _add_export(commands)
    _add_serve(commands)
    _add_sample(commands)
    _add_hardware(commands)
    return root


Commands = argparse._SubParsersAction


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


def _add_analyze(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "analyze",
        help="analyse a trace: report, findings and advice in a folder",
        description="Analyse a trace and write a run directory: the performance report, the data "
        "and findings of each category, and the reports for stakeholders (fair) and for those who "
        "audit them (rough).",
    )
    command.add_argument("trace", metavar="TRACE", type=Path, help=TRACE_HELP)
    command.add_argument("--platform", metavar="GPU", help=PLATFORM_HELP)
    command.add_argument("--preset", help=PRESET_HELP)
    command.add_argument("--model", metavar="NAME", help="name of the model, for the titles")
    command.add_argument(
        "--output-dir",
        "--output_dir",
        metavar="DIR",
        type=Path,
        help="folder to write (default: analysis_output beside the trace); a folder that holds "
        "anything but an analysis of this trace is refused",
    )
    command.add_argument(
        "--id",
        action="store_true",
        help=f"keep the analysis under its id in {HOME_VARIABLE} (default ~/.jarvis), where "
        "`jarvis serve` finds it; with --output-dir also write it there",
    )
    command.set_defaults(run=_analyze)


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
    "extension_file": "Extension files are not supported yet.",
    "comparison_json_path": "Comparing two traces in one report is not supported yet.",
}
"""TraceLens's options that have no equivalent here, and why."""


def _add_report(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "report",
        help="write the performance report alone, as CSV, xlsx or parquet",
        description="Write the performance report of a trace under TraceLens's sheet and column "
        "names. Without an output option: a workbook beside the trace. Options have TraceLens's "
        "names; dashes do for underscores.",
    )
    command.add_argument("trace", metavar="TRACE", nargs="?", type=Path, help=TRACE_HELP)
    add = partial(_add_flag, command)
    add("profile_json_path", metavar="TRACE", type=Path, help="the trace, in TraceLens's spelling")
    add("output_xlsx_path", metavar="FILE", type=Path, help="workbook with one tab per sheet")
    add("output_csvs_dir", metavar="DIR", type=Path, help="folder for one CSV per sheet")
    add(
        "output_parquet_dir",
        metavar="DIR",
        type=Path,
        help="folder for one parquet table per sheet, with the column names of docs/metrics.md",
    )
    hardware = command.add_mutually_exclusive_group()
    _add_flag(hardware, "gpu_arch_platform", metavar="GPU", help=PLATFORM_HELP)
    _add_flag(
        hardware, "gpu_arch_json_path", metavar="FILE", type=Path, help="GPU described in a file"
    )
    command.add_argument("--preset", help=PRESET_HELP)
    command.add_argument(
        "--models",
        choices=("all", "tracelens"),
        default="all",
        help="tracelens: only the perf models that TraceLens has (default: all)",
    )
    sheets = command.add_argument_group("sheets and columns")
    for name, (read, explanation) in REPORT_OPTIONS.items():
        kind: dict[str, Any] = {"type": read, "metavar": "N"} if read else {"action": "store_true"}
        _add_flag(sheets, name, help=explanation, default=argparse.SUPPRESS, **kind)
    for name in NOT_OFFERED:
        _add_flag(command, name, nargs="?", const=True, help=argparse.SUPPRESS)
    command.set_defaults(run=_report, usage_error=command.error)


def _add_flag(
    command: "argparse._ActionsContainer",
    name: str,
    **options: Any,
) -> None:
    """An option under TraceLens's name, and with the other kind of dash."""
    spellings = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
    command.add_argument(*spellings, **options)


def _add_export(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "export",
        help="write an analysis in another format",
        description="Write an analysed trace in one format, for instance the whole run as JSON.",
    )
    command.add_argument("directory", metavar="RUN", type=Path, help="run directory of an analysis")
    command.add_argument("--format", default="json", metavar="NAME", help="format (default: json)")
    command.add_argument(
        "--output", metavar="PATH", type=Path, required=True, help="file or folder to write"
    )
    command.set_defaults(run=_export)


def _add_serve(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "serve", help="serve the dashboard", description="Serve the dashboard until interrupted."
    )
    command.add_argument("--port", type=int, default=8501, help="port (default: 8501)")
    command.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
    command.add_argument(
        "--home",
        metavar="DIR",
        type=Path,
        help=f"where analyses are kept (default: {HOME_VARIABLE}, else ~/.jarvis)",
    )
    command.add_argument(
        "--with-sample", action="store_true", help="analyse the simulated sample first"
    )
    command.set_defaults(run=_serve)


def _add_sample(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "sample",
        help="write a simulated trace",
        description="Write the trace of a simulated training step; it says that it is simulated. "
        "With several ranks, one file each.",
    )
    command.add_argument(
        "--output", metavar="FILE", type=Path, default=Path("sample.json.gz"), help="file to write"
    )
    command.add_argument("--steps", type=int, default=2, help="training steps (default: 2)")
    command.add_argument("--ranks", type=int, default=1, help="traces to write (default: 1)")
    command.add_argument(
        "--world-size", type=int, help="processes that train together (default: 8, or --ranks)"
    )
    command.add_argument("--seed", type=int, default=0, help="seed of all chance (default: 0)")
    command.add_argument("--scale", default="small", help="size of the model (default: small)")
    command.set_defaults(run=_sample)


def _add_hardware(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "hardware",
        help="list the GPUs with their peaks",
        description="List the described GPUs with bandwidth, memory and main compute peaks.",
    )
    command.set_defaults(run=_hardware)


def _analyze(arguments: argparse.Namespace) -> int:
    from jarvis.run import Run
    from jarvis.trace_health import TABLE as HEALTH
    from jarvis.trace_health import warning_lines

    options = {"platform": arguments.platform, "preset": arguments.preset}
    if arguments.id:
        from jarvis.run import read_manifest
        from jarvis.server.submission import Submission, submit

        submission = Submission(
            arguments.trace, model_name=arguments.model, copy_to=arguments.output_dir, **options
        )
        kept = submit(submission, _print_step)
        root, manifest = kept.root, read_manifest(kept.root)
        print(f"analysis {kept.id}{' (kept before)' if kept.is_reused else ''}")
    else:
        from jarvis.pipeline import analyze

        root = arguments.output_dir or default_output_dir(arguments.trace)
        run = analyze(
            arguments.trace,
            model_name=arguments.model,
            output_dir=root,
            progress=_print_step,
            **options,
        )
        manifest = run.manifest
    if manifest.platform_warning:
        _warn([manifest.platform_warning])
    _warn(warning_lines(Run.load(root).table(HEALTH)))
    paths = RunPaths(root)
    for path in (root, paths.standalone_report("fair"), paths.standalone_report("rough")):
        print(path)
    return 0


def _report(arguments: argparse.Namespace) -> int:
    if (arguments.trace is None) == (arguments.profile_json_path is None):
        arguments.usage_error("give the trace once, as TRACE or with --profile_json_path")
    if arguments.gpu_arch_json_path and arguments.preset:
        arguments.usage_error("--preset chooses among described GPUs, not in a file")
    given = vars(arguments)
    for name, reason in NOT_OFFERED.items():
        if given[name.replace("-", "_")] is not None:
            raise JarvisError(f"{reason} Leave out --{name}.")
    from jarvis.perf_report import ReportOptions
    from jarvis.pipeline import generate_report
    from jarvis.trace_health import trace_health, warning_lines

    trace = arguments.trace or arguments.profile_json_path
    options = {name: given[name] for name in REPORT_OPTIONS if name in given}
    report = generate_report(
        trace,
        arguments.gpu_arch_platform,
        arguments.preset,
        arch_json=arguments.gpu_arch_json_path,
        options=ReportOptions(**options),
        tracelens_models_only=arguments.models == "tracelens",
        progress=_print_step,
    )
    _warn(warning_lines(trace_health(report.trace)))
    for path in _write_report(report, arguments, trace):
        print(path)
    return 0


def _write_report(
    report: "PerfReport", arguments: argparse.Namespace, trace: Path
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
        yield write_workbook(sheets, workbook)
    if folder is not None:
        yield from write_csvs(sheets, folder)
    if tables is not None:
        yield from write_parquets(report.sheet_tables(), tables)


def _workbook_beside(trace: Path) -> Path:
    """As TraceLens names it: the path up to its last ``.json``, and what it is."""
    stem = trace.name.rpartition(".json")[0] or trace.stem
    return trace.with_name(f"{stem}_{RunPaths(trace.parent).perf_report_xlsx.name}")


def _export(arguments: argparse.Namespace) -> int:
    from jarvis.reports import load_reporters
    from jarvis.run import Run

    reporters = load_reporters()
    if arguments.format not in reporters:
        known = ", ".join(reporters)
        raise JarvisError(f"There is no format {arguments.format!r}. Choose one of {known}.")
    reporters[arguments.format].render(Run.load(arguments.directory), arguments.output)
    print(arguments.output)
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    if arguments.home is not None:
        os.environ[HOME_VARIABLE] = str(arguments.home.resolve())
    from jarvis.server.intake import ROOTS_VARIABLE, sample_trace
    from jarvis.server.submission import Submission, submit

    if arguments.with_sample:
        kept = submit(Submission(sample_trace()), _print_step)
        print(f"http://{arguments.host}:{arguments.port}/overview?analysis={kept.id}", flush=True)
    # The server runs in the app's folder; paths stay relative to where the user stands.
    os.environ.setdefault(ROOTS_VARIABLE, os.pathsep.join((str(Path.cwd()), str(home()))))
    os.environ[HOME_VARIABLE] = str(home().resolve())
    app = resource("app.py")
    os.chdir(app.parent)
    options = ["--server.port", str(arguments.port), "--server.address", arguments.host]
    command = [sys.executable, "-m", "streamlit", "run", app.name, *options]
    os.execv(sys.executable, command)  # so that a signal reaches the server itself


def _sample(arguments: argparse.Namespace) -> int:
    from jarvis.sample import write_sample

    world_size = arguments.world_size or max(arguments.ranks, 8)
    for rank in range(arguments.ranks):
        path = arguments.output
        if arguments.ranks > 1:
            path = path.with_name(f"rank{rank}_{path.name}")
        print(
            write_sample(
                path,
                steps=arguments.steps,
                rank=rank,
                world_size=world_size,
                seed=arguments.seed,
                scale=arguments.scale,
            )
        )
    return 0


def _hardware(_: argparse.Namespace) -> int:
    from jarvis.hardware import load_hardware

    precisions = ("matrix_bf16", "matrix_fp16", "matrix_fp8")
    titles = [precision.replace("_", " ") for precision in precisions]
    print("Bandwidth in TB/s, memory in GB, dense peaks in TFLOPS/s; - where not known.")
    print(_line("GPU", "preset", ["bandwidth", "memory", *titles]))
    for spec in load_hardware():
        peaks = [spec.peak_tflops(precision) for precision in precisions]
        figures = [spec.tb_per_s, spec.memory_gb, *peaks]
        print(_line(spec.name, spec.preset, ["-" if f is None else f"{f:.5g}" for f in figures]))
    return 0


def _line(name: str, preset: str, cells: Sequence[str]) -> str:
    return f"{name:<16} {preset:<12}" + "".join(f"{cell:>13}" for cell in cells)


def _warn(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"warning: {line}", file=sys.stderr)


def _print_step(step: "Step") -> None:
    if step.elapsed_s is None:
        print(f"[{step.number}/{step.total}] {step.name}", file=sys.stderr)
    elif step.elapsed_s >= LONG_STEP_S:
        print(f"      took {step.elapsed_s:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
