"""The step time of single operations: what each gains at a target, and its part of the path."""

import numpy as np
import polars as pl

from jarvis import impact
from jarvis.core.arrays import Float64s, Int64s
from jarvis.core.request import Targets
from jarvis.schemas.names import C
from jarvis.simulation.edges import Kind
from jarvis.simulation.graph import What
from jarvis.simulation.simulation import Simulation

NEGLIGIBLE_PCT = 0.02
"""Kernel time saved, in percent of the steps, below which an operation is not replayed."""


def with_step_times(
    operations: pl.DataFrame, simulation: Simulation | None, targets: Targets
) -> pl.DataFrame:
    """Return operations with ``saved_step_us`` and ``path_us``, empty without a simulation."""
    bare = operations.drop(C.saved_step_us, C.path_us, strict=False)
    if simulation is None:
        empty = (pl.lit(None, pl.Float64).alias(name) for name in (C.saved_step_us, C.path_us))
        return bare.with_columns(empty)
    saved = step_savings_us(bare, simulation, targets.pct)
    for key, target_pct in targets.own:
        is_own = bare[C.category] == key
        own = step_savings_us(bare.filter(is_own), simulation, target_pct)
        saved = saved.scatter(is_own.arg_true(), own)
    return bare.with_columns(saved, _path_us(bare, simulation))


def step_savings_us(
    operations: pl.DataFrame, simulation: Simulation, target_pct: float, limit: int | None = None
) -> pl.Series:
    """Return ``saved_step_us``: what all steps together gain if only one operation reaches a
    target, for each of ``operations``; null without a reliable efficiency, and below
    NEGLIGIBLE_PCT.

    With ``limit``, only that many operations are replayed, those with the most kernel time saved;
    the others are null.
    """
    is_rated = operations.select(impact.has_efficiency()).to_series().to_numpy()
    rows = simulation.rows_of(operations[C.uid].to_numpy())
    gained_ns = _gained_ns(simulation, rows[is_rated & (rows >= 0)], target_pct, limit)
    gained_ns = np.append(gained_ns, 0.0)[rows]
    gained_ns[~is_rated] = np.nan
    return pl.Series(C.saved_step_us, gained_ns, nan_to_null=True) / 1e3


def _gained_ns(
    simulation: Simulation, wanted: Int64s, target_pct: float, limit: int | None
) -> Float64s:
    """Return what the steps gain in a replay of each row of ``operations``: 0 without shorter
    kernels or if the row is not ``wanted``, NaN if they get shorter by less than NEGLIGIBLE_PCT or
    ``limit`` others save more kernel time."""
    from jarvis.simulation.replay import LANES, replay_apart  # loads compiled kernels

    graph, recorded_ns = simulation.graph, sum(simulation.recorded.steps_ns)
    factors = simulation.operation_factors(target_pct)
    is_shorter = np.zeros(factors.size + 1, np.bool_)
    is_shorter[wanted] = factors[wanted] < 1
    own = np.flatnonzero(is_shorter[simulation.operation_rows])
    rows, edges = simulation.operation_rows[own], simulation.index.gpu_edge[1][own]
    recorded = graph.weight[edges]
    shorter = np.rint(recorded * factors[rows]).astype(np.int64)
    taken = np.zeros(factors.size, np.int64)
    np.add.at(taken, rows, recorded - shorter)
    gained_ns = np.where(taken > 0, np.nan, 0.0)
    most = np.flatnonzero(taken >= max(NEGLIGIBLE_PCT / 100 * recorded_ns, 1))
    uids = simulation.tables["operations"][C.uid].to_numpy()
    most = most[np.lexsort((uids[most], -taken[most]))][:limit]
    number = np.full(factors.size, -1, np.int32)
    number[most] = np.arange(most.size)
    is_replayed = number[rows] >= 0
    edges, number = edges[is_replayed], number[rows[is_replayed]]
    changed, lane = graph.weight.copy(), np.full(graph.weight.size, -1, np.int32)
    changed[edges] = shorter[is_replayed]
    times = np.empty((graph.time.size, LANES), np.int64)
    for first in range(0, most.size, LANES):
        lane[edges] = np.where(number // LANES == first // LANES, number % LANES, -1)
        replay_apart(graph.indptr, graph.src, graph.weight, changed, lane, 0, times)
        for row, column in zip(most[first : first + LANES], times.T, strict=False):
            bounds = simulation.step_bounds(column)
            gained_ns[row] = recorded_ns - int(bounds[-1] - bounds[0])
    return gained_ns


def _path_us(operations: pl.DataFrame, simulation: Simulation) -> pl.Series:
    """Return ``path_us``: the time of each operation's GPU events on the recorded path."""
    graph, path = simulation.graph, simulation.recorded.path
    node = graph.dst[path.edges]
    own = (graph.kind[path.edges] == Kind.DURATION) & (graph.what[node] == What.GPU_END)
    events = pl.DataFrame({C.path_us: path.ns[own]})
    of_rows = (
        _with_operation(simulation, path.edges[own], events)
        .group_by(pl.col(C.operation_uid).alias(C.uid))
        .agg(pl.col(C.path_us).sum() / 1e3)
    )
    found = operations.select(C.uid).join(of_rows, on=C.uid, how="left", maintain_order="left")
    return found[C.path_us].fill_null(0.0)


def _with_operation(simulation: Simulation, edges: Int64s, values: pl.DataFrame) -> pl.DataFrame:
    """Return values of the duration edges of GPU events with the operation of each event, without
    those that belong to none."""
    uids = pl.Series(C.uid, simulation.graph.uid[simulation.graph.dst[edges]])
    known = simulation.tables["gpu_work"].select(C.uid, C.operation_uid).drop_nulls()
    return values.with_columns(uids).join(known, on=C.uid, maintain_order="left")
