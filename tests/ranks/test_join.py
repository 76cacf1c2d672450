"""Ranks of a job on one clock: matched collectives, waiting and transfer."""

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jarvis.perf_report import PerfReport
from jarvis.ranks.findings import rank_findings
from jarvis.ranks.identity import identify, rank_file
from jarvis.ranks.join import Joined, join
from jarvis.ranks.members import Member
from jarvis.ranks.nodes import Cluster
from jarvis.text.messages import to_text
from jarvis.trace import read_trace
from tests.ranks.built import UNIX_NS, US, BuiltRank, Kernel, changed, job, members

MS = 1_000 * US


def arrivals(
    count: int, ranks: int, seed: int = 0, every_ns: int = 10 * MS, late_ns: int = 800 * US
) -> list[list[int]]:
    """Random arrivals of a job whose collectives come regularly."""
    chance = random.Random(seed)
    return [
        [(place + 1) * every_ns + chance.randrange(late_ns) for _ in range(ranks)]
        for place in range(count)
    ]


def joined(ranks: Sequence[BuiltRank], size: int | None = None) -> Joined:
    return join(members(ranks, size), size or len(ranks))


def check_identity(found: Joined) -> None:
    """Waiting and transfer add up to the duration, exactly; and so do their exposed parts."""
    rows = found.tables["instance_ranks"].drop_nulls("wait_ns")
    duration = rows["end_ns"] - rows["start_ns"]
    assert (rows["wait_ns"] + rows["transfer_ns"] == duration).all()
    for part in ("wait_ns", "transfer_ns"):
        assert (rows[f"exposed_{part}"] >= 0).all()
        assert (rows[f"exposed_{part}"] <= rows[part]).all()
        assert (rows[part] >= 0).all()


def last_of(rows: Sequence[Sequence[int]]) -> list[int]:
    return [row.index(max(row)) for row in rows]


def is_clear(row: Sequence[int]) -> bool:
    """Whether the last one comes more than 20 µs after the others."""
    first, second = sorted(row, reverse=True)[:2]
    return first - second > 20 * US


def test_waiting_transfer_and_who_is_last() -> None:
    times = [[0, 30 * US, 10 * US], [1_000 * US, 1_000 * US, 1_050 * US], [3 * MS, 3 * MS, 3 * MS]]
    found = joined(job(times, transfer_ns=100 * US))
    rows = found.tables["instances"]
    assert rows["last_rank"].to_list() == [1, 2, None]
    assert rows["wait_us"].to_list() == [50, 100, 0]
    assert rows["skew_us"].to_list() == [30, 50, 0]
    assert rows["transfer_us"].to_list() == [100, 100, 100]
    assert rows["transfer_is_bound"].to_list() == [False] * 3
    assert found.tables["clocks"]["clock_quality"].to_list() == ["fine"]
    check_identity(found)


def test_bandwidth_as_nccl_tests_counts_it() -> None:
    for kind, sent, received, size, factor in (
        ("all_reduce", 4_000_000, 4_000_000, 4_000_000, 2 * 3 / 4),
        ("all_gather", 1_000_000, 4_000_000, 4_000_000, 3 / 4),
        ("all_gather", 1_000_000, None, 4_000_000, 3 / 4),
        ("reduce_scatter", 4_000_000, 1_000_000, 4_000_000, 3 / 4),
        ("all_to_all", 4_000_000, 4_000_000, 4_000_000, 3 / 4),
    ):
        options = {"kind": kind, "in_bytes": sent, "out_bytes": received}
        found = joined(job(arrivals(4, 4), 100 * US, [options] * 4)).tables["instances"]
        assert found["bytes"].unique().to_list() == [size]
        assert found["algo_gbs"][0] == pytest.approx(size / 100e3)
        assert found["bus_gbs"][0] == pytest.approx(size / 100e3 * factor)


