"""Transfers that run while nothing is computed, and what they could run beside."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from jarvis.core.arrays import Float64s, Int64s
from jarvis.findings import Finding
from jarvis.perf_report.intervals import covered_until
from jarvis.ranks.findings.facts import RankFacts
from jarvis.ranks.findings.pipeline import schedule_of
from jarvis.ranks.gain import StepGain
from jarvis.ranks.members import Batch, Member
from jarvis.ranks.messages import MESSAGES
from jarvis.ranks.roles import Role
from jarvis.schemas.names import C
from jarvis.text.messages import Message

_NAMED = (Role.EXPERT, Role.PIPELINE, Role.DATA, Role.TENSOR)
_GATHERED, _GRADIENTS = ("all_gather",), ("all_reduce", "reduce_scatter")
_SCHEMA = pl.Schema({C.instance_id: pl.Int64, C.rank: pl.Int64, "hideable_ns": pl.Float64})


def exposed_transfer(facts: RankFacts) -> Iterator[Finding]:
    """Transfers beside which nothing is computed, although there is other compute.

    Symptom: the ranks have all arrived, and compute waits for the transfer.
    Rule: transfer without compute, in the median of the ranks. What could run beside compute: of
    experts and pipelines, where a step has several micro-batches, that of the other ones; of
    gathered parameters, that since the gather before; of gradients, that until the last gradients
    of the step are sent; each at most the compute beside which no communication runs, once. Sums of
    tensors have no other compute unless they are split. The gain is between half and all of that
    hidden.
    Threshold: the gain above.
    """
    events = _events(facts)
    if facts.joint is None or events.is_empty():
        return
    steps = events[C.step].n_unique()
    of_ranks = events.group_by(C.rank).agg(pl.col(C.exposed_ns, "hideable_ns").sum())
    hideable_ms, exposed_ms = (
        float(np.median(of_ranks[name])) / 1e6 / steps for name in ("hideable_ns", C.exposed_ns)
    )
    if hideable_ms <= 0:
        return
    hidden = (
        events.group_by(C.instance_id, C.transfer_us)
        .agg(pl.col("hideable_ns").median() / 1e3)
        .filter(pl.col("hideable_ns") > 0, pl.col(C.transfer_us) > 0)
        .sort(C.instance_id)
    )
    gains = []
    for part in (0.5, 1.0):
        left = 1 - part * pl.col("hideable_ns") / pl.col(C.transfer_us)
        factors = hidden.select(C.instance_id, left.clip(0, 1)).iter_rows()
        gains.append(facts.joint.scaled_transfer(dict(factors)))
    gain = StepGain(gains[0].low_ms, max(gains[0].low_ms, gains[1].high_ms))
    if not facts.is_worth(gain):
        return
    sums = events.group_by(C.role, C.rank).agg(pl.col(C.exposed_ns).sum() / 1e6 / steps)
    of_roles = dict(sums.group_by(C.role).agg(pl.col(C.exposed_ns).median()).iter_rows())
    parts = tuple(
        MESSAGES(f"exposed.{role.value}", exposed_ms=of_roles[role])
        for role in _NAMED
        if of_roles.get(role)
    )
    yield facts.finding(
        "exposed_transfer",
        gain,
        {"exposed_ms": exposed_ms, "hideable_ms": hideable_ms, "parts": parts},
        actions=list(_actions(events)),
        evidence={"exposed_ms": exposed_ms, "hideable_ms": hideable_ms},
    )


def _actions(events: pl.DataFrame) -> Iterator[Message]:
    hidden = events.filter(pl.col("hideable_ns") > 0)
    for role in hidden[C.role].unique().sort():
        if role != Role.DATA:
            yield MESSAGES(f"exposed.action.{role}")
    kinds = set(hidden.filter(pl.col(C.role) == Role.DATA)[C.kind])
    if kinds & set(_GATHERED):
        yield MESSAGES("exposed.action.dp")
    if kinds & set(_GRADIENTS):
        yield MESSAGES("exposed.action.gradients")
    if events.filter(pl.col(C.role) == Role.TENSOR)[C.exposed_ns].sum():
        yield MESSAGES("exposed.action.tp")


def _events(facts: RankFacts) -> pl.DataFrame:
    """Return the kernels of the instances of steps: ``rank, instance_id, step, kind, role,
    transfer_us`` (of the instance), ``exposed_ns``, the transfer without compute, and
    ``hideable_ns``, what of it other compute could hide.

    What several kernels of a rank transfer at the same time is that of the one that began first.
    """
    instances = facts.inner.filter(pl.col(C.step).is_not_null(), ~pl.col(C.transfer_is_bound))
    roles = facts.tables["communicators"].select(C.comm_id, C.role)
    before_ns = pl.col(C.end_ns).cum_max().shift().over(C.rank).fill_null(0)
    until_ns = pl.max_horizontal(C.end_ns, before_ns) - pl.max_horizontal(
        pl.col(C.end_ns) - pl.col(C.transfer_ns), before_ns
    )
    share = pl.when(pl.col(C.transfer_ns) > 0).then(until_ns / pl.col(C.transfer_ns)).otherwise(0.0)
    events = (
        facts.tables["instance_ranks"]
        .sort(C.rank, C.start_ns, C.uid)
        .with_columns((share * pl.col(C.exposed_transfer_ns)).alias(C.exposed_ns))
        .join(
            instances.select(C.instance_id, C.comm_id, C.kind, C.step, C.transfer_us),
            on=C.instance_id,
        )
        .join(roles, on=C.comm_id)
        .sort(C.rank, C.start_ns, C.uid)
    )
    schedule = schedule_of(facts)
    micro_batches = schedule.micro_batches if schedule else 1
    members = facts.joint.members if facts.joint is not None else []
    found = [
        _hideable(member, events.filter(pl.col(C.rank) == member.rank), micro_batches)
        for member in members
    ]
    return events.join(
        pl.concat([pl.DataFrame(schema=_SCHEMA), *found]), on=[C.instance_id, C.rank]
    )


def _hideable(member: Member, events: pl.DataFrame, micro_batches: int) -> pl.DataFrame:
    """Return ``instance_id, rank, hideable_ns`` of the kernels of a rank, by their start."""
    batch = Batch([member])
    kernels = batch.read("collectives", C.uid, C.ts_ns, C.end_ns)
    kernels = kernels.select(C.uid, batch.on_axis(C.ts_ns), batch.on_axis(C.end_ns))
    communication = kernels.select(C.ts_ns, (pl.col(C.end_ns) - pl.col(C.ts_ns)).alias(C.dur_ns))
    both = pl.concat([batch.compute(), communication])

    def free(times: Int64s) -> Int64s:
        """Return the compute before each time beside which no communication runs."""
        return covered_until(both, times) - covered_until(communication, times)

    kernels = kernels.rename({C.end_ns: "until_ns"})
    own = events.join(kernels, on=C.uid, maintain_order="left")
    begins, ends = (free(own[time].to_numpy()) for time in (C.ts_ns, "until_ns"))
    exposed, found = own[C.exposed_ns].to_numpy(), np.zeros(own.height)
    is_data = own[C.role] == Role.DATA
    is_gathered = (is_data & own[C.kind].is_in(_GATHERED)).to_numpy()
    is_gradient = (is_data & own[C.kind].is_in(_GRADIENTS)).to_numpy()
    is_other = own[C.role].is_in([Role.EXPERT, Role.PIPELINE]).to_numpy()
    numbers = own[C.step].to_numpy()
    steps = member.tables["steps"]
    number = pl.coalesce(C.number, C.step) if C.number in steps.columns else pl.col(C.step)
    for step, start_ns, dur_ns in steps.select(number, C.start_ns, C.dur_ns).iter_rows():
        of_step = numbers == step
        gathers, gradients, others = (
            np.flatnonzero(of_step & chosen) for chosen in (is_gathered, is_gradient, is_other)
        )
        since = np.diff(begins[gathers], prepend=begins[gathers[:1]])
        if gathers.size:
            since[1:] = begins[gathers[1:]] - ends[gathers[:-1]]
        found[gathers] = np.minimum(exposed[gathers], since)
        found[gradients] = _one_after_another(exposed[gradients], begins[gradients])
        begin_ns = start_ns - member.origin_ns
        start, end = free(np.array([begin_ns, begin_ns + dur_ns]))
        left = (1 - 1 / micro_batches) * (end - start) - found[of_step].sum()
        if others.size and (whole := exposed[others].sum()) > 0:
            found[others] = exposed[others] * np.clip(left / whole, 0, 1)
    return own.select(C.instance_id, C.rank, pl.Series("hideable_ns", found))


def _one_after_another(exposed: Float64s, free: Int64s) -> Float64s:
    """Return what of each transfer the free compute until the start of the last one can hide.

    Args:
        exposed: The transfers without compute, by time.
        free: The free compute until each of them starts.
    """
    hidden, used = np.zeros(exposed.size), 0.0
    for place in range(exposed.size - 2, -1, -1):
        hidden[place] = max(0.0, min(exposed[place], free[-1] - free[place] - used))
        used += hidden[place]
    return hidden
