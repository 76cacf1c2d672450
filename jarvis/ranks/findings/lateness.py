"""Ranks that the others wait for: the same one in most steps, or different ones."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from jarvis.findings import Finding
from jarvis.impact import share_pct
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.perf_report.timeline.states import State
from jarvis.ranks.clock import NORMAL
from jarvis.ranks.delays import (
    MIN_CAUSE_SHARE,
    is_comparable,
    is_own,
    main_operations,
    roots_of_steps,
)
from jarvis.ranks.findings.facts import RankFacts
from jarvis.ranks.messages import MESSAGES
from jarvis.schemas.names import C
from jarvis.text.messages import Message

PERSISTENT_SHARE, MIN_STEPS = 0.6, 3
"""A rank is persistently late in so many of at least so many steps."""

MIN_JITTER_PCT = 2.0
"""Time of the latest rank beyond the median rank, in percent of the step, that is jitter."""

MADS = 3
CAUSES_SHOWN = 2
MAIN_SHARE = 0.5
"""Part of what is shorter from which on it is named."""


def latest_roots(facts: RankFacts) -> pl.DataFrame:
    """Return the late ranks of steps (``delays.latest_roots``)."""
    ranks = facts.tables["instance_ranks"].group_by(C.instance_id).len("ranks")
    return roots_of_steps(facts.tables["lateness"], facts.inner, ranks)


def compared_steps(facts: RankFacts) -> int:
    """Return the number of steps with collectives that are no edges."""
    return facts.inner[C.step].drop_nulls().n_unique()


def persistent_rank(facts: RankFacts) -> tuple[int, int, int] | None:
    """Return the rank that is late in most steps, in how many, and the number of steps."""
    steps = compared_steps(facts)
    counts = (
        latest_roots(facts)
        .group_by(C.root_rank)
        .len()
        .sort("len", C.root_rank, descending=[True, False])
    )
    if steps < MIN_STEPS or counts.is_empty():
        return None
    rank, count = counts.row(0)
    return (rank, count, steps) if count >= PERSISTENT_SHARE * steps else None


def late_rank(facts: RankFacts) -> Iterator[Finding]:
    """A rank that the others wait for in most steps.

    Symptom: the same rank arrives last at collectives, step after step.
    Rule: in at least {PERSISTENT_SHARE:.0%} of at least {MIN_STEPS} steps, this is the rank for
    which the others wait longest without computing, and its own time exceeds the median of the
    ranks by more than {MADS} standard deviations (1.4826 times the median absolute deviation). Its
    causes are those of the steps in which all ranks can be compared; if that is one step or none,
    the first action is to record more.
    Threshold: the gain above, if it is as the median rank.
    """
    found = persistent_rank(facts)
    if found is None:
        return
    rank, late_steps, steps = found
    gain = facts.rank_gain(rank)
    if not facts.is_worth(gain) or not _exceeds_noise(facts, rank):
        return
    row = facts.tables["ranks"].row(by_predicate=pl.col(C.rank) == rank, named=True)
    roots = latest_roots(facts).filter(pl.col(C.root_rank) == rank)
    causes = _causes(facts, roots)
    others = _waiting_ranks(facts, rank)
    yield facts.finding(
        "late_rank",
        gain,
        {
            "rank": str(rank),
            "late_steps": late_steps,
            "steps": steps,
            "others": others,
            "caused_wait_ms": row[C.caused_wait_ms],
            "caused_exposed_wait_ms": row[C.caused_exposed_wait_ms],
            "causes": _message("late.longer", causes),
        },
        actions=_actions(causes),
        evidence={
            "rank": rank,
            "late_step_count": late_steps,
            "step_count": steps,
            "caused_wait_ms": row[C.caused_wait_ms],
            "caused_exposed_wait_ms": row[C.caused_exposed_wait_ms],
            "speed_ratio": row[C.speed_ratio],
            **_launch_leads(facts, rank),
        },
        issue="waited",
    )


def jitter(facts: RankFacts) -> Iterator[Finding]:
    """Steps that wait for different ranks.

    Symptom: no rank is late in most steps, but steps take longer than that of the median rank.
    Rule: in at least {MIN_STEPS} steps, the ranks wait longest, without computing, for two ranks or
    more, for none of them in {PERSISTENT_SHARE:.0%} of the steps, and the slowest rank takes
    {MIN_JITTER_PCT}% of the step time more than the median one, without waiting.
    Threshold: the gain above, if all ranks are as the median rank.
    """
    steps = compared_steps(facts)
    if steps < MIN_STEPS or persistent_rank(facts) or facts.joint is None:
        return
    own = facts.own_ms.group_by(C.step).agg(
        (pl.col("own_ms").max() - pl.col("own_ms").median()).alias("excess")
    )
    excess_pct = share_pct(float(own["excess"].sum()), facts.step_ms * own.height)
    if excess_pct < MIN_JITTER_PCT:
        return
    roots = latest_roots(facts)
    late_ranks = roots[C.root_rank].n_unique()
    gain = facts.joint.all_as_median()
    if late_ranks < 2 or not facts.is_worth(gain):
        return
    causes = _causes(facts, roots)
    yield facts.finding(
        "jitter",
        gain,
        {
            "steps": steps,
            "late_ranks": late_ranks,
            "excess_pct": excess_pct,
            "excess_ms": excess_pct * facts.step_ms / 100,
            "causes": _message("jitter.longer", causes),
        },
        actions=MESSAGES.texts("jitter.action"),
        evidence={"excess_pct": excess_pct, "step_count": steps},
        issue="waited",
    )


def _launch_leads(facts: RankFacts, rank: int) -> dict[str, float]:
    """Return how far the host of a rank is ahead of its GPU in the median step, and those of the
    other ranks; nothing where that is not known."""
    steps = facts.tables["rank_steps"].drop_nulls(C.launch_lead_us)
    leads = steps.group_by(pl.col(C.rank) == rank).agg(pl.col(C.launch_lead_us).median())
    lead_us = dict(leads.iter_rows())
    names = {True: "launch_lead_us", False: "usual_launch_lead_us"}
    return {name: lead_us[is_own] for is_own, name in names.items() if is_own in lead_us}


def _waiting_ranks(facts: RankFacts, rank: int) -> int:
    """Return how many ranks wait at collectives to which this one comes last."""
    late = facts.inner.filter(pl.col(C.last_rank) == rank)
    waiting = facts.tables["instance_ranks"].filter(pl.col(C.rank) != rank, pl.col(C.wait_ns) > 0)
    return waiting.join(late, on=C.instance_id, how="semi")[C.rank].n_unique()


def _exceeds_noise(facts: RankFacts, rank: int) -> bool:
    """Return whether the own time of a rank exceeds that of the others by more than noise."""
    own = facts.own_ms.group_by(C.rank).agg(pl.col("own_ms").median()).sort(C.rank)
    extra = own.with_columns(pl.col("own_ms") - pl.col("own_ms").median())
    spread = pl.col("own_ms").abs().median()
    large = extra.filter(pl.col("own_ms") > MADS * NORMAL * spread)
    return rank in large[C.rank]


class _Causes(NamedTuple):
    """What late ranks took longer in, most first: state, detail and extra ms per step.

    ``steps`` are those in which late ranks can be compared. In all else they took ``less_ms`` less,
    most of it in ``less_in``, if a single state has most. The causes minus that are the delay.
    ``operations`` are the rows of ``main_operations`` by state and detail, if those of all steps
    are known.
    """

    longer: Sequence[tuple[str, str | None, float]]
    operations: Mapping[tuple[str, str | None], Mapping[str, Any]]
    steps: int
    less_ms: float
    less_in: tuple[str, str | None] | None


def _causes(facts: RankFacts, roots: pl.DataFrame) -> _Causes:
    """Return the causes of delays."""
    known = facts.tables["lateness"].filter(
        pl.col(C.instance_id).is_in(roots[C.root_instance].implode()), is_comparable(), is_own()
    )
    extra = pl.col(C.extra_ns)
    own = (
        facts.tables["lateness_causes"]
        .join(known, on=C.instance_id, how="semi")
        .group_by(C.state, C.detail)
        .agg(extra.sum())
        .sort(C.extra_ns, C.state, C.detail, descending=[True, False, False])
    )
    rows = own.filter(extra > 0, extra >= MIN_CAUSE_SHARE * extra.max()).head(CAUSES_SHOWN)
    per_step = 1e6 * max(known.height, 1)
    less_ms = max(0, int(rows[C.extra_ns].sum()) - int(own[C.extra_ns].sum())) / per_step
    shorter = own.filter(extra < 0)
    most = shorter.filter(extra <= MAIN_SHARE * extra.sum()).select(C.state, C.detail)
    return _Causes(
        list(rows.select(C.state, C.detail, extra / per_step).iter_rows()),
        _operations(facts, known),
        known.height,
        less_ms,
        most.row(-1) if most.height else None,
    )


def _operations(
    facts: RankFacts, known: pl.DataFrame
) -> Mapping[tuple[str, str | None], Mapping[str, Any]]:
    rows = facts.tables["lateness_operations"].join(known, on=C.instance_id, how="semi")
    if rows[C.instance_id].n_unique() < known.height:
        return {}
    found = main_operations(rows).iter_rows(named=True)
    return {(row[C.state], row[C.detail]): row for row in found}


def _cause(causes: _Causes, state: str, detail: str | None, extra_ms: float) -> Message:
    named = {"state": _name(state, detail), "extra_ms": extra_ms}
    row = causes.operations.get((state, detail))
    if row is None or row[C.extra_ns] < MIN_CAUSE_SHARE * extra_ms * 1e6 * causes.steps:
        return MESSAGES("late.cause", **named)
    return MESSAGES.pick(
        f"late.cause.{row['reason']}",
        {
            **named,
            "name": row[C.name],
            "operation_ms": row[C.extra_ns] / 1e6 / causes.steps,
            "kernels": row[C.kernel_count] / causes.steps,
            "usual_kernels": row[C.yardstick_kernel_count] / causes.steps,
            "bytes": row[C.bytes] / causes.steps,
            "usual_bytes": row[C.yardstick_bytes] / causes.steps,
        },
    )


def _message(key: str, causes: _Causes) -> Message | None:
    if not causes.longer:
        return None
    parts = tuple(_cause(causes, *longer) for longer in causes.longer)
    less_ms = causes.less_ms
    if less_ms >= MIN_CAUSE_SHARE * causes.longer[0][2]:
        parts += (
            MESSAGES("late.less", less_ms=less_ms)
            if causes.less_in is None
            else MESSAGES("late.less_in", less_ms=less_ms, state=_name(*causes.less_in)),
        )
    return MESSAGES(key, parts=parts, known=causes.steps)


def _name(state: str, detail: str | None) -> str:
    if detail is None or state == State.COMMUNICATION:
        return state
    name = detail.replace("_", " ")
    return f"{name} kernels" if state == State.COMPUTE else f"{state} ({name})"


def _actions(causes: _Causes) -> list[Message]:
    keys = dict.fromkeys(_action(state, detail) for state, detail, _ in causes.longer)
    first = () if causes.steps > 1 else ("one_step",) if causes.longer else ("no_step",)
    return [MESSAGES(f"late.action.{key}") for key in (*first, *keys)]


def _action(state: str, detail: str | None) -> str:
    if state == State.COMPUTE:
        return "compute"
    if state == State.COPY:
        return "copy"
    known = (IdleCause.DATA_LOADING, IdleCause.SYNCHRONIZATION)
    return detail if detail in known else "host"
