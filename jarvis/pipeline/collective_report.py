"""From the traces of several ranks to TraceLens's collective report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from jarvis.core.errors import JarvisError
from jarvis.perf_report.collectives import collectives
from jarvis.perf_report.timeline.steps import step_marks
from jarvis.perf_report.work import TRACELENS_KIND, gpu_work
from jarvis.pipeline.processes import Failure, outcomes
from jarvis.ranks.identity import Identified, identify, rank_file
from jarvis.ranks.inputs import InputFile
from jarvis.schemas import conform
from jarvis.trace import TraceInfo, read_trace
from jarvis.tracelens.multi_rank import (
    DEFAULT_AGGREGATIONS,
    MultiRankSheets,
    multi_rank_sheets,
)


@dataclass(frozen=True)
class RankCollectives:
    """The communication kernels of a trace (schema: ``collectives``)."""

    name: str
    info: TraceInfo
    collectives: pl.DataFrame


def read_collectives(file: InputFile) -> RankCollectives:
    """Return the kernels of a trace that TraceLens takes for communication.

    Raises:
        TraceError: The trace cannot be read.
    """
    trace = read_trace(file.path)
    work = gpu_work(trace, kind=TRACELENS_KIND)
    rows = conform(collectives(trace, work, step_marks(trace)), "collectives")
    return RankCollectives(file.name, trace.info, rows)


def read_ranks(files: Sequence[InputFile], jobs: int = 1) -> list[RankCollectives]:
    """Return the communication of each trace, read in ``jobs`` processes.

    Raises:
        JarvisError: A trace cannot be read.
    """
    found = []
    for file, outcome in zip(files, outcomes(read_collectives, files, jobs), strict=True):
        if isinstance(outcome, Failure):
            raise JarvisError(f"{file.name}: {outcome.reason}")
        found.append(outcome)
    return found


def identified(
    ranks: Sequence[RankCollectives],
    *,
    world_size: int | None = None,
    rank_regex: str | None = None,
    by_order: bool = False,
) -> Identified:
    """Return which rank each trace is of (``identify``)."""
    files = [rank_file(rank.name, rank.info, rank.collectives) for rank in ranks]
    return identify(files, world_size=world_size, rank_regex=rank_regex, by_order=by_order)


def collective_report(
    ranks: Mapping[int, RankCollectives],
    *,
    gpus_per_node: int | None = None,
    aggregations: Sequence[str] = DEFAULT_AGGREGATIONS,
) -> MultiRankSheets:
    """Return the sheets of some ranks.

    Args:
        gpus_per_node: Ranks of a node, by default the GPUs that the first rank saw.
    """
    first = ranks[min(ranks)]
    return multi_rank_sheets(
        {rank: entry.collectives for rank, entry in ranks.items()},
        gpus_per_node=gpus_per_node or first.info.visible_gpus,
        aggregations=aggregations,
    )
