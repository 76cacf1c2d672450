"""How a command says how far it is: to people, or to a program that follows it."""

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
"""How far a trace has been read is said to a program this often."""


def add_progress(command: argparse.ArgumentParser) -> None:
    """The option; ``progress_of`` follows it."""
    command.add_argument(
        "--progress",
        choices=("text", "json"),
        default="text",
        help="how the steps are said on stderr: for people (default), or each as a line of JSON",
    )


def progress_of(arguments: argparse.Namespace) -> "Progress":
    """What prints each step as the option says."""
    return _json_lines() if arguments.progress == "json" else print_step


def _json_lines() -> "Callable[[Step], None]":
    from jarvis.pipeline.step_lines import line_of_step

    said_at = 0.0

    def say(step: "Step") -> None:
        nonlocal said_at
        if step.state == "running" and monotonic() - said_at < READING_EVERY_S:
            return
        said_at = monotonic()
        print_line(line_of_step(step), sys.stderr)

    return say