@pytest.mark.parametrize("received", [(None, None), (3_500_000, 500_000)])
def test_the_busiest_rank_decides_on_unequal_messages(received: tuple[int | None, ...]) -> None:
    ranks = job(arrivals(4, 2))
    sent = (1_000_000, 3_000_000)
    own = []
    for rank, in_bytes, out_bytes in zip(ranks, sent, received, strict=True):
        sizes = {"kind": "all_to_all_v", "in_bytes": in_bytes, "out_bytes": out_bytes}
        own.append([Kernel(k.start_ns, k.end_ns, sizes) for k in rank.kernels])
    found = joined([BuiltRank(rank, kernels) for rank, kernels in enumerate(own)])
    (row,) = found.tables["instances"].head(1).iter_rows(named=True)
    busiest = max(size for size in (*sent, *received) if size is not None)
    assert (row["bytes"], row["bus_gbs"]) == (4_000_000, pytest.approx(busiest / 100e3))


def test_the_latency_floor_is_that_of_small_messages() -> None:
    sizes = [{"in_bytes": 1_000 if place % 2 else 1 << 24} for place in range(8)]
    found = joined(job(arrivals(8, 2), 40 * US, sizes)).tables["instances"]
    assert found["floor_us"].unique().to_list() == [40]
    assert (
        joined(job(arrivals(4, 2), options=[{"in_bytes": 1 << 24}] * 4))
        .tables["instances"]["floor_us"]
        .to_list()
        == [None] * 4
    )


