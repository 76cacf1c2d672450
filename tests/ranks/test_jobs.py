"""Files are split by job and by recording, in any order."""

from itertools import permutations
from typing import Any

from jarvis.ranks.identity import RankFile, identify
from jarvis.ranks.jobs import split_jobs

WORLD = (0, 1, 2, 3)


def file(name: str, **facts: Any) -> RankFile:
    groups = frozenset(facts.pop("groups", ()))
    return RankFile(name=name, sha256=f"of {name}", groups=groups, **facts)


def names(files: list[RankFile], **options: Any) -> list[list[str]]:
    ranks = identify(files).ranks
    split = [split_jobs(order, ranks, **options) for order in permutations(files)]
    found = [[each.name for each in job] for job in split[0]]
    assert all([[each.name for each in job] for job in other] == found for other in split)
    return found


def test_ranks_of_another_size_backend_or_group_are_another_job() -> None:
    files = [file(f"rank{rank}.json", header_world_size=8) for rank in range(2)]
    assert names([*files, file("rank2.json")]) == [["rank0.json", "rank1.json", "rank2.json"]]
    assert names([*files, file("rank2.json", header_world_size=4)])[1] == ["rank2.json"]
    on_nccl = [file(f"rank{rank}.json", backend="nccl") for rank in range(2)]
    assert names([*on_nccl, file("rank2.json", backend="gloo")])[1] == ["rank2.json"]
    in_pairs = [
        file(f"rank{rank}.json", groups=[WORLD, (0, 1) if rank < 2 else (2, 3)]) for rank in WORLD
    ]
    assert len(names(in_pairs)) == 1
    otherwise = file("rank3.json", groups=[WORLD, (1, 3)])
    assert names([*in_pairs[:3], otherwise])[1] == ["rank3.json"]
    without = file("rank3.json", groups=[WORLD])
    assert names([*in_pairs[:3], without])[1] == ["rank3.json"]


def test_two_files_of_a_rank_at_other_times_are_two_recordings() -> None:
    def recorded(name: str, start: int) -> RankFile:
        return file(name, first_ns=start, last_ns=start + 100)

    old = [recorded("old/rank0.json", 0), recorded("old/rank1.json", 10)]
    new = [recorded("new/rank0.json", 1_000), recorded("new/rank1.json", 1_010)]
    late = recorded("new/rank2.json", 1_020)
    assert names([*old, *new, late]) == [
        ["new/rank0.json", "new/rank1.json", "new/rank2.json"],
        ["old/rank0.json", "old/rank1.json"],
    ]
    again = recorded("again/rank1.json", 50)
    assert names([*old, again]) == [["again/rank1.json", "old/rank0.json", "old/rank1.json"]]
    assert len(names([*old, new[1]], taken=[1])) == 1
