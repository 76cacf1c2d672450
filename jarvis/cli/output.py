"""Output of commands: results, tables, steps, notes, questions."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

from jarvis.cli.atomic_output import is_standard_output
from jarvis.core.errors import JarvisError
from jarvis.text.format import escaped

if TYPE_CHECKING:
    import polars as pl

    from jarvis.pipeline import Progress, Step
    from jarvis.schemas import Column


class ExitCode(IntEnum):
    """Exit codes; ``meaning`` is their description in the documentation."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> "ExitCode":
        """Create a code with its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "success"
    FAILED = 1, "error; a message on stderr says why and what to do"
    USAGE = 2, "invalid command or option; a message on stderr says which"
    CHECK_FAILED = 3, "the command ran, and a check, or a rank of several, failed"
    INTERRUPTED = 130, "stopped by Ctrl-C; partial output is removed"


ERASE_REST = "\x1b[K"
"""Escape sequence that erases the rest of the line."""


def print_line(line: object, file: TextIO | None = None) -> None:
    """Print one line, by default to stdout, with control characters escaped."""
    print(escaped(str(line)), file=file, flush=file is sys.stderr)


def print_text(text: str, file: TextIO | None = None) -> None:
    """Print several lines with ``print_line``."""
    for line in text.removesuffix("\n").split("\n"):
        print_line(line, file)


def ask(question: str) -> str:
    """Print a question to stderr and return the answer line from stdin."""
    print(escaped(question), end=" ", file=sys.stderr, flush=True)
    return sys.stdin.readline()


def print_progress(text: object, *, is_last: bool = False) -> None:
    """Overwrite the current line of a terminal on stderr; otherwise print only the last text."""
    if sys.stderr.isatty():
        end = "\n" if is_last else "\r"
        print(f"{escaped(str(text))}{ERASE_REST}", end=end, file=sys.stderr, flush=True)
    elif is_last:
        print_line(text, sys.stderr)


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


JSON_HELP = "print the result as one JSON document, and nothing else on stdout"
LONG_STEP_S = 1.0
"""Steps that take longer print their duration."""


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
    from jarvis.pipeline.steps import READING_INTERVAL_S, line_of_step

    printed_at = 0.0

    def print_json(step: "Step") -> None:
        nonlocal printed_at
        if step.state == "running" and monotonic() - printed_at < READING_INTERVAL_S:
            return
        printed_at = monotonic()
        print_line(line_of_step(step), sys.stderr)

    return print_json
