"""Confirmation prompt before deleting."""

import argparse
import sys
from collections.abc import Iterable

from jarvis.cli.terminal import ask, print_line
from jarvis.core.errors import JarvisError


class NotConfirmedError(JarvisError):
    """Deleting needs a confirmation, but there is no terminal."""

    def __init__(self) -> None:
        super().__init__("Nothing was deleted: confirmation needs a terminal. Pass --yes instead.")


def add_yes(command: argparse.ArgumentParser) -> None:
    """Add the option that skips the prompt."""
    command.add_argument("--yes", "-y", action="store_true", help="do not ask for confirmation")


def is_confirmed(arguments: argparse.Namespace, lines: Iterable[str]) -> bool:
    """Return whether the user confirms deleting, by ``--yes`` or at the terminal.

    Args:
        lines: what would be deleted.

    Raises:
        NotConfirmedError: there is no terminal.
    """
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise NotConfirmedError
    for line in lines:
        print_line(line, sys.stderr)
    if ask("Delete this permanently? [y/N]").strip().lower() in ("y", "yes"):
        return True
    print_line("Nothing was deleted.", sys.stderr)
    return False
