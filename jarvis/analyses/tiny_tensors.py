"""Whose parameters, buffers or counters an operator takes one by one, and how to end that."""

from collections.abc import Mapping

import polars as pl

from jarvis.analyses.wording import quoted

DATA_PARALLEL = "DistributedDataParallel"
"""The module that keeps the replicas of a model alike; it copies outside all other modules."""

MIN_SHARE = 0.2
"""An owner of a smaller share of an operator's time is not worth a word."""

BUFFERS = (
    f"`{DATA_PARALLEL}` copies the buffers of the model one by one before each forward pass: set "
    "`broadcast_buffers=False` if the ranks need not share them, such as running statistics."
)
GRADIENTS = (
    f"`{DATA_PARALLEL}` copies gradients between parameters and its buckets one by one: set "
    "`gradient_as_bucket_view=True`, so that they live there."
)
AVERAGES = (
    f"`{DATA_PARALLEL}` divides each gradient by the number of ranks on its own: a communication "
    "hook that averages a whole bucket does so in one call."
)
COUNTERS = (
    "On single values in batch normalization it most likely counts batches: set "
    "`num_batches_tracked` of these layers to None, which only layers without a momentum need."
)


def owner_advice(rows: pl.DataFrame) -> pl.Series:
    """What to do about the launch-bound calls of each row's operator, most time first.

    All rows of an operator have the same owners' texts, as any may be the heaviest; where owners
    do not account for half of its time, each also says to gather what it takes.
    """
    is_parallel = any(place and place.startswith(DATA_PARALLEL) for place in rows["called_from"])
    columns = ("name", "called_from", "arguments", "kernel_time_us")
    calls = rows.filter("is_launch_bound").select(columns).to_dicts()
    totals: dict[str, float] = {}
    owned: dict[tuple[str, str], float] = {}
    for call in calls:
        totals[call["name"]] = totals.get(call["name"], 0.0) + call["kernel_time_us"]
        if text := _owner(call, is_parallel=is_parallel):
            key = call["name"], text
            owned[key] = owned.get(key, 0.0) + call["kernel_time_us"]
    texts: dict[str, list[str]] = {}
    unowned = dict(totals)
    for (name, text), time_us in sorted(owned.items(), key=lambda item: -item[1]):
        if time_us >= MIN_SHARE * totals[name]:
            texts.setdefault(name, []).append(text)
            unowned[name] -= time_us
    rest = {name for name, time_us in unowned.items() if time_us > totals[name] / 2}
    advice = [
        " ".join((*texts.get(name, ()), *((_gather(name, place),) if name in rest else ())))
        for name, place in rows.select("name", "called_from").rows()
    ]
    return pl.Series("owner_advice", advice, dtype=pl.String)


def _owner(call: Mapping[str, str | None], *, is_parallel: bool) -> str | None:
    name, place = call["name"], call["called_from"]
    if place == DATA_PARALLEL and name == "aten::copy_":
        return BUFFERS
    if place is None and is_parallel:
        return {"aten::copy_": GRADIENTS, "aten::mul": AVERAGES}.get(name or "")
    is_counter = name == "aten::add_" and call["arguments"] is None
    return COUNTERS if is_counter and place and "BatchNorm" in place else None


def _gather(name: str, place: str | None) -> str:
    where = f", as in {quoted(place)}" if place else ""
    return (
        f"Gather the tensors that {quoted(name)} takes one by one{where}, such as parameters or "
        "statistics, and handle them in one call."
    )
