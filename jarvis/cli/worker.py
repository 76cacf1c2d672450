"""``jarvis worker``: run jobs of a server, on its machine or another one."""

import argparse
import os
from pathlib import Path

from jarvis.cli.shared import Commands, add_settings_file
from jarvis.core.workspace import HOME_VARIABLE

DESCRIPTION = """\
Run jobs from the queue until interrupted. Start any number of workers on machines that reach the
database and the analyses of the server; `jarvis serve` starts its own unless `--job-slots` is 0.
"""


def add_worker(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command."""
    command = commands.add_parser(
        "worker", help="run jobs of a server, also on another machine", description=DESCRIPTION
    )
    command.add_argument(
        "--slots",
        metavar="N",
        type=_slots,
        help="concurrent jobs, each in its own process, plus one short job (default: 1, or the "
        "slots of the Dask cluster)",
    )
    command.add_argument(
        "--home",
        metavar="DIR",
        type=Path,
        help=f"folder of stored analyses (default: {HOME_VARIABLE}, else ~/.jarvis)",
    )
    add_settings_file(command)
    command.set_defaults(run=_work)


def _slots(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of jobs")
    return int(text)


def _work(arguments: argparse.Namespace) -> int:
    from jarvis.server.jobs.workers.worker import main

    if arguments.home is not None:
        os.environ[HOME_VARIABLE] = str(arguments.home.resolve())
    return main([] if arguments.slots is None else ["--slots", str(arguments.slots)])
