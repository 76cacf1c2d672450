"""From the traces of several ranks to a distributed run with a run for each rank."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import polars as pl

from jarvis.core.errors import JarvisError
from jarvis.core.output import write_output
from jarvis.core.product import product_version
from jarvis.core.request import AnalysisRequest
from jarvis.core.staging import staged_folder
from jarvis.core.workspace import RunPaths
from jarvis.findings import AnalysisResult
from jarvis.pipeline.analysis import analyze
from jarvis.pipeline.processes import Failure, outcomes
from jarvis.ranks.findings import rank_findings
from jarvis.ranks.identity import Identified, RankFile, RankOf, as_ranges, identify, rank_file
from jarvis.ranks.inputs import InputFile, common_name
from jarvis.ranks.jobs import split_jobs
from jarvis.ranks.join import Joined, join
from jarvis.ranks.manifest import (
    ClockSummary,
    Coverage,
    DistributedManifest,
    MatchingSummary,
    MemberEntry,
    MemberState,
    StoredOptions,
    WorldSize,
    distributed_id,
)
from jarvis.ranks.members import Member
from jarvis.ranks.nodes import UNKNOWN_CLUSTER, Cluster
from jarvis.ranks.run import DistributedRun, ParquetTables, check_output_folder
from jarvis.reports.csv import write_csvs
from jarvis.reports.ranks import ranks_report
from jarvis.run.manifest import TopFinding
from jarvis.run.results import results_json
from jarvis.run.run import Run, read_manifest
from jarvis.run.store import check_output_folder as check_run_folder
from jarvis.schemas import labeled
from jarvis.schemas.names import C
from jarvis.tracelens.multi_rank import multi_rank_sheets

MIN_RANKS = 2
IN_WORKBOOK = (
    *("ranks", "communicators", "instances", "clocks", "rank_steps", "lateness_causes"),
    *("lateness_operations", "rank_categories"),
)
"""Tables that the workbook has besides TraceLens's sheets."""

OTHER_JOB = "It belongs to another job or recording, of which no other rank is given."
"""Why a file is not joined that no other belongs to."""

OnSplit = Callable[[Sequence[Sequence[str]]], bool]
"""Called with the names of the files of each job, if they are of several; returns whether to join
them."""

OnRank = Callable[["AnalyzedRank | Failure", InputFile], None]
"""Called for each rank that ends."""


class TooFewRanksError(JarvisError):
    """Fewer than two ranks can be joined; ``single_run`` is the run of the only trace that has one,
    if it was written."""

    single_run: Path | None = None

    def __init__(self, failures: Sequence[str]) -> None:
        super().__init__(
            "A distributed run needs at least 2 ranks whose traces can be analyzed. "
            + " ".join(failures)
        )


@dataclass(frozen=True)
class RankOptions:
    """What the user says about the ranks (``identify``), and about the machine.

    ``jobs`` is the number of processes. A node has the GPUs that the first rank saw unless
    ``cluster`` says otherwise.
    """

    world_size: int | None = None
    rank_regex: str | None = None
    given: Mapping[str, int] | None = None
    taken: Mapping[int, str] | None = None
    by_order: bool = False
    cluster: Cluster = UNKNOWN_CLUSTER
    jobs: int = 1

    @property
    def stored(self) -> StoredOptions:
        """What the manifest has of them."""
        return StoredOptions(
            world_size=self.world_size,
            rank_regex=self.rank_regex,
            ranks=dict(sorted((self.given or {}).items())),
            taken=dict(sorted((self.taken or {}).items())),
            rank_by_order=self.by_order,
            gpus_per_node=self.cluster.gpus_per_node,
            network_gbps=self.cluster.network_gbps,
        )


NO_RANK_OPTIONS = RankOptions()
"""Everything about the ranks is taken from their traces."""


@dataclass(frozen=True)
class AnalyzedRank:
    """The run of a trace, and what it tells about its rank."""

    file: RankFile
    root: Path
    has_gpu_work: bool


@dataclass(frozen=True)
class _Task:
    file: InputFile
    request: AnalysisRequest
    root: Path


def analyze_rank(task: _Task) -> AnalyzedRank:
    """Analyze one trace, and return what its run tells about its rank.

    Raises:
        JarvisError: The trace cannot be analyzed.
    """
    run = analyze(task.file.path, task.request, output_dir=task.root)
    return analyzed_rank(task.file.name, run, task.root)


