"""Several ranks in one graph: a faster rank helps only until another one arrives last."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from jarvis.changes import Change, ScaleGpu, ScaleHost, Span, Work
from jarvis.schemas.names import C
from jarvis.simulation.changed_weights import changed_weights
from jarvis.simulation.ranks import RankClock, joint_graph
from jarvis.simulation.simulation import Simulation
from tests.simulation.tiny import US, Tiny, launches

REDUCE = "all-reduce"


def rank(a_us: float, until: float, after: float = 0) -> Tiny:
    """Return a rank with a kernel and a collective behind it; its clock starts at ``after``."""
    tiny = launches(after, after + 6).kernel("a", after + 10, a_us)
    return tiny.kernel(REDUCE, after + 10 + a_us, until - 10 - a_us).op("op", after, after + 11)


class Ranks:
    """The joint graph of tiny traces; changes name a rank and a kernel."""

    def __init__(
        self,
        ranks: Sequence[Tiny],
        folder: Path,
        clocks: Mapping[int, RankClock] | None = None,
        missing: Sequence[int] = (),
        floor_us: float | None = None,
    ) -> None:
        self.ranks = ranks
        self.simulations: list[Simulation] = [tiny.simulation(folder) for tiny in ranks]
        rows = [
            {C.instance_id: instance, "position": position, C.uid: uid}
            for position, tiny in enumerate(ranks)
            for instance, uid in enumerate(
                uid for uid, event in enumerate(tiny.events) if event["name"] == REDUCE
            )
        ]
        floor = pl.lit(None if floor_us is None else round(floor_us * US), pl.Int64)
        kernels = pl.DataFrame(rows).with_columns(
            (~pl.col(C.instance_id).is_in(list(missing))).alias("is_complete"),
            floor.alias("floor_ns"),
        )
        self.joint = joint_graph(
            (simulation.graph for simulation in self.simulations),
            [(clocks or {}).get(position, RankClock()) for position in range(len(ranks))],
            kernels,
        )
        for with_absent in (False, True):
            times = self.joint.replay(with_absent=with_absent)
            of_ranks = self.joint.nodes[-1]
            assert (times == self.joint.time)[:of_ranks].all()

    @property
    def step_us(self) -> float:
        return self.joint.window_ns(self.joint.time) / US

    def gain_us(
        self,
        changes: Mapping[int, Sequence[Change]],
        transfer: float = 1.0,
        *,
        with_absent: bool = False,
    ) -> float:
        changed = {}
        for position, own in changes.items():
            simulation = self.simulations[position]
            weights = changed_weights(simulation.index, simulation, own)
            changed[position] = weights - simulation.graph.weight
        factors = np.full(self.joint.instances.size, transfer)
        times = self.joint.replay(changed, factors, with_absent=with_absent)
        return self.step_us - self.joint.window_ns(times) / US

    def scaled(self, rank: int, name: str, factor: float) -> ScaleGpu:
        return ScaleGpu(work=Work(uids=(self.ranks[rank].uids[name],)), factor=factor)


def test_26_the_rank_that_arrives_last_sets_the_step(tmp_path: Path) -> None:
    r = Ranks([rank(100, 260), rank(150, 260)], tmp_path)
    assert r.joint.instances.size == 1
    assert r.step_us == 260
    assert r.gain_us({1: [r.scaled(1, "a", 0.5)]}) == 50
    assert r.gain_us({0: [r.scaled(0, "a", 0)]}) == 0
    assert r.gain_us({0: [r.scaled(0, "a", 2)]}) == -50
    alone = r.ranks[0].simulation(tmp_path)
    half = ScaleGpu(work=Work(uids=(r.ranks[0].uids["a"],)), factor=0.5)
    assert alone.saved_ns([half]) == 50 * US


def test_the_transfer_is_what_a_collective_takes_after_the_last_arrival(tmp_path: Path) -> None:
    r = Ranks([rank(100, 260), rank(150, 260)], tmp_path)
    assert r.gain_us({}, transfer=0.5) == 50
    assert r.gain_us({0: [r.scaled(0, REDUCE, 0.5)]}) == 0


def test_ranks_share_the_common_clock(tmp_path: Path) -> None:
    clocks = {1: RankClock(shift_ns=-1000 * US)}
    r = Ranks([rank(100, 260), rank(150, 260, after=1000), rank(40, 260)], tmp_path, clocks)
    assert r.step_us == 260
    assert r.gain_us({1: [r.scaled(1, "a", 0.5)]}) == 50


def test_a_clock_that_runs_faster_is_corrected(tmp_path: Path) -> None:
    faster = Tiny().call("L", 0).call("L", 6.6).kernel("a", 11, 165)
    faster.kernel(REDUCE, 176, 110).op("op", 0, 12.1)
    clocks = {1: RankClock(drift_ppm=1e6 / 11)}
    r = Ranks([rank(100, 260), faster], tmp_path, clocks)
    assert r.joint.instances.size == 1
    assert r.step_us == pytest.approx(260, abs=0.01)
    assert r.gain_us({}, transfer=0.5) == pytest.approx(50, abs=0.01)


def test_host_time_of_one_rank_holds_up_all(tmp_path: Path) -> None:
    late = Tiny().annotation("loader", 0, 90).call("L", 100).call("L", 106).kernel("a", 110, 50)
    late.kernel(REDUCE, 160, 100).op("op", 100, 111)
    r = Ranks([rank(100, 260), late.op("op", 0, 1)], tmp_path)
    removed = ScaleHost(spans=(Span(thread=0, start_ns=0, end_ns=90 * US),), factor=0)
    assert r.step_us == 260
    assert r.gain_us({1: [removed]}) == 50
    assert r.gain_us({0: [removed]}) == 0


def test_a_collective_that_one_rank_leaves_before_another_arrives_joins_none(
    tmp_path: Path,
) -> None:
    def twice(first: tuple[float, float], second: tuple[float, float]) -> Tiny:
        tiny = launches(0, 6)
        for at, until in (first, second):
            tiny.kernel(REDUCE, at, until - at)
        return tiny.op("op", 0, 11)

    ranks = [twice((10, 100), (101, 200)), twice((20, 100), (101, 200)), twice((20, 40), (60, 90))]
    assert Ranks([*ranks[:2], ranks[0]], tmp_path).joint.instances.size == 2
    assert Ranks(ranks, tmp_path).joint.instances.tolist() == [0]


def test_a_rank_without_a_recording_gives_an_interval(tmp_path: Path) -> None:
    r = Ranks([rank(100, 260), rank(150, 260)], tmp_path, missing=[0], floor_us=90)
    assert not r.joint.is_complete
    faster = {1: [r.scaled(1, "a", 0.5)]}
    assert r.gain_us(faster) == 50
    # The missing rank arrives 90 µs before the end, 10 µs after the last recorded one.
    assert r.gain_us(faster, with_absent=True) == 0
    assert r.gain_us({}, transfer=0.5) == 50
    assert r.gain_us({}, transfer=0.5, with_absent=True) == 45
