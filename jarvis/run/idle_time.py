"""The idle time of a run, gap by gap: that of its steps, and that of the whole recording."""

import polars as pl

from jarvis.perf_report.timeline.step_account import StepAccount
from jarvis.run.run import Run
from jarvis.schemas.names import C

_END, _STEP_START, _STEP_END = "gap_end_ns", "step_start_ns", "step_end_ns"


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
    steps = run.table("steps").drop_nulls(C.dur_ns).sort(C.start_ns)
    ends = steps.select(
        pl.col(C.start_ns).alias(_STEP_START),
        (pl.col(C.start_ns) + pl.col(C.dur_ns)).alias(_STEP_END),
    )
    last_ns = (pl.col(C.start_ns) + pl.col(C.dur_ns) - 1).alias(_END)
    of_window = run.table("idle_gaps").with_columns(last_ns).sort(_END)
    outside = of_window.join_asof(ends, left_on=_END, right_on=_STEP_START).filter(
        pl.col(_STEP_END).is_null() | (pl.col(_STEP_END) <= pl.col(C.start_ns))
    )
    outside = outside.drop(_END, _STEP_START, _STEP_END)
    return pl.concat([gaps, outside], how="diagonal").sort(C.start_ns)


def _has_steps(run: Run) -> bool:
    has_tables = "steps" in run.tables and "step_gaps" in run.tables
    return has_tables and StepAccount.of(run.table("steps")) is not None
