"""The delays of ranks, each with what took most of its extra time."""

from collections.abc import Mapping

import polars as pl

from jarvis.perf_report.timeline.states import State
from jarvis.schemas import dtypes
from jarvis.schemas.columns import INTEGER, TEXT, Column, number, text
from jarvis.schemas.names import C
from jarvis.schemas.ranks import INSTANCES, LATENESS

MIN_LATE_MS = 0.02
"""Shorter delays are noise of the arrivals."""

MIN_CAUSE_SHARE = 0.1
"""Extra time against that of the main cause from which on a second cause is shown."""

DELAYS_SHOWN = 20
"""Delays whose operations are known, besides those of findings."""

COMPARABLE_SHARE = 1.1
"""Own time above the lateness, as a factor, from which on it is that of other work."""

BEFORE = "before the first collective"
"""Cause of a delay that arose before the recording shows the ranks together."""

COLUMNS = (
    *LATENESS,
    *INSTANCES,
    Column(
        C.instance_id,
        "Collective",
        INTEGER,
        meaning="where the rank is latest before the ranks are held together again",
    ),
    number(
        "new_ms", "Late (ms)", "ms", "arrival after the mean of the ranks in the middle", ",.3f"
    ),
    number(
        "waited_ms",
        "Others wait (ms)",
        "ms",
        "without computing, added up over the other ranks, at all collectives to which it came "
        "last until the ranks were held together again",
        ",.3f",
    ),
    number("extra_ms", "Longer by (ms)", "ms", "than for the ranks in the middle", ",.3f"),
    Column(
        "cause",
        "Main cause",
        TEXT,
        meaning="state of the GPU that took longer than usual, or where the delay is from",
    ),
    text(
        "also",
        "Besides",
        "the second cause, and how much longer or shorter all else is, where that is at least a "
        "tenth of the main cause; all add up to what the rank is later by since the ranks were "
        "last held together",
    ),
    text(
        "where",
        "Where",
        "host call or Python function of an idle cause; of compute and copies the operation that "
        "takes longest beyond the usual, as far as `lateness_operations` has the delay",
    ),
)
"""Descriptions of the columns; of two with the same name, the later one."""

SHOWN = (
    *(C.rank, C.step, C.instance_id, "waited_ms", "new_ms", "cause", "extra_ms", "also", "where"),
    C.root_rank,
)
"""The main columns, in this order."""


NO_OPERATOR = "no operator"
"""Category of kernels that no recorded operator launched."""

_WORDS = {
    "CONV": "convolution",
    "NORM": "normalization",
    "SDPA": "attention",
    "SSM": "state space model",
    "_fwd": " forward",
    "_bwd": " backward",
    "_": " ",
}
"""Words of a cause by parts of the names of states and categories; earlier ones come first."""

CATEGORY = pl.col(C.detail).str.replace_many(_WORDS, leftmost=True).fill_null(NO_OPERATOR)
"""A category of compute in words."""

CAUSE = (
    pl.concat_str(C.state, C.detail, separator=": ", ignore_nulls=True)
    .str.replace_many(_WORDS, leftmost=True)
    .alias("cause")
)
"""The cause of a row of ``lateness_causes`` in words."""


def is_comparable() -> pl.Expr:
    """Return whether the own time of a late rank can be compared with that of the others.

    It cannot where they began later: most of it is from before that.
    """
    return pl.col(C.own_lateness_ns) <= COMPARABLE_SHARE * pl.col(C.lateness_ns)


def is_own() -> pl.Expr:
    """Return whether most of a lateness arose since the rank was last held together with others."""
    return pl.col(C.own_lateness_ns) >= pl.col(C.inherited_ns)


def is_inner() -> pl.Expr:
    """Return whether a row of ``instances`` is no edge, of known clocks."""
    return ~pl.col(C.is_edge) & pl.col(C.transfer_us).is_not_null()


def roots_of_steps(
    lateness: pl.DataFrame, inner: pl.DataFrame, ranks: pl.DataFrame
) -> pl.DataFrame:
    """Return the rank of each step for which the others wait longest without computing, and the
    instance at which they wait longest for it.

    A later rank for which they wait while they compute costs the step nothing, and where ranks do
    different work, such as the stages of a pipeline, they wait for more than what one is late by.
    Columns: ``step, instance_id, root_rank, root_instance``.

    Args:
        lateness: Table ``lateness``.
        inner: The instances that are ``is_inner``.
        ranks: ``instance_id, ranks``, the number of its recorded ranks.
    """
    waited = pl.col(C.exposed_wait_us)
    late_us = pl.col(C.lateness_ns) / 1e3 * (pl.col("ranks").cast(pl.Int64) - 1)
    return (
        lateness.join(inner.select(C.instance_id, C.step, C.exposed_wait_us), on=C.instance_id)
        .join(ranks, on=C.instance_id)
        .drop_nulls(C.step)
        .with_columns(
            pl.min_horizontal(waited, late_us.clip(lower_bound=0)).alias(C.exposed_wait_us)
        )
        .sort(C.exposed_wait_us, C.instance_id, descending=[True, False])
        .group_by(C.step, C.root_rank, maintain_order=True)
        .agg(pl.col(C.instance_id, C.root_instance).first(), waited.sum())
        .filter(waited > 0)
        .sort(C.exposed_wait_us, C.root_rank, descending=[True, False])
        .unique(C.step, keep="first", maintain_order=True)
        .select(C.step, C.instance_id, C.root_rank, C.root_instance)
        .sort(C.step)
    )


