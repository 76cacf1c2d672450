"""What steps of inference spend beside the efficiency of operations, from the GPU events."""

import math
import statistics
from collections import Counter
from itertools import pairwise
from typing import Any

from tests.arithmetic.printed import numbers
from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.trace_events import SHORT_KERNEL_NS, GpuEvent
from tests.arithmetic.units import Facts, share

GRAPH_KERNELS = 100
"""Only graph launches have as many kernels with one correlation."""

OPTIONS = "from 0.5.13 on with `SGLANG_GRAPH_BATCH_CAPTURE=1`"
"""How the engine of the recorded trace records captures."""

ROTATES, WRITES_CACHE = "rotary_embedding", "store_kvcache"
"""Names of neighbors that are one kernel in other libraries."""


def of_replays(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """Work that graphs replay."""
    replayed = _replayed(run)
    _times(facts, run, replayed)
    facts["launches"].append(len({event.args["correlation"] for event in replayed}))
    facts["graph_launches"] = facts["launches"]
    facts["options"] = [number.value for number in numbers(OPTIONS)]


def of_short_kernels(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """Kernels below 10 µs, and what remains if all are as short as the shortest tenth."""
    short = run.events.short_kernels
    _times(facts, run, short)
    times = sorted(event.duration_ns for event in short)
    floor_ms = times[round((len(times) - 1) / 10)] / 1e6
    facts["short_kernels"] = facts["kernels"] = [len(short)]
    facts["limit_us"].append(SHORT_KERNEL_NS / 1000)
    facts["floor_ms"].append(floor_ms)
    facts["floor_us"].append(1000 * floor_ms)
    pairs = [
        min(a.duration_ns, b.duration_ns) / 1e6
        for a, b in pairwise(_replayed(run))
        if ROTATES in a.name and WRITES_CACHE in b.name
    ]
    facts["calls"].append(len(pairs))
    facts["pairs_ms"].append(math.fsum(pairs))
    spent_ms = sum(event.duration_ns for event in short) / 1e6
    facts["most_ms"].append(spent_ms - floor_ms * (len(short) - len(pairs)))


def of_slow_layers(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """The layers of a graph, the slowest one, and the kernel in it that grew most."""
    events = _replayed(run)
    first, period, count = _period([event.name for event in events])
    layers = [events[first + n * period :][:period] for n in range(count)]
    times = [sum(event.duration_ns for event in layer) / 1e6 for layer in layers]
    median_ms = statistics.median(times)
    (slow,) = (n for n, time_ms in enumerate(times) if time_ms > 1.25 * median_ms)
    usual = [statistics.median(layer[n].duration_ns for layer in layers) for n in range(period)]
    grown = max(range(period), key=lambda n: layers[slow][n].duration_ns - usual[n])
    facts["time_ms"] = [times[slow]]
    facts["time_us"] = facts["slowest_us"] = [1000 * times[slow]]
    facts["layers"], facts["of"], facts["replays"] = [1], [count], [1]
    facts["layer"] = [slow]
    facts["median_us"] = facts["median_layer_us"] = [1000 * median_ms]
    facts["excess_ms"].append(times[slow] - median_ms)
    facts["position"].append(grown)
    facts["grown_us"].append(layers[slow][grown].duration_ns / 1e3)
    facts["usual_us"].append(usual[grown] / 1e3)


def _times(facts: Facts, run: RunDirectory, events: list[GpuEvent]) -> None:
    spent_ms, whole_ms = (
        sum(event.duration_ns for event in some) / 1e6 for some in (events, run.events.gpu)
    )
    facts["time_ms"] = [spent_ms]
    facts["share_pct"] = facts["gpu_time_pct"] = [share(spent_ms, whole_ms)]


def _replayed(run: RunDirectory) -> list[GpuEvent]:
    links = Counter(event.args.get("correlation") for event in run.events.gpu)
    many = {link for link, count in links.items() if count > GRAPH_KERNELS}
    found = [event for event in run.events.gpu if event.args.get("correlation") in many]
    return sorted(found, key=lambda event: event.span)


def _period(names: list[str]) -> tuple[int, int, int]:
    """Begin, length and number of what repeats longest."""
    best = (0, 1, 0)
    for period in range(2, len(names) // 3):
        same = [a == b for a, b in zip(names, names[period:], strict=False)]
        run = 0
        for end, is_same in enumerate((*same, False)):
            if not is_same:
                count = run // period + 1
                if run >= 2 * period and count * period > best[1] * best[2]:
                    best = (end - run, period, count)
            run = run + 1 if is_same else 0
    return best
