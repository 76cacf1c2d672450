"""Options that several commands share, and the completion of their values."""

import argparse
import math
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeAlias, TypeVar, get_args

from jarvis.core.errors import NotARunError, UnknownRunError
from jarvis.core.labels import RunLabels
from jarvis.core.request import PERCENTAGE, AnalysisOptions, AnalysisRequest, public_name
from jarvis.core.workspace import (
    ARTIFACT_ROOT_VARIABLE,
    CONFIG_VARIABLE,
    RunPaths,
    analyses_dir,
    stored_run_dir,
)

TRACE_HELP = "trace of the PyTorch profiler (.json, .json.gz, or a .zip of one)"
RUN_HELP = "run directory, or the id of a stored analysis"
GPU_OPTIONS = ("platform", "arch_json", "preset")
MODEL_OPTIONS = ("served_model", "tensor_parallel", "expert_parallel")

_METAVARS = {
    "platform": "GPU",
    "model_name": "NAME",
    "reference": "RUN",
    "target_pct": "PERCENT",
    "category_targets": "CATEGORY=PERCENT,...",
    "extension_file": "FILE",
    "capture_folder": "DIR",
    "arch_json": "FILE",
    "served_model": "FILE",
    "tensor_parallel": "N",
    "expert_parallel": "N",
}

_ALIASES = {"platform": ("gpu_arch_platform",), "model_name": ("name",)}
_FIELDS = {field.name: field for field in fields(AnalysisRequest)}
Request = TypeVar("Request", bound=AnalysisOptions)

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

Options = argparse._ActionsContainer
"""A command, or a group of its options."""


def add_flag(options: Options, name: str, *others: str, **settings: Any) -> argparse.Action:
    """Add an option that is accepted with dashes and with underscores, as TraceLens's names have.

    Args:
        others: aliases.
        settings: arguments of ``add_argument``.
    """
    names = (name, *others)
    spellings = [f"--{name.replace(*pair)}" for name in names for pair in (("_", "-"), ("-", "_"))]
    return options.add_argument(*dict.fromkeys(spellings), **settings)


def add_run(
    command: argparse.ArgumentParser, name: str = "directory", explanation: str = RUN_HELP
) -> None:
    """Add the argument of a run; resolve it with ``run_directory``."""
    action = command.add_argument(name, metavar="RUN", help=explanation)
    completed_by(action, complete_run)


def add_options(
    command: argparse.ArgumentParser, names: Collection[str], **explanations: str
) -> dict[str, argparse.Action]:
    """Add options for fields of an ``AnalysisRequest``; return their actions by field name.

    Args:
        explanations: help texts that replace those of the fields.
    """
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
    """Add an option for a field of an ``AnalysisRequest``; ``settings`` override the defaults."""
    field = _FIELDS[name]
    (kind,) = (t for t in get_args(field.type) or (field.type,) if t is not NoneType)
    parsing = {"action": "store_true"} if kind is bool else {"type": _READERS.get(kind, kind)}
    if name in _METAVARS:
        parsing["metavar"] = _METAVARS[name]
    defaults = {"dest": name, "default": field.default, "help": explained(name), **parsing}
    names = (public_name(name), *_ALIASES.get(name, ()))
    action = add_flag(options, *names, **{**defaults, **settings})
    return completed_by(action, complete_gpu) if name == "platform" else action


def explained(name: str) -> str:
    """Return the help text of a field of an ``AnalysisRequest``."""
    field = _FIELDS[name]
    default = f" (default: {field.default:g})" if isinstance(field.default, float) else ""
    return f"{field.metadata['description']}{default}"


def request_of(arguments: argparse.Namespace, kind: type[Request]) -> Request:
    """Return the request of the options of ``add_options``; exit on conflicting options."""
    check_gpu(arguments)
    return kind(**{field.name: getattr(arguments, field.name) for field in fields(kind)})


def check_gpu(arguments: argparse.Namespace) -> None:
    """Exit with a usage error if the options that select a GPU conflict."""
    if getattr(arguments, "arch_json", None) and arguments.preset:
        arguments.usage_error("--preset applies to known GPUs, not to a file")


def positive(text: str) -> int:
    """Parse a positive integer."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def positive_number(text: str) -> float:
    """Parse a finite number above 0."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number


