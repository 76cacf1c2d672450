"""What the checks of several ranks read, and the parts that their findings share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from jarvis.findings import Finding, Impact, Priority, Range
from jarvis.impact import share_pct, with_steps
from jarvis.ranks.delays import is_inner
from jarvis.ranks.gain import JointSteps, StepGain
from jarvis.ranks.join import Joined
from jarvis.ranks.messages import MESSAGES
from jarvis.savings import step_priority
from jarvis.schemas.names import C
from jarvis.text.messages import Message

RANKS = "ranks"
"""Category of the findings, and key of their result."""

MIN_GAIN_PCT = 0.5
"""A gain below this part of the median step is not a finding."""

MIN_GAIN_MS, CLOCK_ERRORS = 0.1, 3
"""A smaller gain, or one within so many times the disagreement of the clocks, neither."""


@dataclass(frozen=True)
class RankFacts:
    """A distributed run as its checks see it."""

    joined: Joined
    world_size: int

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """The tables of the run."""
        return self.joined.tables

    @property
    def joint(self) -> JointSteps | None:
        """The steps of all ranks replayed together, if that is possible."""
        return self.joined.joint

    @cached_property
    def step_ms(self) -> float:
        """The median step: over steps, of the median over ranks; 0 without marked steps."""
        return self._median_of_steps(C.duration_ms)

    def _median_of_steps(self, column: str) -> float:
        of_steps = self.tables["rank_steps"].group_by(C.step).agg(pl.col(column).median())
        median = of_steps[column].median()
        return float(median) if isinstance(median, float) else 0.0

    @cached_property
    def inner(self) -> pl.DataFrame:
        """The instances that are no edges, of known clocks."""
        return self.tables["instances"].filter(is_inner())

    @cached_property
    def own_ms(self) -> pl.DataFrame:
        """Return ``rank, step, own_ms``: the time of each step in which the rank does not wait."""
        known = self.tables["rank_steps"].drop_nulls(C.exposed_wait_ms)
        own = pl.col(C.duration_ms) - pl.col(C.exposed_wait_ms)
        return known.select(C.rank, C.step, own.alias("own_ms"))

    def is_worth(self, gain: StepGain) -> bool:
        """Return whether a gain is enough for a finding, by its lower end."""
        p95_ms = (self.joined.clock.p95_ns or 0.0) / 1e6
        least_ms = max(MIN_GAIN_MS, CLOCK_ERRORS * p95_ms)
        return gain.low_ms >= least_ms and (share_pct(gain.low_ms, self.step_ms) >= MIN_GAIN_PCT)

    def rank_gain(self, rank: int) -> StepGain:
        """Return the gain of the table ``ranks``."""
        row = self.tables["ranks"].row(by_predicate=pl.col(C.rank) == rank, named=True)
        return StepGain(row[C.gain_low_ms] or 0.0, row[C.gain_high_ms] or 0.0)

    def gain_text(self, gain: StepGain) -> Message:
        """Return the gain of the step as a part of a sentence."""
        if gain.exact_ms is not None:
            return MESSAGES("gain", low_ms=gain.low_ms, step_ms=self.step_ms)
        values = {"low_ms": gain.low_ms, "high_ms": gain.high_ms, "step_ms": self.step_ms}
        return MESSAGES("gain.range", **values)

    def finding(
        self,
        check: str,
        gain: StepGain,
        values: Mapping[str, Any],
        *,
        actions: Sequence[Message],
        evidence: Mapping[str, Any],
        issue: str = "issue",
    ) -> Finding:
        """Return a finding whose messages begin with the name of the check.

        Args:
            check: Its check.
            gain: What the median step gains; the lower end decides.
            values: Values of title and issue.
            actions: What to do.
            evidence: Its numbers.
            issue: Last part of the key of its issue.
        """
        impact = self._impact(gain)
        key = KEYS[check]
        titled = {**values, "gain": self.gain_text(gain)}
        priority = step_priority(Priority.LOW, impact)
        return Finding(
            check=check,
            category=RANKS,
            title=MESSAGES.pick(f"{key}.title", titled),
            issue=MESSAGES.pick(f"{key}.{issue}", titled),
            algorithmic=tuple(actions),
            kernel=(),
            evidence={**evidence, "step_ms": self.step_ms},
            priority_local=priority,
            priority=priority,
            impact=impact,
            caveat=self.caveat,
            verify=MESSAGES.texts("verify"),
        )

    def _impact(self, gain: StepGain) -> Impact:
        saved = Range(low=gain.low_ms, mid=gain.low_ms, high=gain.high_ms)
        compute_ms = self._median_of_steps(C.compute_ms)
        shares = (
            Range(**{end: share_pct(ms, whole) for end, ms in saved.model_dump().items()})
            for whole in (compute_ms, self.step_ms)
        )
        found = Impact(
            time_ms=self.step_ms,
            saved_ms=saved,
            compute_pct=next(shares),
            e2e_pct=next(shares),
            method="upper bound",
            is_replayed=self.joint is not None,
        )
        return with_steps(found, saved, self.step_ms)

    @cached_property
    def caveat(self) -> tuple[Message, ...]:
        """What the findings are based on."""
        p95_ns = self.joined.clock.p95_ns
        clocks = (
            None if p95_ns is None else MESSAGES("caveat.clocks", p95_us=max(p95_ns / 1e3, 0.1))
        )
        based = MESSAGES(
            "caveat",
            ranks=self.tables["ranks"].height,
            world_size=self.world_size,
            clocks=clocks,
        )
        return (based,) if self.joint is not None else (based, MESSAGES("caveat.bounds"))


KEYS = {
    "late_rank": "late",
    "slow_gpu": "slow",
    "jitter": "jitter",
    "work_imbalance": "work",
    "slow_link": "link",
    "small_messages": "small",
    "ep_imbalance": "experts",
    "pipeline_bubble": "bubble",
    "exposed_transfer": "exposed",
}
"""First parts of the keys of messages by check."""
