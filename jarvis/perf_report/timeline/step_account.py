"""The account of a step: the parts of the step time, which add up to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import polars as pl

from jarvis.perf_report.timeline.steps import (
    IDLE_PARTS,
    PARTS,
    StepSource,
    TimedBy,
    timed_by,
)
from jarvis.schemas.names import C

LABELS: Mapping[str, str] = {
    C.compute_ns: "compute",
    C.exposed_comm_ns: "exposed communication",
    C.exposed_copy_ns: "exposed copies",
    C.idle_before_ns: "idle before the first GPU event",
    C.idle_between_ns: "idle between GPU events",
    C.idle_after_ns: "idle after the last GPU event",
}
"""Names of the parts, in their order."""

MEANING = (
    "Time is attributed in this order: compute, communication, copy, idle. The parts add up to the "
    "step time."
)


def step_name(is_marked: bool) -> str:
    """Return the name of the time that shares of steps are a part of."""
    return "the step time" if is_marked else "the recording"


def steps_name(is_marked: bool, step_count: int) -> str:
    """Return the name of the time that sums of steps are a part of: ``the time of the 3 steps``."""
    if is_marked and step_count > 1:
        return f"the time of the {step_count} steps"
    return step_name(is_marked)


@dataclass(frozen=True, slots=True)
class StepAccount:
    """What the steps of a recording consist of.

    Times are integer nanoseconds, summed over the steps whose time is known. ``marked_ns`` is the
    time of their marks. ``tokens`` is the sum of their tokens, None if a step has none.
    """

    source: StepSource
    timed_by: TimedBy
    step_count: int
    total_ns: int
    parts_ns: Mapping[str, int]
    marked_ns: int
    carried_in_ns: int
    tokens: int | None

    @classmethod
    def of(cls, steps: pl.DataFrame) -> Self | None:
        """Return the account of the table ``steps``; None if no step has a time."""
        timed = steps.drop_nulls(C.dur_ns)
        total_ns = int(timed[C.dur_ns].sum())
        if total_ns == 0:
            return None
        return cls(
            source=StepSource(timed[C.source][0]),
            timed_by=timed_by(timed),
            step_count=timed.height,
            total_ns=total_ns,
            parts_ns={part: int(timed[part].sum()) for part in PARTS},
            marked_ns=int(timed[C.host_dur_ns].sum()),
            carried_in_ns=int(timed[C.carried_in_ns].sum()),
            tokens=None if timed[C.tokens].null_count() else int(timed[C.tokens].sum()),
        )

    @classmethod
    def of_median(cls, steps: pl.DataFrame) -> Self | None:
        """Return the account of the step with the median time: of an even number of steps, of the
        two in the middle, whose mean is the median. None if no step has a time."""
        timed = steps.drop_nulls(C.dur_ns).sort(C.dur_ns, C.step)
        first = (timed.height - 1) // 2
        return cls.of(timed[first : timed.height // 2 + 1])

    @property
    def is_marked(self) -> bool:
        """Whether the trace marks steps; else the recording is the step."""
        return self.source is not StepSource.RECORDING

    @property
    def runs_ahead(self) -> bool:
        """Return whether the profiler's marks show a shorter step than the GPU's work takes."""
        return self.timed_by is TimedBy.GPU and self.source is StepSource.PROFILER

    @property
    def step_ms(self) -> float:
        """Return the mean step time in ms."""
        return self.mean_ms(self.total_ns)

    @property
    def idle_ns(self) -> int:
        """Return the idle time at all places of the steps."""
        return sum(self.parts_ns[part] for part in IDLE_PARTS)

    @property
    def tokens_per_s(self) -> float | None:
        """Return the tokens per second of step time; None if they are not known."""
        return None if self.tokens is None else 1e9 * self.tokens / self.total_ns

    def mean_ms(self, time_ns: int) -> float:
        """Return a summed time as the mean of the steps in ms."""
        return time_ns / 1e6 / self.step_count

    def pct(self, time_ns: int) -> float:
        """Return a summed time in percent of the step time."""
        return 100 * time_ns / self.total_ns

    def rows(self) -> pl.DataFrame:
        """Return ``part, time_ms, percent``: the mean of the steps."""
        times = [self.parts_ns[part] for part in PARTS]
        return pl.DataFrame(
            {
                "part": [LABELS[part] for part in PARTS],
                C.time_ms: [self.mean_ms(time_ns) for time_ns in times],
                C.percent: [self.pct(time_ns) for time_ns in times],
            }
        )
