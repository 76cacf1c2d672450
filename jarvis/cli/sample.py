"""``jarvis sample``: write simulated traces."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.shared import Commands, add_flag, add_json, print_result
from jarvis.cli.whole import whole


def add_sample(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command."""
    command = commands.add_parser(
        "sample",
        help="write a simulated trace",
        description="Write the trace of simulated training steps, marked as simulated; with "
        "several ranks, one file each.",
    )
    command.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        type=Path,
        default=Path("sample.json.gz"),
        help="file to write (default: sample.json.gz)",
    )
    command.add_argument("--steps", type=int, default=2, help="training steps (default: 2)")
    command.add_argument("--ranks", type=int, default=1, help="traces to write (default: 1)")
    add_flag(
        command,
        "world_size",
        type=int,
        help="number of training processes (default: 8, or --ranks)",
    )
    command.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    command.add_argument("--scale", default="small", help="model size (default: small)")
    add_json(command)
    command.set_defaults(run=_sample)


def _sample(arguments: argparse.Namespace) -> int:
    written = list(_write(arguments))
    print_result(arguments, {"traces": written}, written)
    return ExitCode.OK


def _write(arguments: argparse.Namespace) -> Iterator[Path]:
    from jarvis.sample import write_sample

    world_size = arguments.world_size or max(arguments.ranks, 8)
    for rank in range(arguments.ranks):
        path = arguments.output
        if arguments.ranks > 1:
            path = path.with_name(f"rank{rank}_{path.name}")
        with whole(path) as place:
            write_sample(
                place,
                steps=arguments.steps,
                rank=rank,
                world_size=world_size,
                seed=arguments.seed,
                scale=arguments.scale,
            )
        yield path
