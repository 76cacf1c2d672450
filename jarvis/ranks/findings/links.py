"""Collectives whose transfer is slow, small or uneven."""

from collections.abc import Iterator

import polars as pl

from jarvis.findings import Finding, Priority
from jarvis.impact import share_pct
from jarvis.ranks.findings.facts import RANKS, RankFacts
from jarvis.ranks.gain import StepGain
from jarvis.ranks.matching import SAME_SIZE
from jarvis.ranks.messages import MESSAGES
from jarvis.schemas.names import C

MIN_BYTES = 1 << 20
"""Smaller messages do not show the bandwidth of a link."""

MAX_LINK_SHARE = 0.5
"""A link that moves less than this share of its peak is slow."""

LATENCY_SHARE = 0.5
"""A transfer of which the latency floor is at least this share is bound by latency."""

MIN_SMALL_SHARE = 0.3
"""Share of the exposed transfer from which on messages are too small."""

OF_EXPERTS = ("all_to_all_v", "dispatch", "combine")
"""Kinds whose ranks receive as many bytes as their experts get tokens."""

MIN_BYTES_RATIO = 1.2
"""Received bytes of a rank against the mean from which on they are uneven."""


def slow_link(facts: RankFacts) -> Iterator[Finding]:
    """Large messages that move far below the peak of the link.

    Symptom: large collectives take long after all ranks have arrived.
    Rule: in a communicator with all its ranks recorded, messages of at least {MIN_BYTES:,} bytes
    reach less than {MAX_LINK_SHARE:.0%} of the peak of the link in the median, and latency is less
    than {LATENCY_SHARE:.0%} of their transfer.
    Threshold: the gain above, if they reach that share.
    """
    links = facts.tables["communicators"].select(C.comm_id, C.link_gbs).drop_nulls()
    large = facts.inner.join(links, on=C.comm_id).filter(
        pl.col(C.bytes) >= MIN_BYTES, ~pl.col(C.transfer_is_bound), pl.col(C.bus_gbs) > 0
    )
    large = large.filter(~_is_latency_bound())
    if facts.joint is None:
        return
    for (comm_id,), rows in large.group_by(C.comm_id, maintain_order=True):
        peak, bus = rows.select(pl.col(C.link_gbs).first(), pl.col(C.bus_gbs).median()).row(0)
        if bus >= MAX_LINK_SHARE * peak:
            continue
        instances = rows[C.instance_id].to_list()
        ends = (
            facts.joint.scaled_transfer(dict.fromkeys(instances, bus / reached))
            for reached in (MAX_LINK_SHARE * peak, peak)
        )
        gain = StepGain(next(ends).low_ms, next(ends).high_ms)
        if facts.is_worth(gain):
            share = {"pct_of_link_pct": share_pct(bus, peak)}
            speed = {"bus_gb_per_s": bus, "peak_gb_per_s": peak}
            named = {"communicator": str(comm_id), "instances": rows.height}
            yield facts.finding(
                "slow_link",
                gain,
                {**share, **speed, **named, "min_bytes": MIN_BYTES},
                actions=MESSAGES.texts("link.action"),
                evidence={**named, **speed},
            )


def small_messages(facts: RankFacts) -> Iterator[Finding]:
    """Messages whose transfer is mostly latency.

    Symptom: many collectives with small messages.
    Rule: collectives of which the latency floor (of messages of hardly any bytes in the same
    communicator) is at least {LATENCY_SHARE:.0%} of the transfer are at least
    {MIN_SMALL_SHARE:.0%} of the exposed transfer. The gain is between half and all but one of them
    in each step bundled into others.
    Threshold: the gain above.
    """
    if facts.joint is None:
        return
    exposed = (
        facts.tables["instance_ranks"]
        .group_by(C.instance_id)
        .agg(pl.col(C.exposed_transfer_ns).sum())
        .join(facts.inner, on=C.instance_id)
    )
    small = exposed.filter(_is_latency_bound())
    whole, part = (float(rows[C.exposed_transfer_ns].sum()) for rows in (exposed, small))
    if small.is_empty() or part < MIN_SMALL_SHARE * whole:
        return
    instances = small[C.instance_id].to_list()
    in_step = small.height / max(small[C.step].n_unique(), 1)
    ends = (
        facts.joint.scaled_transfer(dict.fromkeys(instances, factor))
        for factor in (max(0.5, 1 / in_step), 1 / in_step)
    )
    gain = StepGain(next(ends).low_ms, next(ends).high_ms)
    if facts.is_worth(gain):
        mean_bytes = small[C.bytes].mean()
        values = {
            "instances": small.height,
            "pct": share_pct(part, whole),
            "mean_bytes": mean_bytes,
        }
        yield facts.finding(
            "small_messages",
            gain,
            values,
            actions=MESSAGES.texts("small.action"),
            evidence={"instances": small.height, "mean_size_bytes": mean_bytes},
        )