def analyzed_rank(name: str, run: Run, root: Path) -> AnalyzedRank:
    """Return what the run of a trace tells about its rank.

    Args:
        name: Path of the trace below the folder that all traces have in common.
    """
    info, kernels = run.manifest.trace, run.table("collectives")
    has_gpu_work = run.table("gpu_work").height > 0
    return AnalyzedRank(rank_file(name, info, kernels), root, has_gpu_work)


def analyze_ranks(
    files: Sequence[InputFile],
    request: AnalysisRequest,
    options: RankOptions,
    *,
    output_dir: Path,
    name: str = "",
    on_rank: OnRank | None = None,
    on_split: OnSplit | None = None,
) -> list[DistributedRun]:
    """Analyze the traces of several ranks, join them, and write the distributed run.

    Traces of several jobs (``split_jobs``) become a run each, in folders of ``output_dir``; none if
    ``on_split`` returns False. A directory appears whole or not at all. A rank that cannot be
    analyzed is named in the manifest; the others are joined. If a single one can be, its own run is
    written.

    Args:
        request: What the user chose, for each rank.
        name: The name of the folder or archive, if it is one.

    Raises:
        TooFewRanksError: Fewer than two ranks can be joined.
        OutputFolderError: ``output_dir`` holds something else.
    """
    output_dir.parent.mkdir(parents=True, exist_ok=True)
    work = output_dir.resolve().with_name(f".{output_dir.name}.ranks-{uuid4().hex[:8]}")
    try:
        analyzed = _analyzed(files, request, options.jobs, work, on_rank)
        jobs = rank_jobs([file.name for file in files], analyzed, options)
        if len(jobs) > 1 and on_split is not None and not on_split([job.names for job in jobs]):
            return []
        roots = [output_dir / f"job_{n}" for n in range(1, len(jobs) + 1)]
        return [
            join_ranks(
                job.names, job.analyzed, options, output_dir=root, name=name, takes_runs=True
            )
            for job, root in zip(jobs, roots if len(jobs) > 1 else [output_dir], strict=True)
        ]
    except TooFewRanksError as error:
        working = [each for each in analyzed if isinstance(each, AnalyzedRank)]
        if len(working) == 1:
            (only,) = working
            error.single_run = output_dir
            with staged_folder(
                output_dir, lambda: check_run_folder(output_dir, only.file.sha256)
            ) as folder:
                only.root.rename(folder)
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


class RankJob(NamedTuple):
    """The files of a job: their names, and the run of each or why there is none."""

    names: list[str]
    analyzed: list[AnalyzedRank | Failure]


def rank_jobs(
    names: Sequence[str], analyzed: Sequence[AnalyzedRank | Failure], options: RankOptions
) -> list[RankJob]:
    """Return the files of each job with at least MIN_RANKS ranks, that with most first.

    Files that have no run, and those of jobs with fewer ranks, are named in the first.
    """
    working = {each.file.name: each for each in analyzed if isinstance(each, AnalyzedRank)}
    files = [each.file for each in working.values() if each.has_gpu_work]
    ranks = _identified(files, options, _others(names, analyzed)).ranks
    split = split_jobs(files, ranks, options.taken or ())
    joined = [files for files in split if len(_identified(files, options).used) >= MIN_RANKS]
    if len(split) == 1 or not joined:
        return [RankJob(list(names), list(analyzed))]
    job_of = {file.name: number for number, files in enumerate(joined) for file in files}
    jobs = [RankJob([], []) for _ in joined]
    lone = {file.name for file in files} - job_of.keys()
    for name, outcome in zip(names, analyzed, strict=True):
        job = jobs[job_of.get(name, 0)]
        job.names.append(name)
        job.analyzed.append(Failure(OTHER_JOB) if name in lone else outcome)
    return jobs


def _others(names: Sequence[str], analyzed: Sequence[AnalyzedRank | Failure]) -> list[RankFile]:
    """Return the files that cannot be joined."""
    return [
        outcome.file if isinstance(outcome, AnalyzedRank) else RankFile(name, "")
        for name, outcome in zip(names, analyzed, strict=True)
        if isinstance(outcome, Failure) or not outcome.has_gpu_work
    ]


def _identified(
    files: Sequence[RankFile], options: RankOptions, others: Sequence[RankFile] = ()
) -> Identified:
    return identify(
        files,
        world_size=options.world_size,
        given=options.given,
        taken=options.taken,
        rank_regex=options.rank_regex,
        by_order=options.by_order,
        others=others,
    )


