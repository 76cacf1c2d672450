"""Simulated ranks of a job, whose collectives end together: nothing of their time is lost."""

import json
from pathlib import Path

import polars as pl
import pytest

from jarvis.perf_report import PerfReport
from jarvis.ranks.join import Joined, join
from jarvis.ranks.members import Member
from jarvis.sample import simulate
from jarvis.trace import read_trace
from tests.ranks.test_join import Tables, check_identity
from tests.ranks.test_lateness import check_sums

RANKS, STEPS = 3, 3


def joined(folder: Path, shifts_us: dict[int, int] | None = None) -> Joined:
    """Simulate the ranks, shift the clocks of some, and join them."""
    members = []
    for rank in range(RANKS):
        document = simulate(STEPS, rank, RANKS, scale="tiny")
        for event in document["traceEvents"]:
            event["ts"] += (shifts_us or {}).get(rank, 0)
        path = folder / f"rank{rank}.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        report = PerfReport(read_trace(path), None)
        members.append(Member(rank, path.name, report.trace.info, Tables(report)))
    return join(members, RANKS)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Joined:
    return joined(tmp_path_factory.mktemp("ranks"))


def test_every_kernel_is_matched(simulated: Joined) -> None:
    assert simulated.tables["unmatched"].is_empty()
    instances = simulated.tables["instances"]
    assert instances["missing_ranks"].list.len().sum() == 0
    assert not instances["transfer_is_bound"].any()
    assert simulated.tables["clocks"]["p95_us"].to_list() == [0.0]
    assert simulated.clock.offset_ns == dict.fromkeys(range(RANKS), 0)
    assert instances["step"].n_unique() == STEPS
    check_identity(simulated)


def test_lateness_and_its_causes_add_up(simulated: Joined) -> None:
    assert simulated.tables["lateness"].height > 0
    check_sums(simulated)
    assert (simulated.tables["lateness"]["explained_pct"].drop_nulls() > 95).all()


def test_waiting_and_transfer_are_the_exposed_communication_of_steps(simulated: Joined) -> None:
    steps = simulated.tables["rank_steps"]
    assert steps.height == RANKS * STEPS
    assert steps.group_by("rank").len()["len"].to_list() == [STEPS] * RANKS
    known = steps.drop_nulls("exposed_wait_ms").filter(pl.col("step") > steps["step"].min())
    assert known.height >= RANKS
    exposed = known["exposed_wait_ms"] + known["exposed_transfer_ms"]
    assert exposed.to_list() == pytest.approx(known["exposed_comm_ms"].to_list(), abs=1e-6)
    parts = ("compute_ms", "exposed_comm_ms", "exposed_copy_ms", "idle_ms")
    assert steps.select(pl.sum_horizontal(parts)).to_series().to_list() == pytest.approx(
        steps["duration_ms"].to_list()
    )
    lateness = simulated.tables["lateness"]["new_ns"].sum() / 1e6
    assert steps["lateness_ms"].sum() == pytest.approx(lateness)


def test_shifted_clocks_change_nothing_else(simulated: Joined, tmp_path: Path) -> None:
    shifts_us = {1: 5_000, 2: -3_210}
    shifted = joined(tmp_path, shifts_us)
    found = shifted.clock.offset_ns
    assert found == pytest.approx({0: 0, **{r: us * 1_000 for r, us in shifts_us.items()}}, abs=10)
    for name in ("last_rank", "missing_ranks", "match"):
        both = [joined_.tables["instances"][name].to_list() for joined_ in (simulated, shifted)]
        assert both[0] == both[1], name
    waits = [j.tables["instance_ranks"]["wait_ns"].to_list() for j in (simulated, shifted)]
    assert waits[0] == pytest.approx(waits[1], abs=1_000)
