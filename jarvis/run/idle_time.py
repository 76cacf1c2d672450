"""The idle time of a run, gap by gap: that of its steps, and that of the whole recording."""

import polars as pl

from jarvis.perf_report.timeline.step_account import StepAccount
from jarvis.run.run import Run
from jarvis.schemas.names import C

_FIRST_NS, _LAST_NS = -(2**62), 2**62
"""Before and after all times of a trace."""


def idle_gaps(run: Run) -> pl.DataFrame:
    """Return the idle time of the steps by time, before their first and after their last GPU event
    included: it adds up to the idle time of their account.

    Rows of ``step_gaps``, with the further columns of ``idle_gaps`` for gaps that are in both; all
    rows of ``idle_gaps`` if no step has a time.
    """
    of_window = run.table("idle_gaps")
    if not _has_steps(run):
        return of_window.sort(C.start_ns)
    of_steps = run.table("step_gaps")
    further = [name for name in of_window.columns if name not in of_steps.columns]
    return of_steps.join(
        of_window.select(C.start_ns, *further), on=C.start_ns, how="left", maintain_order="left"
    ).sort(C.start_ns)


def recorded_gaps(run: Run) -> pl.DataFrame:
    """Return ``idle_gaps`` of the run and the gaps of its GPU window outside the steps, by time."""
    gaps = idle_gaps(run)
    if not _has_steps(run):
        return gaps
    outside = _within(run.table("idle_gaps"), _between_steps(run.table("steps")))
    return pl.concat([gaps, outside], how="diagonal").sort(C.start_ns)


def _between_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the times before, between and after the steps: ``from_ns, to_ns``."""
    ordered = steps.drop_nulls(C.dur_ns).sort(C.start_ns)
    ends = (ordered[C.start_ns] + ordered[C.dur_ns]).cum_max()
    limits = pl.Series([_FIRST_NS], dtype=pl.Int64), pl.Series([_LAST_NS], dtype=pl.Int64)
    times = {
        "from_ns": pl.concat([limits[0], ends]),
        "to_ns": pl.concat([ordered[C.start_ns], limits[1]]),
    }
    return pl.DataFrame(times).filter(pl.col("from_ns") < pl.col("to_ns"))


def _within(gaps: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """Return the parts of gaps that are within some times."""
    start, end = pl.col(C.start_ns), pl.col(C.start_ns) + pl.col(C.dur_ns)
    found = gaps.with_columns(end.alias(C.end_ns)).join_where(
        times, pl.col(C.start_ns) < pl.col("to_ns"), pl.col(C.end_ns) > pl.col("from_ns")
    )
    first, last = pl.max_horizontal(start, "from_ns"), pl.min_horizontal(C.end_ns, "to_ns")
    return found.with_columns(first.alias(C.start_ns), (last - first).alias(C.dur_ns)).select(
        gaps.columns
    )


def _has_steps(run: Run) -> bool:
    has_tables = "steps" in run.tables and "step_gaps" in run.tables
    return has_tables and StepAccount.of(run.table("steps")) is not None
