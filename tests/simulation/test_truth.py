"""Simulated traces whose kernels were changed before they were written: the replay has to agree."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from jarvis.changes import Collective, CollectiveMode
from jarvis.schemas.names import C
from jarvis.simulation.path import replayed
from jarvis.simulation.ranks import Joint, joint_graph
from jarvis.simulation.simulation import Simulation
from tests.simulation.generated import CHANGES, GEMM, Generated, generate

MAX_ERROR_PCT = 0.05
MAX_ERROR_OF_RANKS_PCT = 0.1
RANKS, STEPS_OF_RANKS = 8, 2
CHANGES_OF_RANKS = ((0.1, ()), (0.5, GEMM))
"""The one with the largest error, and one of a family; ``benchmarks.simulated_ranks`` has all."""

NO_STEPS = pl.DataFrame(schema={C.source: pl.String})


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    """Return a patch that modules can use."""
    with pytest.MonkeyPatch.context() as found:
        yield found


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> Generated:
    """Return the trace of a single process."""
    return generate(tmp_path_factory.mktemp("one"), patch, world_size=1, steps=3)[0]


@pytest.mark.parametrize(("factor", "families"), CHANGES)
def test_a_replay_agrees_with_a_trace_written_anew(
    one: Generated,
    tmp_path: Path,
    patch: pytest.MonkeyPatch,
    factor: float,
    families: tuple[str, ...],
) -> None:
    simulation = Simulation(one.graph, {"gpu_work": one.work, "steps": NO_STEPS})
    predicted = simulation.replay([one.scaled(factor, families)]).window_ns
    (truth,) = generate(tmp_path, patch, 1, 3, factor, families)
    assert predicted == pytest.approx(truth.graph.window_ns, rel=MAX_ERROR_PCT / 100)
    assert truth.graph.window_ns != one.graph.window_ns


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> list[Generated]:
    """Return the traces of several ranks."""
    return generate(tmp_path_factory.mktemp("ranks"), patch, RANKS, STEPS_OF_RANKS)


def joint(ranks: list[Generated]) -> Joint:
    """Return the ranks in one graph."""
    return joint_graph([each.graph for each in ranks], [each.collectives for each in ranks])


def test_ranks_replay_as_recorded(ranks: list[Generated]) -> None:
    together = joint(ranks)
    assert together.collectives == ranks[0].collectives.height > 0
    assert all(shift.ns == 0 for shift in together.shifts)
    graph = together.graph
    assert (replayed(graph, graph.weight)[0] == graph.time).all()


@pytest.mark.parametrize(("factor", "families"), CHANGES_OF_RANKS)
def test_ranks_together_agree_with_traces_written_anew(
    ranks: list[Generated],
    tmp_path: Path,
    patch: pytest.MonkeyPatch,
    factor: float,
    families: tuple[str, ...],
) -> None:
    truth = generate(tmp_path, patch, RANKS, STEPS_OF_RANKS, factor, families)
    assert abs(joint_error_pct(ranks, truth, factor, families)) <= MAX_ERROR_OF_RANKS_PCT
    low_ns, high_ns = interval_ns(ranks[0], factor, families)
    assert low_ns <= ranks[0].graph.window_ns - truth[0].graph.window_ns <= high_ns


def joint_error_pct(
    ranks: list[Generated], truth: list[Generated], factor: float, families: tuple[str, ...]
) -> float:
    """Return the error of the simulated window of all ranks."""
    together = joint(ranks)
    work = together.rows([each.work for each in ranks])
    simulation = Simulation(together.graph, {"gpu_work": work, "steps": NO_STEPS})
    changes = [
        each.scaled(factor, families, shift.uid)
        for each, shift in zip(ranks, together.shifts, strict=True)
    ]
    predicted = simulation.replay(changes).window_ns
    return 100 * (predicted / joint(truth).graph.window_ns - 1)


def interval_ns(rank: Generated, factor: float, families: tuple[str, ...]) -> tuple[int, int]:
    """Return the gain of a rank that is known alone: its collectives keep their time, or take
    that of the fastest."""
    tables = {"gpu_work": rank.work, "steps": NO_STEPS, "collectives": rank.collectives}
    simulation = Simulation(rank.graph, tables)
    uids = tuple(rank.collectives[C.uid])
    transfers = Collective(uids=uids, mode=CollectiveMode.TRANSFER)
    scaled = rank.scaled(factor, families)
    return simulation.saved_ns([scaled]), simulation.saved_ns([scaled, transfers])