def shown_delays(
    lateness: pl.DataFrame, instances: pl.DataFrame, ranks: pl.DataFrame
) -> pl.DataFrame:
    """Return ``instance_id, rank`` of the rows of ``lateness`` whose operations are shown: those of
    findings, of the rank that is late in most steps first, then DELAYS_SHOWN of ``delays``.

    Args:
        lateness: Table ``lateness``.
        instances: Table ``instances``.
        ranks: As for ``roots_of_steps``.
    """
    roots = roots_of_steps(lateness, instances.filter(is_inner()), ranks)
    of_roots = roots.sort(pl.len().over(C.root_rank), C.root_rank, C.step, descending=True)
    in_order = (
        of_roots.select(pl.col(C.root_instance).cast(pl.Int32).alias(C.instance_id)),
        delays(lateness, instances).head(DELAYS_SHOWN).select(pl.col(C.instance_id).cast(pl.Int32)),
    )
    known = lateness.filter(is_comparable(), is_own()).select(C.instance_id, C.rank)
    return pl.concat(in_order).join(known, on=C.instance_id, maintain_order="left")


def main_operations(operations: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Return the operation of each state and detail that takes longest beyond the usual, if any:
    ``name, uid, reason``, which is ``slower``, ``more`` or ``shapes``, ``copies`` for copies, and
    the sums of the rows.

    Args:
        operations: Rows of ``lateness_operations``.
        keys: Columns besides ``state, detail`` that distinguish sums.
    """
    keys = (*keys, C.state, C.detail)
    sums = (C.extra_ns, C.slower_ns, C.more_kernels_ns, C.other_shapes_ns)
    counts = (C.kernel_count, C.yardstick_kernel_count, C.bytes, C.yardstick_bytes)
    slower, more, other = (pl.col(name) for name in sums[1:])
    # Kernels of one shape may be more, of another less: then there are no more kernels.
    has_more = (more >= other) & (pl.col(C.kernel_count) > pl.col(C.yardstick_kernel_count))
    is_more = pl.when(has_more).then(pl.lit("more")).otherwise(pl.lit("shapes"))
    is_slower = slower >= pl.max_horizontal(more, other)
    return (
        operations.with_columns(pl.col(C.state).fill_null(State.COMPUTE.value))
        .group_by(*keys, C.name)
        .agg(
            pl.col(*sums, *counts).sum(),
            pl.col(C.uid).sort_by(C.extra_ns, C.uid, descending=[True, False]).first(),
        )
        .filter(pl.col(C.extra_ns) > 0)
        .sort(C.extra_ns, C.name, descending=[True, False])
        .unique(keys, keep="first", maintain_order=True)
        .with_columns(
            pl.when(pl.col(C.state) == State.COPY.value)
            .then(pl.lit("copies"))
            .when(is_slower)
            .then(pl.lit("slower"))
            .otherwise(is_more)
            .alias("reason")
        )
    )


def delays(lateness: pl.DataFrame, instances: pl.DataFrame) -> pl.DataFrame:
    """Return the delays of ranks, each once: of the collectives since the rank was last held
    together with others, the one where it is latest. The one for which others wait longest first.

    Args:
        lateness: Table ``lateness``, whose columns the result has beside ``step, waited_ms,
            new_ms``.
        instances: Table ``instances``.
    """
    of_delay = (C.rank, C.held_instance)
    waited = pl.col(C.exposed_wait_us).sum().over(of_delay) / 1e3
    return (
        lateness.join(
            instances.select(C.instance_id, C.step, C.exposed_wait_us), on=C.instance_id, how="left"
        )
        .with_columns(waited.alias("waited_ms"), (pl.col(C.lateness_ns) / 1e6).alias("new_ms"))
        .drop(C.exposed_wait_us)
        .sort(C.lateness_ns, C.instance_id, descending=[True, False])
        .unique(of_delay, keep="first", maintain_order=True)
        .filter(pl.col("new_ms") > MIN_LATE_MS)
        .sort("waited_ms", "new_ms", C.instance_id, descending=[True, True, False])
    )


def with_causes(rows: pl.DataFrame, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return delays with the columns of SHOWN on what took most of their extra time, and ``uid``,
    an event of the rank that shows it.

    Args:
        rows: Rows of ``delays``.
        tables: Those of the run: ``lateness_causes``, and ``lateness_operations``, which runs of
            earlier versions lack.
    """
    key = (C.instance_id, C.rank)
    own = tables["lateness_causes"].join(rows.filter(is_comparable(), is_own()), on=key, how="semi")
    none = pl.DataFrame(schema=dtypes("lateness_operations"))
    operations = tables.get("lateness_operations", none)
    main = _main_causes(own, main_operations(operations.join(own, on=key, how="semi"), *key))
    inherited = (
        pl.when(pl.col(C.held_instance).is_null())
        .then(pl.lit(BEFORE))
        .when(pl.col(C.root_rank) != pl.col(C.rank))
        .then(pl.format("late already, from rank {}", C.root_rank))
        .otherwise(pl.lit("late already"))
    )
    return rows.join(main, on=key, how="left", maintain_order="left").with_columns(
        pl.when(is_own()).then("cause").otherwise(inherited).alias("cause"),
        pl.when(is_own()).then("also").alias("also"),
        pl.when(is_own())
        .then("extra_ms")
        .otherwise(pl.col(C.inherited_ns) / 1e6)
        .alias("extra_ms"),
    )


_COUNTS = [
    pl.col(name).round(1).cast(pl.String).str.strip_suffix(".0")
    for name in (C.kernel_count, C.yardstick_kernel_count)
]
_SIZES = [(pl.col(name) / 1e6).round(2).cast(pl.String) for name in (C.bytes, C.yardstick_bytes)]
_REASONS = {
    "slower": pl.lit("the same kernels take longer"),
    "more": pl.format("more kernels ({} instead of {})", *_COUNTS),
    "copies": pl.format(
        "{} MB in {} copies instead of {} MB in {}", _SIZES[0], _COUNTS[0], _SIZES[1], _COUNTS[1]
    ),
    "shapes": pl.lit("other shapes or kernels"),
}


def _main_causes(causes: pl.DataFrame, operations: pl.DataFrame) -> pl.DataFrame:
    """Return ``instance_id, rank, cause, extra_ms, where, uid`` of the state that took longest
    beyond the usual, and ``also``, a text on the others."""
    extra_ms = pl.col("extra_ms")
    reason = pl.coalesce(
        pl.when(pl.col("reason") == key).then(text) for key, text in _REASONS.items()
    )
    named_operations = operations.select(
        *(C.instance_id, C.rank, C.state, C.detail, pl.col(C.uid).alias(C.operation_uid)),
        pl.format("{} {} ms: {}", C.name, (pl.col(C.extra_ns) / 1e6).round(2), reason).alias(
            "operation"
        ),
    )
    named = (
        causes.join(
            named_operations,
            on=(C.instance_id, C.rank, C.state, C.detail),
            how="left",
            nulls_equal=True,
        )
        .select(
            *(C.instance_id, C.rank, CAUSE),
            (pl.col(C.extra_ns) / 1e6).alias("extra_ms"),
            pl.coalesce(C.host_frame, C.host_call, C.host_op, "operation").alias("where"),
            pl.coalesce(C.uid, C.operation_uid).alias(C.uid),
        )
        .sort("extra_ms", "cause", descending=[True, False])
    )
    ordered = named.group_by(C.instance_id, C.rank, maintain_order=True).agg(
        pl.col("cause", "extra_ms", "where", C.uid).first(),
        pl.col("cause").get(1, null_on_oob=True).alias("second"),
        extra_ms.get(1, null_on_oob=True).alias("second_ms"),
        extra_ms.sum().alias("all_ms"),
    )
    is_shown = pl.col("second_ms") >= MIN_CAUSE_SHARE * extra_ms
    second_ms = pl.when(is_shown).then("second_ms")
    else_ms = pl.col("all_ms") - extra_ms - second_ms.fill_null(0.0)
    more = pl.when(else_ms > 0).then(pl.lit("more")).otherwise(pl.lit("less"))
    parts = (
        pl.format("{} {} ms", pl.when(is_shown).then("second"), second_ms.round(2)),
        pl.when(else_ms.abs() >= MIN_CAUSE_SHARE * extra_ms).then(
            pl.format("{} ms {} in all else", else_ms.abs().round(2), more)
        ),
    )
    also = pl.concat_str(parts, separator=", ", ignore_nulls=True).replace("", None)
    return ordered.filter(extra_ms > 0).select(
        *(C.instance_id, C.rank, "cause", "extra_ms", "where", C.uid), also.alias("also")
    )


def causes_by_rank(rows: pl.DataFrame, causes: pl.DataFrame) -> pl.DataFrame:
    """Return ``rank, cause, extra_ms``: what each rank did longer than usual in its delays for
    which others wait without computing, in the whole recording.

    Args:
        rows: Result of ``delays``.
        causes: Table ``lateness_causes``.
    """
    waited = rows.filter(pl.col("waited_ms") > MIN_LATE_MS, is_comparable(), is_own())
    return (
        causes.filter(pl.col(C.extra_ns) > 0)
        .join(waited, on=(C.instance_id, C.rank), how="semi")
        .group_by(C.rank, CAUSE)
        .agg((pl.col(C.extra_ns).sum() / 1e6).alias("extra_ms"))
        .sort(C.rank, "cause")
    )
