"""A question before something is removed for good."""

import argparse
import sys
from collections.abc import Iterable

from jarvis.cli.terminal import ask, print_line
from jarvis.core.errors import JarvisError


class NotConfirmedError(JarvisError):
    """Something is to be removed, and nobody can be asked."""

    def __init__(self) -> None:
        super().__init__("Nothing is removed: nobody can be asked here. Say so with --yes.")


def add_yes(command: argparse.ArgumentParser) -> None:
    """The option that answers ``is_confirmed`` beforehand."""
    command.add_argument("--yes", "-y", action="store_true", help="do not ask")


def is_confirmed(arguments: argparse.Namespace, lines: Iterable[str]) -> bool:
    """Whether it may be removed: said with ``--yes``, or at the terminal that is asked.

    Raises NotConfirmedError where there is no terminal.
    """
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise NotConfirmedError
    for line in lines:
        print_line(line, sys.stderr)
    if ask("Remove this for good? [y/N]").strip().lower() in ("y", "yes"):
        return True
    print_line("Nothing is removed.", sys.stderr)
    return False
