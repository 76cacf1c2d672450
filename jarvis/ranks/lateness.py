"""Why the last rank of a collective was last.

Ranks that compute beside a collective do not start together after it. They do where they had to
wait for its end: there they were *held together*. All ranks are compared since the last time
that the late rank was held, also those that were held again since. Its lateness is what it was late
already then (inherited), and what it took longer since (own), which the states of its GPU divide
exactly.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.core.memory_tuning import return_freed_memory
from jarvis.ranks.arrivals import (
    NONE,
    Arrivals,
    Int32s,
    Int64s,
    compared,
    counted,
    counterparts,
    held_at,
    replicas,
    since_ns,
)
from jarvis.ranks.causes import Times
from jarvis.ranks.delays import shown_delays
from jarvis.ranks.members import Batch
from jarvis.ranks.operations import late_operations
from jarvis.ranks.parts import sums
from jarvis.ranks.roles import stages_of
from jarvis.schemas.names import C


class Late(NamedTuple):
    """The tables ``lateness``, ``lateness_causes`` and ``lateness_operations``; ``computing`` is
    ``rank, detail, ns``, the time of each category of compute in the window."""

    lateness: pl.DataFrame
    causes: pl.DataFrame
    operations: pl.DataFrame
    computing: pl.DataFrame


def lateness(
    kernels: pl.DataFrame,
    instances: pl.DataFrame,
    communicators: pl.DataFrame,
    batches: Sequence[Batch],
) -> Late:
    """Return why ranks are late, and what the ranks compute.

    Args:
        kernels: Kernels of instances with ``instance_id`` (``instances.waiting``), by rank.
        instances: Rows of ``instances.instances``, by ``instance_id``.
        communicators: Table of ``with_roles``.
        batches: The ranks.
    """
    stages = stages_of(communicators)
    named = counted(instances, communicators, stages)
    held, same = held_at(kernels, batches), named["same"].to_numpy().astype(np.int64)
    of = counterparts(kernels, named)
    others = replicas(named, kernels, of)
    of_replicas = _late_ranks(kernels, others, since_ns(kernels, batches, others, same, held), held)
    del others
    return_freed_memory()
    is_sent = named["is_sent"].to_numpy()[of[0]]
    arrivals = compared(kernels, named, (of[0][is_sent], of[1][is_sent]), stages)
    del of
    return_freed_memory()
    since = since_ns(kernels, batches, arrivals, same, held)
    late = _late_ranks(kernels, arrivals, since, held)
    roots = _roots(late, of_replicas)
    late = late.join(named.filter("is_clear"), on=C.instance_id, how="semi", maintain_order="left")
    del held, same, named
    return_freed_memory()
    times = _times(kernels, batches, arrivals, since, late)
    causes, computing = times.causes(late), times.computing()
    del times
    table = _with_new(late).join(roots, on=C.instance_id)
    ranks = pl.DataFrame({"ranks": sums(kernels[C.instance_id].to_numpy())}).select(
        pl.int_range(pl.len(), dtype=pl.Int32).alias(C.instance_id), "ranks"
    )
    chosen = shown_delays(table, instances, ranks)
    operations = late_operations(kernels, batches, arrivals, since, chosen)
    del arrivals, since
    return_freed_memory()
    named_causes = causes.lazy().drop_nulls(C.detail).group_by(C.instance_id)
    longer_ns = pl.col(C.extra_ns).clip(lower_bound=0).sum()
    explained = named_causes.agg(longer_ns.alias("explained")).collect()
    own = pl.col(C.own_lateness_ns)
    table = table.join(explained, on=C.instance_id, how="left")
    share = (100 * pl.col("explained").fill_null(0) / own).clip(upper_bound=100.0)
    explained_pct = pl.when(own > 0).then(share).alias(C.explained_pct)
    table = table.with_columns(explained_pct).sort(C.instance_id)
    return Late(table, causes, operations, computing)


def _late_ranks(
    kernels: pl.DataFrame, arrivals: Arrivals, since: Int64s, held: Int32s
) -> pl.DataFrame:
    """Return the late rank of each instance with its lateness.

    Means of the ranks in the middle are rounded down, so that all parts add up exactly.
    """
    instance = np.flatnonzero(arrivals.late != NONE)
    late, is_middle = arrivals.late[instance], ~arrivals.is_late
    is_latest = arrivals.kernel == arrivals.late[arrivals.instance]
    counts = np.bincount(arrivals.instance[is_middle], minlength=arrivals.late.size)

    def against_middle(times_ns: Int64s) -> Int64s:
        sums, latest = np.zeros((2, counts.size), np.int64)
        np.add.at(sums, arrivals.instance[is_middle], times_ns[is_middle])
        latest[arrivals.instance[is_latest]] = times_ns[is_latest]
        found: Int64s = latest[instance] - sums[instance] // counts[instance]
        return found

    lateness_ns = against_middle(kernels[C.start_ns].to_numpy()[arrivals.kernel])
    inherited_ns = against_middle(since)
    held_by = kernels[C.instance_id].gather(np.where(held[late] == NONE, 0, held[late]))
    return pl.DataFrame(
        {
            C.instance_id: pl.Series(instance, dtype=pl.Int32),
            C.rank: kernels[C.rank].gather(late),
            C.held_instance: held_by.set(pl.Series(held[late] == NONE), None),
            C.lateness_ns: lateness_ns,
            C.inherited_ns: inherited_ns,
            C.own_lateness_ns: lateness_ns - inherited_ns,
            "middle": counts[instance],
        }
    )


def _times(
    kernels: pl.DataFrame,
    batches: Sequence[Batch],
    arrivals: Arrivals,
    since: Int64s,
    late: pl.DataFrame,
) -> Times:
    """Return the times of late ranks and of those in the middle by state."""
    times, is_there = Times(arrivals.late.size), np.zeros(arrivals.late.size, np.bool_)
    is_there[late[C.instance_id].to_numpy()] = True
    for batch in batches:
        rows = arrivals.rows(*batch.bounds(kernels))
        instance = arrivals.instance[rows]
        is_used = is_there[instance]
        shift = pl.col("own_start_ns") - pl.col(C.start_ns)
        spans = (
            kernels.select(C.rank, C.start_ns, "own_start_ns")[arrivals.kernel[rows]]
            .select(
                batch.placed(pl.Series(since[rows]) + shift).alias("begin"),
                batch.placed(pl.col("own_start_ns")).alias("end"),
            )
            .filter(pl.Series(is_used))
        )
        times.add(
            batch,
            spans["begin"].to_numpy(),
            spans["end"].to_numpy(),
            instance[is_used],
            arrivals.is_late[rows][is_used],
        )
    return times


def _with_new(late: pl.DataFrame) -> pl.DataFrame:
    """Return instances with ``new_ns``: lateness beyond that of earlier ones with one baseline."""
    before = pl.col(C.lateness_ns).cum_max().shift(1, fill_value=0)
    new = (pl.col(C.lateness_ns) - before.over(C.rank, C.held_instance)).clip(lower_bound=0)
    return late.sort(C.instance_id).with_columns(new.alias(C.new_ns))


def _roots(late: pl.DataFrame, of_replicas: pl.DataFrame) -> pl.DataFrame:
    """Return the rank and the instance at which the lateness of each instance arose, followed while
    most of it is inherited.

    All ranks of an instance may be late already. So on the way it is compared with those that other
    ranks have at the same point of the program, where it is later than those.
    """
    instance = late[C.instance_id].to_numpy()
    is_there = np.zeros(instance.max(initial=-1) + 1, np.bool_)
    is_there[instance] = True
    columns = (C.rank, C.held_instance, C.inherited_ns, C.own_lateness_ns)
    both = late.join(
        of_replicas, on=C.instance_id, how="left", suffix="_other", maintain_order="left"
    )
    is_later = pl.col(f"{C.lateness_ns}_other") > pl.col(C.lateness_ns)
    followed = both.select(
        pl.when(is_later).then(f"{name}_other").otherwise(name).alias(name) for name in columns
    )

    def inherited_from(rows: pl.DataFrame) -> tuple[Int32s, NDArray[np.bool_]]:
        """Return the instance that lateness is inherited from, and whether most of it is."""
        # An instance that held a rank has a lower number than the one at which the rank is late.
        held_by = rows[C.held_instance].fill_null(0).to_numpy()
        is_known = rows[C.held_instance].is_not_null().to_numpy() & (held_by < instance)
        is_more = (rows[C.inherited_ns] > rows[C.own_lateness_ns]).to_numpy()
        return held_by, is_known & is_more & is_there[np.minimum(held_by, is_there.size - 1)]

    root, rank = np.arange(is_there.size), np.zeros(is_there.size, np.int32)
    held_by, is_inherited = inherited_from(followed)
    root[instance[is_inherited]] = held_by[is_inherited]
    rank[instance] = followed[C.rank].to_numpy()
    while (root != root[root]).any():
        root = root[root]
    held_by, is_inherited = inherited_from(late)
    roots = np.where(is_inherited, root[held_by], instance)
    ranks = np.where(is_inherited, rank[roots], late[C.rank].to_numpy())
    return pl.DataFrame({C.instance_id: instance, C.root_rank: ranks, C.root_instance: roots})
