"""``jarvis tree``: print the call tree around a call, or find calls by name."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis.cli.options import RUN_HELP, TRACE_HELP, Commands, add_run, non_negative, run_directory
from jarvis.cli.output import ExitCode, add_json, note, print_reading, print_result

if TYPE_CHECKING:
    from jarvis.perf_report.call_tree.trace_tree import TraceTree
    from jarvis.run.stored_calls import StoredCalls

CALLS_SHOWN = 50
"""Default of ``--limit``."""


def add_tree(commands: Commands) -> None:
    command = commands.add_parser(
        "tree",
        help="show the call tree around a call, or find calls by name",
        description="Show the parents of a call and its subtree, with arguments, kernel time and "
        "module; or list the calls with a name, most kernel time first. Kernel time is the time "
        "during which GPU work launched in the subtree of a call runs. For an analysis, its trace "
        "is read if it still exists; otherwise, the calls stored in the analysis are shown.",
    )
    add_run(command, "run_or_trace", f"{RUN_HELP}, or a {TRACE_HELP}")
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--uid", type=int, metavar="N", help="the call: a uid, or an ex_UID of the report"
    )
    which.add_argument(
        "--name", metavar="PATTERN", help="list calls and kernels by name; * matches any text"
    )
    command.add_argument(
        "--depth",
        type=non_negative,
        metavar="N",
        help="levels below the call to show (default: all)",
    )
    command.add_argument(
        "--limit",
        type=non_negative,
        metavar="N",
        default=CALLS_SHOWN,
        help=f"calls that --name lists, 0 for all (default: {CALLS_SHOWN})",
    )
    add_json(command)
    command.set_defaults(run=_tree)


def _tree(arguments: argparse.Namespace) -> int:
    from jarvis.schemas.names import C

    calls, source = _opened(arguments.run_or_trace)
    if arguments.name is not None:
        matches = calls.find(arguments.name)
        listed = matches.sort(C.kernel_time_us, descending=True, nulls_last=True)
        listed = listed.head(arguments.limit or matches.height)
        rows = listed.to_dicts()
        result = {"source": source, "name": arguments.name, "total": matches.height, "calls": rows}
        print_result(arguments, result, _listing(rows, matches.height, arguments.name))
        return ExitCode.OK
    parents = calls.parents(arguments.uid).to_dicts()
    subtree = calls.subtree(arguments.uid, arguments.depth).to_dicts()
    result = {"source": source, "uid": arguments.uid, "parents": parents, "subtree": subtree}
    print_result(arguments, result, _tree_lines(parents, subtree))
    return ExitCode.OK


def _opened(given: str) -> "tuple[TraceTree | StoredCalls, str]":
    """Return the calls of a trace or a run, and their source: "trace" or "stored"."""
    from jarvis.perf_report.call_tree.trace_tree import read_trace_tree
    from jarvis.run import Run
    from jarvis.run.stored_calls import StoredCalls, trace_file

    path = Path(given)
    if path.is_file():
        return read_trace_tree(path, print_reading), "trace"
    run = Run.load(run_directory(given))
    trace = trace_file(run)
    if trace is not None:
        return read_trace_tree(trace, print_reading), "trace"
    info = run.manifest.trace
    why = (
        f"The trace {info.file_name} was moved, deleted or changed."
        if info.form == "trace"
        else f"The analysis is of the {info.form} {info.file_name}, without a trace."
    )
    note(
        [
            f"{why} Showing the calls stored in the analysis: those around its main operations, "
            "with mean kernel times of all calls of an operation."
        ]
    )
    return StoredCalls(run), "stored"


def _listing(rows: list[dict[str, Any]], total: int, name: str) -> Iterator[str]:
    if not rows:
        yield f"No call is named {name}. * matches any text, as in *{name.strip('*')}*."
        return
    yield _HEAD
    for row in rows:
        yield _line(row, 0)
    if total > len(rows):
        yield f"{len(rows)} of {total} calls, those with most kernel time; --limit 0 lists all."


def _tree_lines(parents: list[dict[str, Any]], subtree: list[dict[str, Any]]) -> Iterator[str]:
    yield _HEAD
    for level, row in enumerate(parents):
        yield _line(row, level)
    for row in subtree:
        yield _line(row, len(parents) + row["depth"], is_chosen=not row["depth"])


_HEAD = f"  {'uid':>9}  {'kernel µs':>12}  call"


def _line(row: dict[str, Any], level: int, *, is_chosen: bool = False) -> str:
    uid = "" if row["uid"] is None else row["uid"]
    time_us = row["kernel_time_us"]
    time = "-" if time_us is None else f"{time_us:.3f}"
    cells = [row["name"], *_details(row)]
    return f"{'>' if is_chosen else ' '} {uid:>9}  {time:>12}  {'  ' * level}{'  '.join(cells)}"


def _details(row: dict[str, Any]) -> Iterable[str]:
    if row["kind"] == "op":
        yield from (row[name] for name in ("input_dims", "input_types") if row[name])
        if row["module"]:
            yield f"in {row['module']}"
    if row["stream"] is not None:
        yield f"on stream {row['stream']}"
