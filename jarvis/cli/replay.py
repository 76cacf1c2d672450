"""``jarvis replay``: packages that time single operators elsewhere."""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.shared import Commands, add_json, add_run, print_result, run_directory, warn
from jarvis.cli.whole import whole

if TYPE_CHECKING:
    from jarvis.replay import ReplayCandidate, Selection


def add_replay(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "replay",
        help="package operators of an analysis, to be timed elsewhere",
        description="List which operators of an analyzed trace can be replayed, or package those "
        "that --op and --uid name: one zip with their recorded calls and a program that times them "
        "with torch. Calls that cannot be replayed are named with the reason.",
    )
    add_run(command)
    command.add_argument(
        "--op",
        metavar="NAME",
        nargs="+",
        action="extend",
        default=[],
        help="operators by their exact names, such as aten::mm",
    )
    command.add_argument(
        "--uid",
        metavar="N",
        nargs="+",
        type=int,
        action="extend",
        default=[],
        help="single operations by their uid",
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
        arguments.usage_error("--output needs --op or --uid: what to package")
    run = Run.load(run_directory(arguments.directory))
    if is_listing:
        found = offers(run)
        print_result(arguments, {"operators": [asdict(offer) for offer in found]}, _listing(found))
    else:
        _package(arguments, select(run, arguments.uid, arguments.op))
    return ExitCode.OK


def _package(arguments: argparse.Namespace, chosen: "Selection") -> None:
    path = arguments.output or Path(chosen.file_name)
    content = chosen.package()
    with whole(path) as place:
        place.write_bytes(content)
    reasons = Counter((refusal.op_name, refusal.reason) for refusal in chosen.refusals)
    warn(
        f"{name} is left out in {count} of its rows: {why}"
        for (name, why), count in reasons.items()
    )
    refused = [asdict(refusal) for refusal in chosen.refusals]
    result = {"file": str(path), "calls": len(chosen.entries), "refused": refused}
    print_result(arguments, result, [path])


def _listing(found: list["ReplayCandidate"]) -> Iterator[str]:
    if not found:
        yield "No operator of this trace took GPU time."
        return
    yield f"{'compute %':>10}{'roofline %':>12}{'calls':>9}{'packaged %':>12}  operator"
    for offer in found:
        efficiency = "-" if offer.efficiency_pct is None else f"{offer.efficiency_pct:.1f}"
        yield (
            f"{offer.percent_of_compute:>10.2f}{efficiency:>12}{offer.calls:>9}"
            f"{offer.packaged_pct:>12.1f}  {offer.op_name}"
            + (f" ({offer.reason})" if offer.reason else "")
        )
