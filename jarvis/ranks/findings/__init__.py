"""Findings on several ranks: what makes the steps of a job longer than those of its ranks."""

from collections.abc import Callable, Iterator

import polars as pl

from jarvis.analyses import check_markdown
from jarvis.findings import AnalysisResult, Finding, Status
from jarvis.ranks.findings.balance import slow_gpu, work_imbalance
from jarvis.ranks.findings.facts import (
    CLOCK_ERRORS,
    MIN_GAIN_MS,
    MIN_GAIN_PCT,
    RANKS,
    RankFacts,
)
from jarvis.ranks.findings.lateness import MIN_STEPS, compared_steps, jitter, late_rank
from jarvis.ranks.findings.links import ep_imbalance, mismatch, slow_link, small_messages
from jarvis.ranks.findings.overlap import exposed_transfer
from jarvis.ranks.findings.pipeline import pipeline_bubble
from jarvis.ranks.identity import as_ranges
from jarvis.ranks.join import Joined
from jarvis.ranks.messages import MESSAGES
from jarvis.schemas.names import C
from jarvis.text.messages import Message, to_text

CHECKS: tuple[Callable[[RankFacts], Iterator[Finding]], ...] = (
    late_rank,
    slow_gpu,
    jitter,
    work_imbalance,
    pipeline_bubble,
    exposed_transfer,
    slow_link,
    small_messages,
    ep_imbalance,
    mismatch,
)


def rank_findings(joined: Joined, world_size: int) -> AnalysisResult:
    """Return the findings on the ranks of a job, by the lower end of the step gain.

    Args:
        joined: The joined ranks.
        world_size: Number of ranks of the job.
    """
    facts = RankFacts(joined, world_size)
    found = [finding for check in CHECKS for finding in check(facts)]
    return AnalysisResult(
        key=RANKS,
        title="Ranks",
        tier="system",
        status=Status.OK,
        findings=tuple(sorted(found, key=_order)),
        notes=tuple(_notes(facts)),
        metrics={"step_ms": facts.step_ms},
    )


def rank_checks_markdown() -> str:
    """Return the part of ``docs/checks.md`` on several ranks."""
    lines = [
        "## Several ranks",
        "",
        "Checks of a distributed run, ordered by the lower end of the step gain. A finding needs a "
        f"gain of at least {MIN_GAIN_PCT:g}% of the median step, {1e3 * MIN_GAIN_MS:g} µs, and "
        f"{CLOCK_ERRORS} times the 95th percentile of what the clocks disagree. Causes and gains "
        "leave out the edges of the recording.",
        "",
    ]
    for check in CHECKS:
        lines += check_markdown(check)
    return "\n".join(lines)


def _order(finding: Finding) -> tuple[float, str, str]:
    gain_ms = finding.impact.gain_ms if finding.impact else 0.0
    return -gain_ms, finding.check, to_text(finding.title)


def _parts(facts: RankFacts) -> Iterator[Message]:
    """Yield which ranks lack collectives that others recorded."""
    lacking = (
        facts.tables["instances"]
        .select(C.step, pl.col(C.missing_ranks).alias(C.rank))
        .drop_nulls(C.step)
        .explode(C.rank)
        .join(facts.tables["ranks"].select(C.rank), on=C.rank, how="semi")
    )
    if lacking.height:
        ranks, steps = (lacking[name].unique() for name in (C.rank, C.step))
        yield MESSAGES(
            "note.parts",
            ranks=as_ranges(ranks),
            of_ranks=ranks.len(),
            instances=lacking.group_by(C.rank).len()["len"].max(),
            steps=as_ranges(steps),
            of_steps=steps.len(),
        )


def _notes(facts: RankFacts) -> Iterator[Message]:
    """Yield what cannot be known: of ranks without a trace, and of clocks that do not agree."""
    missing = facts.world_size - facts.tables["ranks"].height
    if missing > 0:
        yield MESSAGES("note.missing", missing=missing, world_size=facts.world_size)
    yield from _parts(facts)
    if not facts.step_ms:
        yield MESSAGES("note.steps")
    elif facts.joined.is_waiting_known and (steps := compared_steps(facts)) < MIN_STEPS:
        yield MESSAGES("note.few_steps", steps=steps, least=MIN_STEPS)
    unconnected = facts.tables["ranks"].filter(pl.col(C.clock_offset_us).is_null())[C.rank]
    if not facts.joined.is_waiting_known:
        yield MESSAGES("note.clocks")
    elif unconnected.len():
        yield MESSAGES("note.unconnected", ranks=as_ranges(unconnected), of_ranks=unconnected.len())
