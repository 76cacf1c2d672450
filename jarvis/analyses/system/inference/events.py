"""GPU events of inference steps, and sums that several checks use."""

import polars as pl

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.schemas.names import C

LANGUAGE_PHASES = ("prefill", "decode", "mixed")
"""Phases of steps that generate text."""

_WORK = (C.uid, C.cat, C.name, C.ts_ns, C.dur_ns, C.device, C.stream, C.operation_uid)


def step_events(data: CategoryData) -> pl.DataFrame:
    """Return the GPU events of the steps (``inference_events``) with their kernels, by time."""
    work = data.tables["gpu_work"].select(_WORK)
    return data.tables["inference_events"].join(work, on=C.uid).sort(C.ts_ns, C.uid)


def time_ms(events: pl.DataFrame) -> float:
    """Return the sum of the durations in ms."""
    return float(events[C.dur_ns].sum()) / 1e6


def steps_ms(data: CategoryData) -> float:
    """Return the step time that savings refer to, in ms; the GPU window if it is not known."""
    bounds = data.totals.step
    if bounds is None or bounds.step_ms is None:
        return data.totals.total_time_ms
    return bounds.step_ms


def share_of_steps_pct(data: CategoryData, part_ms: float) -> float:
    """Return a time in percent of ``steps_ms``."""
    return impact.share_pct(part_ms, steps_ms(data))


def operation_uids(events: pl.DataFrame) -> tuple[int, ...]:
    """Return the uids of the operations that launched the events, sorted."""
    return tuple(events[C.operation_uid].drop_nulls().unique().sort())
