"""Transfers that run while nothing is computed, and what they could run beside."""

from collections.abc import Iterator

import polars as pl

from jarvis.findings import Finding
from jarvis.ranks.findings.facts import RankFacts
from jarvis.ranks.findings.messages import MESSAGES
from jarvis.ranks.findings.pipeline import schedule_of
from jarvis.ranks.gain import StepGain
from jarvis.ranks.roles import Role
from jarvis.schemas.names import C

_GATHER = "all_gather"
_NAMED = (Role.EXPERT, Role.PIPELINE, Role.DATA, Role.TENSOR)


def exposed_transfer(facts: RankFacts) -> Iterator[Finding]:
    """Transfers beside which nothing is computed, although there is other compute.

    Symptom: the ranks have all arrived, and compute waits for the transfer.
    Rule: transfer without compute, in the median of the ranks. What could run beside compute: of
    experts and pipelines, where a step has several micro-batches, that of the other ones; of
    gathered parameters, that of the layer before; at most the compute of the step beside which no
    communication runs. Sums of tensors and gradients count as without other compute. The gain is
    between half and all of that hidden.
    Threshold: the gain above.
    """
    rows = _by_instance(facts)
    if facts.joint is None or rows.is_empty():
        return
    steps = rows[C.step].n_unique()
    schedule = schedule_of(facts)
    micro_batches = schedule.micro_batches if schedule else 1
    is_other = pl.col(C.role).is_in([Role.EXPERT, Role.PIPELINE]) & (micro_batches > 1)
    is_gathered = (pl.col(C.role) == Role.DATA) & (pl.col(C.kind) == _GATHER)
    hidden = rows.filter(is_other | is_gathered, pl.col(C.transfer_us) > 0)
    exposed_ms = float(hidden["exposed_us"].sum()) / 1e3 / steps
    others = (micro_batches - 1) / micro_batches if micro_batches > 1 else 1.0
    hideable_ms = min(exposed_ms, others * _free_compute_ms(facts))
    if hideable_ms <= 0:
        return
    gains = []
    for part in (0.5, 1.0):
        left = 1 - part * hideable_ms / exposed_ms * pl.col("exposed_us") / pl.col(C.transfer_us)
        factors = hidden.select(C.instance_id, left.clip(0, 1)).iter_rows()
        gains.append(facts.joint.scaled_transfer(dict(factors)))
    gain = StepGain(gains[0].low_ms, max(gains[0].low_ms, gains[1].high_ms))
    if not facts.is_worth(gain):
        return
    of_roles = rows.group_by(C.role).agg(pl.col("exposed_us").sum() / 1e3 / steps)
    sums = dict(of_roles.iter_rows())
    parts = tuple(
        MESSAGES(f"exposed.{role.value}", exposed_ms=sums[role])
        for role in _NAMED
        if sums.get(role)
    )
    roles = hidden[C.role].unique().sort().to_list()
    yield facts.finding(
        "exposed_transfer",
        gain,
        {"exposed_ms": exposed_ms, "hideable_ms": hideable_ms, "parts": parts},
        actions=[MESSAGES(f"exposed.action.{role}") for role in roles],
        evidence={"exposed_ms": exposed_ms, "hideable_ms": hideable_ms},
    )


def _by_instance(facts: RankFacts) -> pl.DataFrame:
    """Return the instances of steps with the role of their group, and ``exposed_us``, the median
    over the ranks of the transfer without compute."""
    exposed = (
        facts.tables["instance_ranks"]
        .group_by(C.instance_id)
        .agg((pl.col(C.exposed_transfer_ns).median() / 1e3).alias("exposed_us"))
    )
    roles = facts.tables["communicators"].select(C.comm_id, C.role)
    return (
        facts.inner.filter(pl.col(C.step).is_not_null(), ~pl.col(C.transfer_is_bound))
        .join(exposed, on=C.instance_id)
        .join(roles, on=C.comm_id)
        .sort(C.instance_id)
    )


def _free_compute_ms(facts: RankFacts) -> float:
    """Return the compute of the median step and rank beside which no communication runs."""
    parts = (C.exposed_wait_ns, C.exposed_transfer_ns)
    beside_ns = pl.col(C.end_ns) - pl.col(C.start_ns) - pl.sum_horizontal(parts)
    steps = facts.tables["rank_steps"]
    beside = (
        facts.tables["instance_ranks"]
        .join(facts.tables["instances"].select(C.instance_id, C.step), on=C.instance_id)
        .group_by(C.rank, C.step)
        .agg((beside_ns.sum() / 1e6).alias("beside_ms"))
    )
    free = (
        steps.join(beside, on=[C.rank, C.step], how="left")
        .select((pl.col(C.compute_ms) - pl.col("beside_ms").fill_null(0.0)).median())
        .item()
    )
    return max(0.0, free or 0.0)
