"""``jarvis what-if``: how long a step would take under changes."""

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.options import (
    GPU_OPTIONS,
    RUN_HELP,
    TRACE_HELP,
    Commands,
    add_flag,
    add_options,
    add_run,
    check_gpu,
    run_directory,
)
from jarvis.cli.output import ExitCode, add_json, print_result, print_step
from jarvis.core.workspace import RunPaths
from jarvis.text.format import milliseconds, percent

if TYPE_CHECKING:
    from jarvis.pipeline.simulated_steps import WhatIf

PATH_SHOWN = 8
"""Maximum number of printed parts of the critical path; ``--json`` has all."""

FORMS = """\
changes; repeated ones are simulated together
  finding=P1             what a finding proposes
  target=NAME:PERCENT    operations below that percentage of their roofline reach it
  scale=NAME:FACTOR      GPU work takes FACTOR times as long; 0 removes its time
  host=PATTERN:FACTOR    host time of operators, annotations or Python frames, likewise
  no-wait=PATTERN        calls, or what is around them, do not wait for the GPU
  merge-launches         one graph launch in place of the launches between two waits
  collective=KIND:HOW    collectives are hidden, take their transfer only, or HOW is a factor
for a distributed run, on all ranks or with @N at the end on rank N, target=, scale=, host= and
no-wait= of these, and
  rank=N, rank=all       that rank, or each, becomes as the median of the ranks
  transfer=FACTOR        transfers of all collectives take FACTOR times as long
NAME is an operation, a category or compute; PATTERN and KIND match names, * any text. A name ends
at the last colon.
"""


def add_what_if(commands: Commands) -> None:
    command = commands.add_parser(
        "what-if",
        help="simulate how long a step would take under changes",
        description="Replay the recorded steps with changed durations, and show how long a step "
        "would take. The replay keeps the dependencies of the trace, so it shows what a change "
        "saves of the step, not only of kernel time. A trace is analyzed first, without storing "
        "it.",
        epilog=FORMS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(command, "run_or_trace", f"{RUN_HELP}, or a {TRACE_HELP}")
    add_flag(command, "change", metavar="CHANGE", action="append", default=[], help="a change")
    add_flag(command, "changes", metavar="FILE", type=Path, help="JSON file with a list of changes")
    add_options(command, GPU_OPTIONS)
    add_json(command)
    command.set_defaults(run=_what_if)


def _what_if(arguments: argparse.Namespace) -> int:
    check_gpu(arguments)
    from jarvis.pipeline.simulated_steps import read_changes, what_if
    from jarvis.ranks.run import is_distributed

    path = Path(arguments.run_or_trace)
    is_run = not path.is_file()
    listed = () if arguments.changes is None else read_changes(arguments.changes)
    if is_run:
        root = run_directory(arguments.run_or_trace)
        if is_distributed(RunPaths(root).manifest.read_bytes()):
            return _of_ranks(root, [*listed, *arguments.change], arguments)
    options = {name: getattr(arguments, name) for name in GPU_OPTIONS}
    result = what_if(
        root if is_run else path,
        [*listed, *arguments.change],
        **({} if is_run else {**options, "progress": print_step}),
    )
    print_result(arguments, result.model_dump(mode="json"), _lines(result))
    return ExitCode.OK


def _of_ranks(root: Path, changes: Sequence[str], arguments: argparse.Namespace) -> ExitCode:
    from jarvis.pipeline.joint_what_if import ranks_what_if, stored_member
    from jarvis.ranks.run import DistributedRun

    run = DistributedRun.load(root)
    result = ranks_what_if(run, changes, partial(stored_member, root))
    lines = [result.headline, result.small_print]
    for change in result.changes if len(result.changes) > 1 else ():
        low, high = milliseconds(change.saved_low_ms), milliseconds(change.saved_high_ms)
        saved = low if low == high else f"{low} to {high}"
        lines.append(f"  alone {saved:>10}  {change.change}")
    print_result(arguments, result.model_dump(mode="json"), lines)
    return ExitCode.OK


def _lines(result: "WhatIf") -> Iterator[str]:
    yield result.headline
    yield result.small_print
    for change in result.changes if len(result.changes) > 1 else ():
        yield f"  alone {milliseconds(change.saved_ms):>10}  {change.change}"
    yield "critical path:"
    for part in result.critical_path[:PATH_SHOWN]:
        yield f"  {percent(part.pct):>6}  {milliseconds(part.ms):>10}  {part.name}"
