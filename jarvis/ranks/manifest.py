"""The manifest of a distributed run: its ranks, what is missing, and how well clocks agree."""

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

import orjson
from pydantic import BaseModel, ConfigDict

from jarvis.core.errors import RankChoiceError
from jarvis.core.workspace import SCHEMA_VERSION
from jarvis.ranks.identity import RankSource, WorldSource, as_ranges
from jarvis.run.manifest import ID_LENGTH, TopFinding


class MemberState(StrEnum):
    """What came of the analysis of a rank."""

    USABLE = "usable"
    NO_GPU_WORK = "no_gpu_work"
    FAILED = "failed"
    CANCELLED = "cancelled"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MemberEntry(_Frozen):
    """A file that was given; ``rank`` is None where it is not known."""

    rank: int | None
    rank_source: RankSource | None
    state: MemberState
    file_name: str
    sha256: str | None = None
    analysis_id: str | None = None
    error: str | None = None
    host: str | None = None
    device_name: str | None = None
    group_count: int | None = None
    gpu_wall_ms: float | None = None


class WorldSize(_Frozen):
    """The number of ranks of the job, and what gave it."""

    value: int
    source: WorldSource


class ClockSummary(_Frozen):
    """How well the ends of matched collectives agree; None without any. Runs of earlier versions
    have no ``median_us``."""

    p95_us: float | None
    is_waiting_known: bool
    has_drift: bool
    median_us: float | None = None


class MatchingSummary(_Frozen):
    """How many kernels were matched."""

    instances: int
    matched_kernels: int
    unmatched_kernels: int


class Coverage(_Frozen):
    """The part of the job that the figures are of.

    In ``complete_instances`` of the matched collectives all ranks of the group are recorded. In the
    others waiting is a lower bound and transfer an upper one.
    """

    ranks: int
    expected_ranks: int
    ranks_pct: float
    complete_instances: int


class StoredOptions(_Frozen):
    """The options of the user: ``ranks`` by file name, and ``taken``, the file to use by rank."""

    world_size: int | None = None
    rank_regex: str | None = None
    ranks: dict[str, int] = {}
    taken: dict[int, str] = {}
    rank_by_order: bool = False
    gpus_per_node: int | None = None
    network_gbps: float | None = None


class DistributedManifest(_Frozen):
    """Everything about a distributed run except its tables.

    ``missing`` are the first and the last rank of each range without a usable rank, ``duplicates``
    files that were left out by rank, ``copies`` those of them with the bytes of the file in use,
    ``conflicts`` sentences about ranks that two sources give differently. ``created`` is UTC in ISO
    format. ``name`` is that of the model, else of the folder or archive, else what the files have
    in common (``inputs.common_name``). Runs of earlier versions have neither ``coverage`` nor
    ``options``.
    """

    schema_version: int = SCHEMA_VERSION
    kind: Literal["distributed"] = "distributed"
    jarvis_version: str
    created: str
    distributed_id: str
    title: str
    name: str = ""
    world_size: WorldSize
    members: tuple[MemberEntry, ...]
    missing: tuple[tuple[int, int], ...]
    duplicates: dict[int, tuple[str, ...]]
    copies: tuple[str, ...] = ()
    conflicts: tuple[str, ...]
    clock: ClockSummary
    matching: MatchingSummary
    coverage: Coverage | None = None
    options: StoredOptions | None = None
    sheets: tuple[str, ...]
    tables: tuple[str, ...]
    top_finding: TopFinding | None = None

    @property
    def usable(self) -> tuple[MemberEntry, ...]:
        """The ranks that were joined."""
        return tuple(entry for entry in self.members if entry.state is MemberState.USABLE)

    def chosen(self, ranks: Iterable[int]) -> tuple[MemberEntry, ...]:
        """Return the entries of some ranks that were joined, of all if there is none.

        Raises:
            RankChoiceError: One of them was not.
        """
        wanted = set(ranks)
        usable = [entry.rank for entry in self.usable if entry.rank is not None]
        if others := wanted - set(usable):
            raise RankChoiceError(
                f"There is no rank {as_ranges(others)}; the ranks are {as_ranges(usable)}."
            )
        return tuple(entry for entry in self.usable if not wanted or entry.rank in wanted)

    @property
    def traces(self) -> frozenset[str | None]:
        """The traces of the ranks that were joined, by their SHA-256."""
        return frozenset(entry.sha256 for entry in self.usable)

    @property
    def failed(self) -> tuple[MemberEntry, ...]:
        """The files that were not."""
        return tuple(entry for entry in self.members if entry.state is not MemberState.USABLE)


def left_out_texts(manifest: DistributedManifest) -> list[str]:
    """Return the sentences about further files of a rank."""
    lines = []
    for rank, names in manifest.duplicates.items():
        copies = [name for name in names if name in manifest.copies]
        others = [name for name in names if name not in manifest.copies]
        if copies:
            lines.append(f"Rank {rank}: the same trace again in {', '.join(copies)}.")
        if others:
            lines.append(f"Rank {rank} has other traces, too; left out: {', '.join(others)}.")
    return lines


def superseded_text(manifest: DistributedManifest, newer: DistributedManifest) -> str:
    """Return the sentence about a run that joins more ranks."""
    ranks, more = len(manifest.usable), len(newer.usable)
    return f"{ranks:,} of {manifest.world_size.value:,} ranks; a version with {more:,} is stored."


def distributed_id(
    members: Iterable[tuple[int, str]], world_size: int, options: StoredOptions
) -> str:
    """Return the id of a distributed run, the same for the same analyses in any order.

    Args:
        members: Rank and analysis id of each rank.
        world_size: Number of ranks.
        options: The options of the user; only what members and world size do not show counts.
    """
    cluster = [options.gpus_per_node, options.network_gbps]
    given = [] if cluster == [None, None] else cluster
    written = orjson.dumps([sorted(members), world_size, *given])
    return hashlib.sha256(written).hexdigest()[:ID_LENGTH]
