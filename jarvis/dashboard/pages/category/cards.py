"""The figures in the cards of a category page, cached for reruns of the page."""

from dataclasses import dataclass

import polars as pl
import streamlit as st

from jarvis.analyses.base import Analysis
from jarvis.analyses.operations import mean_efficiency
from jarvis.charts.palette import BELOW_THRESHOLD
from jarvis.dashboard.session.state import Opened, cached, of_opened
from jarvis.dashboard.widgets.elements import metric_card
from jarvis.impact import ANOMALY_PCT, NEARLY_ALL_PCT, efficiency_word, has_efficiency, share_pct
from jarvis.savings import over_steps
from jarvis.schemas.names import C
from jarvis.text.format import count, counted, milliseconds, percent

_MAX_CACHED = 512

_MANY_COPIES_PCT = 10.0
"""From this share of a category's time on, its copies are named in place of its share of compute,
in which copies do not count."""

SAVING = "Kernel saving at"
"""How the label of the card begins whose figure follows the target."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums over operations. ``rated``: those whose efficiency is known and possible;
    ``has_efficiency``, ``has_rate``: whether any operation has an efficiency, a memory rate."""

    rows: int
    calls: int
    time_us: float
    compute_pct: float
    copies_us: float
    saved_us: float
    below: int
    below_us: float
    rated: int
    rated_us: float
    efficiency_pct: float | None
    has_efficiency: bool
    has_rate: bool


@cached(_MAX_CACHED, of_opened)
def figures_of(  # the rows depend on the other parameters
    now: Opened, key: str, filter_id: str, below_pct: float, _rows: pl.DataFrame
) -> Figures:
    """Return the figures of the operations that pass the filters of the page of a category."""
    time_us, is_below = pl.col(C.kernel_time_us), pl.col("state") == BELOW_THRESHOLD
    is_rated = has_efficiency() & (pl.col(C.pct_roofline) <= ANOMALY_PCT)
    sums = _rows.select(  # one query, as each waits for threads of Polars
        pl.col(C.saved_us).sum(),
        mean_efficiency(is_rated).alias(C.efficiency_pct),
        calls=pl.col(C.operation_count).sum(),
        time_us=time_us.sum(),
        compute_pct=pl.col(C.percent_of_compute).sum(),
        copies_us=time_us.filter(pl.col(C.percent_of_compute) == 0).sum(),
        below=is_below.sum(),
        below_us=time_us.filter(is_below).sum(),
        rated=is_rated.sum(),
        rated_us=time_us.filter(is_rated).sum(),
        has_efficiency=has_efficiency().any(),
        has_rate=(pl.col(C.tb_per_s) > 0).any(),
    )
    return Figures(rows=_rows.height, **sums.row(0, named=True))


def metric_cards(analysis: Analysis, figures: Figures, now: Opened, *, is_part: bool) -> None:
    """Draw the figures of the operations that pass the filters; not all of them if ``is_part``."""
    totals, target_pct = now.stored.manifest.totals, now.targets.of_category(analysis.key)
    over, known = over_steps(totals), figures.efficiency_pct
    time_ms, saved_ms = figures.time_us / 1000, figures.saved_us / 1000
    rated_pct = share_pct(figures.rated_us, figures.time_us)
    of_compute = f"{percent(figures.compute_pct)} of compute"
    copies = f"{milliseconds(figures.copies_us / 1000)} of it copies"
    without = f": {of_compute}, without copies ({copies})" if figures.copies_us else ""
    has_many = share_pct(figures.copies_us, figures.time_us) >= _MANY_COPIES_PCT
    unknown = ("not available", "no efficiency is known")
    cards = (
        (
            f"{analysis.title} time" if not is_part else "Time of these rows",
            milliseconds(time_ms),
            copies if has_many else of_compute,
            f"GPU busy time of these operations{over and f', {over}'}, and its share of compute "
            f"time{without}.",
        ),
        (
            "Weighted efficiency",
            *(
                (percent(known), _efficiency_about(known, rated_pct))
                if known is not None
                else unknown
            ),
            "Roofline time / measured time, weighted by time, without rows above the peak. It "
            f"covers {percent(rated_pct)} of their time.",
        ),
        (
            f"{SAVING} {target_pct:g}%",
            *(
                (milliseconds(saved_ms), f"{percent(share_pct(saved_ms, time_ms))} of the time")
                if known is not None
                else unknown
            ),
            f"Sum {over and f'{over} '}of the times by which kernels get shorter if all operations "
            "below the target reach it. The step can gain less; its gain is above, if it is "
            "simulated.",
        ),
        (
            f"Below {now.below_pct:g}%",
            *(
                (
                    count(figures.below),
                    f"of {count(figures.rated)} · {milliseconds(figures.below_us / 1000)}",
                )
                if known is not None
                else unknown
            ),
            "Operations below the highlight threshold, and their GPU time; of those whose "
            "efficiency is known.",
        ),
        (
            "Calls",
            count(figures.calls),
            f"in {counted(figures.rows, 'row')}",
            "Calls of these operations. A row of the table has the calls of one operator with "
            "equal arguments from one thread.",
        ),
    )
    for place, (label, value, about, meaning) in zip(st.columns(len(cards)), cards, strict=True):
        with place:
            metric_card(label, value, about, help_text=meaning)


def _efficiency_about(known_pct: float, rated_pct: float) -> str:
    """Return the word for an efficiency, or of how much time it is, if not of nearly all."""
    if rated_pct < NEARLY_ALL_PCT:
        return f"of {percent(rated_pct)} of the time"
    return efficiency_word(known_pct)
