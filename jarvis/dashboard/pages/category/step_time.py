"""What the step gains if the operations of a category reach a target, all together and each alone,
cached for reruns of the page."""

from dataclasses import dataclass
from typing import Any, Self

import polars as pl
import streamlit as st

from jarvis.changes import AtRoofline, Work
from jarvis.core.errors import NotSimulatedError
from jarvis.dashboard.session.state import Opened, cached, of_stored, rows_of
from jarvis.dashboard.widgets.room import room, slowdown_of
from jarvis.impact import share_pct
from jarvis.pipeline.simulated_steps import NOTHING_PCT, simulated_changes
from jarvis.savings import step_count
from jarvis.schemas.names import C
from jarvis.simulation.of_rows import step_savings_us
from jarvis.simulation.quality import Grade
from jarvis.text.format import MINUS, counted, milliseconds, percent
from jarvis.text.markdown import escape, prose

_MAX_CACHED_TARGETS = 256

LIVE_ROWS = 50
"""Operations whose step saving follows the slider, those that save most kernel time: with hundreds,
each move would take a server a tenth of a second."""

MIN_ROOM_PCT = 0.1
"""Minimum share of compute of an operation whose room is computed."""

_MIN_READABLE_PCT = 1.0
"""Step times that differ by less can look the same in the digits shown."""

_HELP = (
    "The recorded step is replayed, with the shown operations that are below the target at the "
    "target. Each call and kernel starts when all that it waits for in the trace has happened. The "
    "savings of single rows do not add up to this one."
)


def with_step_savings(now: Opened, key: str, rows: pl.DataFrame, target_pct: float) -> pl.DataFrame:
    """Return all rows of a category with ``saved_step_us`` at a target, the mean of the steps;
    without the column if step times are not simulated."""
    savings = _savings_us(now, key, target_pct)
    others = [column for column in rows.get_columns() if column.name != C.saved_step_us]
    return pl.DataFrame(others if savings is None else [*others, savings.of_rows()])


def step_line(
    now: Opened, key: str, rows: pl.DataFrame, target_pct: float, *, is_part: bool
) -> None:
    """Draw the time of the step if the operations ``rows`` of a category reach a target, or why it
    is not known. ``is_part``: they are not all of the category.
    """
    uids = tuple(rows[C.uid].to_list()) if is_part else None
    replayed = _together(now, key, target_pct, uids)
    if isinstance(replayed, str):
        st.markdown(prose(replayed))
        return
    about = "about " if replayed.is_fair else ""
    after, saved_ms = milliseconds(replayed.after_ms), replayed.saved_ms
    at = f"{'With these rows at' if is_part else 'At'} {target_pct:g}%"
    if replayed.held_up_by is not None:
        text = f"{at} the step stays at {after}{replayed.held_up_by}."
    else:
        change = f"{MINUS if saved_ms > 0 else '+'}{milliseconds(abs(saved_ms))}"
        before_ms = replayed.after_ms + saved_ms
        before = milliseconds(before_ms)
        text = f"{at} the step takes {about}{after} instead of {before} ({change})."
        changed_pct = share_pct(abs(saved_ms), before_ms)
        if changed_pct < _MIN_READABLE_PCT:
            share = f"{change[0]}{percent(changed_pct)}"
            text = f"{at} the step of {before} changes by {about}{change} ({share})."
    if replayed.steps > 1:
        text = f"{text} Mean of {counted(replayed.steps, 'step')}."
    st.markdown(f"**{escape(text)}**", help=_HELP)


def in_the_step(now: Opened, row: dict[str, Any], target_pct: float) -> None:
    """Draw what an operation means for the step: its saving, its part of the path, and its room."""
    lines = []
    if (saved_us := row.get(C.saved_step_us)) is not None:
        steps = step_count(now.stored.manifest.totals)
        gain = milliseconds(saved_us / 1000) if saved_us else "nothing"
        of_steps = f" (mean of {steps} steps)" if steps > 1 and saved_us else ""
        lines.append(f"The step gains {gain} at {target_pct:g}%{of_steps}.")
    if (path_us := row.get(C.path_us)) is not None:
        share = f"{milliseconds(path_us / 1000)} of {milliseconds(row[C.kernel_time_us] / 1000)}"
        lines.append(f"On the critical path: {share} kernel time.")
    share_pct = row[C.percent_of_compute] or 0.0
    if share_pct >= MIN_ROOM_PCT and (slowdown := slowdown_of(now, Work(operations=(row[C.uid],)))):
        lines.append(f"Room: {room(slowdown)}.")
    if lines:
        st.markdown("**In the step**")
        st.markdown("\n".join(f"- {escape(line)}" for line in lines))


@dataclass(frozen=True)
class _Together:
    """The mean step if all operations of a category reach a target; what holds up a step that
    stays as long."""

    after_ms: float
    saved_ms: float
    steps: int
    is_fair: bool
    held_up_by: str | None


@cached(_MAX_CACHED_TARGETS, of_stored)
def _together(
    now: Opened, key: str, target_pct: float, uids: tuple[int, ...] | None
) -> _Together | str:
    """Return the step with operations of a category at a target (all if ``uids`` is None), or why
    that is not known."""
    work = Work(category=key) if uids is None else Work(operations=uids)
    changes = (AtRoofline(work=work, target_pct=target_pct),)
    try:
        simulation = now.stored.simulation
    except NotSimulatedError as error:
        return str(error)
    recorded, replay = simulation.recorded, simulation.step_times(changes)
    saved_ms = (recorded.step_ns - replay.step_ns) / 1e6
    is_unchanged = abs(saved_ms) < NOTHING_PCT / 100 * recorded.step_ns / 1e6
    info = now.stored.manifest.simulation
    return _Together(
        after_ms=replay.step_ns / 1e6,
        saved_ms=saved_ms,
        steps=len(recorded.steps_ns),
        is_fair=info is not None and info.quality.grade is Grade.FAIR,
        held_up_by=simulated_changes(now.stored, [(key, changes)]).held_up_by
        if is_unchanged
        else None,
    )


@dataclass(frozen=True)
class _Savings:
    """``saved_step_us`` of all operations of a category as caches keep it: few have a value that is
    neither null nor 0. ``values_us`` are those of the rows at ``places``."""

    is_zero: pl.Series
    places: pl.Series
    values_us: pl.Series

    @classmethod
    def of(cls, saved_us: pl.Series) -> Self:
        """Return the savings of a column."""
        places = (saved_us != 0).arg_true()
        return cls(saved_us == 0, places, saved_us[places])

    def of_rows(self) -> pl.Series:
        """Return the column."""
        zeros = pl.select(pl.when(self.is_zero).then(0.0).alias(C.saved_step_us)).to_series()
        return zeros.scatter(self.places, self.values_us)


@cached(_MAX_CACHED_TARGETS, of_stored)
def _savings_us(now: Opened, key: str, target_pct: float) -> _Savings | None:
    """Return ``saved_step_us`` of all operations of a category, the mean of the steps; None if
    steps are not simulated."""
    rows = rows_of(now, key)
    if target_pct == now.stored.targets.of_category(key) and C.saved_step_us in rows.columns:
        saved_us = rows[C.saved_step_us]
    else:
        simulation = now.stored.simulation_if_any
        if simulation is None:
            return None
        saved_us = step_savings_us(rows, simulation, target_pct, LIVE_ROWS)
    return _Savings.of(saved_us / step_count(now.stored.manifest.totals))