def _analyzed(
    files: Sequence[InputFile],
    request: AnalysisRequest,
    jobs: int,
    work: Path,
    on_rank: OnRank | None,
) -> list[AnalyzedRank | Failure]:
    tasks = [_Task(file, request, work / str(number)) for number, file in enumerate(files)]
    found = []
    for file, outcome in zip(files, outcomes(analyze_rank, tasks, jobs), strict=True):
        if isinstance(outcome, Failure):  # the folder may be that of an unpacked archive
            outcome = replace(outcome, reason=outcome.reason.replace(str(file.path), file.name))
        found.append(outcome)
        if on_rank is not None:
            on_rank(outcome, file)
    return found


def join_ranks(
    names: Sequence[str],
    analyzed: Sequence[AnalyzedRank | Failure],
    options: RankOptions,
    *,
    output_dir: Path,
    name: str = "",
    takes_runs: bool = False,
) -> DistributedRun:
    """Join the runs of several ranks, and write the distributed run.

    Args:
        names: The names of all files, none of them twice.
        analyzed: The run of each, or why there is none.
        name: The name of the folder or archive, if it is known.
        takes_runs: Whether the runs of the ranks are moved into it.

    Raises:
        TooFewRanksError: Fewer than two ranks can be joined.
        OutputFolderError: ``output_dir`` holds something else.
    """
    from jarvis.reports.xlsx import write_workbook  # pages need no openpyxl

    ranks = [rank for rank in analyzed if isinstance(rank, AnalyzedRank)]
    by_name = {rank.file.name: rank for rank in ranks}
    working = [rank.file for rank in ranks if rank.has_gpu_work]
    identified = _identified(working, options, _others(names, analyzed))
    failed = _failed(names, analyzed, identified)
    if len(identified.used) < MIN_RANKS:
        raise TooFewRanksError([f"{entry.file_name}: {entry.error}" for entry in failed])
    members = [_member(entry, by_name[entry.file.name].root) for entry in identified.used]
    joined = join(members, identified.world_size, options.cluster)
    result = rank_findings(joined, identified.world_size)
    sheets = multi_rank_sheets(
        {member.rank: member.tables["collectives"] for member in members},
        gpus_per_node=options.cluster.gpus_per_node or members[0].info.visible_gpus,
    ).sheets
    models = {read_manifest(by_name[entry.file.name].root).model_name for entry in identified.used}
    model = models.pop() if len(models) == 1 else None
    called = model or name or common_name(names)
    manifest = _manifest(
        called, identified, working, members, failed, joined, tuple(sheets), result, options.stored
    )
    digests = frozenset(rank.file.sha256 for rank in ranks)
    with staged_folder(output_dir, lambda: check_output_folder(output_dir, digests)) as folder:
        paths = RunPaths(folder)
        for entry in identified.used if takes_runs else ():
            place = paths.member(entry.rank)
            place.parent.mkdir(exist_ok=True)
            by_name[entry.file.name].root.rename(place)
        for table in joined.tables:
            joined.tables.write(table, paths.table(table))
        write_csvs(sheets, paths.perf_report_csvs)
        more = {**_workbook_tables(joined), "missing": _missing(manifest)}
        write_workbook({**sheets, **more}, paths.multi_rank_xlsx)
        write_output(paths.results, results_json({result.key: result}))
        report = ranks_report(manifest, result, joined.tables)
        write_output(paths.ranks_report, report)
        write_output(paths.manifest, manifest.model_dump_json(indent=2))
    return DistributedRun.load(output_dir)


def _member(entry: RankOf, root: Path) -> Member:
    manifest = read_manifest(root)
    return Member(
        rank=entry.rank,
        name=entry.file.name,
        info=manifest.trace,
        tables=ParquetTables(root, manifest.tables),
        analysis_id=manifest.analysis_id,
        simulation=manifest.simulation,
    )


def _failed(
    names: Sequence[str],
    analyzed: Sequence[AnalyzedRank | Failure],
    identified: Identified,
) -> list[MemberEntry]:
    """Return the files that are not joined, with the reason."""
    found = []
    known = {entry.file.name: entry for entry in identified.others}
    for name, outcome in zip(names, analyzed, strict=True):
        sha256, state = None, MemberState.FAILED
        if isinstance(outcome, Failure):
            error = outcome.reason
            state = MemberState.CANCELLED if outcome.is_cancelled else state
        elif not outcome.has_gpu_work:
            error, state = "The trace has no GPU work.", MemberState.NO_GPU_WORK
            sha256 = outcome.file.sha256
        elif name in identified.unknown:
            error, sha256 = "Its rank is not known.", outcome.file.sha256
        else:
            continue
        entry = known.get(name)
        found.append(
            MemberEntry(
                rank=entry and entry.rank,
                rank_source=entry and entry.source,
                state=state,
                file_name=name,
                sha256=sha256,
                error=error,
            )
        )
    return found


