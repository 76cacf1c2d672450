"""Why the last rank of a collective was last: its own time since the ranks were held together."""

import random
from collections.abc import Sequence

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from jarvis.ranks.delays import CAUSE
from jarvis.ranks.join import Joined, join
from tests.ranks.built import US, BuiltRank, Kernel, job, members

MS = 1_000 * US
STEP_NS, TRANSFER_NS = 20 * MS, 100 * US


def joined(ranks: Sequence[BuiltRank]) -> Joined:
    return join(members(ranks), len(ranks))


def check_sums(found: Joined) -> None:
    """Parts of the lateness add up exactly, and so do those of its own part."""
    late, causes = found.tables["lateness"], found.tables["lateness_causes"]
    parts = late["own_lateness_ns"] + late["inherited_ns"]
    assert (parts == late["lateness_ns"]).all()
    assert (causes["state_ns"] - causes["yardstick_ns"] == causes["extra_ns"]).all()
    sums = causes.group_by("instance_id").agg(pl.col("extra_ns").sum())
    both = late.join(sums, on="instance_id")
    assert (both["extra_ns"] == both["own_lateness_ns"]).all()
    assert (late["new_ns"] >= 0).all()
    kernels = found.tables["instance_ranks"].select("instance_id", "rank", "start_ns")
    arrivals = late.join(kernels, on=["instance_id", "rank"])
    assert arrivals.height == late.height


def steps(
    count: int, ranks: int, late_rank: int, delays_ns: Sequence[int], per_step: int = 3
) -> list[BuiltRank]:
    """Steps of a job with collectives beside compute, of which the last one holds all ranks.

    The late rank waits for its data at the start of a step; all of its collectives are late then.
    """
    kernels: list[list[Kernel]] = [[] for _ in range(ranks)]
    compute: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    idle: list[list[tuple[int, int, str]]] = [[] for _ in range(ranks)]
    held_ns = MS
    for step in range(count):
        waits = [delays_ns[step] if rank == late_rank else 0 for rank in range(ranks)]
        for number in range(per_step):
            arrivals = [held_ns + wait + (number + 1) * 2 * MS for wait in waits]
            end_ns = max(arrivals) + TRANSFER_NS
            for rank, arrival in enumerate(arrivals):
                kernels[rank].append(Kernel(arrival, end_ns))
        for rank, wait in enumerate(waits):
            begin_ns = held_ns + wait
            if wait:
                idle[rank].append((held_ns, begin_ns, "data_loading"))
            compute[rank].append((begin_ns, begin_ns + per_step * 2 * MS))
        held_ns = end_ns
    return [BuiltRank(r, kernels[r], compute[r], idle[r]) for r in range(ranks)]


def test_a_late_loader_is_named_and_counted_once() -> None:
    delays = [0, 0, 5 * MS, 0]
    found = joined(steps(4, 4, 2, delays))
    check_sums(found)
    late = found.tables["lateness"]
    assert late["rank"].to_list() == [2] * 3
    assert late["lateness_ns"].to_list() == [5 * MS] * 3
    assert late["inherited_ns"].to_list() == [0] * 3
    assert late["new_ns"].to_list() == [5 * MS, 0, 0]
    assert late["root_rank"].to_list() == [2] * 3
    assert late["explained_pct"].to_list() == [100.0] * 3
    causes = found.tables["lateness_causes"]
    first = causes.group_by("instance_id", maintain_order=True).first()
    assert first["state"].to_list() == ["idle"] * 3
    assert first["detail"].to_list() == ["data_loading"] * 3
    assert first["extra_ns"].to_list() == [5 * MS] * 3
    assert first["host_call"].to_list() == ["call data_loading"] * 3


def test_a_second_delay_counts_again() -> None:
    found = joined(steps(4, 4, 1, [0, 2 * MS, 0, 3 * MS]))
    check_sums(found)
    late = found.tables["lateness"]
    assert late["new_ns"].to_list() == [2 * MS, 0, 0, 3 * MS, 0, 0]


def test_the_first_step_is_an_edge() -> None:
    found = joined(steps(3, 3, 0, [4 * MS, 0, 0]))
    assert found.tables["lateness"].is_empty()
    assert found.tables["instances"]["is_edge"].to_list() == [True] * 3 + [False] * 6
    assert found.tables["ranks"]["edge_wait_ms"].sum() == 2 * 4 * 3


