"""The figures at the top of the ranks page."""

import streamlit as st

from jarvis.charts import columns_of
from jarvis.dashboard.widgets.elements import metric_card
from jarvis.ranks.findings.balance import MIN_RATIO
from jarvis.ranks.per_step import basis, ranks_per_step, step_count
from jarvis.ranks.run import DistributedRun
from jarvis.schemas import TABLES
from jarvis.schemas.names import C
from jarvis.text.format import MISSING, counted, milliseconds, percent

_WAITS = ((C.exposed_wait_ms, "Exposed waiting"), (C.exposed_transfer_ms, "Exposed transfer"))


def figures(run: DistributedRun) -> None:
    """Draw the median step, what it waits for, what it can gain, and the slowest rank."""
    with st.container(horizontal=True):
        _step(run)
        _waits(run)
        _gain(run)
        _slowest(run)


def _step(run: DistributedRun) -> None:
    steps = run.tables["rank_steps"]
    medians = steps.group_by(C.step).median()[C.duration_ms]
    median, mean = medians.median(), medians.mean()
    metric_card(
        "Median step",
        milliseconds(float(median)) if isinstance(median, float) else MISSING,
        f"mean {milliseconds(mean)}" if isinstance(mean, float) else None,
        help_text=f"Of {counted(medians.len(), 'step')}, each the median over its ranks. *Runs* "
        "has the mean of the steps of one rank.",
    )


def _waits(run: DistributedRun) -> None:
    ranks, columns = ranks_per_step(run.tables), columns_of(TABLES["ranks"])
    per = "of a step" if step_count(run.tables) else "of the recording"
    for name, label in _WAITS:
        median, most = ranks[name].median(), ranks[name].max()
        metric_card(
            label,
            milliseconds(float(median)) if isinstance(median, float) else MISSING,
            f"{per}; at most {milliseconds(float(most))}" if isinstance(most, float) else None,
            help_text=f"{columns[name].meaning}; median of the ranks, {basis(run.tables)}. This "
            "is not what a step would gain.",
        )


def _gain(run: DistributedRun) -> None:
    gains = [finding.impact for finding in run.findings if finding.impact is not None]
    best = next((gain for gain in gains if gain.step_ms and gain.step_pct), None)
    if best is None or best.step_ms is None or best.step_pct is None:
        metric_card("Step time saved by P1", MISSING, help_text="No finding saves any.")
        return
    low, high = best.step_ms.low, best.step_ms.high
    at_most = "" if low == high else f"; at most {milliseconds(high)}"
    metric_card(
        "Step time saved by P1",
        milliseconds(low),
        f"{percent(best.step_pct.low)} of the median step{at_most}",
        help_text="What the median step gains at least by the first finding.",
    )


def _slowest(run: DistributedRun) -> None:
    ranks = ranks_per_step(run.tables)
    known = ranks.drop_nulls(C.speed_ratio).sort(C.speed_ratio, C.rank, descending=[True, False])
    value, slower = MISSING, None
    for slowest in known.head(1).iter_rows(named=True):
        is_slow = slowest[C.speed_ratio] >= MIN_RATIO
        value = f"rank {slowest[C.rank]}" if is_slow else "none"
        slower = f"kernels {'' if is_slow else 'at most '}{percent(slowest['slower_pct'])} slower"
    metric_card(
        "Slowest rank",
        value,
        slower,
        help_text="The rank that takes longest for the same kernels, against the median: at least "
        f"{100 * (MIN_RATIO - 1):.0f}% longer.",
    )
