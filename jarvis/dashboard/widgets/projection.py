"""Projection of rows and findings to the sliders' values; formulas are in ``jarvis.impact``."""

import polars as pl
import streamlit as st

from jarvis import impact
from jarvis.analyses.base import Analysis, Target
from jarvis.analyses.operations import DETAILS
from jarvis.charts import PROJECTED, Columns, columns_of, state
from jarvis.dashboard.session.state import HASH_STORED, Opened
from jarvis.findings import Finding, Impact, Range
from jarvis.savings import pool_saving_ms
from jarvis.schemas import TABLES
from jarvis.schemas.names import C

_MAX_CACHED = 256
_HASH_TARGET = {**HASH_STORED, Target: lambda target: target.check}


def operation_columns(analysis: Analysis | None = None) -> Columns:
    """Return the columns that rows of a page can have."""
    own = analysis.details if analysis else ()
    return columns_of(TABLES["operations"], DETAILS, own, PROJECTED)


def with_projection(rows: pl.DataFrame, target_pct: float, below_pct: float) -> pl.DataFrame:
    """Return the rows with ``state`` and ``saved_us`` for the values of the two sliders."""
    return rows.with_columns(
        impact.saved_us(target_pct).alias(C.saved_us), state=state(target_pct, below_pct)
    )


def recovered(now: Opened, finding: Finding, target: Target | None, pct: float) -> Impact | None:
    """Return the impact at a system page's slider if the finding depends on it, else as stored.

    The saving never exceeds the upper bound of the stored impact.
    """
    stored, totals = finding.impact, now.run.manifest.totals
    if stored is None or target is None or finding.check != target.check:
        return stored
    projected = impact.bounded_impact(
        stored.time_ms,
        stored.saved_ms.high,
        low_ms=stored.saved_ms.low,
        mid_ms=min(target.recovered_ms(totals, pct), stored.saved_ms.high),
        compute_ms=totals.compute_time_ms,
        total_ms=totals.total_time_ms,
    )
    step_ms = totals.step.step_ms if totals.step else None
    saved_ms = step_time_recovered_ms(now, target, pct)
    if saved_ms is None or step_ms is None or stored.step_ms is None:
        return impact.within_steps_of(projected, stored)
    if stored.is_interval:
        return impact.of_steps(impact.as_interval(projected), saved_ms, step_ms)
    found = stored.step_ms
    saved = Range(
        low=min(found.low, saved_ms), mid=min(saved_ms, found.high), high=max(found.high, 0.0)
    )
    return impact.with_steps(projected.model_copy(update={"is_replayed": True}), saved, step_ms)


@st.cache_data(max_entries=_MAX_CACHED, show_spinner=False, hash_funcs=_HASH_TARGET)
def step_time_recovered_ms(now: Opened, target: Target, pct: float) -> float | None:
    """Return what the steps gain at a system page's slider; None if that is not simulated."""
    totals, simulation = now.run.manifest.totals, now.run.simulation_if_any
    if simulation is None or target.pool is None or target.pool_ms is None:
        return None
    recovered_ms, pool_ms = target.recovered_ms(totals, pct), target.pool_ms(totals)
    left = max(0.0, 1 - recovered_ms / pool_ms) if pool_ms else 1.0
    return min(recovered_ms, pool_saving_ms(target.pool, left, totals.step, simulation))