def ep_imbalance(facts: RankFacts) -> Iterator[Finding]:
    """Ranks that receive more of an all-to-all than others.

    Symptom: an all-to-all of experts takes as long as the rank with the most bytes.
    Rule: in all-to-alls with sizes by rank, dispatches and combines, with all ranks recorded, a
    rank receives at least {MIN_BYTES_RATIO} times the mean of the ranks.
    Threshold: the gain above, if each rank receives the mean; latency stays.
    """
    kinds = facts.inner.filter(pl.col(C.kind).is_in(OF_EXPERTS), ~pl.col(C.transfer_is_bound))
    received = facts.tables["instance_ranks"].join(
        kinds.select(C.instance_id, C.transfer_us, C.floor_us), on=C.instance_id
    )
    most, mean = pl.col(C.out_bytes).max(), pl.col(C.out_bytes).mean()
    is_uneven = pl.col(C.out_bytes).is_not_null().all() & (most >= MIN_BYTES_RATIO * mean)
    uneven = received.filter((is_uneven & (mean > 0)).over(C.instance_id))
    if facts.joint is None or uneven.is_empty():
        return
    fixed = (pl.col(C.floor_us) / pl.col(C.transfer_us)).clip(0, 1).fill_null(0).first()
    factors = uneven.group_by(C.instance_id).agg((fixed + (1 - fixed) * mean / most).alias("f"))
    gain = facts.joint.scaled_transfer(dict(factors.iter_rows()))
    if facts.is_worth(gain):
        totals = uneven.group_by(C.rank).agg(pl.col(C.out_bytes).sum())
        rank, most_bytes = totals.sort(C.out_bytes, C.rank, descending=[True, False]).row(0)
        mean_bytes = int(totals[C.out_bytes].sum()) / totals.height
        sizes = {"most_bytes": most_bytes, "mean_bytes": mean_bytes}
        named = {
            "instances": factors.height,
            "more_pct": share_pct(most_bytes - mean_bytes, mean_bytes),
        }
        pair, sender = _largest_sender(facts, uneven, rank), {}
        if pair is not None:
            sender = {"sender": pair[0], "sent_size_bytes": pair[1]}
        yield facts.finding(
            "ep_imbalance",
            gain,
            {
                "rank": str(rank),
                **named,
                **sizes,
                "pair": pair and MESSAGES("experts.pair", sender=str(pair[0]), sent_bytes=pair[1]),
            },
            actions=MESSAGES.texts("experts.action"),
            evidence={
                "rank": rank,
                **named,
                "most_size_bytes": most_bytes,
                "mean_size_bytes": mean_bytes,
                **sender,
            },
            issue="received",
        )


def _largest_sender(facts: RankFacts, uneven: pl.DataFrame, rank: int) -> tuple[int, int] | None:
    """Return the rank that sends the most to another one of its all-to-alls, and the bytes; None if
    sizes by rank are not recorded."""
    own = uneven.filter(pl.col(C.rank) == rank).select(C.instance_id)
    others = uneven.join(own, on=C.instance_id, how="semi")[C.rank].unique().implode()
    sent = facts.tables["pairs"].filter(
        pl.col(C.dst) == rank, pl.col(C.src) != rank, pl.col(C.src).is_in(others)
    )
    if sent.is_empty():
        return None
    src, size = sent.sort(C.bytes, C.src, descending=[True, False]).select(C.src, C.bytes).row(0)
    return int(src), int(size)


def mismatch(facts: RankFacts) -> Iterator[Finding]:
    """Ranks that send different sizes in one collective.

    Symptom: the ranks of an all-reduce, or of another kind with equal messages, do not agree.
    Rule: the recorded bytes of the ranks differ within an instance.
    Threshold: one instance.
    """
    kinds = facts.tables["instances"].filter(pl.col(C.kind).is_in(SAME_SIZE))
    sizes = (
        facts.tables["instance_ranks"]
        .drop_nulls(C.in_bytes)
        .join(kinds.select(C.instance_id, C.comm_id), on=C.instance_id)
        .with_columns(pl.col(C.in_bytes).mode().min().over(C.instance_id).alias("usual"))
        .filter(pl.col(C.in_bytes) != pl.col("usual"))
        .sort(C.instance_id, C.rank)
    )
    if sizes.is_empty():
        return
    first = sizes.row(0, named=True)
    values = {
        "instances": sizes[C.instance_id].n_unique(),
        "communicator": first[C.comm_id],
        "rank": str(first[C.rank]),
        "own_bytes": first[C.in_bytes],
        "other_bytes": first["usual"],
    }
    yield Finding(
        check="mismatch",
        category=RANKS,
        title=MESSAGES.pick("mismatch.title", values),
        issue=MESSAGES.pick("mismatch.issue", values),
        algorithmic=MESSAGES.texts("mismatch.action"),
        kernel=(),
        evidence={"instances": values["instances"], "rank": first[C.rank]},
        priority_local=Priority.MEDIUM,
        priority=Priority.MEDIUM,
        caveat=facts.caveat,
    )


def _is_latency_bound() -> pl.Expr:
    share = pl.col(C.floor_us) / pl.col(C.transfer_us)
    return (share >= LATENCY_SHARE).fill_null(value=False)
