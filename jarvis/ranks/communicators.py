"""Which communicator each kernel belongs to.

A name alone does not tell: sub-groups of one name exist on disjoint ranks. Without recorded ranks
the name and the size do; without a name all recorded ranks are assumed to share a communicator for
each stream.
"""

import orjson
import polars as pl

from jarvis.ranks.identity import as_ranges
from jarvis.schemas.names import C

_NO_DESCRIPTION = ("", "undefined")
"""Descriptions that PyTorch gives groups without one."""

MAX_LISTED = 4096
"""Missing ranks are named in communicators of at most so many."""

ASSUMED = "*"
"""In place of the ranks of a group that are assumed to be all."""


def with_communicators(calls: pl.DataFrame, world_size: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return calls (``Events.calls``) with ``comm_id``, and the communicators.

    Returns:
        The calls, and ``comm_id, ranks, size, description`` with ``members``, the ranks as a list.
    """
    description = pl.col(C.pg_desc)
    calls = calls.with_columns(
        pl.coalesce(pl.when(~description.is_in(_NO_DESCRIPTION)).then(description), C.group).alias(
            "label"
        ),
        pl.when(pl.col(C.pg_ranks).is_null() & pl.col(C.group).is_null())
        .then(_streams(calls))
        .alias("stream_label"),
    )
    # Recent versions of PyTorch give each call an id of its own: those tell no communicators apart.
    group = (C.rank, C.pg_ranks, "label")
    calls = calls.with_columns(of_id=pl.col("count").sum().over(*group, C.comms_id))
    ids = pl.col(C.comms_id)
    several = ((ids.n_unique() > 1) & ~(pl.col("of_id") == 1).any()).over(*group)
    keys = [C.pg_ranks, "unlisted_size", "label", "stream_label", "shared_id"]
    calls = calls.with_columns(
        pl.when(pl.col(C.pg_ranks).is_null()).then(C.group_size).alias("unlisted_size"),
        pl.when(several & pl.col(C.pg_ranks).is_not_null()).then(C.comms_id).alias("shared_id"),
    )
    groups = (
        calls.select(keys)
        .unique()
        .sort(pl.col(C.pg_ranks).cast(pl.String), *keys[1:], nulls_last=True)
    )
    rows = [_communicator(world_size, *row) for row in groups.iter_rows()]
    schema = {
        C.comm_id: pl.Categorical(),
        C.ranks: pl.String(),
        C.size: pl.Int64(),
        C.description: pl.String(),
        "members": pl.List(pl.Int64),
    }
    communicators = pl.DataFrame(rows, schema=schema, orient="row")
    named = groups.with_columns(communicators[C.comm_id])
    found = calls.join(named, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return found.drop("of_id", *keys[1:]), communicators


def _streams(calls: pl.DataFrame) -> pl.Expr:
    """Return the stream of a kernel: its number if all ranks use the same ones, else its place."""
    streams = calls.select(C.rank, C.stream).unique()
    is_same = streams.group_by(C.rank).agg(pl.col(C.stream).sort())[C.stream].n_unique() == 1
    place = pl.col(C.stream).rank("dense").over(C.rank)
    return pl.format("stream:{}", pl.col(C.stream) if is_same else place)


def _communicator(
    world_size: int,
    ranks: str | None,
    size: int | None,
    label: str | None,
    stream: str | None,
    shared_id: str | None,
) -> tuple[str, str, int, str | None, list[int]]:
    if ranks is not None:
        members = sorted(orjson.loads(ranks))
        listed = as_ranges(members)
    else:
        is_world = size is None or size == world_size
        members = list(range(world_size)) if is_world else []
        listed = ASSUMED
    title = f"{label or stream or 'unnamed'} [{listed}]"
    if ranks is None and size is not None:
        title += f" of {size}"
    if shared_id is not None:
        title += f" {shared_id}"
    known = members if len(members) <= MAX_LISTED else []
    return title, listed, len(members) or size or 0, label or stream, known
