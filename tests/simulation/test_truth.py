"""Simulated traces whose kernels were changed before they were written: the replay has to agree."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from jarvis.changes import Collective, CollectiveMode
from jarvis.schemas.names import C
from jarvis.simulation.changed_weights import changed_weights
from jarvis.simulation.ranks import Joint, RankClock, joint_graph
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
def test_a_replay_agrees_with_a_trace_written_again(
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
    """Return the ranks in one graph: their collectives match by order."""
    kernels = [
        each.collectives.sort(C.uid).select(
            pl.int_range(pl.len()).alias(C.instance_id),
            pl.lit(position).alias("position"),
            C.uid,
            pl.lit(value=True).alias("is_complete"),
            pl.lit(None, pl.Int64).alias("floor_ns"),
        )
        for position, each in enumerate(ranks)
    ]
    graphs = (each.graph for each in ranks)
    return joint_graph(graphs, [RankClock()] * len(ranks), pl.concat(kernels))


def test_ranks_replay_as_recorded(ranks: list[Generated]) -> None:
    together = joint(ranks)
    assert together.instances.size == ranks[0].collectives.height > 0
    assert (together.replay() == together.time).all()


@pytest.mark.parametrize(("factor", "families"), CHANGES_OF_RANKS)
def test_ranks_together_agree_with_traces_written_again(
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
    changed = {}
    for position, each in enumerate(ranks):
        simulation = Simulation(each.graph, {"gpu_work": each.work, "steps": NO_STEPS})
        weights = changed_weights(simulation.index, simulation, [each.scaled(factor, families)])
        changed[position] = weights - each.graph.weight
    predicted = together.window_ns(together.replay(changed))
    true = joint(truth)
    return 100 * (predicted / true.window_ns(true.time) - 1)


def interval_ns(rank: Generated, factor: float, families: tuple[str, ...]) -> tuple[int, int]:
    """Return the gain of a rank that is known alone: its collectives keep their time, or take
    that of the fastest."""
    tables = {"gpu_work": rank.work, "steps": NO_STEPS, "collectives": rank.collectives}
    simulation = Simulation(rank.graph, tables)
    uids = tuple(rank.collectives[C.uid])
    transfers = Collective(uids=uids, mode=CollectiveMode.TRANSFER)
    scaled = rank.scaled(factor, families)
    return simulation.saved_ns([scaled]), simulation.saved_ns([scaled, transfers])
