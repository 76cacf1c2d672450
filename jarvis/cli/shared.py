"""What several commands say, take and print."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis.cli.completers import complete_gpu, complete_run, completed_by
from jarvis.cli.terminal import print_line, print_progress
from jarvis.cli.whole import is_standard_output
from jarvis.core.errors import NotARunError, UnknownRunError
from jarvis.core.workspace import ARTIFACT_ROOT_VARIABLE, CONFIG_VARIABLE, RunPaths, stored_run_dir

if TYPE_CHECKING:
    from jarvis.pipeline import Step

EXTENSION_HELP = "Python file with perf models, op categories and categories of your own; it is run"
TRACE_HELP = "trace of the PyTorch profiler (.json, .json.gz, or a .zip of one)"
RUN_HELP = "run directory of an analysis, or the id of a kept one"
PLATFORM_HELP = "GPU to judge against, as `jarvis hardware` lists it (default: the trace's own)"
ARCH_HELP = "GPU described in a JSON file as TraceLens takes it"
PRESET_HELP = "which figures of that GPU, where there are several (default: its first)"
TARGET_HELP = (
    "target efficiency that savings are projected to, in percent of the roofline (default: 80)"
)
JSON_HELP = "print the result as one JSON document, and nothing else on stdout"

LONG_STEP_S = 1.0
"""A step that takes longer says so."""

Commands = argparse._SubParsersAction
Options = argparse._ActionsContainer
"""A command, or a group of its options."""


def add_flag(options: Options, name: str, *others: str, **settings: Any) -> argparse.Action:
    """An option under its name with either kind of dash; TraceLens's names have underscores.

    ``others`` are further names that mean the same.
    """
    names = (name, *others)
    spellings = [f"--{name.replace(*pair)}" for name in names for pair in (("_", "-"), ("-", "_"))]
    return options.add_argument(*dict.fromkeys(spellings), **settings)


def add_run(
    command: argparse.ArgumentParser, name: str = "directory", explanation: str = RUN_HELP
) -> None:
    """The analysis that a command is about; ``run_directory`` finds it."""
    action = command.add_argument(name, metavar="RUN", help=explanation)
    completed_by(action, complete_run)


def add_gpu(command: argparse.ArgumentParser) -> None:
    """Which GPU to judge against: by name, with a preset, or by a description in a file."""
    gpu = command.add_mutually_exclusive_group()
    platform = add_flag(gpu, "platform", "gpu_arch_platform", metavar="GPU", help=PLATFORM_HELP)
    completed_by(platform, complete_gpu)
    add_flag(gpu, "gpu_arch_json_path", metavar="FILE", type=Path, help=ARCH_HELP)
    command.add_argument("--preset", help=PRESET_HELP)
    command.set_defaults(usage_error=command.error)


def check_gpu(arguments: argparse.Namespace) -> None:
    """End with a usage error where the options of ``add_gpu`` contradict each other."""
    if arguments.gpu_arch_json_path and arguments.preset:
        arguments.usage_error("--preset chooses among described GPUs, not in a file")


def add_target(command: argparse.ArgumentParser, explanation: str = TARGET_HELP) -> None:
    """The efficiency that savings are projected to; None where it is not given."""
    add_flag(command, "target_pct", metavar="PERCENT", type=percentage, help=explanation)


def percentage(text: str) -> float:
    """A percentage above 0."""
    percentage = float(text)
    if not 0 < percentage <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not a percentage above 0, at most 100")
    return percentage


def add_settings_file(command: argparse.ArgumentParser) -> None:
    """Where the settings of a server are, for what needs them."""
    explanation = f"settings as TOML (default: {CONFIG_VARIABLE}, else none)"
    command.add_argument("--config", metavar="FILE", type=Path, help=explanation)


def add_json(command: argparse.ArgumentParser, **settings: Any) -> None:
    """The option for machines."""
    command.add_argument("--json", action="store_true", help=JSON_HELP, **settings)


def print_result(
    arguments: argparse.Namespace, result: Mapping[str, object], lines: Iterable[object]
) -> None:
    """Print the ``result`` as JSON where ``--json`` asks for it, else ``lines`` for people.

    They go to stderr where one of the lines names stdout as the file that was written.
    """
    lines = list(lines)
    is_taken = any(isinstance(line, Path) and is_standard_output(line) for line in lines)
    if arguments.json:
        document = json.dumps(result, indent=2, ensure_ascii=False, default=str)
        lines = document.split("\n")
    for line in lines:
        print_line(line, sys.stderr if is_taken else arguments.stdout)


def stored_folder(given: str) -> Path | None:
    """The folder of a kept analysis that ``given`` is the id of, fetched where it is shared."""
    if any(os.environ.get(name) for name in (ARTIFACT_ROOT_VARIABLE, CONFIG_VARIABLE)):
        from jarvis.server.storage.catalogue import is_stored  # slow to import

        is_stored(given)
    return stored_run_dir(given)


def run_directory(given: str) -> Path:
    """The run directory that a path or the id of a kept analysis names.

    Raises UnknownRunError where it names neither, NotARunError for another folder.
    """
    kept = stored_folder(given)
    root = Path(given) if kept is None else kept
    if not root.exists():
        raise UnknownRunError(given)
    if not RunPaths(root).manifest.is_file():
        raise NotARunError(root)
    return root


def print_step(step: "Step") -> None:
    """Say to stderr which step begins, to a terminal how far it is, and how long it took."""
    if step.state == "running":
        print_reading(step.reading)
    elif step.elapsed_s is None:
        print_line(f"[{step.number}/{step.total}] {step.name}", sys.stderr)
    elif step.elapsed_s >= LONG_STEP_S:
        print_progress(f"      took {step.elapsed_s:.1f} s", is_last=True)


def print_reading(reading: object) -> None:
    """Say to a terminal on stderr how far a file has been read."""
    print_progress(f"      {reading}")


def note(lines: Iterable[str]) -> None:
    """Say to stderr what is good to know, a line each."""
    for line in lines:
        print_line(f"note: {line}", sys.stderr)


def warn(lines: Iterable[str]) -> None:
    """Say warnings to stderr, a line each."""
    for line in lines:
        print_line(f"warning: {line}", sys.stderr)
