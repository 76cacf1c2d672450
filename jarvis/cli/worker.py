"""``jarvis worker``: runs jobs of a server, on its machine or on another one."""

import argparse
import os
from pathlib import Path

from jarvis.cli.shared import Commands, add_settings_file
from jarvis.core.workspace import HOME_VARIABLE

DESCRIPTION = """\
Run jobs from the queue until interrupted. There may be any number of workers, on any machine that
reaches the database and the analyses of the server; `jarvis serve` starts one of its own, unless it
has `--job-slots 0`.
"""


def add_worker(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "worker", help="run jobs of a server, also on another machine", description=DESCRIPTION
    )
    command.add_argument(
        "--slots",
        metavar="N",
        type=_slots,
        help="jobs at once, each in a process of its own, and a short one beside them (default: "
        "1, or what the Dask cluster can)",
    )
    command.add_argument(
        "--home",
        metavar="DIR",
        type=Path,
        help=f"where analyses are kept (default: {HOME_VARIABLE}, else ~/.jarvis)",
    )
    add_settings_file(command)
    command.set_defaults(run=_work)


def _slots(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of jobs from 1 on")
    return int(text)


def _work(arguments: argparse.Namespace) -> int:
    from jarvis.server.jobs.workers.worker import main

    if arguments.home is not None:
        os.environ[HOME_VARIABLE] = str(arguments.home.resolve())
    return main([] if arguments.slots is None else ["--slots", str(arguments.slots)])
