"""Choose inference steps: a range, a phase, or the steady state of the load."""

import re
from dataclasses import dataclass
from itertools import groupby

import polars as pl

from jarvis.core.errors import StepSelectionError
from jarvis.perf_models.step_annotation import StepKind
from jarvis.schemas.names import C

STEADY = "steady"
MIN_STEPS = 8
"""With fewer steps there is no steady state."""

NEAR = 0.1
"""Difference from the most requests, as a share of them, up to which the load of a step is near."""

MIN_RUN = 6
"""Number of steps in a row that begin the steady state by being near, or end it by not being."""

PHASES = tuple(kind.value for kind in StepKind)
_RANGE = re.compile(r"(\d*):(\d*)")


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Positions of the first and the last step among the whole steps, and their requests."""

    first: int
    last: int
    fewest: int
    most: int


def steady_state(steps: pl.DataFrame) -> SteadyState | None:
    """Return the longest run of whole steps with nearly the most requests that any step has.

    Steps that differ do not end it unless MIN_RUN follow each other. None if no MIN_RUN steps in a
    row have such a load, if there are fewer than MIN_STEPS, or if their requests are not known.
    """
    requests = _whole(steps).select(pl.col(C.ctx_requests) + pl.col(C.gen_requests)).to_series()
    if requests.len() < MIN_STEPS or requests.null_count():
        return None
    counts = [int(count) for count in requests]
    allowed = max(1.0, NEAR * max(counts))
    found: list[tuple[int, int]] = []
    is_open = False
    position = 0
    for is_near, run in groupby(counts, lambda count: max(counts) - count <= allowed):
        end = position + len([*run]) - 1
        if is_near and is_open:
            found[-1] = (found[-1][0], end)
        elif is_near and end - position + 1 >= MIN_RUN:
            found.append((position, end))
            is_open = True
        elif not is_near and end - position + 1 >= MIN_RUN:
            is_open = False
        position = end + 1
    if not found:
        return None
    first, last = max(found, key=lambda span: (span[1] - span[0], -span[0]))
    inside = counts[first : last + 1]
    return SteadyState(first, last, min(inside), max(inside))


def selected_steps(steps: pl.DataFrame, selection: str) -> pl.DataFrame:
    """Return the chosen whole steps and their parts.

    Args:
        steps: Rows of ``inference_steps``.
        selection: ``steady``, a phase, or positions of whole steps from 0 as ``10:40``, without
            the last one; either side may be missing.

    Raises:
        StepSelectionError: There is no such selection, or no steady state.
    """
    whole = _whole(steps)
    if selection == STEADY:
        if (steady := steady_state(steps)) is None:
            raise StepSelectionError("the steps have no steady state")
        chosen = whole[steady.first : steady.last + 1]
    elif selection in PHASES:
        chosen = whole.filter(pl.col(C.phase) == selection)
    elif bounds := _RANGE.fullmatch(selection):
        chosen = whole[int(bounds[1] or 0) : int(bounds[2]) if bounds[2] else whole.height]
    else:
        raise StepSelectionError(
            f"{selection!r} is not {STEADY}, {', '.join(PHASES)} or a range as 10:40"
        )
    # A part has the position of its step in the same column.
    return steps.filter(pl.col(C.step).is_in(chosen[C.step].implode()))


def _whole(steps: pl.DataFrame) -> pl.DataFrame:
    return steps.filter(pl.col(C.part).is_null())
