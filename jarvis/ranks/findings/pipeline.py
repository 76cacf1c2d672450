"""Stages of a pipeline that wait for each other."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from jarvis.findings import Finding
from jarvis.impact import share_pct
from jarvis.ranks.bubbles import PHASES
from jarvis.ranks.findings.facts import RankFacts
from jarvis.ranks.gain import StepGain
from jarvis.ranks.messages import MESSAGES
from jarvis.ranks.roles import Role
from jarvis.schemas.names import C
from jarvis.text.messages import Message

MIN_BUBBLE_PCT = 5.0
"""Part of the step in which stages wait for each other from which on it is a finding."""

MIN_PHASE_MS = 0.1
"""Shorter waiting in a phase of the step is not named."""

MIN_OF_IDEAL = 1.2
"""The same, as a factor of what the number of micro-batches makes unavoidable."""


class Schedule(NamedTuple):
    """Stages of a pipeline, and micro-batches of a step."""

    stages: int
    micro_batches: int

    def bubble_pct(self, factor: int = 1) -> float:
        """Return the part of the step in which a stage waits if all take equally long, with so many
        times as many micro-batches."""
        return share_pct(self.stages - 1, factor * self.micro_batches + self.stages - 1)


def pipeline_bubble(facts: RankFacts) -> Iterator[Finding]:
    """Stages of a pipeline that wait for each other.

    Symptom: the ranks of a stage compute nothing until another stage has sent, or arrives.
    Rule: the ranks wait in collectives with ranks of other stages, without computing and without
    edges, for at least {MIN_BUBBLE_PCT}% of the step, or {MIN_OF_IDEAL} times (p - 1) / (m + p - 1)
    of p stages and m micro-batches (sends in a step), in the mean of the stages. The gain is at
    most the waiting of the stage that waits least, and at least what of that exceeds the ideal of
    twice as many micro-batches.
    Threshold: the gain above.
    """
    stages = _by_stage(facts)
    schedule = schedule_of(facts)
    if stages.height < 2 or schedule is None:
        return
    mean_ms, least_ms = (
        float(stages[C.bubble_ms].sum()) / stages.height,
        stages[C.bubble_ms].min(),
    )
    bubble_pct, ideal_pct = share_pct(mean_ms, facts.step_ms), schedule.bubble_pct()
    if bubble_pct < min(MIN_BUBBLE_PCT, MIN_OF_IDEAL * ideal_pct) or not isinstance(
        least_ms, float
    ):
        return
    left_ms = schedule.bubble_pct(factor=2) * facts.step_ms / 100
    gain = StepGain(max(0.0, least_ms - left_ms), least_ms)
    if not facts.is_worth(gain):
        return
    parts = tuple(_stage(row) for row in stages.iter_rows(named=True))
    named = {"stages": schedule.stages, "micro_batches": schedule.micro_batches}
    shares = {"bubble_pct": bubble_pct, "ideal_pct": ideal_pct}
    found = facts.finding(
        "pipeline_bubble",
        gain,
        {**named, **shares, "parts": parts},
        actions=MESSAGES.texts("bubble.action"),
        evidence={
            "stage_count": schedule.stages,
            "micro_batch_count": schedule.micro_batches,
            **shares,
            "least_ms": least_ms,
        },
    )
    assert found.impact is not None
    measured = found.impact.model_copy(update={"is_replayed": False})
    yield found.model_copy(update={"impact": measured})


def _stage(row: Mapping[str, Any]) -> Message:
    """Return how long a stage waits, and when, if it is known and not all at once."""
    bubble = {"stage": str(row[C.pp]), "bubble_ms": row[C.bubble_ms]}
    phases = {name: row[name] for name in PHASES if (row[name] or 0.0) >= MIN_PHASE_MS}
    if len(phases) < 2:
        return MESSAGES("bubble.stage", **bubble)
    parts = tuple(MESSAGES(f"bubble.{name}", phase_ms=ms) for name, ms in phases.items())
    return MESSAGES("bubble.phases", **bubble, phases=parts)


def _by_stage(facts: RankFacts) -> pl.DataFrame:
    """Return ``pp, bubble_ms`` and PHASES: the waiting of each stage, and of each phase of it, in
    the median step, as the mean of its ranks."""
    stages = facts.tables["ranks"].select(C.rank, C.pp).drop_nulls()
    return (
        facts.tables["rank_steps"]
        .drop_nulls(C.bubble_ms)
        .join(stages, on=C.rank)
        .group_by(C.pp, C.step)
        .agg(pl.col(C.bubble_ms, *PHASES).mean())
        .group_by(C.pp)
        .agg(pl.col(C.bubble_ms, *PHASES).median())
        .sort(C.pp)
    )


def schedule_of(facts: RankFacts) -> Schedule | None:
    """Return the schedule by the sends of a step; None if no rank sends once in a step."""
    stages = facts.tables["ranks"].select(C.rank, C.pp, C.steps).drop_nulls()
    sizes = facts.tables["communicators"].filter(pl.col(C.role) == Role.PIPELINE)[C.size]
    sends = (
        facts.tables["pairs"]
        .join(stages, left_on=C.src, right_on=C.rank)
        .join(stages, left_on=C.dst, right_on=C.rank, suffix="_dst")
        .filter(pl.col(C.pp) + 1 == pl.col(f"{C.pp}_dst"), pl.col(C.steps) > 0)
        .select((pl.col(C.count) / pl.col(C.steps)).median())
        .item()
    )
    most = sizes.max()
    if sends is None or round(sends) < 1 or not isinstance(most, int):
        return None
    return Schedule(most, round(sends))
