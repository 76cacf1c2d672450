"""The delays of ranks, each with what took most of its extra time."""

import polars as pl

from jarvis.ranks.lateness import is_comparable
from jarvis.schemas.columns import TEXT, Column, number, text
from jarvis.schemas.names import C
from jarvis.schemas.ranks import INSTANCES, LATENESS

MIN_LATE_MS = 0.02
"""Shorter delays are noise of the arrivals."""

COLUMNS = (
    *LATENESS,
    *INSTANCES,
    number("new_ms", "Late (ms)", "ms", "lateness that is new at this collective", ",.3f"),
    number("extra_ms", "Longer (ms)", "ms", "what this took longer than for others", ",.3f"),
    Column("cause", "Main cause", TEXT, meaning="state of the GPU that took longer than usual"),
    text("where", "Where", "host call or Python function of an idle cause"),
)
"""Descriptions of the columns; of two with the same name, the later one."""

SHOWN = (C.rank, C.step, C.instance_id, "new_ms", "cause", "extra_ms", "where", C.root_rank)
"""The main columns, in this order."""


def delays(lateness: pl.DataFrame, causes: pl.DataFrame, instances: pl.DataFrame) -> pl.DataFrame:
    """Return the delays that are new at a collective, longest first.

    Args:
        lateness: Table ``lateness``, whose columns the result has beside those of SHOWN.
        causes: Table ``lateness_causes``.
        instances: Table ``instances``.
    """
    main = (
        causes.filter(pl.col(C.extra_ns) > 0)
        .sort(C.extra_ns, C.state, C.detail, descending=[True, False, False])
        .unique((C.instance_id, C.rank), keep="first", maintain_order=True)
        .join(lateness.filter(is_comparable()), on=(C.instance_id, C.rank), how="semi")
        .select(
            C.instance_id,
            C.rank,
            pl.concat_str(C.state, C.detail, separator=": ", ignore_nulls=True)
            .str.replace_all("_", " ")
            .alias("cause"),
            (pl.col(C.extra_ns) / 1e6).alias("extra_ms"),
            pl.coalesce(C.host_frame, C.host_call, C.host_op).alias("where"),
        )
    )
    return (
        lateness.filter(pl.col(C.new_ns) > MIN_LATE_MS * 1e6)
        .with_columns((pl.col(C.new_ns) / 1e6).alias("new_ms"))
        .join(main, on=(C.instance_id, C.rank), how="left")
        .join(instances.select(C.instance_id, C.step), on=C.instance_id, how="left")
        .sort("new_ms", C.instance_id, descending=[True, False])
    )
