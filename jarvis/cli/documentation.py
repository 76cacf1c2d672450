"""``docs/command-line.md``, made from the commands themselves."""

import argparse
from collections.abc import Iterator

from jarvis.cli import parser
from jarvis.cli.completion import SETUP
from jarvis.cli.exit_codes import ExitCode

HEAD = """\
# The command line

Made from the commands by `make docs`. Where an option means what one of TraceLens means, its
name is taken too. Dashes and underscores in options are the same.

- Results go to stdout; steps, notes and warnings go to stderr, one line each. How far a step is
  shows on a terminal alone.
- `--json` prints the result as one JSON document, and nothing else on stdout.
- `RUN` is a run directory, or the id of an analysis that was kept with `--id`.
- What is written appears whole or not at all, also after Ctrl-C. A reader that closes the pipe,
  as in `jarvis tree RUN --name '*' | head`, ends the command without an error.
"""


def command_line_markdown() -> str:
    """``docs/command-line.md``: every command with its options, exit codes, completion."""
    lines = [HEAD, "## Exit codes", "", "| exit code | meaning |", "|---|---|"]
    lines += [f"| {code:d} | {code.meaning} |" for code in ExitCode]
    lines += ["", "## Shell completion", ""]
    lines += ["Commands, options, files, GPUs and ids of analyses are completed:", "", "```sh"]
    lines += [*SETUP.values(), "```", ""]
    for name, command in _commands(parser()):
        lines += _command_markdown(name, command)
    return "\n".join(lines).rstrip() + "\n"


def _commands(of: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command with the actions below it, by its whole name."""
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
    lines = [f"## `{name}`", "", *_text(command.description)]
    if shown:
        lines += ["| argument | meaning |", "|---|---|", *map(_row, shown), ""]
    if command.epilog:
        lines += ["```text", *command.epilog.rstrip().splitlines(), "```", ""]
    return lines


def _text(description: str | None) -> list[str]:
    return [description, ""] if description else []


def _row(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else _value(action)
    spellings = dict.fromkeys(name.replace("_", "-") for name in action.option_strings)
    names = [f"`{name}{value and ' ' + value}`" for name in spellings] or [f"`{value}`"]
    return f"| {', '.join(names)} | {(action.help or '').replace('|', chr(92) + '|')} |"


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return str(action.metavar or action.dest.upper())
