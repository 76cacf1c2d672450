"""Several ranks in one graph: a faster rank helps only until another one arrives last."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from jarvis.changes import Change, ScaleGpu, ScaleHost, Span, Work
from jarvis.schemas.names import C
from jarvis.simulation.path import replayed
from jarvis.simulation.ranks import THREADS, Joint, joint_graph
from jarvis.simulation.simulation import Simulation
from tests.simulation.tiny import US, Tiny, launches

REDUCE = "all-reduce"


def rank(a_us: float, until: float, after: float = 0) -> Tiny:
    """Return a rank with a kernel and a collective behind it; its clock starts at ``after``."""
    tiny = launches(after, after + 6).kernel("a", after + 10, a_us)
    return tiny.kernel(REDUCE, after + 10 + a_us, until - 10 - a_us).op("op", after, after + 11)


class Ranks:
    """The joint simulation of tiny traces; changes name a rank and a kernel."""

    def __init__(
        self,
        ranks: Sequence[Tiny],
        folder: Path,
        kinds: Sequence[str] = ("allreduce",) * 3,
        group: str | None = "0",
        numbers: Sequence[Sequence[int]] = (),
    ) -> None:
        self.ranks = ranks
        simulations = [tiny.simulation(folder) for tiny in ranks]
        tables = []
        for tiny, simulation, kind in zip(ranks, simulations, kinds, strict=False):
            uids = [uid for uid, event in enumerate(tiny.events) if event["name"] == REDUCE]
            is_own = pl.col(C.uid).is_in(uids)
            collectives = (
                simulation.tables["gpu_work"]
                .filter(is_own)
                .select(
                    C.uid,
                    pl.lit(group, pl.String).alias(C.group),
                    pl.lit(kind).alias(C.collective),
                )
            )
            if numbers:
                seq = pl.Series("seq", numbers[len(tables)], pl.Int64)
                collectives = collectives.with_columns(seq)
            tables.append(collectives)
        self.joint: Joint = joint_graph([s.graph for s in simulations], tables)
        names = ("gpu_work", "sim_spans", "steps")
        joined = {name: self.joint.rows([s.tables[name] for s in simulations]) for name in names}
        self.simulation = Simulation(self.joint.graph, joined)
        times, _ = replayed(self.joint.graph, self.joint.graph.weight)
        assert (times == self.joint.graph.time).all()

    @property
    def step_us(self) -> float:
        return self.simulation.recorded.window_ns / US

    def gain_us(self, *changes: Change) -> float:
        return self.simulation.saved_ns(changes) / US

    def scaled(self, rank: int, name: str, factor: float) -> ScaleGpu:
        uid = self.ranks[rank].uids[name] + self.joint.shifts[rank].uid
        return ScaleGpu(work=Work(uids=(uid,)), factor=factor)


def test_26_the_rank_that_arrives_last_sets_the_step(tmp_path: Path) -> None:
    r = Ranks([rank(100, 260), rank(150, 260)], tmp_path)
    assert r.joint.collectives == 1
    assert r.step_us == 260
    assert r.gain_us(r.scaled(1, "a", 0.5)) == 50
    assert r.gain_us(r.scaled(0, "a", 0)) == 0
    assert r.gain_us(r.scaled(0, "a", 2)) == -50
    alone = r.ranks[0].simulation(tmp_path)
    half = ScaleGpu(work=Work(uids=(r.ranks[0].uids["a"],)), factor=0.5)
    assert alone.saved_ns([half]) == 50 * US


def test_a_collective_scales_as_what_it_takes_after_the_last_arrival(tmp_path: Path) -> None:
    r = Ranks([rank(100, 260), rank(150, 260)], tmp_path)
    both = (r.scaled(0, REDUCE, 0.5), r.scaled(1, REDUCE, 0.5))
    assert r.gain_us(*both) == 50
    assert r.gain_us(both[0]) == 0


def test_clocks_are_aligned_on_the_ends_of_collectives(tmp_path: Path) -> None:
    r = Ranks([rank(100, 260), rank(150, 260, after=1000), rank(40, 260)], tmp_path)
    assert [shift.ns for shift in r.joint.shifts] == [0, -1000 * US, 0]
    assert r.step_us == 260
    assert r.gain_us(r.scaled(1, "a", 0.5)) == 50
    threads = [shift.thread for shift in r.joint.shifts]
    spans = [pl.DataFrame({C.thread: [0], C.start_ns: [at * US]}) for at in (5, 1005, 5)]
    moved = r.joint.rows(spans)
    assert moved[C.thread].to_list() == threads == [0, THREADS, 2 * THREADS]
    assert moved[C.start_ns].to_list() == [5 * US] * 3


def test_host_time_of_one_rank_holds_up_all(tmp_path: Path) -> None:
    late = Tiny().annotation("loader", 0, 90).call("L", 100).call("L", 106).kernel("a", 110, 50)
    late.kernel(REDUCE, 160, 100).op("op", 100, 111)
    r = Ranks([rank(100, 260), late.op("op", 0, 1)], tmp_path)
    thread = r.joint.shifts[1].thread
    removed = ScaleHost(spans=(Span(thread=thread, start_ns=0, end_ns=90 * US),), factor=0)
    assert r.step_us == 260
    assert r.gain_us(removed) == 50
    own = ScaleHost(spans=(Span(thread=0, start_ns=0, end_ns=90 * US),), factor=0)
    assert r.gain_us(own) == 0


def test_a_rank_without_as_many_collectives_is_not_joined(tmp_path: Path) -> None:
    more = rank(150, 260).call("L", 20).kernel(REDUCE, 270, 20)
    r = Ranks([rank(100, 260), more], tmp_path)
    assert r.joint.collectives == 0
    assert r.gain_us(r.scaled(1, "a", 0.5)) == 30


def test_sequence_numbers_match_collectives_of_recordings_that_start_later(
    tmp_path: Path,
) -> None:
    before = Tiny().call("L", 0).call("L", 6).call("L", 12).kernel(REDUCE, 10, 10)
    before.kernel("a", 21, 139).kernel(REDUCE, 160, 100).op("op", 0, 17)
    r = Ranks([rank(100, 260), before], tmp_path, numbers=([5], [4, 5]))
    assert r.joint.collectives == 1
    assert r.gain_us(r.scaled(1, "a", 0.5)) == 50


def test_collectives_of_different_kinds_are_not_joined(tmp_path: Path) -> None:
    r = Ranks([rank(100, 260), rank(150, 260)], tmp_path, kinds=("send", "recv"))
    assert r.joint.collectives == 0


def test_a_collective_that_one_rank_leaves_before_another_arrives_is_none(tmp_path: Path) -> None:
    def twice(first: tuple[float, float], second: tuple[float, float]) -> Tiny:
        tiny = launches(0, 6)
        for at, until in (first, second):
            tiny.kernel(REDUCE, at, until - at)
        return tiny.op("op", 0, 11)

    ranks = [twice((10, 100), (101, 200)), twice((20, 100), (101, 200)), twice((20, 40), (60, 90))]
    r = Ranks([*ranks[:2], ranks[0]], tmp_path)
    assert r.joint.collectives == 2
    r = Ranks(ranks, tmp_path)
    # The ends of the third rank are 60 and 110 earlier, so its clock moves by 85: one would end
    # at 125 and the other start at 145, after the others' 101.
    assert [shift.ns for shift in r.joint.shifts] == [0, 0, 85 * US]
    assert r.joint.collectives == 1


def test_collectives_without_a_recorded_group_match_by_order(tmp_path: Path) -> None:
    r = Ranks([rank(100, 260), rank(150, 260)], tmp_path, group=None)
    assert r.joint.collectives == 1
    assert r.gain_us(r.scaled(1, "a", 0.5)) == 50
