"""What single checks measure beyond the sums of their rows."""

import math
import re
import statistics
from typing import Any

from tests.arithmetic.run_directory import Row, RunDirectory, by_time
from tests.arithmetic.units import (
    ANOMALY_PCT,
    FILL_OR_CAST,
    KERNEL_FLOOR_US,
    TRANSPOSE,
    Facts,
    efficiency_pct,
    own_rows,
    share,
    time_ms,
)

SIMPLE = ("aten::add_", "aten::mul", "aten::copy_")
LARGE_BYTES = 8 * 2**20
HELPER = re.compile(r"postgsu|splitkreduce|splitk_reduce|transpose|memset|fillbuffer")
ELEMENT_BYTES = {"float": 4, "c10::BFloat16": 2, "c10::Half": 2, "double": 8}
PASSES = {"training": 3, "inference": 2, "backward": 5}


def of_overheads(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """Kernels of the convolutions that convolve nothing."""
    kind = TRANSPOSE if finding["check"] == "layout_transposes" else FILL_OR_CAST
    category = run.category("convolution")
    spent = {row.uid: row.kernel_time_us(kind.search) for row in category}
    meant = [row for row in category if spent[row.uid] > 0]
    total_us = math.fsum(spent.values())
    matching = [k for row in meant for k in row.kernels if kind.search(k["name"].lower())]
    first = max(meant, key=lambda row: (spent[row.uid], -row.uid))
    names = {kernel["name"] for kernel in matching}
    facts["overhead_ms"].append(total_us / 1000)
    facts["overhead_of_category_pct"].append(share(total_us / 1000, time_ms(category)))
    facts["overhead_of_compute_pct"].append(share(total_us / 1000, run.compute_ms))
    facts["overhead_launches"].append(sum(kernel["count"] for kernel in matching))
    facts["overhead_of_heaviest_pct"].append(share(spent[first.uid], first.time_us))
    facts["category_ms"].append(time_ms(category))
    facts["kernel_names"].append(len(names))
    for direction in ("forward", "backward"):
        of_direction = [spent[row.uid] for row in meant if row.direction == direction]
        facts[f"overhead_{direction}_ms"].append(math.fsum(of_direction) / 1000)
    last = [row for row in meant if row.cells.get("layout") == "channels_last"]
    last_us = math.fsum(spent[row.uid] for row in last)
    facts["overhead_in_channels_last_pct"].append(share(last_us, total_us))


def baseline_rows(run: RunDirectory) -> list[Row]:
    """Simple operators on large tensors that stay within the GPU."""
    return by_time(
        row
        for row in run.rows.values()
        if row.name in SIMPLE
        and (row.bytes or 0) >= LARGE_BYTES
        and row.time_us
        and (row.efficiency_pct or 0.0) <= ANOMALY_PCT
        and not any(re.search(r"HtoD|DtoH", kernel["name"]) for kernel in row.kernels)
    )


def of_baseline(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    large = baseline_rows(run)
    total_us = math.fsum(row.time_us for row in large)
    moved = math.fsum((row.bytes or 0) * row.calls for row in large)
    reached = efficiency_pct(large) or 0.0
    calls = sum(row.calls for row in large)
    contiguous = math.fsum(r.time_us for r in large if r.cells.get("access") == "contiguous")
    facts["baseline_tb_per_s"].append(moved / total_us / 1e6)
    facts["baseline_pct"].append(reached)
    facts["baseline_best_pct"].append(max(row.efficiency_pct or 0.0 for row in large))
    facts["baseline_calls"].append(calls)
    facts["contiguous_pct"].append(share(contiguous, total_us))
    if finding["check"] == "slow_kernel":
        (total_ms,), (own_pct,) = facts["time_ms"], facts["efficiency_pct"]
        shortest_ms = max(facts["calls"][0], facts["launches"][0]) * KERNEL_FLOOR_US / 1000
        facts["aim_ms"].append(max(total_ms * own_pct / min(reached, 100.0), shortest_ms))
        facts["baseline_times"].append(reached / own_pct)


def of_helpers(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """Kernels beside a product."""
    rows = own_rows(run, finding)
    spent_ms = math.fsum(row.kernel_time_us(HELPER.search) for row in rows) / 1000
    facts["helper_ms"].append(spent_ms)
    facts["helper_pct"].append(share(spent_ms, time_ms(rows)))


def of_variance(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """Mean and sample standard deviation of one row's calls, one kernel each."""
    (row,) = own_rows(run, finding)
    (kernel,) = row.kernels
    durations_us = [e.duration_ns / 1000 for e in run.events.kernels if e.name == kernel["name"]]
    assert len(durations_us) == row.calls
    facts["std_us"].append(statistics.stdev(durations_us))
    facts["variation"].append(facts["std_us"][0] / statistics.fmean(durations_us))


def of_estimated_bandwidth(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """Passes over the input of a normalization that no model covers."""
    rows = own_rows(run, finding)
    mode = next((mode for mode in PASSES if f"({mode})" in finding["title"]), "training")
    passes = PASSES[mode]
    moved = math.fsum(passes * _input_bytes(row) * row.calls for row in rows)
    reached = moved / 1e9 / time_ms(rows)
    facts["passes"].append(passes)
    facts["estimated_tb_per_s"].append(reached)
    facts["estimated_pct"].append(share(reached, rows[0].peak_tb_per_s or 0.0))


def _input_bytes(row: Row) -> float:
    types = re.findall(r"'([^']*)'", row.cells["Input type"])
    return math.prod(row.shapes[0]) * ELEMENT_BYTES[types[0]]
