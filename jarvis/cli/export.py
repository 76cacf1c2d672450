"""``jarvis export | reproject | replay``: write an analysis in another form."""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.analyze import print_run, warnings_of
from jarvis.cli.atomic_output import atomic_output
from jarvis.cli.options import (
    GPU_OPTIONS,
    TRACE_HELP,
    Commands,
    Options,
    add_flag,
    add_option,
    add_options,
    add_run,
    check_gpu,
    explained,
    run_directory,
)
from jarvis.cli.output import (
    ExitCode,
    add_json,
    note,
    print_reading,
    print_result,
    print_step,
    warn,
)
from jarvis.core.workspace import RunPaths

if TYPE_CHECKING:
    from jarvis.replay import ReplayCandidate, Selection
    from jarvis.reports import Reporter
    from jarvis.run import Run


def add_export(commands: Commands) -> None:
    command = commands.add_parser(
        "export",
        help="write an analysis in another format",
        description="Write an analysis as one file: the whole run as JSON, the report with charts "
        "as HTML (`--format html`), or a trace for Perfetto (`--format perfetto`) that has every "
        "recorded slice, and tracks of steps, findings, idle causes, the critical path and the "
        "simulated step. Reports of stored analyses include the notes of their team. Of a "
        "distributed run: the report on its ranks (`html`), or one trace of several ranks on their "
        "common clock (`perfetto`).",
    )
    add_run(command)
    command.add_argument("--format", default="json", metavar="NAME", help="format (default: json)")
    command.add_argument(
        "--output", "-o", metavar="PATH", type=Path, required=True, help="file or folder to write"
    )
    _add_targets(command, "default: that of the analysis, which is not changed")
    only = "for `--format perfetto`: "
    add_flag(
        command,
        "trace",
        metavar="TRACE",
        type=Path,
        help=f"{only}{TRACE_HELP} (default: that of the analysis if it is still unchanged at its "
        "path, else the GPU events and host calls of the analysis)",
    )
    add_flag(
        command,
        "change",
        metavar="CHANGE",
        action="append",
        help=f"{only}a change of the simulated step, as in `jarvis what-if`; can be repeated "
        "(default: what all findings propose)",
    )
    add_flag(
        command,
        "ranks",
        metavar="RANKS",
        help="for `--format perfetto` of a distributed run: its ranks, such as 0,4-7 "
        "(default: all)",
    )
    add_json(command)
    command.set_defaults(run=_export, usage_error=command.error)


def _add_targets(command: Options, default: str) -> None:
    """Add the options for other targets of the findings of an analysis."""
    explanation = f"target efficiency of the findings, in percent of the roofline ({default})"
    add_option(command, "target_pct", default=None, help=explanation)
    explanation = f"{explained('category_targets')} (default: those of the analysis)"
    add_option(command, "category_targets", default=None, help=explanation)


def _export(arguments: argparse.Namespace) -> int:
    from jarvis.pipeline import opened_at
    from jarvis.ranks.run import is_distributed
    from jarvis.reports import reporter
    from jarvis.reports.perfetto import FORMAT

    chosen = reporter(arguments.format)
    root = run_directory(arguments.directory)
    if is_distributed(RunPaths(root).manifest.read_bytes()):
        return _export_ranks(arguments, root)
    if arguments.ranks:
        arguments.usage_error("--ranks applies to a distributed run")
    if chosen.name != FORMAT and (arguments.trace or arguments.change):
        arguments.usage_error(f"--trace and --change apply to --format {FORMAT}")
    opened = opened_at(root, arguments.target_pct, arguments.category_targets)
    with opened as run, atomic_output(arguments.output) as place:
        if chosen.name == FORMAT:
            chosen = _for_perfetto(run, arguments.trace, arguments.change)
        if chosen.has_notes:
            chosen = _with_notes(chosen, root)
        chosen.render(run, place)
    return _printed(arguments)


def _printed(arguments: argparse.Namespace) -> ExitCode:
    result = {"format": arguments.format, "output": arguments.output}
    print_result(arguments, result, [arguments.output])
    return ExitCode.OK


