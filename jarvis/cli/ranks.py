"""``jarvis ranks``: print the ranks of a distributed run, and why they are late."""

import argparse
from typing import TYPE_CHECKING

from jarvis.cli.options import Commands, add_run, run_directory
from jarvis.cli.output import ExitCode, add_json, print_result, table_lines

if TYPE_CHECKING:
    import polars as pl

DELAYS_SHOWN = 20
"""Maximum number of printed delays; ``--json`` has all."""


def add_ranks(commands: Commands) -> None:
    command = commands.add_parser(
        "ranks",
        help="show the ranks of a distributed run, and why they are late",
        description="Show what each rank of a distributed run computes and waits in a step, how "
        "much waiting of others it causes, and what the median step gains if it were as the "
        "median.",
    )
    add_run(command)
    command.add_argument("--rank", type=int, metavar="N", help="only this rank")
    command.add_argument(
        "--why", action="store_true", help="also show its delays with their causes, longest first"
    )
    add_json(command)
    command.set_defaults(run=_ranks, usage_error=command.error)


def _ranks(arguments: argparse.Namespace) -> int:
    import polars as pl

    from jarvis.ranks.delays import delays
    from jarvis.ranks.per_step import COLUMNS, basis, ranks_per_step, shown_columns
    from jarvis.ranks.run import DistributedRun
    from jarvis.schemas.names import C
    from jarvis.text.messages import to_text

    run = DistributedRun.load(run_directory(arguments.directory))
    ranks, times = ranks_per_step(run.tables), basis(run.tables)
    late = delays(run.tables["lateness"], run.tables["lateness_causes"], run.tables["instances"])
    if arguments.rank is not None:
        ranks, late = (rows.filter(pl.col(C.rank) == arguments.rank) for rows in (ranks, late))
        if ranks.is_empty():
            arguments.usage_error(f"the run has no rank {arguments.rank}: {run.manifest.title}")
    findings = [to_text(finding.title) for finding in run.findings]
    title, shown = run.manifest.title, ranks.select(shown_columns(ranks))
    lines = [title, *findings, f"Times are {times}.", *table_lines(shown, COLUMNS)]
    result = {"title": title, "findings": findings, "times": times, "ranks": ranks.to_dicts()}
    if arguments.why:
        lines += ["", *_delay_lines(late)]
        result["delays"] = late.to_dicts()
    print_result(arguments, result, lines)
    return ExitCode.OK


def _delay_lines(late: "pl.DataFrame") -> list[str]:
    from jarvis.ranks.delays import COLUMNS, MIN_LATE_MS, SHOWN

    if late.is_empty():
        return [f"No delay above {MIN_LATE_MS * 1000:g} µs is known."]
    lines = list(table_lines(late.head(DELAYS_SHOWN).select(SHOWN), COLUMNS))
    if late.height > DELAYS_SHOWN:
        lines.append(f"{DELAYS_SHOWN} of {late.height} delays; --json has all.")
    return lines
