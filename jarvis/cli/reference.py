"""``docs/command-line.md``, made of the parsers of the commands."""

import argparse
from collections.abc import Iterator

from jarvis.cli import parser
from jarvis.cli.completion import SETUP
from jarvis.cli.output import ExitCode

HEAD = """\
# Command line

Generated from the commands by `make docs`. Options that exist in TraceLens have its names. Dashes
and underscores in options are equivalent.

- Results go to stdout; steps, notes and warnings go to stderr, one line each. The progress within a
  step is shown only on a terminal.
- `--json` prints the result as one JSON document, and nothing else on stdout.
- `RUN` is a run directory, or the id of an analysis that was stored with `--id`.
- Output is written atomically, also on Ctrl-C. Closing the pipe, as in
  `jarvis tree RUN --name '*' | head`, ends the command without an error.
"""


def command_line_markdown() -> str:
    """Return ``docs/command-line.md``: commands with options, exit codes, completion."""
    lines = [HEAD, "## Exit codes", "", "| exit code | meaning |", "|---|---|"]
    lines += [f"| {code:d} | {code.meaning} |" for code in ExitCode]
    lines += ["", "## Shell completion", ""]
    lines += ["Commands, options, files, GPUs and ids of analyses are completed:", "", "```sh"]
    lines += [*SETUP.values(), "```", ""]
    for name, command in _commands(parser()):
        lines += _command_markdown(name, command)
    return "\n".join(lines).rstrip() + "\n"


def _commands(of: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield each command and its actions with their full names."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command.prog, command
                yield from _commands(command)


def _command_markdown(name: str, command: argparse.ArgumentParser) -> list[str]:
    shown = [
        action
        for action in command._actions
        if action.help != argparse.SUPPRESS
        and not isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
    ]
    lines = [f"## `{name}`", "", *([command.description, ""] if command.description else [])]
    if shown:
        lines += ["| argument | meaning |", "|---|---|", *map(_row, shown), ""]
    if command.epilog:
        lines += ["```text", *command.epilog.rstrip().splitlines(), "```", ""]
    return lines


def _row(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else _value(action)
    spellings = dict.fromkeys(name.replace("_", "-") for name in action.option_strings)
    names = [f"`{name}{value and ' ' + value}`" for name in spellings] or [f"`{value}`"]
    return f"| {', '.join(names)} | {(action.help or '').replace('|', chr(92) + '|')} |"


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return str(action.metavar or action.dest.upper())
