"""Which rank each file is of, and how many ranks the job has.

Sources are asked in the order of trust: what the header of the trace says, what its collectives
say, the name of the file. A rank that none of them gives is not guessed.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath

import orjson
import polars as pl

from jarvis.schemas.names import C
from jarvis.trace import TraceInfo
from jarvis.trace.metadata import MAX_GROUPS

DEFAULT_RANK_REGEX = r"rank[\[\-_/=]?(?P<rank>\d+)"
_NAMED = (DEFAULT_RANK_REGEX, r"worker(?P<rank>\d+)", r"(?:^|[_\-.])r(?P<rank>\d+)[_\-.]")
_INTEGER = re.compile(r"\d+")
MAX_RANK = 1 << 20
"""Larger numbers in names and headers are no ranks."""


class RankSource(StrEnum):
    """What gave the rank of a file."""

    OPTION = "option"
    HEADER = "header"
    COLLECTIVES = "collectives"
    NAME = "name"
    ORDER = "order"


class WorldSource(StrEnum):
    """What gave the number of ranks."""

    OPTION = "option"
    HEADER = "header"
    GROUP_SIZE = "group size"
    GROUP_RANKS = "ranks of groups"
    FILES = "number of files (assumed)"


@dataclass(frozen=True)
class RankFile:
    """A file with what it tells about its rank; times are absolute, in nanoseconds."""

    name: str
    sha256: str
    header_rank: int | None = None
    header_world_size: int | None = None
    collective_rank: int | None = None
    largest_group: int | None = None
    largest_rank: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    backend: str | None = None
    groups: frozenset[tuple[int, ...]] = frozenset()


@dataclass(frozen=True)
class RankOf:
    """The rank of a file, and what gave it."""

    file: RankFile
    rank: int
    source: RankSource


@dataclass(frozen=True)
class Identified:
    """The ranks of a job: ``used`` files by rank, and what is missing, doubtful or left out.

    ``others`` are files that cannot be joined, but have a rank.
    """

    used: tuple[RankOf, ...]
    world_size: int
    world_source: WorldSource
    duplicates: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    others: tuple[RankOf, ...] = ()

    @property
    def ranks(self) -> dict[str, int]:
        """The rank of each file by its name, also of those that are left out."""
        others = ((name, rank) for rank, names in self.duplicates.items() for name in names)
        return {**{entry.file.name: entry.rank for entry in self.used}, **dict(others)}

    @property
    def missing_ranges(self) -> tuple[tuple[int, int], ...]:
        """The first and the last rank of each range of ranks without a file."""
        present = sorted(entry.rank for entry in self.used)
        bounds = zip([-1, *present], [*present, self.world_size], strict=True)
        return tuple((before + 1, after - 1) for before, after in bounds if after - before > 1)

    @property
    def missing_count(self) -> int:
        """How many ranks have no file."""
        return self.world_size - len(self.used)


def rank_file(name: str, info: TraceInfo, collectives: pl.DataFrame) -> RankFile:
    """Return what a trace tells about its rank.

    Args:
        name: Path of the file below the folder that was given.
        info: The metadata of the trace.
        collectives: Its table ``collectives``.
    """
    base_ns = info.base_ns or 0
    texts = collectives[C.pg_ranks].drop_nulls().unique().sort().to_list()
    groups = [orjson.loads(text) for text in texts]
    listed = info.distributed.groups if info.distributed else ()
    is_listed_whole = len(listed) < MAX_GROUPS and all(group.ranks for group in listed)
    groups += [list(group.ranks) for group in listed]
    groups = [ranks for ranks in groups if ranks and 0 <= min(ranks) <= max(ranks) < MAX_RANK]
    sizes = [size for group in listed if (size := _size(group.size)) is not None]
    last = collectives[C.end_ns].max()
    first = collectives[C.ts_ns].min()
    return RankFile(
        name=name,
        sha256=info.sha256,
        header_rank=_rank(info.rank),
        header_world_size=_size(info.world_size),
        collective_rank=_collective_rank(collectives, groups),
        largest_group=max(sizes, default=None),
        largest_rank=max((max(ranks) for ranks in groups), default=None),
        first_ns=base_ns + first if isinstance(first, int) else None,
        last_ns=base_ns + last if isinstance(last, int) else None,
        backend=info.distributed.backend if info.distributed else None,
        groups=frozenset(group.ranks for group in listed if is_listed_whole),
    )


def _collective_rank(collectives: pl.DataFrame, groups: list[list[int]]) -> int | None:
    """Return the global rank by the rank inside groups, or by a group of one rank."""
    places = collectives.select(C.pg_ranks, C.group_rank).drop_nulls().unique().sort(pl.all())
    found = {
        ranks[place] if place < len(ranks) else None
        for text, place in places.iter_rows()
        if (ranks := orjson.loads(text)) and place >= 0
    }
    if not found:
        found = {ranks[0] for ranks in groups if len(ranks) == 1}
    return _rank(found.pop()) if len(found) == 1 else None


def _rank(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < MAX_RANK else None


def _size(value: int | None) -> int | None:
    return value if value is not None and 0 < value <= MAX_RANK else None


def identify(
    files: Sequence[RankFile],
    *,
    world_size: int | None = None,
    given: Mapping[str, int] | None = None,
    taken: Mapping[int, str] | None = None,
    rank_regex: str | None = None,
    by_order: bool = False,
    others: Sequence[RankFile] = (),
) -> Identified:
    """Return the rank of each file; of several files of a rank one is used.

    Args:
        files: The files, in any order.
        world_size: Number of ranks, if the user says it.
        given: Ranks by file name, if the user says them.
        taken: The file to use, by rank, where several files are of one rank.
        rank_regex: Pattern of ranks in names, with a group ``rank`` or one group.
        by_order: Number files without a known rank by their names.
        others: Files that cannot be joined, which count where names are numbered or compared.
    """
    left_out = {file.name for file in others}
    files = sorted([*files, *others], key=lambda file: (file.name, file.sha256))
    limit, source_of_limit = _world_size(files, 0, world_size)
    is_limited = source_of_limit is not WorldSource.FILES
    names = _named(files, left_out, rank_regex, limit if is_limited else None)
    found: list[RankOf] = []
    conflicts: list[str] = []
    unknown: list[RankFile] = []
    for file, named in zip(files, names, strict=True):
        sources = (
            (RankSource.OPTION, (given or {}).get(file.name)),
            (RankSource.HEADER, file.header_rank),
            (RankSource.COLLECTIVES, file.collective_rank),
            (RankSource.NAME, named),
        )
        known = [(source, rank) for source, rank in sources if rank is not None]
        if not known:
            unknown.append(file)
            continue
        source, rank = known[0]
        found.append(RankOf(file, rank, source))
        conflicts += [
            f"{file.name}: rank {rank} by {source}, {other_rank} by {other}; {rank} is used."
            for other, other_rank in known[1:]
            if other_rank != rank and source is not RankSource.OPTION and file.name not in left_out
        ]
    if by_order:
        free = (rank for rank in range(len(files)) if rank not in {e.rank for e in found})
        numbered = zip(unknown, free, strict=False)
        found += [RankOf(file, rank, RankSource.ORDER) for file, rank in numbered]
        unknown = []
    ranks = {entry.rank for entry in found}
    not_joined = [entry for entry in found if entry.file.name in left_out]
    joined = [entry for entry in found if entry.file.name not in left_out]
    used, duplicates = _without_duplicates(joined, taken or {})
    size, source_of_size = _world_size(files, len(ranks), world_size)
    if used and used[-1].rank >= size:
        last = used[-1]
        conflicts.append(
            f"{last.file.name}: rank {last.rank} is outside the {size} ranks by {source_of_size}; "
            f"the job has at least {last.rank + 1}."
        )
        size = last.rank + 1
    return Identified(
        used=used,
        world_size=size,
        world_source=source_of_size,
        duplicates=duplicates,
        conflicts=tuple(conflicts),
        unknown=tuple(file.name for file in unknown if file.name not in left_out),
        others=tuple(not_joined),
    )


def _named(
    files: Sequence[RankFile],
    left_out: Container[str],
    rank_regex: str | None,
    world_size: int | None,
) -> list[int | None]:
    """Return the rank in each name, with the others in mind; if no file that can be joined has one
    then, without those that cannot."""
    names = [file.name for file in files]
    own = [name for name in names if name not in left_out]
    for known in (names, own):
        found = dict(zip(known, ranks_of_names(known, rank_regex, world_size), strict=True))
        if any(found[name] is not None for name in own):
            break
    return [found.get(name) for name in names]


def ranks_of_names(
    names: Sequence[str], rank_regex: str | None = None, world_size: int | None = None
) -> list[int | None]:
    """Return the rank in each name, None where there is none.

    Names state it as ``rank3``, ``worker3`` or ``_r3_``; else it is the one integer in which the
    names differ, if these are 0, 1, ... or below the number of ranks.
    """
    patterns = [rank_regex] if rank_regex is not None else list(_NAMED)
    for pattern in patterns:
        found = [_searched(pattern, name) for name in names]
        if any(rank is not None for rank in found):
            return found
    return _differing(names, world_size) if rank_regex is None else [None] * len(names)


def _searched(pattern: str, name: str) -> int | None:
    """Return the rank in a name: in its last part, else anywhere in it."""
    for text in (PurePath(name).name, name):
        match = re.search(pattern, text)
        if match is not None:
            number = match.groupdict().get("rank") or match.group(1 if match.re.groups else 0)
            return _rank(int(number)) if number.isdecimal() and len(number) < 12 else None
    return None


def _differing(names: Sequence[str], world_size: int | None) -> list[int | None]:
    unknown: list[int | None] = [None] * len(names)
    parts = [_INTEGER.findall(name) for name in names]
    shapes = {_INTEGER.sub("0", name) for name in names}
    if len(names) < 2 or len(shapes) != 1:
        return unknown
    columns = [[int(number[:12]) for number in column] for column in zip(*parts, strict=True)]
    differing = [column for column in columns if len(set(column)) > 1]
    if len(differing) != 1:
        return unknown
    (ranks,) = differing
    limit = max(len(names), world_size or 0)
    is_unique = len(set(ranks)) == len(ranks)
    return list(ranks) if is_unique and max(ranks) < limit else unknown


def _without_duplicates(
    found: Iterable[RankOf], taken: Mapping[int, str]
) -> tuple[tuple[RankOf, ...], dict[int, tuple[str, ...]]]:
    by_rank: dict[int, list[RankOf]] = {}
    for entry in found:
        by_rank.setdefault(entry.rank, []).append(entry)
    others = [entries[0].file for entries in by_rank.values() if len(entries) == 1]
    used, duplicates = [], {}
    for rank, entries in sorted(by_rank.items()):
        chosen = next(
            (entry for entry in entries if entry.file.name == taken.get(rank)),
            max(entries, key=lambda entry: overlap_ns(entry.file, others)),
        )
        used.append(chosen)
        if len(entries) > 1:
            names = (entry.file.name for entry in entries if entry is not chosen)
            duplicates[rank] = tuple(names)
    return tuple(used), duplicates


def overlap_ns(file: RankFile, others: Iterable[RankFile]) -> int:
    """Return how long the collectives of a file overlap those of other ranks, in total."""
    return sum(
        max(0, min(file.last_ns, other.last_ns) - max(file.first_ns, other.first_ns))
        for other in others
        if file.first_ns is not None
        and file.last_ns is not None
        and other.first_ns is not None
        and other.last_ns is not None
    )


def _world_size(files: Sequence[RankFile], used: int, given: int | None) -> tuple[int, WorldSource]:
    sources = (
        (WorldSource.OPTION, [given]),
        (WorldSource.HEADER, [file.header_world_size for file in files]),
        (WorldSource.GROUP_SIZE, [file.largest_group for file in files]),
        (
            WorldSource.GROUP_RANKS,
            [None if f.largest_rank is None else f.largest_rank + 1 for f in files],
        ),
    )
    for source, values in sources:
        known = [value for value in values if value is not None]
        if known:
            return max(known), source
    return used, WorldSource.FILES


def as_ranges(ranks: Iterable[int]) -> str:
    """Return ranks as text: ``3, 12-15``."""
    parts: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][1] + 1:
            parts[-1] = parts[-1][0], rank
        else:
            parts.append((rank, rank))
    return ranges_text(parts)


def ranks_in(text: str) -> tuple[int, ...] | None:
    """Return the ranks that a text like ``3, 12-15`` names; None for another text."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = (side.strip() for side in part.partition("-"))
        sides = (first, last if dash else first)
        if not all(side.isdecimal() and len(side) < 8 for side in sides):
            return None
        found += range(int(first), min(int(sides[1]), MAX_RANK) + 1)
    return tuple(sorted(set(found)))


def ranges_text(ranges: Iterable[tuple[int, int]]) -> str:
    """Return ranges of ranks as text."""
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def missing_text(ranges: Sequence[tuple[int, int]], world_size: int, source: WorldSource) -> str:
    """Return which ranks are missing, as text."""
    count = sum(last - first + 1 for first, last in ranges)
    return (
        f"missing ranks: {ranges_text(ranges)} ({count:,} of {world_size:,}; the number of ranks "
        f"is by {source})"
    )