def _export_ranks(arguments: argparse.Namespace, root: Path) -> ExitCode:
    from jarvis.core.errors import RemovedRanksError
    from jarvis.pipeline.joint_what_if import stored_member
    from jarvis.ranks.identity import as_ranges, ranks_in
    from jarvis.ranks.run import DistributedRun
    from jarvis.reports.ranks_export import check_ranks_format, write_ranks_export

    check_ranks_format(arguments.format)
    ranks: tuple[int, ...] = ()
    if arguments.ranks:
        named = ranks_in(arguments.ranks)
        if named is None:
            arguments.usage_error(f"--ranks needs ranks such as 0,4-7, not {arguments.ranks}")
        ranks = named or ()
    run = DistributedRun.load(root)
    found = {entry.rank or 0: stored_member(root, entry) for entry in run.manifest.chosen(ranks)}
    members = {rank: place for rank, place in found.items() if place is not None}
    if removed := found.keys() - members.keys():
        raise RemovedRanksError(as_ranges(removed))
    with atomic_output(arguments.output) as place:
        write_ranks_export(run, arguments.format, members, place)
    return _printed(arguments)


def _with_notes(chosen: "Reporter", root: Path) -> "Reporter":
    """Return the format with the notes on the report, if ``root`` is a stored analysis."""
    from jarvis.server.storage.report_notes import stored_edits

    return chosen.with_notes(stored_edits(root))


def _for_perfetto(run: "Run", trace: Path | None, texts: Iterable[str] | None) -> "Reporter":
    """Return the format for a given trace, or for that of the run, and for changes."""
    from jarvis.pipeline.simulated_steps import parse_change
    from jarvis.reports.perfetto import PerfettoReporter
    from jarvis.run.stored_calls import trace_file

    changes = None
    if texts is not None:
        _ = run.simulation  # raises NotSimulatedError before any other error
        changes = [change for text in texts for change in parse_change(text, run)]
    found = trace or trace_file(run)
    if found is None:
        note(["the trace was deleted or changed; the file has the events that the analysis stores"])
    return PerfettoReporter(found, changes, print_reading)


def add_reproject(commands: Commands) -> None:
    command = commands.add_parser(
        "reproject",
        help="re-project an analysis onto another GPU or target, without its trace",
        description="Recompute rooflines, findings and reports of an analysis for another GPU or "
        "target efficiency from its run directory. The result is a new run directory, equal to "
        "that of an analysis of the trace with these options.",
    )
    add_run(command)
    add_options(command, GPU_OPTIONS)
    _add_targets(command, "default: that of the analysis, as for the GPU")
    add_flag(command, "output_dir", metavar="DIR", type=Path, required=True, help="new folder")
    add_json(command)
    command.set_defaults(run=_reproject)


def _reproject(arguments: argparse.Namespace) -> int:
    check_gpu(arguments)
    from jarvis.pipeline import reproject

    run = reproject(
        run_directory(arguments.directory),
        platform=arguments.platform,
        preset=arguments.preset,
        arch_json=arguments.arch_json,
        target_pct=arguments.target_pct,
        category_targets=arguments.category_targets,
        output_dir=arguments.output_dir,
        progress=print_step,
    )
    warn(warnings_of(run))
    print_run(arguments, run)
    return ExitCode.OK


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
    from jarvis.replay import replay_candidates, select
    from jarvis.run import Run

    is_listing = not (arguments.op or arguments.uid)
    if is_listing and arguments.output:
        arguments.usage_error("--output requires --op or --uid")
    run = Run.load(run_directory(arguments.directory))
    if is_listing:
        rows = replay_candidates(run)
        print_result(arguments, {"operators": [asdict(row) for row in rows]}, _listing(rows))
    else:
        _package(arguments, select(run, arguments.uid, arguments.op))
    return ExitCode.OK


def _package(arguments: argparse.Namespace, selection: "Selection") -> None:
    path = arguments.output or Path(selection.file_name)
    content = selection.package()
    with atomic_output(path) as place:
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
