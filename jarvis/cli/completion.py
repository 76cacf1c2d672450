"""``jarvis completion``: completion of commands in a shell."""

import argparse
import os
from collections.abc import Callable

from jarvis.cli.options import Commands
from jarvis.cli.output import ExitCode, print_text

SETUP = {
    "bash": 'eval "$(jarvis completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(jarvis completion zsh)"  # in ~/.zshrc, after compinit',
    "fish": "jarvis completion fish > ~/.config/fish/completions/jarvis.fish",
}
"""Setup line of each shell."""

REQUEST_VARIABLE = "_ARGCOMPLETE"
"""Environment variable that a shell sets to request completions."""


def add_completion(commands: Commands) -> None:
    command = commands.add_parser(
        "completion",
        help="print the shell completion script",
        description="Print the shell completion script of jarvis. To install it: "
        + "; ".join(f"{shell}: {line}" for shell, line in SETUP.items()),
    )
    command.add_argument("shell", choices=sorted(SETUP), help="the shell")
    command.set_defaults(run=_completion)


def answer(parser: Callable[[], argparse.ArgumentParser]) -> None:
    """If a shell requests completions, print them and exit."""
    if REQUEST_VARIABLE in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser())


def _completion(arguments: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print_text(shellcode(["jarvis"], shell=arguments.shell))
    return ExitCode.OK