def non_negative(text: str) -> int:
    """Parse an integer of at least 0."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def at_least(least: float) -> Callable[[str], float]:
    """Return a parser of finite numbers of at least ``least``."""

    def number(text: str) -> float:
        found = float(text)
        if not least <= found < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not a finite number of at least {least}")
        return found

    return number


def percentage(text: str) -> float:
    """Parse a percentage above 0."""
    percentage = float(text)
    if not PERCENTAGE["gt"] < percentage <= PERCENTAGE["le"]:
        raise argparse.ArgumentTypeError(f"{text} is not a percentage above 0, at most 100")
    return percentage


_READERS: dict[type, Any] = {float: percentage, int: positive}
"""Parsers of values by type; other types parse values themselves."""


def add_labels(command: argparse.ArgumentParser) -> None:
    """Add the options that ``labels_of`` reads."""
    command.add_argument("--project", metavar="NAME", help="project that the run belongs to")
    command.add_argument("--branch", metavar="NAME", help="branch of the code")
    command.add_argument("--commit", metavar="ID", help="commit of the code")
    command.add_argument(
        "--tag",
        dest="tags",
        metavar="TAG",
        action="append",
        default=[],
        help="tag of the run; repeatable",
    )


def labels_of(arguments: argparse.Namespace) -> RunLabels:
    """Return the labels of the options of ``add_labels``; raise LabelError if one is not valid."""
    return RunLabels.of(arguments.project, arguments.branch, arguments.commit, arguments.tags)


def add_settings_file(command: argparse.ArgumentParser) -> None:
    """Add the option for the file with server settings."""
    explanation = f"settings as TOML (default: {CONFIG_VARIABLE}, else none)"
    command.add_argument("--config", metavar="FILE", type=Path, help=explanation)


def add_captures(command: argparse.ArgumentParser) -> None:
    """Add the options that ``capture_places`` reads."""
    add_option(command, "capture_folder")
    add_flag(
        command,
        "capture",
        metavar="FILE",
        type=Path,
        nargs="+",
        default=[],
        help="such traces as single files",
    )


def capture_places(arguments: argparse.Namespace) -> list[Path]:
    """Return the paths of the options of ``add_captures``."""
    folder = arguments.capture_folder
    return [*([] if folder is None else [folder]), *arguments.capture]


def stored_folder(analysis_id: str) -> Path | None:
    """Return the folder of a stored analysis by its id; None if there is none.

    The analysis is downloaded from a shared artifact root if necessary.
    """
    if any(os.environ.get(name) for name in (ARTIFACT_ROOT_VARIABLE, CONFIG_VARIABLE)):
        from jarvis.server.storage.catalog import is_stored  # slow to import

        is_stored(analysis_id)
    return stored_run_dir(analysis_id)


def run_directory(text: str) -> Path:
    """Return the run directory of a path or of the id of a stored analysis.

    Raises:
        UnknownRunError: it is neither.
        NotARunError: the folder is not a run directory.
    """
    root = stored_folder(text) or Path(text)
    if not root.exists():
        raise UnknownRunError(text)
    if not RunPaths(root).manifest.is_file():
        raise NotARunError(root)
    return root


def completed_by(
    action: argparse.Action, complete: Callable[..., Iterable[str]]
) -> argparse.Action:
    """Set the completer of an action, and return the action."""
    action.completer = complete  # type: ignore[attr-defined]
    return action


def complete_run(prefix: str, **_: object) -> Iterable[str]:
    """Complete ids of stored analyses, files and folders."""
    from argcomplete.completers import FilesCompleter

    return [*complete_stored(prefix), *FilesCompleter()(prefix)]


def complete_stored(prefix: str, **_: object) -> list[str]:
    """Complete ids of stored analyses."""
    root = analyses_dir()
    names = (folder.name for folder in root.iterdir()) if root.is_dir() else ()
    return [name for name in names if name.startswith(prefix) and not name.startswith(".")]


def complete_gpu(prefix: str, **_: object) -> Iterable[str]:
    """Complete GPU names."""
    from jarvis.hardware import load_hardware

    return [name for name in load_hardware().names() if name.lower().startswith(prefix.lower())]
