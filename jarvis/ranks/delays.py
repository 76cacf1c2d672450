"""The delays of ranks, each with what took most of its extra time."""

import polars as pl

from jarvis.ranks.lateness import is_comparable, is_own
from jarvis.schemas.columns import INTEGER, TEXT, Column, number, text
from jarvis.schemas.names import C
from jarvis.schemas.ranks import INSTANCES, LATENESS

MIN_LATE_MS = 0.02
"""Shorter delays are noise of the arrivals."""

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
    text("where", "Where", "host call or Python function of an idle cause"),
)
"""Descriptions of the columns; of two with the same name, the later one."""

SHOWN = (
    *(C.rank, C.step, C.instance_id, "waited_ms", "new_ms", "cause", "extra_ms", "where"),
    C.root_rank,
)
"""The main columns, in this order."""


_CAUSE = (
    pl.concat_str(C.state, C.detail, separator=": ", ignore_nulls=True)
    .str.replace_all("_", " ")
    .alias("cause")
)


def delays(lateness: pl.DataFrame, causes: pl.DataFrame, instances: pl.DataFrame) -> pl.DataFrame:
    """Return the delays of ranks, each once: of the collectives since the rank was last held
    together with others, the one where it is latest. The one for which others wait longest first.

    Args:
        lateness: Table ``lateness``, whose columns the result has beside those of SHOWN.
        causes: Table ``lateness_causes``.
        instances: Table ``instances``.
    """
    of_delay = (C.rank, C.held_instance)
    waited = pl.col(C.exposed_wait_us).sum().over(of_delay) / 1e3
    rows = (
        lateness.join(
            instances.select(C.instance_id, C.step, C.exposed_wait_us), on=C.instance_id, how="left"
        )
        .with_columns(waited.alias("waited_ms"), (pl.col(C.lateness_ns) / 1e6).alias("new_ms"))
        .drop(C.exposed_wait_us)
        .sort(C.lateness_ns, C.instance_id, descending=[True, False])
        .unique(of_delay, keep="first", maintain_order=True)
        .filter(pl.col("new_ms") > MIN_LATE_MS)
    )
    main = (
        causes.filter(pl.col(C.extra_ns) > 0)
        .join(rows.filter(is_comparable(), is_own()), on=(C.instance_id, C.rank), how="semi")
        .sort(C.extra_ns, C.state, C.detail, descending=[True, False, False])
        .unique((C.instance_id, C.rank), keep="first", maintain_order=True)
        .select(
            C.instance_id,
            C.rank,
            _CAUSE,
            (pl.col(C.extra_ns) / 1e6).alias("extra_ms"),
            pl.coalesce(C.host_frame, C.host_call, C.host_op).alias("where"),
        )
    )
    inherited = (
        pl.when(pl.col(C.held_instance).is_null())
        .then(pl.lit(BEFORE))
        .otherwise(pl.format("late already, from rank {}", C.root_rank))
    )
    return (
        rows.join(main, on=(C.instance_id, C.rank), how="left")
        .with_columns(
            pl.when(is_own()).then("cause").otherwise(inherited).alias("cause"),
            pl.when(is_own())
            .then("extra_ms")
            .otherwise(pl.col(C.inherited_ns) / 1e6)
            .alias("extra_ms"),
        )
        .sort("waited_ms", "new_ms", C.instance_id, descending=[True, True, False])
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
        .group_by(C.rank, _CAUSE)
        .agg((pl.col(C.extra_ns).sum() / 1e6).alias("extra_ms"))
        .sort(C.rank, "cause")
    )
