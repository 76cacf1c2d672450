"""Advice on operators that process parameters, buffers or counters one by one."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from jarvis.analyses.operations import module_classes
from jarvis.schemas.names import C
from jarvis.text.messages import Message, MessageTable, action

DATA_PARALLEL = "DistributedDataParallel"
"""The module that synchronizes the replicas of a model; it copies outside all other modules."""

MIN_SHARE = 0.2
"""Owners with a smaller share of an operator's time are not reported."""

MESSAGES = MessageTable(
    "tiny_tensors",
    {
        "buffers": f"Set `broadcast_buffers=False` of `{DATA_PARALLEL}` if the ranks need not "
        "share buffers, such as running statistics.",
        "gradients": action(
            f"Set `gradient_as_bucket_view=True`, so that `{DATA_PARALLEL}` copies no gradients to "
            "or from its buckets.",
            "has_backward",
        ),
        "averages": action(
            f"`{DATA_PARALLEL}` divides each gradient by the number of ranks separately: a "
            "communication hook that averages a whole bucket does so in one call.",
            "has_backward",
        ),
        "counters": "On single values in batch normalization it most likely counts batches: set "
        "`num_batches_tracked` of these layers to None, which only layers without a momentum need.",
        "gather": "Collect the tensors that {name} processes one by one, such as parameters or "
        "statistics, and process them in one call.",
        "gather_in": "Collect the tensors that {name} processes one by one, as in "
        "{called_from:name}, such as parameters or statistics, and process them in one call.",
    },
)
BUFFERS, GRADIENTS, AVERAGES, COUNTERS = map(
    MESSAGES.id, ("buffers", "gradients", "averages", "counters")
)


def owner_advice(rows: pl.DataFrame) -> pl.Series:
    """Return ids of messages on the launch-bound calls of each row's operator.

    Most time comes first. All rows of an operator have the same owners' messages, as any may be the
    heaviest; if owners do not account for half of its time, each message also advises to collect
    its tensors.
    """
    is_parallel = any(place and place.startswith(DATA_PARALLEL) for place in rows[C.called_from])
    columns = (C.name, C.called_from, "arguments", C.kernel_time_us)
    calls = rows.filter(C.is_launch_bound).select(columns).to_dicts()
    totals: dict[str, float] = {}
    owned: dict[tuple[str, str], float] = {}
    for call in calls:
        totals[call[C.name]] = totals.get(call[C.name], 0.0) + call[C.kernel_time_us]
        if owner := _owner(call, is_parallel=is_parallel):
            key = call[C.name], owner
            owned[key] = owned.get(key, 0.0) + call[C.kernel_time_us]
    owners: dict[str, list[str]] = {}
    unowned = dict(totals)
    for (name, owner), time_us in sorted(owned.items(), key=lambda item: -item[1]):
        if time_us >= MIN_SHARE * totals[name]:
            owners.setdefault(name, []).append(owner)
            unowned[name] -= time_us
    rest = {name for name, time_us in unowned.items() if time_us > totals[name] / 2}
    advice = [
        [*owners.get(name, ()), *((_gather(place),) if name in rest else ())]
        for name, place in rows.select(C.name, C.called_from).rows()
    ]
    return pl.Series("owner_advice", advice, dtype=pl.List(pl.String))


def data_parallel_copies(copies: pl.DataFrame, operations: pl.DataFrame) -> tuple[Message, ...]:
    """Return the messages on the copies of ``DistributedDataParallel``, most time first.

    ``copies`` are those rows of ``operations`` that copy; without messages if most of their time is
    in others.
    """
    paths = operations[C.module_path].list.first()
    if not paths.str.starts_with(DATA_PARALLEL).any():
        return ()
    modules = module_classes()
    place = pl.coalesce(pl.when(modules.list.len() > 0).then(modules.list.join("/")), C.entry_point)
    times: dict[str, float] = {}
    for row in copies.with_columns(place.alias(C.called_from), arguments=None).to_dicts():
        if owner := _owner(row, is_parallel=True):
            times[owner] = times.get(owner, 0.0) + row[C.kernel_time_us]
    if sum(times.values()) <= copies[C.kernel_time_us].sum() / 2:
        return ()
    return tuple(Message(id=owner) for owner in sorted(times, key=lambda owner: -times[owner]))


def _owner(call: Mapping[str, Any], *, is_parallel: bool) -> str | None:
    name, place = call[C.name], call[C.called_from]
    if place == DATA_PARALLEL and name == "aten::copy_":
        return BUFFERS
    if place is None and is_parallel:
        return {"aten::copy_": GRADIENTS, "aten::mul": AVERAGES}.get(name or "")
    has_sides = "[" in (call["arguments"] or "").replace("[]", "")
    is_counter = name == "aten::add_" and not has_sides
    return COUNTERS if is_counter and place and "BatchNorm" in place else None


def _gather(place: str | None) -> str:
    return MESSAGES.id("gather_in" if place else "gather")
