"""``jarvis completion``: how a shell completes what is typed."""

import argparse
import os
from collections.abc import Callable

from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.shared import Commands
from jarvis.cli.terminal import print_text

SETUP = {
    "bash": 'eval "$(jarvis completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(jarvis completion zsh)"  # in ~/.zshrc, after compinit',
    "fish": "jarvis completion fish > ~/.config/fish/completions/jarvis.fish",
}
"""How each shell is told."""

ASKED = "_ARGCOMPLETE"
"""What a shell sets in the environment to ask for completions."""


def add_completion(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "completion",
        help="print what makes a shell complete commands, options, files and analysis ids",
        description="Print the completion of jarvis for a shell. To have it: "
        + "; ".join(f"{shell}: {line}" for shell, line in SETUP.items()),
    )
    command.add_argument("shell", choices=sorted(SETUP), help="the shell")
    command.set_defaults(run=_completion)


def answer(parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Where a shell asks for completions, give them and end the program."""
    if ASKED in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser())


def _completion(arguments: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print_text(shellcode(["jarvis"], shell=arguments.shell))
    return ExitCode.OK
