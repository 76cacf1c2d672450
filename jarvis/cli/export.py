"""``jarvis export``: write an analysis in another format."""

import argparse
from pathlib import Path

from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.shared import Commands, add_json, add_option, add_run, print_result, run_directory
from jarvis.cli.whole import whole


def add_export(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command."""
    command = commands.add_parser(
        "export",
        help="write an analysis in another format",
        description="Write an analysis as one file: the whole run as JSON, or the report with "
        "charts as HTML (`--format html`).",
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
    add_json(command)
    command.set_defaults(run=_export)


def _export(arguments: argparse.Namespace) -> int:
    from jarvis.pipeline import opened_at
    from jarvis.reports import reporter

    chosen = reporter(arguments.format)
    root = run_directory(arguments.directory)
    with opened_at(root, arguments.target_pct) as run, whole(arguments.output) as place:
        chosen.render(run, place)
    result = {"format": arguments.format, "output": arguments.output}
    print_result(arguments, result, [arguments.output])
    return ExitCode.OK
