"""Why simulated step times are approximate."""

from collections import defaultdict
from collections.abc import Iterator

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
    return " ".join(filter(None, (_reason(info.quality), *_stalls(run, info.quality.stalls))))


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


def _stalls(run: Run, stalls: tuple[Stall, ...]) -> Iterator[str]:
    """Yield the unexplained time before events of one name, with that name and the host's call."""
    times_ns: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    for stall in stalls:
        times_ns[_name(run, stall.uid), _host_call(run, stall)].append(stall.ns)
    for (name, call), found in times_ns.items():
        where = quoted(name) if name else "a call"
        if len(found) > 1:
            where = f"{len(found)} calls of {where}" if name else f"{len(found)} calls"
        time = milliseconds(sum(found) / 1e6)
        known = (
            "in no recorded event; they are taken as given."
            if call is None
            else f"taken as given: for most of them the host is in {quoted(call)}, but what the "
            "GPU does meanwhile is not recorded."
        )
        yield f"Besides, {time} before {where} are {known}"


def _host_call(run: Run, stall: Stall) -> str | None:
    """Return the recorded call in which the host is for most of a stall; None if there is none."""
    if "idle_gaps" not in run.tables:
        return None
    before = run.table("idle_gaps").filter(
        pl.col(C.next_uid) == stall.uid, 2000 * pl.col(C.host_call_us) > stall.ns
    )
    return next(iter(before[C.host_call].drop_nulls()), None)


def _name(run: Run, uid: int) -> str | None:
    tables = (
        run.table(table)
        for table in ("gpu_work", "sim_spans", "host_slices")
        if table in run.tables
    )
    names = (table.filter(pl.col(C.uid) == uid)[C.name] for table in tables)
    return next((found[0] for found in names if not found.is_empty()), None)
