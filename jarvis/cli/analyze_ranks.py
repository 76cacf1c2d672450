"""``jarvis analyze`` of the traces of several ranks."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.downloads import downloaded
from jarvis.cli.options import Options, add_flag, positive, positive_number, request_of
from jarvis.cli.output import ExitCode, add_yes, is_confirmed, note, print_line, print_result, warn
from jarvis.core.request import AnalysisRequest
from jarvis.core.workspace import RunPaths, default_output_dir

if TYPE_CHECKING:
    from jarvis.pipeline.distributed import AnalyzedRank, RankOptions
    from jarvis.pipeline.processes import Failure
    from jarvis.ranks.inputs import InputFile
    from jarvis.ranks.manifest import MemberEntry
    from jarvis.ranks.run import DistributedRun


MAX_SPLIT_UNASKED = 8
"""Files of several jobs that are analyzed without a confirmation."""


def add_rank_options(command: argparse.ArgumentParser) -> None:
    """Add the options for several ranks."""
    ranks = add_rank_facts(command)
    add_flag(
        ranks,
        "pattern",
        metavar="PATTERN",
        help="traces in place of TRACE, quoted, with one * in the place of the rank",
    )
    add_flag(
        ranks,
        "rank_regex",
        metavar="REGEX",
        help="pattern of the rank in file names, with a group `rank` or one group",
    )
    add_flag(
        ranks,
        "take",
        metavar="N=FILE",
        action="append",
        default=[],
        help="file to use for a rank that several have; repeatable",
    )
    add_flag(
        ranks,
        "jobs",
        metavar="N",
        type=positive,
        help="processes (default: one for each core, at most one for each rank)",
    )
    add_yes(ranks)


def add_rank_facts(command: argparse.ArgumentParser) -> "argparse._ArgumentGroup":
    """Add the options that a server takes, too; return their group."""
    ranks = command.add_argument_group("several ranks")
    add_numbering(ranks)
    add_flag(
        ranks,
        "network_gbps",
        metavar="GBPS",
        type=positive_number,
        help="rate of the network between nodes for each GPU, in Gbit/s (400 for a 400 Gbit/s "
        "adapter per GPU)",
    )
    add_flag(
        ranks,
        "rank",
        metavar="FILE=N",
        action="append",
        default=[],
        help="rank of a file; repeatable",
    )
    return ranks


def add_numbering(command: Options) -> None:
    """Add the options for how many ranks there are, and which is which."""
    add_flag(command, "world_size", metavar="N", type=positive, help="ranks of the job")
    add_flag(
        command,
        "rank_by_order",
        action="store_true",
        help="number files without a known rank by their names",
    )
    add_flag(
        command,
        "gpus_per_node",
        metavar="N",
        type=positive,
        help="ranks of a node (default: GPUs that the first rank saw)",
    )


@contextmanager
def rank_files(arguments: argparse.Namespace) -> "Iterator[list[InputFile]]":
    """Yield the traces that the arguments name; one path of a trace or a report is itself.

    URLs are downloaded; the default output folder is then in the current one.

    Raises:
        AddressError, FetchError: A URL is not valid, or cannot be downloaded.
        NoTracesError: There is none.
        TooManyFilesError: There are more than a job may have ranks.
        UnreadableTraceError: An archive cannot be unpacked.
    """
    from jarvis.ranks.archives import unpacked_archives
    from jarvis.ranks.inputs import ranks_of_pattern

    if bool(arguments.traces) == bool(arguments.pattern):
        arguments.usage_error("name traces, or use --pattern")
    urls = [each for each in arguments.traces if isinstance(each, str)]
    arguments.job_name = ""
    if urls and len(urls) < len(arguments.traces):
        arguments.usage_error("name traces or URLs, not both")
    if urls:
        arguments.pattern_ranks = {}
        if not arguments.id:
            arguments.output_dir = arguments.output_dir or default_output_dir(Path())
        with downloaded(urls) as arguments.traces, unpacked_archives(arguments.traces) as paths:
            yield named_files(paths)
        return
    arguments.pattern_ranks = ranks_of_pattern(arguments.pattern) if arguments.pattern else {}
    arguments.traces = arguments.traces or list(arguments.pattern_ranks)
    with unpacked_archives(arguments.traces) as paths:
        files = named_files(paths)
        arguments.job_name = _folder_name(arguments.traces, files)
        yield files


def _folder_name(given: Sequence[Path], files: "Sequence[InputFile]") -> str:
    """Return the name of the folder that all files are in, or of the archive, without suffix."""
    from jarvis.ranks.archives import ARCHIVES

    for archive in given if len(given) == 1 else ():
        if suffix := next((each for each in ARCHIVES if archive.name.endswith(each)), None):
            return archive.name.removesuffix(suffix)
    return Path(os.path.commonpath([file.path.resolve().parent for file in files])).name


def beside(arguments: argparse.Namespace) -> Path:
    """Return the path beside which results are written by default: never in an unpacked archive."""
    first: Path = arguments.traces[0]
    return first if first.is_file() else arguments.trace


def named_files(paths: Sequence[Path]) -> "list[InputFile]":
    """Return the traces that paths name; one path of a trace or a report is itself."""
    from jarvis.ranks.inputs import InputFile, trace_files

    if len(paths) == 1:
        (path,) = paths
        if not path.is_dir():
            if path.exists() or not has_magic(str(path)):
                return [InputFile(path, str(path))]
        elif _is_report(path):
            return [InputFile(path, str(path))]
    return trace_files(paths)


def _is_report(folder: Path) -> bool:
    from jarvis.reports.reading import is_report
    from jarvis.trace import SUFFIXES

    has_traces = any(path.name.endswith(SUFFIXES) for path in folder.rglob("*"))
    return is_report(folder) or not has_traces


def analyze_several(arguments: argparse.Namespace, files: "Sequence[InputFile]") -> int:
    """Analyze and join the traces; return CHECK_FAILED if one of them failed."""
    if arguments.id and (arguments.output_dir or arguments.plots):
        arguments.usage_error("--id stores several ranks without --output-dir and --plots")
    request = request_of(arguments, AnalysisRequest)
    options = _options(arguments, files)
    from jarvis.pipeline.distributed import TooFewRanksError, analyze_ranks
    from jarvis.pipeline.processes import Failure
    from jarvis.ranks.headers import names_against_headers
    from jarvis.text.format import counted, listed

    warn(names_against_headers(files, options.rank_regex, options.given or ()))
    first = arguments.traces[0]
    root: Path = arguments.output_dir or default_output_dir(first)
    done = 0

    def on_rank(outcome: "AnalyzedRank | Failure", file: "InputFile") -> None:
        nonlocal done
        done += 1
        reason = outcome.reason if isinstance(outcome, Failure) else None
        if arguments.progress == "json":
            line = {"number": done, "total": len(files), "file": file.name, "error": reason}
            print_line(json.dumps(line), sys.stderr)
        else:
            failed = "" if reason is None else f": {reason}"
            print_line(f"[{done}/{len(files)}] {file.name}{failed}", sys.stderr)

    def make(place: Path) -> "list[DistributedRun]":
        return analyze_ranks(
            files,
            request,
            options,
            output_dir=place,
            name=arguments.job_name,
            on_rank=on_rank,
            on_split=is_wanted,
        )

    def is_wanted(jobs: Sequence[Sequence[str]]) -> bool:
        note(
            [
                f"The files are of {len(jobs)} jobs or recordings; each is a run of its own:",
                *(f"  {counted(len(names), 'file')}: {listed(list(names))}" for names in jobs),
            ]
        )
        question, refused = "Write these runs?", "Nothing was written."
        return len(files) <= MAX_SPLIT_UNASKED or is_confirmed(arguments, [], question, refused)

    try:
        if arguments.id:
            from jarvis.server.submission import store_ranks

            runs = store_ranks(make)
        else:
            runs = make(root)
    except TooFewRanksError as error:
        if error.single_run is not None:
            note([f"One trace could be analyzed, on its own: {error.single_run}"])
        raise
    if not runs:
        return ExitCode.FAILED
    printed = [_result(arguments, run) for run in runs]
    first, *others = (result for result, _ in printed)
    lines = [line for _, written in printed for line in written]
    print_result(arguments, first | ({"others": others} if others else {}), lines)
    return ExitCode.CHECK_FAILED if any(r.manifest.failed for r in runs) else ExitCode.OK


def _result(
    arguments: argparse.Namespace, run: "DistributedRun"
) -> tuple[dict[str, object], list[object]]:
    """Return what is printed of a run, as JSON and as lines; print its notes and warnings."""
    from jarvis.text.messages import to_text

    if arguments.plots:
        _add_plots(run)
    notes, warnings = notes_of(run), warnings_of(run)
    note(notes)
    warn(warnings)
    paths = RunPaths(run.root)
    findings = [to_text(finding.title) for finding in run.findings]
    written = [*findings, run.root, paths.ranks_report, paths.multi_rank_xlsx]
    result: dict[str, object] = {
        "run": run.root,
        "manifest": paths.manifest,
        "id": run.manifest.distributed_id,
        "findings": findings,
        "members": {str(entry.rank): _member(run, entry) for entry in run.manifest.usable},
        "notes": notes,
        "warnings": warnings,
    }
    return result, written


def _member(run: "DistributedRun", entry: "MemberEntry") -> Path:
    """Return the run directory of a rank: in that of the run, or stored by its id."""
    inside = RunPaths(run.root).member(entry.rank or 0)
    return inside if inside.exists() else run.root.with_name(str(entry.analysis_id))


def _options(arguments: argparse.Namespace, files: "Sequence[InputFile]") -> "RankOptions":
    from jarvis.pipeline.distributed import RankOptions
    from jarvis.ranks.nodes import Cluster

    by_pattern = {
        file.name: rank
        for file in files
        if (rank := arguments.pattern_ranks.get(file.path)) is not None
    }
    taken = {int(rank): name for rank, name in _pairs(arguments, "take", arguments.take, 0)}
    return RankOptions(
        world_size=arguments.world_size,
        rank_regex=arguments.rank_regex,
        given=by_pattern | given_ranks(arguments),
        taken=taken,
        by_order=arguments.rank_by_order,
        cluster=Cluster(arguments.gpus_per_node, arguments.network_gbps),
        jobs=arguments.jobs or min(os.cpu_count() or 1, len(files)),
    )


def given_ranks(arguments: argparse.Namespace) -> dict[str, int]:
    """Return the ranks of ``--rank`` by file name."""
    return {name: int(rank) for name, rank in _pairs(arguments, "rank", arguments.rank)}


def _pairs(
    arguments: argparse.Namespace, option: str, texts: Iterable[str], number: int = 1
) -> Iterable[tuple[str, str]]:
    """Yield the two sides of texts ``A=B``, of which one has to be a rank."""
    from jarvis.ranks.identity import MAX_RANK

    for text in texts:
        pair = text.rpartition("=") if number else text.partition("=")
        sides = (pair[0], pair[2])
        if not sides[0] or not sides[number].isdecimal():
            arguments.usage_error(f"--{option} needs a file and a rank, not {text}")
        if int(sides[number]) >= MAX_RANK:
            arguments.usage_error(f"--{option}: a rank is at most {MAX_RANK - 1:,}, not {text}")
        yield sides


def _add_plots(run: "DistributedRun") -> None:
    from jarvis.reports import add_plots
    from jarvis.run import Run

    for entry in run.manifest.usable:
        if entry.rank is not None:
            root = RunPaths(run.root).member(entry.rank)
            add_plots(Run.load(root), root)


def notes_of(run: "DistributedRun") -> list[str]:
    """Return which ranks are missing, and how well the clocks agree."""
    from jarvis.ranks.identity import missing_text

    manifest = run.manifest
    lines = [f"{manifest.title}, {manifest.matching.instances:,} matched collectives"]
    if manifest.missing:
        size = manifest.world_size
        lines.append(missing_text(manifest.missing, size.value, size.source))
    if manifest.clock.is_waiting_known and manifest.clock.p95_us is not None:
        lines.append(f"ends of collectives agree within {manifest.clock.p95_us:.1f} µs (p95)")
    return lines


def warnings_of(run: "DistributedRun") -> list[str]:
    """Return what is wrong with the files, what they lack, and why waiting is not known."""
    from jarvis.ranks.manifest import left_out_texts
    from jarvis.ranks.messages import PARTS_NOTE
    from jarvis.text.messages import to_text

    manifest = run.manifest
    lines = [f"{entry.file_name}: {entry.error}" for entry in manifest.failed]
    lines += manifest.conflicts
    lines += left_out_texts(manifest)
    lines += [
        to_text(note)
        for result in run.results.values()
        for note in result.notes
        if note.id == PARTS_NOTE
    ]
    if not manifest.clock.is_waiting_known:
        reasons = run.tables["clocks"]["reason"].drop_nulls().unique(maintain_order=True)
        lines.append("Waiting is not known. " + " ".join(reasons.head(2).to_list()))
    return lines
