"""``jarvis ranks | collectives``: the ranks of a distributed run, TraceLens's report of ranks."""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.analyze_ranks import add_numbering
from jarvis.cli.atomic_output import write_sheets
from jarvis.cli.options import TRACE_HELP, Commands, add_flag, add_run, positive, run_directory
from jarvis.cli.output import ExitCode, add_json, note, print_result, table_lines, warn
from jarvis.core.errors import JarvisError
from jarvis.core.workspace import RunPaths

if TYPE_CHECKING:
    import polars as pl

    from jarvis.pipeline.collective_report import RankCollectives


def add_ranks(commands: Commands) -> None:
    command = commands.add_parser(
        "ranks",
        help="show the ranks of a distributed run, and why they are late",
        description="Show what each rank of a distributed run computes and waits in a step, how "
        "much waiting of others it causes, and what the median step gains if it were as fast as "
        "the median.",
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

    from jarvis.ranks.delays import delays, with_causes
    from jarvis.ranks.per_step import COLUMNS, basis, ranks_per_step, shown_columns
    from jarvis.ranks.run import DistributedRun
    from jarvis.schemas.names import C
    from jarvis.text.messages import to_text

    run = DistributedRun.load(run_directory(arguments.directory))
    ranks, times = ranks_per_step(run.tables), basis(run.tables)
    late = delays(run.tables["lateness"], run.tables["instances"])
    if arguments.rank is not None:
        ranks, late = (rows.filter(pl.col(C.rank) == arguments.rank) for rows in (ranks, late))
        if ranks.is_empty():
            arguments.usage_error(f"the run has no rank {arguments.rank}: {run.manifest.title}")
    findings = [to_text(finding.title) for finding in run.findings]
    title, shown = run.manifest.title, ranks.select(shown_columns(ranks))
    lines = [title, *findings, f"Times are {times}.", *table_lines(shown, COLUMNS)]
    result = {"title": title, "findings": findings, "times": times, "ranks": ranks.to_dicts()}
    if arguments.why:
        late = with_causes(late, run.tables)
        lines += ["", *_delay_lines(late)]
        result["delays"] = late.to_dicts()
    print_result(arguments, result, lines)
    return ExitCode.OK


def _delay_lines(late: "pl.DataFrame") -> list[str]:
    from jarvis.ranks.delays import COLUMNS, DELAYS_SHOWN, MIN_LATE_MS, SHOWN

    if late.is_empty():
        return [f"No delay above {MIN_LATE_MS * 1000:g} µs is known."]
    lines = list(table_lines(late.head(DELAYS_SHOWN).select(SHOWN), COLUMNS))
    if late.height > DELAYS_SHOWN:
        lines.append(f"{DELAYS_SHOWN} of {late.height} delays; --json has all.")
    return lines


AGGREGATIONS = ("mean", "median", "min", "max", "std", "sum")
"""Those of ``tracelens.multi_rank``, which is slow to import; the first four are the default."""

_FORMS = ("trace_dir", "trace_pattern", "trace_glob")


def add_collectives(commands: Commands) -> None:
    command = commands.add_parser(
        "collectives",
        help="write TraceLens's collective report of several ranks",
        description="Write the collectives of the traces of several ranks, as "
        "TraceLens_generate_multi_rank_collective_report_pytorch does, whose options it takes.",
    )
    command.add_argument(
        "traces",
        metavar="TRACE",
        type=Path,
        nargs="*",
        help="a folder with the traces of the ranks, a .zip or .tar.gz of them, or each "
        f"{TRACE_HELP}",
    )
    add_flag(
        command,
        "trace_dir",
        metavar="DIR",
        type=Path,
        help="folder with rank0_trace.json, rank1_trace.json, ...",
    )
    add_flag(
        command,
        "trace_pattern",
        metavar="PATTERN",
        help="path of the traces with one * in the place of the rank",
    )
    add_flag(command, "trace_glob", metavar="GLOB", help="pattern of the traces; ** is any depth")
    add_flag(
        command,
        "rank_regex",
        metavar="REGEX",
        help="pattern of the rank in names, with a group `rank` or one group",
    )
    add_numbering(command)
    add_flag(
        command,
        "agg_metrics",
        nargs="+",
        choices=AGGREGATIONS,
        default=list(AGGREGATIONS[:4]),
        help="aggregations of the summaries (default: mean median min max)",
    )
    add_flag(
        command,
        "all2allv_heatmap",
        action="store_true",
        help="accepted for compatibility: the sheet is always written, up to 1,024 ranks",
    )
    add_flag(
        command,
        "detailed_analysis",
        action="store_true",
        help="accepted for compatibility: all sheets are always written",
    )
    add_flag(command, "use_multiprocessing", action="store_true", help="read in several processes")
    add_flag(
        command,
        "max_workers",
        metavar="N",
        type=positive,
        help="processes (default: one for each core)",
    )
    add_flag(command, "output_xlsx_path", metavar="FILE", type=Path, help="workbook to write")
    add_flag(
        command, "output_csvs_dir", metavar="DIR", type=Path, help="folder for a CSV per sheet"
    )
    add_json(command)
    command.set_defaults(run=_collectives, usage_error=command.error)


def _collectives(arguments: argparse.Namespace) -> int:
    from jarvis.pipeline.collective_report import collective_report
    from jarvis.ranks.archives import unpacked_archives

    with unpacked_archives(arguments.traces) as paths:
        ranks = _collectives_by_rank(arguments, paths)
    is_unpacked = paths != arguments.traces
    report = collective_report(
        ranks,
        gpus_per_node=arguments.gpus_per_node,
        aggregations=arguments.agg_metrics,
    )
    warnings = []
    if report.left_out:
        warnings.append(
            f"Ranks record {len(report.left_out):,} collectives differently, which are only in "
            f"nccl_long: {', '.join(report.left_out[:10])}."
        )
    warn(warnings)
    first = arguments.traces[0] if is_unpacked else Path(ranks[min(ranks)].info.path)
    written = list(_write(report.sheets, arguments, first))
    print_result(arguments, {"files": written, "warnings": warnings}, written)
    return ExitCode.OK


def _collectives_by_rank(
    arguments: argparse.Namespace, paths: Sequence[Path]
) -> "dict[int, RankCollectives]":
    """Return the communication of each rank; exit on conflicting options."""
    forms = [name for name in _FORMS if getattr(arguments, name) is not None]
    if len(forms) + bool(paths) != 1:
        arguments.usage_error(
            "name traces, or use one of --trace-dir, --trace-pattern and --trace-glob"
        )
    jobs = arguments.max_workers or (os.cpu_count() or 1 if arguments.use_multiprocessing else 1)
    return _given_ranks(arguments, paths, jobs) if paths else _listed_ranks(arguments, jobs)


def _listed_ranks(arguments: argparse.Namespace, jobs: int) -> "dict[int, RankCollectives]":
    """Return the ranks of TraceLens's options: files in the order of ranks."""
    from jarvis.pipeline.collective_report import read_ranks
    from jarvis.ranks.identity import DEFAULT_RANK_REGEX
    from jarvis.ranks.inputs import InputFile, files_of_folder, files_of_glob, files_of_pattern

    size = arguments.world_size
    if size is None:
        arguments.usage_error("--trace-dir, --trace-pattern and --trace-glob need --world-size")
    if arguments.trace_dir is not None:
        paths = files_of_folder(arguments.trace_dir, size)
    elif arguments.trace_pattern is not None:
        paths = files_of_pattern(arguments.trace_pattern, size)
    else:
        paths = files_of_glob(
            arguments.trace_glob, size, arguments.rank_regex or DEFAULT_RANK_REGEX
        )
    return dict(enumerate(read_ranks([InputFile(path, str(path)) for path in paths], jobs)))


def _given_ranks(
    arguments: argparse.Namespace, paths: Sequence[Path], jobs: int
) -> "dict[int, RankCollectives]":
    """Return the ranks of files and folders, by what the traces and their names say."""
    from jarvis.pipeline.collective_report import identified, read_ranks
    from jarvis.ranks.identity import missing_text
    from jarvis.ranks.inputs import trace_files

    read = read_ranks(trace_files(paths), jobs)
    found = identified(
        read,
        world_size=arguments.world_size,
        rank_regex=arguments.rank_regex,
        by_order=arguments.rank_by_order,
    )
    if found.unknown:
        raise JarvisError(
            f"The rank of {', '.join(found.unknown[:10])} is not known. Rename the file with "
            "`rank3`, or use --rank-regex or --rank-by-order."
        )
    warn(found.conflicts)
    for rank, names in found.duplicates.items():
        warn([f"Rank {rank} has several files; left out: {', '.join(names)}."])
    if found.missing_count:
        note([missing_text(found.missing_ranges, found.world_size, found.world_source)])
    by_name = {rank.name: rank for rank in read}
    return {entry.rank: by_name[entry.file.name] for entry in found.used}


def _write(
    sheets: "Mapping[str, pl.DataFrame]", arguments: argparse.Namespace, first: Path
) -> Iterator[Path]:
    """Write the requested outputs, by default a workbook beside the first trace; yield paths."""
    workbook, folder = arguments.output_xlsx_path, arguments.output_csvs_dir
    if workbook is folder is None:
        workbook = RunPaths(first.parent).multi_rank_xlsx
    yield from write_sheets(sheets, workbook, folder)
