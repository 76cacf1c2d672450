"""Which files are of one job, and of one recording of it.

Files are of different jobs if their headers say another number of ranks, another backend, or other
process groups: a group that one rank lists must be listed by all its ranks. Two files of a rank
whose collectives do not overlap in time are of different recordings.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jarvis.ranks.identity import RankFile, overlap_ns

_Group = tuple[int, ...]


@dataclass
class _Job:
    """Files of one job, and what they say of it."""

    files: list[RankFile] = field(default_factory=list)
    by_rank: dict[int, list[RankFile]] = field(default_factory=lambda: defaultdict(list))
    world_size: int | None = None
    backend: str | None = None
    listed_by: dict[_Group, set[int]] = field(default_factory=lambda: defaultdict(set))
    groups_of: dict[int, set[_Group]] = field(default_factory=lambda: defaultdict(set))
    """Groups by the ranks in them, whether or not they list them."""

    listing: set[int] = field(default_factory=set)
    """Ranks that list their groups."""

    def takes(self, file: RankFile, rank: int | None) -> bool:
        """Return whether a file can be of this job and recording."""
        for own, other in (
            (self.world_size, file.header_world_size),
            (self.backend, file.backend),
        ):
            if own is not None and other is not None and own != other:
                return False
        if rank is None:
            return True
        if any(_is_apart(file, other) for other in self.by_rank.get(rank, ())):
            return False
        if not file.groups:
            return True
        return self.groups_of[rank] <= file.groups and all(
            self.listing.intersection(group) <= self.listed_by[group] | {rank}
            for group in file.groups
        )

    def add(self, file: RankFile, rank: int | None) -> None:
        """Add a file."""
        self.files.append(file)
        self.world_size = self.world_size or file.header_world_size
        self.backend = self.backend or file.backend
        if rank is None:
            return
        self.by_rank[rank].append(file)
        if file.groups:
            self.listing.add(rank)
        for group in file.groups:
            if not self.listed_by[group]:
                for each in group:
                    self.groups_of[each].add(group)
            self.listed_by[group].add(rank)


def split_jobs(
    files: Iterable[RankFile], ranks: Mapping[str, int], taken: Iterable[int] = ()
) -> list[list[RankFile]]:
    """Return the files of each job and recording, that with most files first.

    Args:
        files: The files, in any order.
        ranks: The rank of each file by its name, where it is known.
        taken: Ranks of which the user names the file to use: their others are left out.
    """
    chosen = set(taken)
    jobs: list[_Job] = []
    for file in sorted(files, key=lambda each: (each.first_ns or 0, each.name, each.sha256)):
        rank = ranks.get(file.name)
        of_time = None if rank in chosen else rank
        found = [job for job in jobs if job.takes(file, of_time)]
        if not found:
            jobs.append(_Job())
            found = jobs[-1:]
        best = (
            max(found, key=lambda job: overlap_ns(file, job.files)) if len(found) > 1 else found[0]
        )
        best.add(file, rank)
    jobs.sort(key=lambda job: -len(job.files))
    return [sorted(job.files, key=lambda file: file.name) for job in jobs]


def _is_apart(file: RankFile, other: RankFile) -> bool:
    is_timed = None not in (file.first_ns, file.last_ns, other.first_ns, other.last_ns)
    return is_timed and file.sha256 != other.sha256 and overlap_ns(file, [other]) == 0
