"""Jobs that join the analyses of several ranks."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import analyses_dir
from jarvis.pipeline import Progress
from jarvis.pipeline.distributed import (
    NO_RANK_OPTIONS,
    AnalyzedRank,
    RankOptions,
    analyzed_rank,
    join_ranks,
    rank_jobs,
)
from jarvis.pipeline.processes import Failure
from jarvis.pipeline.steps import step
from jarvis.ranks.identity import identify
from jarvis.run import Run
from jarvis.server.access.rights import may_see
from jarvis.server.database import JobKind, JobState, Visibility, database
from jarvis.server.jobs import queue
from jarvis.server.jobs.kinds.base import JobOutput, Request
from jarvis.server.jobs.queue import NewJob
from jarvis.server.storage.analysis_rows import AnalysisRow, context_person, narrowed
from jarvis.server.storage.catalog import analysis_root, stored_row, strictest
from jarvis.server.storage.distributed_runs import store_ranks

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
        """Return the title with the number of ranks and the first file."""
        return f"Join {len(self.members):,} ranks ({self.members[0].name}, ...)"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folder of the analyses."""
        return (analyses_dir(),)

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
                return _Opened(member.name, Failure(job.error or f"The job was {job.state}."))
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
