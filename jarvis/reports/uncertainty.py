"""Why simulated step times are approximate."""

import polars as pl

from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.simulation.quality import Grade, Quality, Stall
from jarvis.text.format import milliseconds, percent, quoted

_SHOWN_PCT = 0.05
"""Minimum share that is named."""


def uncertainty(run: Run) -> str | None:
    """Return why figures of replays are approximate; None if their grade is good."""
    info = run.manifest.simulation
    if info is None or info.quality.grade is not Grade.FAIR:
        return None
    return " ".join([_reason(info.quality), *(_stall(run, each) for each in info.quality.stalls)])


def _reason(quality: Quality) -> str:
    reasons = {
        "{} is in no recorded event": quality.unexplained_pct,
        "the cause of {} is inferred": quality.inferred_pct,
    }
    parts = [text.format(percent(pct)) for text, pct in reasons.items() if pct >= _SHOWN_PCT]
    if not parts:
        return ""
    path = "of the critical path of the recording"
    return f"Figures are approximate: {path}, {' and '.join(parts)}."


def _stall(run: Run, stall: Stall) -> str:
    """Return the unexplained time before an event, with the name of the event."""
    name = next(
        (
            found[C.name][0]
            for table in ("gpu_work", "sim_spans", "host_slices")
            if table in run.tables
            and not (found := run.table(table).filter(pl.col(C.uid) == stall.uid)).is_empty()
        ),
        None,
    )
    where = f"before {quoted(name)}" if name else "before a call"
    time = milliseconds(stall.ns / 1e6)
    return f"Besides, {time} {where} are in no recorded event; they are taken as given."