def test_the_latency_floor_of_large_messages_is_that_of_their_line() -> None:
    sizes = [(1 << 20) * (place + 1) for place in range(8)]
    transfers = [30 * US + size // 100 for size in sizes]
    transfers[3] += 500 * US
    for count, floor_us in ((8, pytest.approx(30, abs=0.01)), (4, None)):
        times = arrivals(count, 2)
        ranks = [
            BuiltRank(
                rank,
                [
                    Kernel(row[rank], max(row) + transfer, {"in_bytes": size})
                    for row, transfer, size in zip(times, transfers, sizes, strict=False)
                ],
            )
            for rank in range(2)
        ]
        found = joined(ranks).tables["instances"]["floor_us"]
        assert found.unique().to_list() == [floor_us]


def test_exposed_parts_are_those_without_compute() -> None:
    times = arrivals(4, 2)
    ranks = job(times, transfer_ns=100 * US)
    start = times[1][0]
    ranks = changed(ranks, 0, compute=[(start - 5 * US, start + 7 * US)])
    found = joined(ranks)
    check_identity(found)
    rows = found.tables["instance_ranks"].filter(pl.col("rank") == 0)
    hidden = rows["end_ns"] - rows["start_ns"]
    hidden -= rows["exposed_wait_ns"] + rows["exposed_transfer_ns"]
    assert hidden.to_list() == [0, 7 * US, 0, 0]


def test_missing_ranks_make_the_transfer_an_upper_bound() -> None:
    found = joined(job(arrivals(4, 3)), size=8)
    rows = found.tables["instances"]
    assert rows["transfer_is_bound"].all()
    assert rows["missing_ranks"][0].to_list() == [3, 4, 5, 6, 7]


@settings(max_examples=30)
@given(
    st.integers(2, 5),
    st.integers(3, 12),
    st.integers(0, 1_000),
    st.integers(-5_000_000, 5_000_000),
    st.integers(1, 200_000),
)
def test_waiting_and_transfer_add_up(
    ranks: int, count: int, seed: int, offset_ns: int, transfer_ns: int
) -> None:
    built = changed(
        job(arrivals(count, ranks, seed), transfer_ns),
        1,
        offset_ns=offset_ns,
        compute=[(5 * MS, 25 * MS)],
    )
    found = joined(built)
    check_identity(found)
    durations = (
        found.tables["instance_ranks"]["end_ns"] - found.tables["instance_ranks"]["start_ns"]
    )
    assert durations.sum() == sum(k.end_ns - k.start_ns for r in built for k in r.kernels)


@pytest.mark.parametrize("seed", range(5))
def test_offsets_of_clocks_come_back(seed: int) -> None:
    chance = random.Random(seed)
    times = arrivals(40, 6, seed)
    ranks = job(times)
    given_ns = [0, *(chance.randint(-5_000_000, 5_000_000) for _ in range(5))]
    ranks = [changed(ranks, rank, offset_ns=given_ns[rank])[rank] for rank in range(6)]
    found = joined(ranks)
    assert found.clock.offset_ns == pytest.approx(dict(enumerate(given_ns)), abs=10)
    last = found.tables["instances"]["last_rank"].to_list()
    clear = [is_clear(row) for row in times]
    assert sum(clear) > 20
    assert [r for r, c in zip(last, clear, strict=True) if c] == [
        r for r, c in zip(last_of(times), clear, strict=True) if c
    ]


def test_the_base_of_a_trace_counts() -> None:
    times = [[UNIX_NS + time for time in row] for row in arrivals(5, 3)]
    ranks = job(times)
    ranks = changed(ranks, 1, base_ns=UNIX_NS - 7 * MS)
    ranks = changed(ranks, 2, base_ns=UNIX_NS)
    found = joined(ranks)
    assert found.clock.offset_ns == {0: 0, 1: 0, 2: 0}
    assert found.tables["instances"]["last_rank"].to_list() == last_of(times)


def test_clocks_with_another_epoch_are_aligned() -> None:
    times = [[UNIX_NS + time for time in row] for row in arrivals(5, 3)]
    ranks = changed(job(times), 1, offset_ns=-UNIX_NS)
    found = joined(ranks)
    assert found.clock.offset_ns == {0: 0, 1: -UNIX_NS, 2: 0}
    assert found.tables["instances"]["last_rank"].to_list() == last_of(times)
    check_identity(found)


def test_a_drift_of_clocks_is_removed() -> None:
    times = arrivals(100, 4, every_ns=100 * MS)  # 10 s
    found = joined(changed(job(times), 2, drift_ppm=50.0, offset_ns=2 * MS))
    assert found.clock.drift_ppm[2] == pytest.approx(50, abs=0.5)
    last = found.tables["instances"]
    for row, first_ns, last_rank in zip(times, last["first_ns"], last["last_rank"], strict=True):
        assert abs((first_ns - last["first_ns"][0]) - (min(row) - min(times[0]))) < 10 * US
        assert not is_clear(row) or last_rank == row.index(max(row))


def test_without_drift_none_is_claimed() -> None:
    assert joined(job(arrivals(100, 4, every_ns=100 * MS))).clock.drift_ppm == {}


def test_ranks_of_other_jobs_have_no_common_clock() -> None:
    one, other = arrivals(30, 1, seed=1), arrivals(30, 1, seed=2, every_ns=9 * MS)
    found = joined([job(one)[0], BuiltRank(1, job(other)[0].kernels)])
    assert not found.is_waiting_known
    assert "not the same" in found.tables["clocks"]["reason"][0]
    assert found.tables["instances"]["wait_us"].null_count() == 30
    assert found.tables["ranks"]["wait_ms"].null_count() == 2
    assert found.tables["ranks"]["comm_ms"].null_count() == 0


def test_ranks_without_collectives_are_joined() -> None:
    found = joined([BuiltRank(rank, [], compute=[(0, 1000)]) for rank in range(2)])
    assert found.tables["ranks"].height == 2
    assert found.tables["clocks"].is_empty()


def test_kinds_that_a_rank_may_leave_early_have_no_waiting() -> None:
    found = joined(job(arrivals(6, 3), options=[{"kind": "broadcast"}] * 6))
    assert found.tables["clocks"]["clock_quality"].to_list() == ["unknown"]
    assert found.tables["instances"]["last_rank"].null_count() == 6


def sized(kernels: Sequence[Kernel], steps: int) -> list[Kernel]:
    """Kernels with several sizes in each step."""
    each = len(kernels) // steps
    return [
        Kernel(k.start_ns, k.end_ns, {"step": n // each, "in_bytes": 1024 * (1 + n % each % 4)})
        for n, k in enumerate(kernels)
    ]


def steps_of(ranks: Sequence[BuiltRank], steps: int) -> list[BuiltRank]:
    return [BuiltRank(rank.rank, sized(rank.kernels, steps)) for rank in ranks]


def test_dropped_kernels_cost_their_own_rank_only() -> None:
    times = arrivals(60, 4)
    ranks = steps_of(job(times), 4)
    kept = [kernel for n, kernel in enumerate(ranks[2].kernels) if n not in (3, 17, 18, 40)]
    found = joined(changed(ranks, 2, kernels=kept))
    rows = found.tables["instances"]
    assert rows.height == 60
    expected = [last_of([[t for r, t in enumerate(row) if r != 2]])[0] for row in times]
    lacking = rows.filter(pl.col("missing_ranks").list.len() > 0)
    assert lacking["missing_ranks"].to_list() == [[2]] * 4
    assert [rows["index"].to_list()[n] for n in (3, 17, 18, 40)] == lacking["index"].to_list()
    assert rows["match"].unique().to_list() == ["resynced"]
    others = [3 if rank == 2 else rank for rank in expected]
    assert lacking["last_rank"].to_list() == [
        [0, 1, 3][others_row] for others_row in (expected[n] for n in (3, 17, 18, 40))
    ]
    assert others  # every instance has its other ranks
    check_identity(found)


def test_a_rank_that_began_a_step_later() -> None:
    ranks = steps_of(job(arrivals(60, 4)), 4)
    found = joined(changed(ranks, 1, kernels=ranks[1].kernels[15:]))
    rows = found.tables["instances"]
    assert rows["missing_ranks"].to_list() == [[1]] * 15 + [[]] * 45
    whole = joined(ranks).tables["instances"]
    assert rows["last_ns"].tail(45).equals(whole["last_ns"].tail(45))
    assert found.tables["unmatched"].is_empty()
    check_identity(found)


def test_steps_of_one_rank_are_not_matched() -> None:
    ranks = steps_of(job(arrivals(60, 4)), 4)
    short = [BuiltRank(rank.rank, rank.kernels[15:45]) for rank in ranks[1:]]
    found = joined([ranks[0], *short])
    assert found.tables["instances"].height == 30
    unmatched = found.tables["unmatched"]
    assert unmatched["rank"].unique().to_list() == [0]
    counts = unmatched.group_by("reason").len().sort("reason")
    assert counts.rows() == [("after_common_window", 15), ("before_common_window", 15)]
    check_identity(found)


def test_equal_kernels_of_a_rank_that_began_later() -> None:
    times = arrivals(40, 3)
    ranks = job(times)
    found = joined(changed(ranks, 1, kernels=ranks[1].kernels[3:], offset_ns=2 * MS))
    rows = found.tables["instances"]
    assert rows["missing_ranks"].list.len().to_list() == [1] * 3 + [0] * 37
    clear = [(r, row) for r, row in zip(rows["last_rank"], times, strict=True) if is_clear(row)]
    assert all(r == row.index(max(row)) for r, row in clear[3:])


def test_sequence_numbers_match_whatever_is_lacking() -> None:
    ranks = job(arrivals(20, 3), options=[{"seq": n} for n in range(20)])
    kept = [kernel for n, kernel in enumerate(ranks[1].kernels) if n not in (0, 7)]
    found = joined(changed(ranks, 1, kernels=kept)).tables["instances"]
    assert found["seq"].to_list() == list(range(20))
    assert found["match"].unique().to_list() == ["seq"]
    assert found.filter(pl.col("missing_ranks").list.len() > 0)["seq"].to_list() == [0, 7]


def test_groups_of_one_name_are_separated_by_their_ranks() -> None:
    tp = {"pg_desc": "tp", "group": "1", "group_size": 2}
    times = arrivals(6, 4)
    built = []
    for rank in job(times):
        ranks = "[0,1]" if rank.rank < 2 else "[2,3]"
        kernels = [Kernel(k.start_ns, k.end_ns, {**tp, "pg_ranks": ranks}) for k in rank.kernels]
        built.append(BuiltRank(rank.rank, kernels))
    found = joined(built)
    assert found.tables["communicators"]["comm_id"].to_list() == ["tp [0-1]", "tp [2-3]"]
    assert found.tables["instances"].height == 12
    assert found.tables["instances"]["missing_ranks"].list.len().sum() == 0


def test_links_inside_a_node_and_between_nodes() -> None:
    built = members(job(arrivals(4, 4)))
    mi300x = [
        replace(m, info=m.info.model_copy(update={"device_names": ("AMD Instinct MI300X",)}))
        for m in built
    ]
    hosts = [
        replace(m, info=m.info.model_copy(update={"host": f"node{m.rank // 2}"})) for m in mi300x
    ]
    for ranks, cluster, span, peak in (
        (built, Cluster(8), "intra_node", None),
        (mi300x, Cluster(8), "intra_node", 3 * 64),
        (mi300x, Cluster(8, network_gbps=400), "intra_node", 3 * 64),
        (mi300x, Cluster(2), "inter_node", None),
        (mi300x, Cluster(2, network_gbps=400), "inter_node", 50),
        (mi300x, Cluster(), None, None),
        (hosts, Cluster(8), "inter_node", None),
    ):
        found = join(ranks, 4, cluster).tables["communicators"]
        assert found.select("node_span", "link_gbs").row(0) == (span, peak)


def test_the_node_of_a_rank_is_by_hosts_else_by_its_number() -> None:
    built = members(job(arrivals(4, 4)))
    named = [
        replace(m, info=m.info.model_copy(update={"host": f"h{(3 - m.rank) // 2}"})) for m in built
    ]
    for ranks, cluster, found in (
        (built, Cluster(2), [0, 0, 1, 1]),
        (built, Cluster(), [None] * 4),
        (named, Cluster(4), [0, 0, 1, 1]),
        ([*named[:3], built[3]], Cluster(4), [0] * 4),
    ):
        assert join(ranks, 4, cluster).tables["ranks"]["node"].to_list() == found


def test_a_kernel_without_partner_is_listed() -> None:
    own = {"pg_ranks": "[0,5]", "group_size": 2, "pg_desc": "dp"}
    ranks = job(arrivals(4, 2))
    extra = [*ranks[0].kernels, Kernel(90 * MS, 91 * MS, own)]
    found = joined(changed(ranks, 0, kernels=extra))
    (row,) = found.tables["unmatched"].iter_rows(named=True)
    assert (row["rank"], row["comm_id"], row["reason"]) == (
        0,
        "dp [0,5]".replace(",", ", "),
        "no_partner",
    )


def sends(ends_ns: int) -> list[BuiltRank]:
    """Sends from rank 0 to 1 and from 1 to 2, of which PyTorch records the other rank.

    The sender leaves so long before the receiver.
    """
    times = arrivals(8, 3)
    pairs = [(0, 1), (1, 2)]
    kernels: list[list[Kernel]] = [[], [], []]
    for place, row in enumerate(times):
        source, target = pairs[place % 2]
        end_ns = max(row[source], row[target]) + 100 * US
        for rank, other, ns in (
            (source, {"dst_rank": target}, end_ns - ends_ns),
            (target, {"src_rank": source}, end_ns),
        ):
            kernels[rank].append(Kernel(row[rank], ns, {"kind": "send_recv", **other}))
    return [BuiltRank(rank, own) for rank, own in enumerate(kernels)]


def test_sends_match_their_receives() -> None:
    found = joined(sends(0)).tables
    assert found["unmatched"].is_empty()
    rows = found["instances"]
    assert rows.height == 8
    assert rows["missing_ranks"].list.len().sum() == 0
    assert not rows["transfer_is_bound"].any()
    ranks = found["instance_ranks"].group_by("instance_id").agg("rank").sort("instance_id")
    assert ranks["rank"].to_list() == [[0, 1], [1, 2]] * 4


def test_a_sender_may_leave_early_but_no_receiver_before_the_send() -> None:
    world = job(arrivals(6, 3, seed=1))
    early = [
        BuiltRank(rank.rank, [*rank.kernels, *own.kernels])
        for rank, own in zip(world, sends(900 * US), strict=True)
    ]
    reasons = joined(early).tables["clocks"].filter(kind="send_recv")["reason"]
    assert "do not leave together" in reasons[0]
    lost = [
        replace(k, end_ns=k.start_ns - 2 * MS, start_ns=k.start_ns - 3 * MS)
        if "src_rank" in k.options
        else k
        for k in early[1].kernels
    ]
    reasons = joined(changed(early, 1, kernels=lost)).tables["clocks"].filter(kind="send_recv")
    assert "a rank leaves before another one arrives" in reasons["reason"][0]


def test_waiting_for_a_receiver_that_a_sender_does_not_wait_for_is_not_known() -> None:
    """Of 30 sends from rank 0 to 1, one ends before the receiver arrives."""
    times = arrivals(30, 2, every_ns=4 * MS)
    kernels: list[list[Kernel]] = [[], []]
    for place, row in enumerate(times):
        arrived = [row[0], row[0] + MS]
        ends = [row[0] + 10 * US if place == 7 else row[0] + 2 * MS, row[0] + 2 * MS]
        for rank, options in enumerate(({"dst_rank": 1}, {"src_rank": 0})):
            options = {"kind": "send_recv", **options}
            kernels[rank].append(Kernel(arrived[rank], ends[rank], options))
    world = job(arrivals(6, 2, seed=1))
    ranks = [BuiltRank(r, [*world[r].kernels, *own]) for r, own in enumerate(kernels)]
    found = joined(ranks).tables
    rows = found["instances"].filter(kind="send_recv")
    assert rows["clock_quality"].unique().to_list() == ["fine"]
    assert rows["wait_us"].is_null().to_list() == [place == 7 for place in range(30)]
    assert rows["wait_us"].drop_nulls().unique().to_list() == [1000.0]
    assert rows["transfer_us"].null_count() == 1
    late = found["lateness"].join(rows, on="instance_id")
    assert rows["instance_id"][7] not in late["instance_id"]
    assert rows["instance_id"][9] in late["instance_id"]
    busy = [(times[9][0] - MS, times[9][0] + 2 * MS)]  # the sender computes beside its send
    late = joined(changed(ranks, 0, compute=busy)).tables["lateness"]
    assert not {rows["instance_id"][7], rows["instance_id"][9]} & set(late["instance_id"])


@pytest.mark.parametrize("early", [(0,), (0, 1)], ids=["a third", "two thirds"])
def test_ends_of_senders_that_left_early_say_nothing_about_the_clocks(
    early: tuple[int, ...],
) -> None:
    """Of 30 sends from rank 0 to 1, some end before the receiver arrives."""
    times = arrivals(30, 2, every_ns=4 * MS)
    kernels: list[list[Kernel]] = [[], []]
    for place, (begin, _) in enumerate(times):
        sent_ns = begin + (10 * US if place % 3 in early else 2 * MS)
        kernels[0].append(Kernel(begin, sent_ns, {"kind": "send_recv", "dst_rank": 1}))
        received = {"kind": "send_recv", "src_rank": 0}
        kernels[1].append(Kernel(begin + MS, begin + 2 * MS, received))
    alone = [BuiltRank(rank, own) for rank, own in enumerate(kernels)]
    world = job(arrivals(6, 2, seed=1))
    beside = [BuiltRank(r, [*world[r].kernels, *own]) for r, own in enumerate(kernels)]
    for ranks in (alone, beside):
        found = joined(changed(ranks, 1, offset_ns=3 * MS))
        assert found.clock.offset_ns[1] == pytest.approx(3 * MS, abs=US)
        assert found.clock.p95_ns == pytest.approx(0, abs=US)
        (clock,) = found.tables["clocks"].filter(kind="send_recv").iter_rows(named=True)
        assert (clock["clock_quality"], clock["p95_us"]) == ("fine", pytest.approx(0, abs=1))
        rows = found.tables["instances"].filter(kind="send_recv")
        assert rows["wait_us"].is_null().to_list() == [place % 3 in early for place in range(30)]


def test_groups_that_share_ranks_connect_all_clocks() -> None:
    """Ranks 0 and 1, 2 and 3, 0 and 2, 1 and 3 have groups, and the first of these agree best."""
    chance = random.Random(0)
    kernels: list[list[Kernel]] = [[] for _ in range(4)]
    for number in range(24):
        kind, pairs = ("tp", ((0, 1), (2, 3))) if number % 2 else ("dp", ((0, 2), (1, 3)))
        for pair in pairs:
            options = {"pg_desc": kind, "pg_ranks": str(list(pair)).replace(" ", "")}
            begins = [10 * MS * (number + 1) + chance.randrange(800 * US) for _ in pair]
            for rank, begin in zip(pair, begins, strict=True):
                noise = chance.randrange(2 * US) if kind == "dp" else 0
                end = max(begins) + 100 * US + noise
                kernels[rank].append(Kernel(begin, end, {**options, "group_size": 2}))
    given_ns = {0: 0, 1: 3 * MS, 2: -2 * MS, 3: 700 * US}
    ranks = [BuiltRank(rank, own, offset_ns=given_ns[rank]) for rank, own in enumerate(kernels)]
    found = joined(ranks)
    assert found.clock.offset_ns == pytest.approx(given_ns, abs=2 * US)
    assert set(found.tables["clocks"]["clock_quality"]) == {"fine"}
    apart = [replace(rank, kernels=rank.kernels[1::2]) for rank in ranks]
    unconnected = joined(apart)  # nothing connects the two clocks
    assert unconnected.clock.offset_ns == pytest.approx({0: 0, 1: 3 * MS}, abs=2 * US)
    rows = unconnected.tables["ranks"]
    assert rows["clock_offset_us"].is_null().to_list() == [False, False, True, True]
    assert rows["clock_error_us"].is_null().to_list() == [False, False, True, True]
    assert rows["wait_ms"].null_count() == 0
    (note,) = (note for note in rank_findings(unconnected, 4).notes if "connects" in to_text(note))
    assert "connects ranks 2-3 with the first rank" in to_text(note)


def test_an_id_of_each_call_does_not_divide_a_communicator() -> None:
    ids = [{"comms_id": str(number), "seq": number} for number in range(6)]
    assert joined(job(arrivals(6, 3), options=ids)).tables["communicators"].height == 1
    two = [{"comms_id": str(number % 2)} for number in range(6)]
    assert joined(job(arrivals(6, 3), options=two)).tables["communicators"].height == 2


def test_the_order_of_members_does_not_matter() -> None:
    built = members(job(arrivals(10, 4)))
    one, other = join(built, 4), join(built[::-1], 4)
    for name, rows in one.tables.items():
        assert rows.equals(other.tables[name]), name


# --------------------------------------------------------------------------- recorded ranks


class Tables(dict[str, pl.DataFrame]):
    """The tables of a report."""

    def __init__(self, report: PerfReport) -> None:
        self._report = report

    def __missing__(self, name: str) -> pl.DataFrame:
        return self._report.table(name)


def recorded(paths: Sequence[Path]) -> Joined:
    reports = {path.name: PerfReport(read_trace(path), None) for path in paths}
    files = [rank_file(name, r.trace.info, r.collectives) for name, r in reports.items()]
    found = identify(files)
    assert found.missing_ranges == ((4, 7),)
    return join(
        [
            Member(
                e.rank, e.file.name, reports[e.file.name].trace.info, Tables(reports[e.file.name])
            )
            for e in found.used
        ],
        found.world_size,
    )


def check_dlrm(found: Joined) -> None:
    rows, kernels = found.tables["instances"], found.tables["instance_ranks"]
    assert rows["last_rank"].to_list() == [2, 2, None, None, 2, 2, 2, 3]
    assert rows["margin_us"].round().to_list() == [1628, 506, 2, 1, 44, 46, 29, 29]
    assert rows["transfer_is_bound"].all()
    assert rows["is_edge"].to_list() == [True, *[False] * 7]
    duration = kernels["end_ns"] - kernels["start_ns"]
    assert duration.sum() / 1e6 == pytest.approx(30.40, abs=0.005)
    assert kernels["wait_ns"].sum() / 1e6 == pytest.approx(16.58, abs=0.01)
    is_inner = pl.col("instance_id") > 0
    assert kernels.filter(~is_inner)["wait_ns"].sum() / 1e6 == pytest.approx(14.36, abs=0.01)
    assert kernels.filter(is_inner)["wait_ns"].sum() / 1e6 == pytest.approx(2.21, rel=0.01)
    inner = kernels.filter(is_inner)
    assert (inner["end_ns"] - inner["start_ns"]).sum() / 1e6 == pytest.approx(13.97, rel=0.01)
    assert found.clock.p95_ns == pytest.approx(2_700, rel=0.1)
    check_identity(found)


def test_half_of_a_recorded_job(reference_root: Path) -> None:
    found = recorded(sorted((reference_root / "ranks" / "dlrm-v100").iterdir()))
    check_dlrm(found)
    offsets = [0, -0.03, -0.98, -1.03]
    assert found.tables["ranks"]["clock_offset_us"].to_list() == pytest.approx(offsets, abs=0.05)


def test_shifted_clocks_of_a_recorded_job(reference_root: Path, tmp_path: Path) -> None:
    shifts_us = {0: 0, 1: 4_321, 2: -5_000, 3: 17}
    paths = []
    for path in sorted((reference_root / "ranks" / "dlrm-v100").iterdir()):
        document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        rank = document["distributedInfo"]["rank"]
        base_us = 1_694_128_000_000_000 if rank % 2 else 0
        for event in document["traceEvents"]:
            if "ts" in event:
                event["ts"] += shifts_us[rank] - base_us
        document["baseTimeNanoseconds"] = base_us * 1_000
        paths.append(tmp_path / path.name.removesuffix(".gz"))
        paths[-1].write_text(json.dumps(document), encoding="utf-8")
    found = recorded(paths)
    check_dlrm(found)
    offsets = [shift + own for shift, own in zip(shifts_us.values(), (0, 0, -1, -1), strict=True)]
    assert found.tables["ranks"]["clock_offset_us"].to_list() == pytest.approx(offsets, abs=0.1)


def test_ends_of_hand_made_ranks_agree_for_one_kind_only(reference_root: Path) -> None:
    found = recorded(sorted((reference_root / "traces" / "multirank-4").iterdir()))
    quality = found.tables["clocks"].select("kind", "clock_quality").rows()
    assert dict(quality) == {
        "all_reduce": "fine",
        "broadcast": "unknown",
        "all_gather": "unknown",
        "all_to_all_v": "unknown",
    }
    known = found.tables["instances"].drop_nulls("wait_us")["kind"].unique().to_list()
    assert known == ["all_reduce"]
    offsets = found.tables["ranks"]["clock_offset_us"].to_list()
    assert offsets == pytest.approx([0, 0.95, 1.07, 0.19], abs=1.0)
    assert all(a <= b for a, b in pairwise(found.tables["instances"]["last_ns"]))