def test_where_several_come_last_no_one_is_late() -> None:
    found = joined(job([[0, 50 * US, 50 * US]] + [[n * MS] * 3 for n in range(1, 5)]))
    assert found.tables["lateness"].is_empty()
    assert found.tables["lateness_causes"].is_empty()


def test_inherited_lateness_is_followed_to_its_root() -> None:
    """Rank 1 is late at the group of ranks 0 and 1, so that rank 0 is late at that of 0 and 2."""

    def group(*ranks: int) -> dict[str, object]:
        listed = str(list(ranks)).replace(" ", "")
        return {"pg_ranks": listed, "pg_desc": f"tp{ranks}", "group_size": len(ranks)}

    kernels: list[list[Kernel]] = [[], [], []]
    compute: list[list[tuple[int, int]]] = [[], [], []]
    begin = MS
    for number in range(6):
        delay = 3 * MS if number == 3 else 0
        tp_end = begin + MS + delay + TRANSFER_NS
        kernels[0].append(Kernel(begin + MS, tp_end, group(0, 1)))
        kernels[1].append(Kernel(begin + MS + delay, tp_end, group(0, 1)))
        compute[0].append((begin, begin + MS))
        compute[1].append((begin, begin + MS + delay))
        arrivals = tp_end + MS, begin + 2 * MS
        end = max(arrivals) + TRANSFER_NS
        kernels[0].append(Kernel(arrivals[0], end, group(0, 2)))
        kernels[2].append(Kernel(arrivals[1], end, group(0, 2)))
        compute[0].append((tp_end, arrivals[0]))
        compute[2].append((begin, arrivals[1]))
        begin = end
    found = joined([BuiltRank(rank, kernels[rank], compute[rank]) for rank in range(3)])
    check_sums(found)
    rows = found.tables["lateness"].join(
        found.tables["instances"].select("instance_id", "comm_id"), on="instance_id"
    )
    dp = rows.filter(pl.col("comm_id").str.contains("0, 2"), pl.col("lateness_ns") > 2 * MS)
    assert dp["rank"].to_list() == [0]
    assert dp["root_rank"].to_list() == [1]
    assert dp["inherited_ns"][0] > dp["own_lateness_ns"][0]


@settings(max_examples=25)
@given(st.integers(2, 7), st.integers(2, 6), st.integers(0, 1_000))
def test_parts_add_up(ranks: int, count: int, seed: int) -> None:
    chance = random.Random(seed)
    built = steps(count, ranks, seed % ranks, [chance.randrange(3 * MS) for _ in range(count)])
    moved = [
        BuiltRank(r.rank, r.kernels, r.compute, r.idle, chance.randrange(5 * MS)) for r in built
    ]
    check_sums(joined(moved))


def test_a_slow_rank_is_compared_since_it_was_last_held() -> None:
    """Rank 2 is last at both collectives of a step, and only the others are held at the first."""
    kernels: list[list[Kernel]] = [[] for _ in range(3)]
    compute: list[list[tuple[int, int]]] = [[] for _ in range(3)]
    begins = [MS] * 3
    for _ in range(4):
        for _ in range(2):
            lasts = [4 * MS, 4 * MS, 5 * MS]
            arrivals = [begin + last for begin, last in zip(begins, lasts, strict=True)]
            end_ns = max(arrivals) + TRANSFER_NS
            for rank in range(3):
                kernels[rank].append(Kernel(arrivals[rank], end_ns))
                compute[rank].append((begins[rank], arrivals[rank]))
            # It goes on computing beside the first one.
            begins = [end_ns, end_ns, arrivals[2]]
        begins = [end_ns] * 3
    found = joined([BuiltRank(rank, kernels[rank], compute[rank]) for rank in range(3)])
    check_sums(found)
    late = found.tables["lateness"].filter(pl.col("held_instance").is_not_null())
    assert late["rank"].unique().to_list() == [2]
    assert (late["own_lateness_ns"] == late["lateness_ns"]).all()
    main = found.tables["lateness_causes"].group_by("instance_id", maintain_order=True).first()
    assert main.filter(pl.col("instance_id").is_in(late["instance_id"].implode()))[
        "state"
    ].unique().to_list() == ["compute"]


def test_causes_are_named_in_words() -> None:
    rows = pl.DataFrame(
        {
            "state": ["compute", "compute", "idle", "compute"],
            "detail": ["NORM_bwd", "multi_tensor_apply", "data_loading", None],
        }
    )
    assert rows.select(CAUSE)["cause"].to_list() == [
        "compute: normalization backward",
        "compute: multi tensor apply",
        "idle: data loading",
        "compute",
    ]
