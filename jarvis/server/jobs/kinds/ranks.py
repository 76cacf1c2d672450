"""Jobs of distributed runs: join the analyses of ranks, replay their steps, write files."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from jarvis.core.errors import JarvisError
from jarvis.core.output import write_zip
from jarvis.core.workspace import RunPaths, safe_name
from jarvis.pipeline import Progress
from jarvis.pipeline.distributed import (
    NO_RANK_OPTIONS,
    AnalyzedRank,
    RankOptions,
    analyzed_rank,
    join_ranks,
    rank_jobs,
)
from jarvis.pipeline.joint_what_if import ranks_what_if
from jarvis.pipeline.processes import Failure
from jarvis.pipeline.steps import step
from jarvis.ranks.identity import as_ranges, identify
from jarvis.ranks.manifest import MemberEntry
from jarvis.ranks.run import DistributedRun, read_manifest
from jarvis.reports.ranks_export import PERFETTO, SUFFIXES, write_ranks_export
from jarvis.run import Run
from jarvis.server import queue
from jarvis.server.access.rights import may_see
from jarvis.server.database import JobKind, JobState, Visibility, database
from jarvis.server.jobs.kinds.base import FileRequest, JobOutput, Request
from jarvis.server.jobs.kinds.exports import WHOLE_RUN
from jarvis.server.queue import NewJob
from jarvis.server.storage.analysis_rows import AnalysisRow, context_person, narrowed, stored_rows
from jarvis.server.storage.catalog import analysis_root, stored_row, strictest
from jarvis.server.submission import store_ranks

STEPS = ("Open the analyses", "Join the ranks")


@dataclass(frozen=True, slots=True)
class JoinMember:
    """A rank: the name of its file, and the job that analyzes it or its stored analysis."""

    name: str
    job: str | None = None
    analysis: str | None = None


@dataclass(frozen=True, slots=True)
class _Opened:
    """The run of a rank, or why there is none; ``row`` is that of a run that is joined."""

    name: str
    outcome: AnalyzedRank | Failure
    row: AnalysisRow | None = None


@dataclass(frozen=True, slots=True)
class Join(Request):
    """Join the analyses of several ranks when the jobs that create them have ended.

    Ranks without an analysis are named in the result, and the others are joined.

    Attributes:
        retried: job of a rank that was retried, and its number of starts before; distinguishes
            the request from an earlier one for the same jobs.
    """

    members: tuple[JoinMember, ...]
    options: RankOptions = NO_RANK_OPTIONS
    retried: str = ""

    kind = JobKind.JOIN

    @property
    def title(self) -> str:
        return f"Join {len(self.members):,} ranks ({self.members[0].name}, ...)"

    def new_job(self) -> NewJob:
        """Return the job for the queue, which waits for those of the ranks.

        ``analyses`` of the request is empty: the job runs without an analysis that has become
        invisible since.
        """
        return replace(
            Request.new_job(self),
            waits_for=tuple(each.job for each in self.members if each.job is not None),
            analyses=tuple(each.analysis for each in self.members if each.analysis is not None),
        )

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Create the distributed run, or one for each job that the ranks are of.

        The result has ``failed``, the number of files that are not in them, and of several runs
        ``others``, the ids of all but the first.
        """
        with step(0, progress, STEPS):
            opened = [_opened(member) for member in self.members]
        names, outcomes = [each.name for each in opened], [each.outcome for each in opened]
        rows = [each.row for each in opened if each.row is not None]
        with step(1, progress, STEPS), narrowed(strictest(Visibility.TEAM, rows)):
            runs = store_ranks(
                lambda root: [
                    join_ranks(job.names, job.analyzed, self.options, output_dir=root / str(number))
                    for number, job in enumerate(rank_jobs(names, outcomes, self.options))
                ]
            )
        ids = [run.manifest.distributed_id for run in runs]
        failed = sum(len(run.manifest.failed) for run in runs)
        others = {"others": ids[1:]} if ids[1:] else {}
        return JobOutput(ids[0], {"failed": failed, **others})


