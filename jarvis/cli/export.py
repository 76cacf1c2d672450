"""``jarvis export``: write an analysis in another format."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.shared import (
    TRACE_HELP,
    Commands,
    add_flag,
    add_json,
    add_option,
    add_run,
    explained,
    note,
    print_reading,
    print_result,
    run_directory,
)
from jarvis.cli.whole import whole

if TYPE_CHECKING:
    from jarvis.reports import Reporter
    from jarvis.run import Run


def add_export(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command."""
    command = commands.add_parser(
        "export",
        help="write an analysis in another format",
        description="Write an analysis as one file: the whole run as JSON, the report with charts "
        "as HTML (`--format html`), or a trace for Perfetto (`--format perfetto`) that has every "
        "recorded slice, and tracks of steps, findings, idle causes, the critical path and the "
        "simulated step. Reports of stored analyses include the notes of their team.",
    )
    add_run(command)
    command.add_argument("--format", default="json", metavar="NAME", help="format (default: json)")
    command.add_argument(
        "--output", "-o", metavar="PATH", type=Path, required=True, help="file or folder to write"
    )
    add_option(
        command,
        "target_pct",
        default=None,
        help="target efficiency of the findings, in percent of the roofline (default: that of the "
        "analysis, which is not changed)",
    )
    add_option(
        command,
        "category_targets",
        default=None,
        help=f"{explained('category_targets')} (default: those of the analysis)",
    )
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
    add_json(command)
    command.set_defaults(run=_export, usage_error=command.error)


def _export(arguments: argparse.Namespace) -> int:
    from jarvis.pipeline import opened_at
    from jarvis.reports import reporter
    from jarvis.reports.perfetto import FORMAT

    chosen = reporter(arguments.format)
    if chosen.name != FORMAT and (arguments.trace or arguments.change):
        arguments.usage_error(f"--trace and --change apply to --format {FORMAT}")
    root = run_directory(arguments.directory)
    opened = opened_at(root, arguments.target_pct, arguments.category_targets)
    with opened as run, whole(arguments.output) as place:
        if chosen.name == FORMAT:
            chosen = _for_perfetto(run, arguments.trace, arguments.change)
        if chosen.has_notes:
            chosen = _with_notes(chosen, root)
        chosen.render(run, place)
    result = {"format": arguments.format, "output": arguments.output}
    print_result(arguments, result, [arguments.output])
    return ExitCode.OK


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
