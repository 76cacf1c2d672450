"""The critical path of the recording as events of a timeline."""

import numpy as np
import polars as pl

from jarvis.schemas.names import C
from jarvis.simulation.edges import Kind
from jarvis.simulation.graph import What
from jarvis.simulation.path import HOST_KINDS, OF_KINDS, UNEXPLAINED, UNLINKED_WORK, unlinked_part
from jarvis.simulation.simulation import Simulation

HOST, LATENCY, NOT_LINKED = "Host", "Launch latency and gaps", "Not linked"
"""Kinds of events of the path, besides those of linked GPU work."""

_CALL = "runtime call"
_MOSTLY = 0.5
"""Time of which unlinked work fills this part is its time."""


def path_events(simulation: Simulation, gpu_events: pl.DataFrame) -> pl.DataFrame:
    """Return what the end of the steps waited for, one after the other, by time.

    Columns of ``gpu_events`` (``Timeline.gpu_events``): GPU work with its ``uid``; host time and
    time between events without one, with the name of its part.
    """
    graph, path = simulation.graph, simulation.recorded.path
    kinds, targets = graph.kind[path.edges], graph.dst[path.edges]
    is_own = kinds == Kind.DURATION
    is_gpu = is_own & (graph.what[targets] == What.GPU_END)
    is_host = np.isin(kinds, HOST_KINDS) | (is_own & ~is_gpu)
    is_unlinked = kinds == Kind.UNLINKED
    busy_part = unlinked_part(graph, path.edges[is_unlinked], simulation.names_of_work)
    is_unlinked[is_unlinked] = busy_part >= _MOSTLY
    names = {int(kind): name for kind, name in OF_KINDS.items()}
    names |= {int(kind): "host work" for kind in HOST_KINDS} | {int(Kind.DURATION): _CALL}
    parts = pl.DataFrame(
        {
            C.uid: graph.uid[targets],
            "is_gpu": is_gpu,
            "part": pl.Series(kinds).cast(pl.Int64).replace_strict(names, default=UNEXPLAINED),
            "is_unlinked": is_unlinked,
            "kind_of_part": np.where(is_host, HOST, np.where(is_unlinked, NOT_LINKED, LATENCY)),
            C.ts_ns: graph.time[targets] - path.ns + graph.first_ns,
            C.dur_ns: path.ns,
        }
    ).with_columns(
        pl.when("is_gpu").then(C.uid).alias(C.uid),
        pl.when("is_unlinked").then(pl.lit(UNLINKED_WORK)).otherwise("part").alias("part"),
    )
    return (
        parts.filter(pl.col(C.dur_ns) > 0)
        .join(gpu_events.drop(C.ts_ns, C.dur_ns), on=C.uid, how="left", maintain_order="left")
        .with_columns(
            pl.coalesce(C.name, "part").alias(C.name),
            pl.coalesce("what", "kind_of_part").alias("what"),
        )
        .drop("is_gpu", "is_unlinked", "part", "kind_of_part")
        .sort(C.ts_ns, C.dur_ns)
    )
