"""Terminal output with control characters escaped, since traces and file names are untrusted."""

import sys
from typing import TextIO

from jarvis.text.format import escaped

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
