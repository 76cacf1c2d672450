"""``jarvis replay``: package operators for timing on another machine."""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.options import Commands, add_run, run_directory
from jarvis.cli.output import ExitCode, add_json, print_result, warn
from jarvis.cli.whole import whole

if TYPE_CHECKING:
    from jarvis.replay import ReplayCandidate, Selection


def add_replay(commands: Commands) -> None:
    command = commands.add_parser(
        "replay",
        help="package operators of an analysis for timing on another machine",
        description="List the operators of an analyzed trace that can be replayed, or package "
        "those of --op and --uid: a zip with their recorded calls and a program that times them "
        "with torch. Calls that cannot be replayed are listed with the reason.",
    )
    add_run(command)
    command.add_argument(
        "--op",
        metavar="NAME",
        nargs="+",
        action="extend",
        default=[],
        help="exact operator names, such as aten::mm",
    )
    command.add_argument(
        "--uid",
        metavar="N",
        nargs="+",
        type=int,
        action="extend",
        default=[],
        help="uids of single operations",
    )
    command.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="zip to write (default: NAME_replay_package.zip in this folder)",
    )
    add_json(command)
    command.set_defaults(run=_replay, usage_error=command.error)


def _replay(arguments: argparse.Namespace) -> int:
    from jarvis.replay import offers, select
    from jarvis.run import Run

    is_listing = not (arguments.op or arguments.uid)
    if is_listing and arguments.output:
        arguments.usage_error("--output requires --op or --uid")
    run = Run.load(run_directory(arguments.directory))
    if is_listing:
        rows = offers(run)
        print_result(arguments, {"operators": [asdict(row) for row in rows]}, _listing(rows))
    else:
        _package(arguments, select(run, arguments.uid, arguments.op))
    return ExitCode.OK


def _package(arguments: argparse.Namespace, selection: "Selection") -> None:
    path = arguments.output or Path(selection.file_name)
    content = selection.package()
    with whole(path) as place:
        place.write_bytes(content)
    reasons = Counter((refusal.op_name, refusal.reason) for refusal in selection.refusals)
    warn(
        f"{name} is left out in {count} of its rows: {why}"
        for (name, why), count in reasons.items()
    )
    refused = [asdict(refusal) for refusal in selection.refusals]
    result = {"file": str(path), "calls": len(selection.entries), "refused": refused}
    print_result(arguments, result, [path])


def _listing(rows: list["ReplayCandidate"]) -> Iterator[str]:
    if not rows:
        yield "No operator of this trace used GPU time."
        return
    yield f"{'compute %':>10}{'roofline %':>12}{'calls':>9}{'packaged %':>12}  operator"
    for row in rows:
        efficiency = "-" if row.efficiency_pct is None else f"{row.efficiency_pct:.1f}"
        yield (
            f"{row.percent_of_compute:>10.2f}{efficiency:>12}{row.calls:>9}"
            f"{row.packaged_pct:>12.1f}  {row.op_name}" + (f" ({row.reason})" if row.reason else "")
        )
