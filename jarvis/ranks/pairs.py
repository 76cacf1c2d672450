"""What each rank sends to each other one."""

import polars as pl

from jarvis.ranks.events import CALL, POINT_TO_POINT, TRANSFER_NS, Events
from jarvis.ranks.members import RANK
from jarvis.schemas.names import C

ALL_TO_ALL_V = "all_to_all_v"
_ENDS = [C.src, C.dst]


def sent_events(events: Events) -> pl.DataFrame:
    """Return the communication kernels between pairs of ranks, with the columns for ``pairs``."""
    calls = events.calls.filter(pl.col(C.kind).is_in([POINT_TO_POINT, ALL_TO_ALL_V]))
    return (
        events.kernels.select(CALL, C.uid)
        .join(calls, on=CALL)
        .select(
            *(C.rank, C.uid, CALL, C.kind, C.comm_id, C.in_bytes, C.in_split_size),
            *(C.src_rank, C.dst_rank),
        )
    )


def pairs(events: pl.DataFrame, communicators: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the table ``pairs``: sends, and the parts of all-to-alls with sizes by rank.

    Args:
        events: Kernels of ``sent_events``.
        communicators: Their communicators.
        kernels: Kernels of instances (``instances.waiting``).
    """
    key = [C.rank, C.uid]
    is_sent = pl.col(CALL).is_in(events[CALL].unique().implode())
    own = kernels.filter(is_sent).select(*key, TRANSFER_NS).join(events, on=key, how="semi")
    timed = events.join(own, on=key, how="left").sort(key)
    parts = [_sends(timed)]
    spread = timed.filter(pl.col(C.kind) == ALL_TO_ALL_V).join(
        communicators.select(C.comm_id, C.size, "members"), on=C.comm_id
    )
    # One rank at a time: the pairs of all calls of many ranks would not fit into memory.
    parts += [_summed(_split(rows)) for rows in spread.partition_by(C.rank, maintain_order=True)]
    return (
        pl.concat(parts)
        .sort(_ENDS)
        .group_by(_ENDS, maintain_order=True)
        .agg(_SUMS)
        .select(*_ENDS, C.bytes, C.count, (pl.col(C.transfer_ns) / 1e3).alias(C.transfer_us))
    )


_SUMS = (
    pl.col(C.bytes, C.count).sum(),
    pl.when(pl.col(C.transfer_ns).null_count() == 0).then(pl.col(C.transfer_ns).sum()),
)


def _summed(sent: pl.DataFrame) -> pl.DataFrame:
    return sent.with_columns(pl.lit(1, pl.Int64).alias(C.count)).group_by(_ENDS).agg(_SUMS)


def _sends(events: pl.DataFrame) -> pl.DataFrame:
    """Return the sends, by the kernels of the receivers where the sender has no trace."""
    sent = events.filter(pl.col(C.kind) == POINT_TO_POINT, pl.col(C.src_rank).is_not_null())
    has_sender = pl.col(C.src_rank).is_in(events[C.rank].unique().implode())
    return _summed(
        sent.filter((pl.col(C.rank) == pl.col(C.src_rank)) | ~has_sender).select(
            pl.col(C.src_rank).alias(C.src),
            pl.col(C.dst_rank).alias(C.dst),
            pl.col(C.in_bytes).alias(C.bytes),
            C.transfer_ns,
        )
    )


def _split(calls: pl.DataFrame) -> pl.DataFrame:
    """Return what a rank sends to each other one in all-to-alls.

    PyTorch records rows, or nothing where all parts are equal, and cuts long lists: such calls are
    left out.
    """
    text = pl.col(C.in_split_size).cast(pl.String).fill_null("[]")
    listed = text.str.extract_all(r"\d+").cast(pl.List(pl.Int64))
    even = pl.lit(1, pl.Int64).repeat_by(C.size)
    rows = pl.when(listed.list.len() == 0).then(even).otherwise(listed)
    part = pl.col("rows") / pl.col("whole")
    return (
        calls.filter(~text.str.contains("...", literal=True))
        .with_columns(rows.alias("rows"))
        .filter(
            pl.col("rows").list.len() == pl.col("members").list.len(),
            pl.col("rows").list.sum() > 0,
        )
        .with_columns(pl.col("rows").list.sum().alias("whole"))
        .explode("rows", "members")
        .filter(pl.col("rows") > 0, pl.col("members") != pl.col(C.rank))
        .select(
            pl.col(C.rank).alias(C.src),
            pl.col("members").cast(RANK).alias(C.dst),
            (pl.col(C.in_bytes) * part).round().cast(pl.Int64).alias(C.bytes),
            C.transfer_ns,
        )
    )
