"""Which rank each file is of, and how many ranks the job has."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis.perf_report import PerfReport
from jarvis.ranks.identity import (
    RankFile,
    RankSource,
    WorldSource,
    as_ranges,
    identify,
    rank_file,
    ranks_of_names,
)
from tests.builders import trace


def file(name: str, sha256: str = "", **options: Any) -> RankFile:
    return RankFile(name=name, sha256=sha256 or name, **options)


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["rank0_trace.json", "rank1_trace.json"], [0, 1]),
        (["a/rank-12.json", "a/rank=3.json", "a/rank[4].json"], [12, 3, 4]),
        (["worker0_step_12.16941.pt.trace.json.gz", "worker3_step_12.16942.json"], [0, 3]),
        (["job_r7_a.json", "job.r8.json"], [7, 8]),
        (["step5_00.json", "step5_01.json", "step5_02.json"], [0, 1, 2]),
        (["rank_1/trace.json", "rank_0/trace.json"], [1, 0]),
        (["trace_5000.json", "trace_6000.json"], [None, None]),
        (["a.json", "b.json"], [None, None]),
        (["only.json"], [None]),
        (["rank99999999999999999999.json"], [None]),
    ],
)
def test_ranks_in_names(names: list[str], ranks: list[int | None]) -> None:
    assert ranks_of_names(names) == ranks


def test_a_pattern_of_the_user_replaces_ours() -> None:
    assert ranks_of_names(["rank0_gpu5.json"], r"gpu(\d+)") == [5]
    assert ranks_of_names(["rank0_gpu5.json"], r"node(?P<rank>\d+)") == [None]


def test_the_header_is_trusted_more_than_the_name() -> None:
    found = identify([file("rank0.json", header_rank=1), file("rank1.json")])
    assert [(e.rank, e.source) for e in found.used] == [(1, RankSource.HEADER)]
    assert found.duplicates == {1: ("rank1.json",)}
    assert "rank 1 by header, 0 by name" in found.conflicts[0]


def test_a_rank_that_nothing_gives_is_not_guessed() -> None:
    found = identify([file("a.json"), file("rank1.json")], world_size=2)
    assert found.unknown == ("a.json",)
    assert found.missing_ranges == ((0, 0),)
    by_order = identify([file("a.json"), file("rank1.json")], by_order=True)
    assert [(e.rank, e.source) for e in by_order.used] == [
        (0, RankSource.ORDER),
        (1, RankSource.NAME),
    ]


def test_names_differ_in_the_rank_if_the_job_has_as_many() -> None:
    names = ["step_10.json", "step_13.json"]
    assert identify([file(name) for name in names]).unknown == tuple(names)
    found = identify([file(name, largest_rank=15) for name in names])
    assert list(found.ranks.values()) == [10, 13]


def test_files_that_cannot_be_joined_keep_their_numbers() -> None:
    def found(*names: str, broken: str, **options: Any) -> tuple[dict[str, int], list[int], int]:
        files = [file(name) for name in names]
        identified = identify(files, others=[file(broken)], **options)
        others = [entry.rank for entry in identified.others]
        return identified.ranks, others, identified.world_size

    own = {"step5_00.json": 0, "step5_02.json": 2}
    assert found(*own, broken="step5_01.json") == (own, [1], 3)
    assert found(*own, broken="notes.json", world_size=4) == (own, [], 4)
    by_order = {"a.json": 0, "c.json": 2}
    assert found(*by_order, broken="b.json", by_order=True) == (by_order, [1], 3)


@pytest.mark.parametrize(
    ("options", "size", "source"),
    [
        ({"header_world_size": 8, "largest_group": 16}, 8, WorldSource.HEADER),
        ({"largest_group": 4, "largest_rank": 31}, 4, WorldSource.GROUP_SIZE),
        ({"largest_rank": 31}, 32, WorldSource.GROUP_RANKS),
        ({}, 2, WorldSource.FILES),
    ],
)
def test_the_number_of_ranks(options: dict[str, int], size: int, source: WorldSource) -> None:
    found = identify([file("rank0.json", **options), file("rank1.json")])
    assert (found.world_size, found.world_source) == (size, source)
    assert identify([file("rank0.json", **options)], world_size=3).world_size == 3


def test_a_rank_outside_the_job_makes_it_larger() -> None:
    found = identify([file("rank9.json", header_world_size=4)])
    assert found.world_size == 10
    assert "outside the 4 ranks" in found.conflicts[0]


def test_of_two_files_of_a_rank_the_one_of_the_recording_is_used() -> None:
    files = [
        file("rank0.json", first_ns=0, last_ns=100),
        file("old/rank1.json", first_ns=200, last_ns=300),
        file("new/rank1.json", first_ns=50, last_ns=120),
    ]
    for order in permutations(files):
        found = identify(order)
        assert [entry.file.name for entry in found.used] == ["rank0.json", "new/rank1.json"]
        assert found.duplicates == {1: ("old/rank1.json",)}
    chosen = identify(files, taken={1: "old/rank1.json"})
    assert chosen.used[1].file.name == "old/rank1.json"


def test_missing_ranks_are_named_as_ranges() -> None:
    assert as_ranges([3, 12, 13, 14, 15]) == "3, 12-15"
    assert as_ranges([]) == ""


@given(st.sets(st.integers(0, 40)))
def test_ranges_name_each_rank_once(ranks: set[int]) -> None:
    parts = [part.split("-") for part in as_ranges(ranks).split(", ") if part]
    named = [n for part in parts for n in range(int(part[0]), int(part[-1]) + 1)]
    assert named == sorted(ranks)


def collective(**arguments: Any) -> RankFile:
    built = trace().op("c10d::allreduce_")
    built.launches("ncclDevKernel_AllReduce", **{"Collective name": "allreduce", **arguments})
    report = PerfReport(built.read(), None)
    return rank_file("trace.json", report.trace.info, report.collectives)


def test_the_rank_inside_a_group_is_mapped_to_the_global_one() -> None:
    found = collective(**{"Process Group Ranks": "[4, 6, 8]", "Rank": 2})
    assert (found.collective_rank, found.largest_rank) == (8, 8)


def test_a_group_of_one_rank_gives_the_rank() -> None:
    assert collective(**{"Process Group Ranks": "[5]"}).collective_rank == 5
    assert collective(**{"Process Group Ranks": "[0, 5]"}).collective_rank is None


@pytest.mark.parametrize("header", [{"world_size": 0}, {"world_size": 2**50}, {"rank": -1}])
def test_impossible_numbers_of_a_header_do_not_count(header: dict[str, int]) -> None:
    built = trace().op("aten::mm").launches("gemm")
    built.header["distributedInfo"] = {**header, "pg_config": [{"pg_size": -5, "ranks": [-1]}]}
    report = PerfReport(built.read(), None)
    found = identify([rank_file("rank0.json", report.trace.info, report.collectives)])
    assert (found.world_size, found.world_source) == (1, WorldSource.FILES)
    assert found.used[0].source is RankSource.NAME
