"""The delays of ranks, each with what took most of its extra time."""

import polars as pl

from jarvis.ranks.lateness import is_comparable, is_own
from jarvis.schemas.columns import INTEGER, TEXT, Column, number, text
from jarvis.schemas.names import C
from jarvis.schemas.ranks import INSTANCES, LATENESS

MIN_LATE_MS = 0.02
"""Shorter delays are noise of the arrivals."""

MIN_CAUSE_SHARE = 0.1
"""Extra time against that of the main cause from which on a second cause is shown."""

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
    text("where", "Where", "host call or Python function of an idle cause"),
)
"""Descriptions of the columns; of two with the same name, the later one."""

SHOWN = (
    *(C.rank, C.step, C.instance_id, "waited_ms", "new_ms", "cause", "extra_ms", "also", "where"),
    C.root_rank,
)
"""The main columns, in this order."""


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

CAUSE = (
    pl.concat_str(C.state, C.detail, separator=": ", ignore_nulls=True)
    .str.replace_many(_WORDS, leftmost=True)
    .alias("cause")
)
"""The cause of a row of ``lateness_causes`` in words."""


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


def with_causes(rows: pl.DataFrame, causes: pl.DataFrame) -> pl.DataFrame:
    """Return delays with the columns of SHOWN on what took most of their extra time.

    Args:
        rows: Rows of ``delays``.
        causes: Table ``lateness_causes``.
    """
    own = causes.join(
        rows.filter(is_comparable(), is_own()), on=(C.instance_id, C.rank), how="semi"
    )
    main = _main_causes(own)
    inherited = (
        pl.when(pl.col(C.held_instance).is_null())
        .then(pl.lit(BEFORE))
        .when(pl.col(C.root_rank) != pl.col(C.rank))
        .then(pl.format("late already, from rank {}", C.root_rank))
        .otherwise(pl.lit("late already"))
    )
    return rows.join(
        main, on=(C.instance_id, C.rank), how="left", maintain_order="left"
    ).with_columns(
        pl.when(is_own()).then("cause").otherwise(inherited).alias("cause"),
        pl.when(is_own()).then("also").alias("also"),
        pl.when(is_own())
        .then("extra_ms")
        .otherwise(pl.col(C.inherited_ns) / 1e6)
        .alias("extra_ms"),
    )


def _main_causes(causes: pl.DataFrame) -> pl.DataFrame:
    """Return ``instance_id, rank, cause, extra_ms, where`` of the state that took longest beyond
    the usual, and ``also``, a text on the others."""
    extra_ms = pl.col("extra_ms")
    named = causes.select(
        *(C.instance_id, C.rank, CAUSE),
        (pl.col(C.extra_ns) / 1e6).alias("extra_ms"),
        pl.coalesce(C.host_frame, C.host_call, C.host_op).alias("where"),
    ).sort("extra_ms", "cause", descending=[True, False])
    ordered = named.group_by(C.instance_id, C.rank, maintain_order=True).agg(
        pl.col("cause", "extra_ms", "where").first(),
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
        *(C.instance_id, C.rank, "cause", "extra_ms", "where"), also.alias("also")
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
