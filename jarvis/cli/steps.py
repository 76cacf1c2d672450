"""``jarvis steps``: print the inference steps of a trace."""

import argparse
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.atomic_output import atomic_output
from jarvis.cli.options import (
    GPU_OPTIONS,
    MODEL_OPTIONS,
    TRACE_HELP,
    Commands,
    add_captures,
    add_flag,
    add_options,
    capture_places,
    check_gpu,
)
from jarvis.cli.output import ExitCode, add_json, print_result, print_step, table_lines

if TYPE_CHECKING:
    import polars as pl

    from jarvis.tracelens.report import TraceLensReport

SHOWN = (
    "step",
    "part",
    "phase",
    "launch_mode",
    "ctx_requests",
    "gen_requests",
    "ctx_tokens",
    "gen_tokens",
    "kv_tokens",
    "resolution",
    "gpu_start_ms",
    "step_time_ms",
    "busy_ms",
    "gap_before_ms",
    "gap_inside_ms",
    "carried_in_ms",
    "gpu_event_count",
    "exposed_comm_ms",
    "tokens_per_s",
    "itl_ms",
    "mfu_pct",
    "mbu_pct",
    "lower_bound_ms",
    "cost_source",
    "padding_pct",
)
"""Columns of the printed table; ``csv`` has all."""


def add_steps(commands: Commands) -> None:
    command = commands.add_parser(
        "steps",
        help="list the inference steps of a trace",
        description="List the steps of an inference engine (vLLM, SGLang, ATOM, xDiT) with phase, "
        "requests, tokens, GPU time, gaps and rates. Without annotations of an engine, the steps "
        "are those of the profiler, or replays of one GPU graph in a row, or the recording.",
    )
    command.add_argument("trace", metavar="TRACE", type=Path, help=TRACE_HELP)
    command.add_argument(
        "--format",
        choices=("table", "csv"),
        default="table",
        help="a table of the main columns (default), or all columns as CSV",
    )
    add_captures(command)
    command.add_argument(
        "--select",
        metavar="STEPS",
        help="only the steps of a phase (decode, prefill, mixed, diffusion), those in the steady "
        "state of the load (steady), or a range as 10:40, which ends before step 40",
    )
    command.add_argument(
        "--layers",
        action="store_true",
        help="list the kernels of the layers that repeat in the steps instead, by position",
    )
    add_flag(
        command,
        "output_dir",
        metavar="DIR",
        type=Path,
        help="folder for one CSV each of steps, phases and layers, instead of printing them",
    )
    add_options(command, (*GPU_OPTIONS, *MODEL_OPTIONS))
    add_json(command)
    command.set_defaults(run=_steps)


def _steps(arguments: argparse.Namespace) -> int:
    check_gpu(arguments)
    from jarvis.perf_report.serving.notes import layer_notes, step_notes
    from jarvis.pipeline import generate_report, read_served_model
    from jarvis.schemas import columns
    from jarvis.tracelens.options import ReportOptions

    report = generate_report(
        arguments.trace,
        arguments.platform,
        arguments.preset,
        arch_json=arguments.arch_json,
        captures=capture_places(arguments),
        options=ReportOptions(enable_pseudo_ops=True),
        model=read_served_model(
            arguments.served_model, arguments.tensor_parallel, arguments.expert_parallel
        ),
        progress=print_step,
    )
    tables = _tables(report, arguments.select)
    steps, gaps, events = tables["inference_steps"], report.idle_gaps, report.trace.gpu_events
    remarks = list(
        layer_notes(tables["inference_layers"], tables["inference_layer_times"])
        if arguments.layers
        else step_notes(steps, gaps, events)
    )
    name, shown = ("inference_layers", None) if arguments.layers else ("inference_steps", SHOWN)
    rows, phases = tables[name], tables["inference_phases"]
    lines: list[object]
    result: dict[str, object] = {
        "layers" if arguments.layers else "steps": rows.to_dicts(),
        "notes": remarks,
    }
    if not arguments.layers:
        result["phases"] = phases.to_dicts()
    if arguments.output_dir is not None:
        lines = list(_written(tables, arguments.output_dir))
        result["files"] = lines
    elif arguments.format == "csv":
        lines = list(_csv(rows))
    else:
        lines = [*table_lines(rows.select(shown or rows.columns), columns(name)), *remarks]
        if not arguments.layers:
            lines = [*table_lines(phases, columns("inference_phases")), "", *lines]
    print_result(arguments, result, lines)
    return ExitCode.OK


def _tables(report: "TraceLensReport", selection: str | None) -> "dict[str, pl.DataFrame]":
    """Return the tables of inference, with the selected steps and their phases."""
    from jarvis.perf_report.serving.rates import inference_phases
    from jarvis.perf_report.serving.selection import selected_steps
    from jarvis.schemas import conform
    from jarvis.schemas.serving import TABLES

    tables = {name: getattr(report, name) for name in TABLES}
    if selection is not None:
        steps = selected_steps(tables["inference_steps"], selection)
        phases = inference_phases(steps, tables["inference_layers"])
        tables["inference_steps"] = steps
        tables["inference_phases"] = conform(phases, "inference_phases")
    return tables


def _written(tables: "dict[str, pl.DataFrame]", folder: Path) -> Iterator[Path]:
    """Write each table as CSV and yield its path."""
    from jarvis.reports.csv import write_csvs

    with atomic_output(folder) as place:
        written = write_csvs(tables, place)
    yield from (folder / path.name for path in written)


def _csv(frame: "pl.DataFrame") -> list[str]:
    from jarvis.text.csv_files import write_rows

    file = StringIO()
    write_rows(frame, file)
    return file.getvalue().splitlines()