def unique_names(names: Iterable[str]) -> list[str]:
    """Return the names; those that repeat an earlier one get a number before them."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        found.append(f"{seen[name]}/{name}" if seen[name] else name)
        seen[name] += 1
    return found


def _opened(member: JoinMember) -> _Opened:
    try:
        analysis = member.analysis
        if member.job is not None:
            job = queue.find(database(), member.job)
            if job.state is not JobState.DONE or job.analysis_id is None:
                error, is_cancelled = job.error, job.state is JobState.CANCELLED
                reason = Failure(error or f"Its job was {job.state}.", is_cancelled)
                return _Opened(member.name, reason)
            analysis = job.analysis_id
        row = stored_row(str(analysis))
        root = analysis_root(row.id)
        rank = analyzed_rank(member.name, Run.load(root), root)
    except JarvisError as error:
        return _Opened(member.name, Failure(str(error)))
    if may_see(context_person(), row):
        return _Opened(member.name, rank, row)
    known = identify([rank.file]).used
    name = f"rank{known[0].rank}" if known else "unknown rank"
    return _Opened(name, Failure("Its analysis is private to another person."))


ANSWER = "what_if"
"""Key of the answer in the job's result."""


@dataclass(frozen=True, slots=True)
class RanksWhatIf(Request):
    """Replay the steps of a distributed run with all ``changes``."""

    analysis: str
    changes: tuple[str, ...]

    kind = JobKind.WHAT_IF

    @property
    def title(self) -> str:
        run = read_manifest(analysis_root(self.analysis))
        return f"What if {', '.join(self.changes) or 'nothing changes'} on {run.title}"

    @property
    def analyses(self) -> tuple[str, ...]:
        return (self.analysis,)

    @property
    def stamp(self) -> str:
        return sha256(RunPaths(analysis_root(self.analysis)).manifest.read_bytes()).hexdigest()

    @property
    def is_personal(self) -> bool:
        """Return True: another person may see the analyses of fewer ranks."""
        return True

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        """Return a ``JointWhatIf`` as ``ANSWER`` of the result."""
        person, rows = context_person(), stored_rows(database())

        def find(member: MemberEntry) -> Path | None:
            row = rows.get(str(member.analysis_id))
            return analysis_root(row.id) if row is not None and may_see(person, row) else None

        with step(0, progress, ("Replay the steps",)):
            run = DistributedRun.load(analysis_root(self.analysis))
            found = ranks_what_if(run, self.changes, find)
        return JobOutput(self.analysis, {ANSWER: found.model_dump(mode="json")})


@dataclass(frozen=True, slots=True)
class RanksExport(FileRequest):
    """Write a distributed run in a format of ``ranks_export``, or its folder as ``WHOLE_RUN``.

    Attributes:
        ranks: ranks of a trace; all if it is empty.
    """

    analysis: str
    format_name: str
    ranks: tuple[int, ...] = ()

    kind = JobKind.RANKS_EXPORT

    @property
    def title(self) -> str:
        title = read_manifest(analysis_root(self.analysis)).title
        chosen = f" of ranks {as_ranges(self.ranks)}" if self.ranks else ""
        return f"Export {title} as {self.format_name}{chosen}"

    @property
    def analyses(self) -> tuple[str, ...]:
        """Return the distributed run, and the analyses of the ranks that are read."""
        return (self.analysis, *(str(member.analysis_id) for member in self._members()))

    def run(self, progress: Progress, job_id: str) -> JobOutput:
        run = DistributedRun.load(analysis_root(self.analysis))
        name = safe_name(f"{self.analysis}_ranks{SUFFIXES.get(self.format_name, '.zip')}")
        with step(0, progress, ("Write the file",)), self.output_folder(job_id) as folder:
            if self.format_name == WHOLE_RUN:
                write_zip(folder / name, run.root)
            else:
                members = {
                    member.rank or 0: analysis_root(str(member.analysis_id))
                    for member in self._members()
                }
                write_ranks_export(run, self.format_name, members, folder / name)
        return self.output(job_id, name)

    def _members(self) -> tuple[MemberEntry, ...]:
        if self.format_name != PERFETTO:
            return ()
        return read_manifest(analysis_root(self.analysis)).chosen(self.ranks)
