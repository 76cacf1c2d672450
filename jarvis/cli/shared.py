"""Options, output and questions that several commands share."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from time import monotonic
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from jarvis.cli.completers import complete_gpu, complete_run, completed_by
from jarvis.cli.terminal import ask, print_line, print_progress
from jarvis.cli.whole import is_standard_output
from jarvis.core.errors import JarvisError, NotARunError, UnknownRunError
from jarvis.core.labels import RunLabels
from jarvis.core.request import PERCENTAGE, AnalysisOptions, AnalysisRequest, public_name
from jarvis.core.workspace import ARTIFACT_ROOT_VARIABLE, CONFIG_VARIABLE, RunPaths, stored_run_dir

if TYPE_CHECKING:
    import polars as pl

    from jarvis.pipeline import Progress, Step
    from jarvis.schemas import Column


class NotConfirmedError(JarvisError):
    """An action needs a confirmation, but there is no terminal."""

    def __init__(self, refused: str) -> None:
        super().__init__(f"{refused[:-1]}: confirmation needs a terminal. Pass --yes instead.")


def add_yes(command: argparse._ActionsContainer) -> None:
    """Add the option that skips the prompt."""
    command.add_argument("--yes", "-y", action="store_true", help="do not ask for confirmation")


def is_confirmed(
    arguments: argparse.Namespace,
    lines: Iterable[str],
    question: str = "Delete this permanently?",
    refused: str = "Nothing was deleted.",
) -> bool:
    """Return whether the user confirms an action, by default deleting, by ``--yes`` or at the
    terminal.

    Args:
        lines: what would be done.
        question: what is asked.
        refused: what is printed if the answer is no.

    Raises:
        NotConfirmedError: there is no terminal.
    """
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise NotConfirmedError(refused)
    for line in lines:
        print_line(line, sys.stderr)
    if ask(f"{question} [y/N]").strip().lower() in ("y", "yes"):
        return True
    print_line(refused, sys.stderr)
    return False


TRACE_HELP = "trace of the PyTorch profiler (.json, .json.gz, or a .zip of one)"
RUN_HELP = "run directory, or the id of a stored analysis"
JSON_HELP = "print the result as one JSON document, and nothing else on stdout"

LONG_STEP_S = 1.0
"""Steps that take longer print their duration."""

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
Commands = argparse._SubParsersAction
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
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
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


def add_json(command: argparse.ArgumentParser, **settings: Any) -> None:
    """Add the option ``--json``."""
    command.add_argument("--json", action="store_true", help=JSON_HELP, **settings)


def print_result(
    arguments: argparse.Namespace, result: Mapping[str, object], lines: Iterable[object]
) -> None:
    """Print ``result`` as JSON with ``--json``, else ``lines``.

    If stdout is one of the written files in ``lines``, print to stderr.
    """
    lines = list(lines)
    is_taken = any(isinstance(line, Path) and is_standard_output(line) for line in lines)
    if arguments.json:
        document = json.dumps(result, indent=2, ensure_ascii=False, default=str)
        lines = document.split("\n")
    for line in lines:
        print_line(line, sys.stderr if is_taken else arguments.stdout)


def table_lines(frame: "pl.DataFrame", columns: "Iterable[Column]") -> Iterator[str]:
    """Yield a header with labels, and the rows, in aligned columns without empty ones.

    Args:
        columns: descriptions of the columns of the frame, and of others.
    """
    labels = {column.name: column.label for column in columns}
    filled = [column for column in frame.columns if frame[column].count()]
    heads = [labels[column] for column in filled]
    rows = [[_cell(value) for value in row] for row in frame.select(filled).iter_rows()]
    widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]
    for cells in (heads, *rows):
        yield "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def _cell(value: object) -> str:
    from jarvis.text.format import decimal
    from jarvis.text.markdown import NAME_LENGTH, shortened

    if isinstance(value, float):
        return decimal(value)
    return "" if value is None else shortened(str(value), NAME_LENGTH)


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


def print_step(step: "Step") -> None:
    """Print to stderr which step starts, its progress if it is a terminal, and its duration."""
    if step.state == "running":
        print_reading(step.reading)
    elif step.elapsed_s is None:
        print_line(f"[{step.number}/{step.total}] {step.name}", sys.stderr)
    elif step.elapsed_s >= LONG_STEP_S:
        print_progress(f"      took {step.elapsed_s:.1f} s", is_last=True)


def print_reading(reading: object) -> None:
    """Print the progress of reading a file, if stderr is a terminal."""
    print_progress(f"      {reading}")


def note(lines: Iterable[str]) -> None:
    """Print notes to stderr, one line each."""
    for line in lines:
        print_line(f"note: {line}", sys.stderr)


def warn(lines: Iterable[str]) -> None:
    """Print warnings to stderr, one line each."""
    for line in lines:
        print_line(f"warning: {line}", sys.stderr)


def add_progress(command: argparse.ArgumentParser) -> None:
    """Add the option that ``progress_of`` reads."""
    command.add_argument(
        "--progress",
        choices=("text", "json"),
        default="text",
        help="format of the steps on stderr: text (default), or JSON lines",
    )


def progress_of(arguments: argparse.Namespace) -> "Progress":
    """Return the progress callback for the option."""
    return _json_lines() if arguments.progress == "json" else print_step


def _json_lines() -> "Callable[[Step], None]":
    from jarvis.pipeline.steps import READING_EVERY_S, line_of_step

    printed_at = 0.0

    def print_json(step: "Step") -> None:
        nonlocal printed_at
        if step.state == "running" and monotonic() - printed_at < READING_EVERY_S:
            return
        printed_at = monotonic()
        print_line(line_of_step(step), sys.stderr)

    return print_json
