"""What commands print: names of traces and files never reach a terminal as control characters."""

import sys
from typing import TextIO

from jarvis.text.format import escaped

ERASE_REST = "\x1b[K"
"""Tells a terminal to erase the rest of the line."""


def print_line(line: object, file: TextIO | None = None) -> None:
    """Print one line, by default to stdout; characters that a terminal would obey are escaped."""
    print(escaped(str(line)), file=file, flush=file is sys.stderr)


def print_text(text: str, file: TextIO | None = None) -> None:
    """Print a text of several lines, each as ``print_line`` does."""
    for line in text.removesuffix("\n").split("\n"):
        print_line(line, file)


def ask(question: str) -> str:
    """Ask on stderr and return the line that is answered on stdin."""
    print(escaped(question), end=" ", file=sys.stderr, flush=True)
    return sys.stdin.readline()


def print_progress(text: object, *, is_last: bool = False) -> None:
    """Overwrite the current line of a terminal on stderr; elsewhere print the last text alone."""
    if sys.stderr.isatty():
        end = "\n" if is_last else "\r"
        print(f"{escaped(str(text))}{ERASE_REST}", end=end, file=sys.stderr, flush=True)
    elif is_last:
        print_line(text, sys.stderr)
