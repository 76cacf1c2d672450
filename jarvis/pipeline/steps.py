"""The steps of an analysis, the callback that reports them, and a step as a line of JSON."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from jarvis.trace import OnProgress, ReadProgress

STEPS = (
    "Read the trace",
    "Match the hardware",
    "GPU timeline",
    "Operations and rooflines",
    "What-if",
    "Categories",
    "Analyses",
    "Reports",
    "Save",
)
REPORT_STEPS = STEPS[:2]
IMPORT_STEPS = ("Read the report", STEPS[1], STEPS[3], *STEPS[5:])
REPROJECTION_STEPS = ("Open the analysis", STEPS[1], *STEPS[5:])
COMPARISON_STEPS = (*REPORT_STEPS, "Read the compared trace")


@dataclass(frozen=True, slots=True)
class Step:
    """A pipeline step that starts, continues or has ended.

    ``elapsed_s`` is None until the end; ``reading`` says how far a trace has been read.
    """

    name: str
    number: int
    total: int
    state: Literal["started", "running", "done"]
    elapsed_s: float | None = None
    reading: ReadProgress | None = None


Progress = Callable[[Step], None]
"""Progress callback. An exception aborts the run; partial output is removed."""

READING_INTERVAL_S = 0.2
"""Minimum interval of the messages to another process while a trace is read."""


@contextmanager
def step(
    index: int, progress: Progress | None, steps: tuple[str, ...] = STEPS
) -> Iterator[OnProgress]:
    """Report the start and end of a step; yield a function that reports reading progress."""
    step = Step(steps[index], index + 1, len(steps), "started")
    report = progress or (lambda _: None)
    begin = perf_counter()
    report(step)
    yield lambda reading: report(replace(step, state="running", reading=reading))
    report(replace(step, state="done", elapsed_s=perf_counter() - begin))


_STEP = TypeAdapter(Step)


def line_of_step(step: Step) -> str:
    """Return the step as one line, without a line break."""
    return _STEP.dump_json(step).decode()


def step_of_line(line: str | bytes) -> Step | None:
    """Parse the step of such a line; None for any other line."""
    try:
        return _STEP.validate_json(line)
    except ValidationError:
        return None
