"""What each rank does in a step, as the mean of the marked steps."""

from collections.abc import Mapping

import polars as pl

from jarvis.ranks.roles import PLACES
from jarvis.schemas.columns import count, number, text
from jarvis.schemas.names import C
from jarvis.schemas.ranks import RANKS
from jarvis.text.format import counted

Tables = Mapping[str, pl.DataFrame]

PARTS = (
    *(C.compute_ms, C.idle_ms, C.exposed_comm_ms, C.exposed_copy_ms),
    *(C.exposed_wait_ms, C.exposed_transfer_ms),
)
"""Columns with times, which are means of the steps."""

PLACE = "place"

COLUMNS = (
    *RANKS,
    number(
        C.gain_ms,
        "Step saved (ms)",
        "ms",
        "of the median step, if the kernels and the idle time of the rank were as those of the "
        "median of the ranks",
    ),
    number(C.gain_low_ms, "Saved, at least (ms)", "ms", "the same, at least"),
    number(C.gain_high_ms, "Saved, at most (ms)", "ms", "the same, at most"),
    number(
        "slower_pct",
        "Slower (%)",
        "%",
        "its kernels than the median of the ranks of the same GPU, for the same operators, shapes "
        "and kernels, without those beside communication",
        ",.1f",
    ),
    number(
        C.caused_exposed_wait_ms,
        "Others wait (ms)",
        "ms",
        "without computing, added up over the other ranks, at collectives to which this rank "
        "came last",
    ),
    count(
        C.times_last,
        "Last",
        "collectives of the recording, without edges, at which it arrived last",
    ),
    number(C.exposed_wait_ms, "Waits (ms)", "ms", "for ranks that come later, without computing"),
    number(C.exposed_transfer_ms, "Transfers (ms)", "ms", "after all had come, without computing"),
    text(
        PLACE,
        "Place",
        "in its groups of data (dp), tensor (tp), pipeline (pp) and expert parallelism (ep)",
    ),
)
"""Descriptions of the columns; of two with the same name, the later one."""

_SHOWN = (
    *(
        C.rank,
        PLACE,
        "slower_pct",
        C.caused_exposed_wait_ms,
        C.exposed_wait_ms,
        C.exposed_transfer_ms,
    ),
    *(C.compute_ms, C.idle_ms, C.times_last),
)
_GAINS = (C.gain_low_ms, C.gain_high_ms)


def step_count(tables: Tables) -> int:
    """Return the number of marked steps; 0 without any."""
    return tables["rank_steps"][C.step].n_unique()


def basis(tables: Tables) -> str:
    """Return what the times of ``ranks_per_step`` are, as a part of a sentence."""
    steps = step_count(tables)
    return f"per step, mean of {counted(steps, 'step')}" if steps else "sums of the recording"


def ranks_per_step(tables: Tables) -> pl.DataFrame:
    """Return the table ``ranks`` with its times per step, those of the recording without steps.

    Waiting is without edges, as in ``ranks``. ``slower_pct`` is the speed ratio in percent,
    ``place`` that of a rank in its groups, where they have several roles.
    """
    slower_pct = (100 * (pl.col(C.speed_ratio) - 1)).alias("slower_pct")
    known = pl.sum_horizontal(pl.col(role).is_not_null() for role in PLACES)
    parts = (pl.format(f"{role}{{}}", pl.col(role)) for role in PLACES)
    place = pl.when(known > 1).then(pl.concat_str(*parts, separator=", ", ignore_nulls=True))
    ranks = tables["ranks"].with_columns(slower_pct, place.alias(PLACE))
    steps = step_count(tables)
    if not steps:
        return ranks
    means = tables["rank_steps"].group_by(C.rank).agg(pl.col(PARTS).mean())
    caused = (
        tables["instances"]
        .filter(~pl.col(C.is_edge), pl.col(C.step).is_not_null())
        .group_by(pl.col(C.last_rank).alias(C.rank))
        .agg((pl.col(C.exposed_wait_us).sum() / 1e3 / steps).alias(C.caused_exposed_wait_ms))
    )
    is_known = pl.col(C.exposed_wait_ms).is_not_null()
    return (
        ranks.drop(*PARTS, C.caused_exposed_wait_ms)
        .join(means, on=C.rank, how="left", maintain_order="left")
        .join(caused, on=C.rank, how="left", maintain_order="left")
        .with_columns(pl.when(is_known).then(pl.col(C.caused_exposed_wait_ms).fill_null(0.0)))
    )


def shown_columns(rows: pl.DataFrame) -> list[str]:
    """Return the columns to show of ``ranks_per_step``, without those that tell nothing: one gain
    where all gains are known exactly, no GPU where all are the same, no clocks that agree."""
    is_exact = rows[C.gain_ms].count() == rows[C.gain_low_ms].count()
    gains = (C.gain_ms,) if is_exact else _GAINS
    rest = [
        *([] if is_exact else [C.gain_method]),
        *(name for name in (C.clock_offset_us, C.clock_error_us) if (rows[name] != 0).any()),
        *([C.device_name] if rows[C.device_name].n_unique() > 1 else []),
    ]
    names = (*_SHOWN[:2], *gains, *_SHOWN[2:], *rest, C.file_name)
    return [name for name in names if rows[name].count()]