def _manifest(
    name: str,
    identified: Identified,
    files: Sequence[RankFile],
    members: Sequence[Member],
    failed: Sequence[MemberEntry],
    joined: Joined,
    sheets: tuple[str, ...],
    result: AnalysisResult,
    options: StoredOptions,
) -> DistributedManifest:
    windows = dict(joined.tables["ranks"].select(C.rank, C.window_ms).iter_rows())
    sources = {entry.rank: entry.source for entry in identified.used}
    usable = [
        MemberEntry(
            rank=member.rank,
            rank_source=sources[member.rank],
            state=MemberState.USABLE,
            file_name=member.name,
            sha256=member.info.sha256,
            analysis_id=member.analysis_id,
            host=member.info.host,
            device_name=member.info.device_name,
            group_count=member.info.distributed and member.info.distributed.group_count,
            gpu_wall_ms=windows[member.rank],
        )
        for member in members
    ]
    size = identified.world_size
    p95_ns, median_ns = joined.clock.p95_ns, joined.clock.median_ns
    return DistributedManifest(
        jarvis_version=product_version(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        distributed_id=distributed_id(
            ((member.rank, member.analysis_id or "") for member in members), size, options
        ),
        name=name,
        title=f"{len(members):,} of {size:,} ranks ({as_ranges(m.rank for m in members)})",
        world_size=WorldSize(value=size, source=identified.world_source),
        members=(*usable, *failed),
        missing=identified.missing_ranges,
        duplicates=dict(identified.duplicates),
        copies=_copies(identified, files),
        conflicts=identified.conflicts,
        clock=ClockSummary(
            p95_us=None if p95_ns is None else p95_ns / 1e3,
            is_waiting_known=joined.is_waiting_known,
            has_drift=bool(joined.clock.drift_ppm),
            median_us=None if median_ns is None else median_ns / 1e3,
        ),
        matching=MatchingSummary(
            instances=joined.tables.height("instances"),
            matched_kernels=joined.tables.height("instance_ranks"),
            unmatched_kernels=joined.tables.height("unmatched"),
        ),
        coverage=Coverage(
            ranks=len(members),
            expected_ranks=size,
            ranks_pct=100 * len(members) / size,
            complete_instances=int((~joined.tables["instances"][C.transfer_is_bound]).sum()),
        ),
        options=options,
        sheets=sheets,
        tables=tuple(joined.tables),
        top_finding=TopFinding.of(result.findings[0]) if result.findings else None,
    )


def _copies(identified: Identified, files: Iterable[RankFile]) -> tuple[str, ...]:
    """Return the files that are left out and have the bytes of the one that is used."""
    used = {entry.rank: entry.file.sha256 for entry in identified.used}
    sha256_of = {file.name: file.sha256 for file in files}
    return tuple(
        name
        for rank, names in identified.duplicates.items()
        for name in names
        if sha256_of[name] == used[rank]
    )


def _missing(manifest: DistributedManifest) -> pl.DataFrame:
    """Return the ranks without a usable trace, and the files that are not used."""
    files = [
        ("" if entry.rank is None else str(entry.rank), entry.file_name, entry.error)
        for entry in manifest.failed
    ]
    given = {entry.rank for entry in manifest.failed}
    none = (rank for first, last in manifest.missing for rank in range(first, last + 1))
    ranges = as_ranges(rank for rank in none if rank not in given)
    others = [
        (str(rank), name, "Another file of this rank is used.")
        for rank, names in manifest.duplicates.items()
        for name in names
    ]
    rows = [*((part, None, "No trace.") for part in ranges.split(", ") if part), *files, *others]
    return pl.DataFrame(
        rows, {"Rank": pl.String, "File": pl.String, "Reason": pl.String}, orient="row"
    )


def _workbook_tables(joined: Joined) -> dict[str, pl.DataFrame]:
    found = {}
    for name in IN_WORKBOOK:
        table = joined.tables[name]
        lists = [column for column, dtype in table.schema.items() if dtype == pl.List]
        texts = (
            pl.col(column).list.eval(pl.element().cast(pl.String)).list.join(", ")
            for column in lists
        )
        found[name] = labeled(table.with_columns(texts), name)
    return found
