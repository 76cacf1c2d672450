"""Progress output of commands, as text or JSON lines."""

import argparse
import sys
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from jarvis.cli.shared import print_step
from jarvis.cli.terminal import print_line

if TYPE_CHECKING:
    from jarvis.pipeline import Progress, Step

READING_EVERY_S = 0.2
"""Minimum interval of JSON progress lines while a trace is read."""


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
    from jarvis.pipeline.step_lines import line_of_step

    printed_at = 0.0

    def print_json(step: "Step") -> None:
        nonlocal printed_at
        if step.state == "running" and monotonic() - printed_at < READING_EVERY_S:
            return
        printed_at = monotonic()
        print_line(line_of_step(step), sys.stderr)

    return print_json
