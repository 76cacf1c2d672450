"""``jarvis reproject``: re-project a run onto another GPU or target efficiency."""

import argparse
from pathlib import Path

from jarvis.cli.analyze import print_run, warnings_of
from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.shared import (
    GPU_OPTIONS,
    Commands,
    add_flag,
    add_json,
    add_option,
    add_options,
    add_run,
    check_gpu,
    explained,
    print_step,
    run_directory,
    warn,
)


def add_reproject(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command."""
    command = commands.add_parser(
        "reproject",
        help="re-project an analysis onto another GPU or target, without its trace",
        description="Recompute rooflines, findings and reports of an analysis for another GPU or "
        "target efficiency from its run directory. The result is a new run directory, equal to "
        "that of an analysis of the trace with these options.",
    )
    add_run(command)
    add_options(command, GPU_OPTIONS)
    add_option(
        command,
        "target_pct",
        default=None,
        help="target efficiency that savings are projected to, in percent of the roofline "
        "(default: that of the analysis); the default GPU is that of the analysis",
    )
    add_option(
        command,
        "category_targets",
        default=None,
        help=f"{explained('category_targets')} (default: those of the analysis)",
    )
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
