"""What several commands say, take and print."""

import argparse
import json
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from jarvis.cli.completers import complete_gpu, complete_run, completed_by
from jarvis.cli.terminal import print_line, print_progress
from jarvis.cli.whole import is_standard_output
from jarvis.core.errors import NotARunError, UnknownRunError
from jarvis.core.request import PERCENTAGE, AnalysisOptions, AnalysisRequest, public_name
from jarvis.core.workspace import ARTIFACT_ROOT_VARIABLE, CONFIG_VARIABLE, RunPaths, stored_run_dir

if TYPE_CHECKING:
    from jarvis.pipeline import Step

TRACE_HELP = "trace of the PyTorch profiler (.json, .json.gz, or a .zip of one)"
RUN_HELP = "run directory of an analysis, or the id of a kept one"
JSON_HELP = "print the result as one JSON document, and nothing else on stdout"

LONG_STEP_S = 1.0
"""A step that takes longer says so."""

GPU_OPTIONS = ("platform", "arch_json", "preset")
_METAVARS = {
    "platform": "GPU",
    "model_name": "NAME",
    "reference": "RUN",
    "target_pct": "PERCENT",
    "extension_file": "FILE",
    "arch_json": "FILE",
}
_ALIASES = {"platform": ("gpu_arch_platform",), "model_name": ("name",)}
_FIELDS = {field.name: field for field in fields(AnalysisRequest)}

Request = TypeVar("Request", bound=AnalysisOptions)
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


def add_options(
    command: argparse.ArgumentParser, names: Collection[str], **explanations: str
) -> dict[str, argparse.Action]:
    """Offer fields of an ``AnalysisRequest``, with other help texts where given; the actions."""
    gpu = command.add_mutually_exclusive_group()
    command.set_defaults(usage_error=command.error)
    return {
        name: add_option(
            gpu if name in ("platform", "arch_json") else command,
            name,
            help=explanations.get(name, explained(name)),
        )
        for name in names
    }


def add_option(options: Options, name: str, **settings: Any) -> argparse.Action:
    """Offer a field of an ``AnalysisRequest``, with other ``settings`` where given."""
    field = _FIELDS[name]
    (kind,) = (one for one in get_args(field.type) or (field.type,) if one is not NoneType)
    read = {"action": "store_true"} if kind is bool else {"type": _READERS.get(kind, kind)}
    if name in _METAVARS:
        read["metavar"] = _METAVARS[name]
    described = {"dest": name, "default": field.default, "help": explained(name), **read}
    names = (public_name(name), *_ALIASES.get(name, ()))
    action = add_flag(options, *names, **{**described, **settings})
    return completed_by(action, complete_gpu) if name == "platform" else action


def explained(name: str) -> str:
    """Return the help text of a field of an ``AnalysisRequest``."""
    field = _FIELDS[name]
    default = f" (default: {field.default:g})" if isinstance(field.default, float) else ""
    return f"{field.metadata['description']}{default}"


def request_of(arguments: argparse.Namespace, kind: type[Request]) -> Request:
    """Return what the options of ``add_options`` ask for; end with a usage error where they
    contradict each other."""
    check_gpu(arguments)
    return kind(**{field.name: getattr(arguments, field.name) for field in fields(kind)})


def check_gpu(arguments: argparse.Namespace) -> None:
    """End with a usage error where the options that choose a GPU contradict each other."""
    if getattr(arguments, "arch_json", None) and arguments.preset:
        arguments.usage_error("--preset chooses among described GPUs, not in a file")


def percentage(text: str) -> float:
    """Read a percentage above 0."""
    percentage = float(text)
    if not PERCENTAGE["gt"] < percentage <= PERCENTAGE["le"]:
        raise argparse.ArgumentTypeError(f"{text} is not a percentage above 0, at most 100")
    return percentage


_READERS: dict[type, Any] = {float: percentage}
"""What reads a value; other types read it themselves."""


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
    """The folder of a stored analysis that ``given`` is the id of, fetched where it is shared."""
    if any(os.environ.get(name) for name in (ARTIFACT_ROOT_VARIABLE, CONFIG_VARIABLE)):
        from jarvis.server.storage.catalog import is_stored  # slow to import

        is_stored(given)
    return stored_run_dir(given)


def run_directory(given: str) -> Path:
    """The run directory that a path or the id of a stored analysis names.

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
