"""The step time of single operations: what each gains at a target, and its part of the path."""

import numpy as np
import polars as pl

from jarvis import impact
from jarvis.core.arrays import Int64s
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
    rated = operations.select(C.uid, has_efficiency=impact.has_efficiency())
    wanted = rated.filter("has_efficiency").select(C.uid)
    gained_ns = _gained_ns(simulation, wanted, target_pct, limit)
    gain_ns = pl.when(pl.col("taken") > 0).then("gained_ns").otherwise(0)
    gain_us = pl.when("has_efficiency").then(gain_ns / 1e3)
    return (
        rated.join(gained_ns, on=C.uid, how="left", maintain_order="left")
        .select(gain_us.alias(C.saved_step_us))
        .to_series()
    )


def _gained_ns(
    simulation: Simulation, wanted: pl.DataFrame, target_pct: float, limit: int | None
) -> pl.DataFrame:
    """Return ``uid, taken, gained_ns`` of the operations (``uid``) whose kernel time gets shorter:
    by what, and what the steps gain in a replay each, for ``limit`` of those that save
    NEGLIGIBLE_PCT."""
    from jarvis.simulation.replay import LANES, replay_apart  # loads compiled kernels

    graph, recorded_ns = simulation.graph, sum(simulation.recorded.steps_ns)
    factors = simulation.operation_factors(target_pct).filter(pl.col("factor") < 1)
    events = (
        simulation.operation_edges.lazy()
        .join(factors, left_on=C.operation_uid, right_on=C.uid)
        .join(wanted.lazy(), left_on=C.operation_uid, right_on=C.uid, how="semi")
        .collect()
    )
    recorded = graph.weight[events["edge"].to_numpy()]
    shorter = np.rint(recorded * events["factor"].to_numpy()).astype(np.int64)
    events = events.select(
        C.operation_uid,
        "edge",
        shorter=pl.Series(shorter),
        taken=pl.Series(recorded - shorter),
    )
    every = (
        events.group_by(C.operation_uid)
        .agg(pl.col("taken").sum())
        .sort("taken", C.operation_uid, descending=[True, False])
        .with_row_index("number")
    )
    most = every.height if limit is None else limit
    least_ns = max(NEGLIGIBLE_PCT / 100 * recorded_ns, 1)
    rows = every.filter(pl.col("taken") >= least_ns).head(most)
    events = events.join(rows, on=C.operation_uid)
    edges, number = events["edge"].to_numpy(), events["number"].to_numpy().astype(np.int64)
    changed, lane = graph.weight.copy(), np.full(graph.weight.size, -1, np.int32)
    changed[edges] = events["shorter"].to_numpy()
    times = np.empty((graph.time.size, LANES), np.int64)
    gained: list[int] = []
    for first in range(0, rows.height, LANES):
        own = number - first
        lane[edges] = np.where((own >= 0) & (own < LANES), own, -1)
        replay_apart(graph.indptr, graph.src, graph.weight, changed, lane, 0, times)
        for column in times.T[: rows.height - first]:
            bounds = simulation.step_bounds(column)
            gained.append(recorded_ns - int(bounds[-1] - bounds[0]))
    found = rows.with_columns(gained_ns=pl.Series(gained, dtype=pl.Int64))
    return pl.concat([found, every.slice(rows.height)], how="diagonal").select(
        pl.col(C.operation_uid).alias(C.uid), "taken", "gained_ns"
    )


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
