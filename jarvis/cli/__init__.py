"""The command line: ``jarvis report | analyze | validate | export | serve | ...``.

Steps go to stderr, what was written to stdout. Exit code 1 with a sentence where something cannot
be done, 2 where the command is not understood. Heavy parts are imported by the commands.
"""

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from jarvis.cli.hardware import add_hardware, add_reproject
from jarvis.cli.report import add_report
from jarvis.cli.shared import (
    ARCH_HELP,
    EXTENSION_HELP,
    PLATFORM_HELP,
    PRESET_HELP,
    TRACE_HELP,
    Commands,
    note,
    print_step,
    warn,
)
from jarvis.cli.validate import add_validate
from jarvis.errors import JarvisError
from jarvis.workspace import HOME_VARIABLE, RunPaths, default_output_dir, home, resource

DESCRIPTION = "Turns a PyTorch profiler trace into a performance report, findings and advice."
EPILOG = """\
a first try, without a trace of your own:
  jarvis sample --output sample.json.gz
  jarvis analyze sample.json.gz --output-dir out
  jarvis serve
"""

GARBAGE_THRESHOLD = 100_000
"""New objects between two searches for garbage; importing makes many and drops none."""


def run() -> NoReturn:
    """The program: runs one command and is gone.

    An orderly end would take the libraries down piece by piece, which is a fifth of the time that
    a small analysis takes; all files are closed by then. Pydantic would look for plugins in every
    installed package first, and none is used here.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = parser().parse_args(argv)
    gc.set_threshold(GARBAGE_THRESHOLD)
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
    add_report(commands)
    add_validate(commands)
    _add_export(commands)
    _add_serve(commands)
    _add_sample(commands)
    add_hardware(commands)
    add_reproject(commands)
    return root


def _add_analyze(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "analyze",
        help="analyse a trace: report, findings and advice in a folder",
        description="Analyse a trace and write a run directory: the performance report, the data "
        "and findings of each category, and the reports for stakeholders (fair) and for those who "
        "audit them (rough).",
    )
    command.add_argument("trace", metavar="TRACE", type=Path, help=TRACE_HELP)
    gpu = command.add_mutually_exclusive_group()
    gpu.add_argument("--platform", metavar="GPU", help=PLATFORM_HELP)
    gpu.add_argument(
        "--gpu_arch_json_path",
        "--gpu-arch-json-path",
        metavar="FILE",
        type=Path,
        help=ARCH_HELP,
    )
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
        "--extension-file", "--extension_file", metavar="FILE", type=Path, help=EXTENSION_HELP
    )
    command.add_argument(
        "--plots",
        action="store_true",
        help="also draw images for the reports (with the extra jarvis-perf[plots])",
    )
    command.add_argument(
        "--id",
        action="store_true",
        help=f"keep the analysis under its id in {HOME_VARIABLE} (default ~/.jarvis), where "
        "`jarvis serve` finds it; with --output-dir also write it there",
    )
    command.set_defaults(run=_analyze, usage_error=command.error)


def _add_export(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "export",
        help="write an analysis in another format",
        description="Write an analysed trace in one format: the whole run as JSON, or the report "
        "as one HTML file with charts (`--format html`).",
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


def _analyze(arguments: argparse.Namespace) -> int:
    if arguments.gpu_arch_json_path and arguments.preset:
        arguments.usage_error("--preset chooses among described GPUs, not in a file")
    from jarvis.run import Run
    from jarvis.trace_health import TABLE as HEALTH
    from jarvis.trace_health import warning_lines

    options = {
        "platform": arguments.platform,
        "preset": arguments.preset,
        "extension_file": arguments.extension_file,
        "arch_json": arguments.gpu_arch_json_path,
    }
    if arguments.plots:
        from jarvis.reports.plot import check_drawing

        check_drawing()
    if arguments.id:
        from jarvis.run import read_manifest
        from jarvis.server.submission import Submission, submit

        submission = Submission(
            arguments.trace, model_name=arguments.model, copy_to=arguments.output_dir, **options
        )
        kept = submit(submission, print_step)
        root, manifest = kept.root, read_manifest(kept.root)
        print(f"analysis {kept.id}{' (kept before)' if kept.is_reused else ''}")
    else:
        from jarvis.pipeline import analyze

        root = arguments.output_dir or default_output_dir(arguments.trace)
        manifest = analyze(
            arguments.trace,
            model_name=arguments.model,
            output_dir=root,
            progress=print_step,
            **options,
        ).manifest
    if manifest.platform_warning:
        warn([manifest.platform_warning])
    note(manifest.extension_notes)
    warn(manifest.extension_failures)
    run = Run.load(root)
    warn(warning_lines(run.table(HEALTH)))
    if arguments.plots:
        from jarvis.reports import add_plots

        copies = [arguments.output_dir] if arguments.id and arguments.output_dir else []
        for folder in (root, *copies):
            add_plots(run, folder)
    paths = RunPaths(root)
    for path in (root, paths.standalone_report("fair"), paths.standalone_report("rough")):
        print(path)
    return 0


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
    import_module("jarvis.trace.compiled")  # so that no visitor waits for the compiler
    from jarvis.server.intake import ROOTS_VARIABLE, sample_trace
    from jarvis.server.submission import Submission, submit

    if arguments.with_sample:
        kept = submit(Submission(sample_trace()), print_step)
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
