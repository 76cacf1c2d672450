"""Savings, priorities and order of findings, computed independently."""

import math
from collections import Counter
from typing import Any

from tests.arithmetic.replayed import FUSED, replayed_savings, without_kernels_ms
from tests.arithmetic.run_directory import Row, RunDirectory
from tests.arithmetic.units import (
    DOUBTFUL_CAUSES,
    IDLE_TARGET_PCT,
    KERNEL_FLOOR_US,
    OVERLAP_TARGET_PCT,
    TARGET_PCT,
    Facts,
    own_rows,
    quantities_of,
    share,
)

SHORT_CALL_US = 10.0
PRIORITIES = ("Critical", "High", "Medium", "Low")
SDPA_BANDS = (
    (512, (5.0, 15.0)),
    (1024, (8.0, 15.0)),
    (2048, (20.0, 40.0)),
    (4096, (40.0, 60.0)),
    (math.inf, (50.0, 70.0)),
)
"""Share of the compute peak to expect of fused attention, by the longer of queries and keys."""

PLAIN_PASS, LONG_ROWS = (70.0, 80.0), (50.0, 70.0)
NOT_BANDED = ("launch bound", "broadcast", "strided", "tiny tensors", "small tensor", "few rows",
              "one result", "strided axis", "short axis")  # fmt: skip
NOTABLE = ("tiny batched", "few tiles", "short K", "tall and skinny", "misaligned",
           "rotary embedding")  # fmt: skip
"""Patterns that say themselves what is wrong, so that they count for the priority."""

FASTER = ("low_efficiency", "opportunity", "slow_kernel", "estimated_bandwidth")
"""Checks of which the work remains, only faster."""

Saving = tuple[float, float, float]
"""Low, middle and high, in ms."""


def is_launch_bound(rows: list[Row]) -> bool:
    """Whether most time is in calls that are shorter than a launch and have hardly any work."""
    bound = [
        row
        for row in rows
        if row.time_us / row.calls < SHORT_CALL_US
        and row.roofline_us is not None
        and row.roofline_us < KERNEL_FLOOR_US
    ]
    return sum(row.time_us for row in bound) > sum(row.time_us for row in rows) / 2


def band_of(finding: dict[str, Any], row: Row, facts: Facts) -> tuple[float, float, float] | None:
    """Low and high end of what calls like the heaviest usually reach, and what these reach on the
    same scale; None where nothing is documented, or memory keeps them from reaching it."""
    efficiency, of_peak = facts.get("efficiency_pct"), facts.get("compute_peak_pct")
    found = None if _is_not_banded(finding) else _band(row)
    if found is None or not efficiency:
        return None
    (low, high), is_of_compute = found
    if not is_of_compute:
        return low, high, efficiency[0]
    if not of_peak or of_peak[0] < high * efficiency[0] / 100:
        return None
    return low, high, of_peak[0]


def _is_not_banded(finding: dict[str, Any]) -> bool:
    return any(f"({pattern})" in finding["title"] for pattern in NOT_BANDED)


def _band(row: Row) -> tuple[tuple[float, float], bool] | None:
    """The documented band, and whether it is a share of the compute peak."""
    size = row.parameters
    if row.category == "sdpa_fwd" and row.direction != "backward" and "N_Q" in size:
        longest = max(size["N_Q"], size["N_KV"])
        return next(band for below, band in SDPA_BANDS if longest < below), True
    if row.category == "convolution" and size.get("filter_shape"):
        return _convolution_band(size)
    if row.category == "elementwise":
        return PLAIN_PASS, False
    if row.category == "reduce":
        return LONG_ROWS, False
    if row.category == "triton":
        kinds = {
            "triton_poi_": (60.0, 80.0),
            "triton_red_": (30.0, 60.0),
            "triton_per_": (30.0, 60.0),
        }
        return next(((band, False) for kind, band in kinds.items() if kind in row.name), None)
    return None


def _convolution_band(size: dict[str, Any]) -> tuple[tuple[float, float], bool] | None:
    sides = list(size["filter_shape"][2:])
    if size.get("transposed_conv"):
        return None
    if size.get("groups", 1) > 1 and size["groups"] == size["input_shape"][1]:
        return (30.0, 50.0), False
    if math.prod(sides) == 1:
        return (40.0, 60.0), False
    if list(size.get("stride") or ()) == sides and not any(size.get("padding") or [0]):
        return (60.0, 80.0), True
    if any(step != 1 for step in size.get("dilation") or ()) or len(set(sides)) > 1:
        return (50.0, 70.0), False
    return ((50.0, 70.0), False) if max(sides) <= 3 else ((60.0, 80.0), True)


def target_of(run: RunDirectory, finding: dict[str, Any], facts: Facts) -> float | None:
    """The efficiency that the middle estimate aims at; None where it does not aim at one."""
    if finding["check"] == "fusible_chain":
        at_target_ms = facts["fused_ms"][0] / TARGET_PCT * 100 if "fused_ms" in facts else 0.0
        return TARGET_PCT if min(facts["step_ms"]) <= at_target_ms else None
    if finding["check"] not in ("low_efficiency", "opportunity", "slow_kernel"):
        return None
    rows = own_rows(run, finding)
    (own_pct,), (time_ms,) = facts["efficiency_pct"], facts["time_ms"]
    shortest = max(facts["calls"][0], facts["launches"][0])
    if finding["check"] == "slow_kernel":
        limits = [min(facts["baseline_pct"][0], 100.0)]
    else:
        limits = [TARGET_PCT]
        band = band_of(finding, rows[0], facts)
        if band and band[2] > 0:
            limits.append(own_pct * band[1] / band[2])
    if not is_launch_bound(rows):
        limits.append(own_pct * time_ms * 1000 / (KERNEL_FLOOR_US * shortest))
    return max(own_pct, min(limits))


def saving_of(run: RunDirectory, finding: dict[str, Any], facts: Facts) -> Saving | None:
    """What a finding would save; None where no number can be had."""
    check = finding["check"]
    if check in ("low_efficiency", "opportunity", "slow_kernel"):
        return _of_efficiency(run, finding, facts)
    if check == "fusible_chain":
        return _of_fusion(facts) if "fused_ms" in facts else None
    if check == "gemm_epilogue":
        return _of_epilogue(run, facts) if "fused_ms" in facts else None
    if check == "unfused_attention":
        (time_ms,) = facts["time_ms"]
        least, most = time_ms * (1 - 1 / 3), time_ms * (1 - 1 / 10)
        usual_ms = facts["fused_ms"][0] / TARGET_PCT * 100 if facts.get("fused_ms") else None
        mid = time_ms - (time_ms / math.sqrt(30) if usual_ms is None else usual_ms)
        return least, min(max(mid, least), most), most
    if check == "estimated_bandwidth":
        high = facts["time_ms"][0] * (1 - facts["estimated_pct"][0] / 100)
        return 0.0, high / 2, high
    if check == "layout_transposes":
        (spent,) = facts["overhead_ms"]
        return spent / 2, 0.75 * spent, spent
    if check in ("fills_and_casts", "contiguous_copies", "memory_copies", "helper_kernels"):
        name = {
            "helper_kernels": "helper_ms",
            "fills_and_casts": "overhead_ms",
            "memory_copies": "exposed_copy_ms",
        }
        (spent,) = facts[name.get(check, "time_ms")]
        return 0.0, spent / 2, spent
    if check in ("step_edges", "slow_layers", "short_kernel_tail"):
        return _of_edges(facts) if check == "step_edges" else _of_inference(check, facts)
    if check in ("gpu_idle", "idle_causes", "exposed_communication", "poor_overlap"):
        return _of_waiting(run, finding, facts)
    return None


def _of_inference(check: str, facts: Facts) -> Saving:
    if check == "slow_layers":
        (excess_ms,) = facts["excess_ms"]
        return 0.0, excess_ms, excess_ms
    (time_ms,), (floor_ms,) = facts["time_ms"], facts["floor_ms"]
    (pairs,), (pairs_ms,) = facts["calls"], facts["pairs_ms"]
    most_ms = time_ms - (facts["short_kernels"][0] - pairs) * floor_ms
    return 0.0, pairs_ms if pairs else most_ms / 2, most_ms


def _of_edges(facts: Facts) -> Saving | None:
    """The idle time at the edges of steps within the GPU window; None where it may be busy."""
    if not facts["is_idle"][0]:
        return None
    (within_ms,) = facts["edges_in_window_ms"]
    return 0.0, within_ms / 2, within_ms


def _of_efficiency(run: RunDirectory, finding: dict[str, Any], facts: Facts) -> Saving:
    (own_pct,), (time_ms,) = facts["efficiency_pct"], facts["time_ms"]
    target_pct = target_of(run, finding, facts)
    assert target_pct is not None
    halfway_pct = (own_pct + target_pct) / 2
    low, mid, high = (time_ms * (1 - own_pct / p) for p in (halfway_pct, target_pct, 100.0))
    is_short = finding["check"] != "slow_kernel" and is_launch_bound(own_rows(run, finding))
    return (0.0, mid / 2, mid) if is_short else (low, mid, high)


def _of_fusion(facts: Facts) -> Saving:
    (time_ms,), (fused_ms,) = facts["time_ms"], facts["fused_ms"]
    floor_ms = facts["instances"][0] * KERNEL_FLOOR_US / 1000
    shortest_ms = min(facts["step_ms"])
    traffic = facts["fused_bytes"][0] / facts["step_bytes"][0]
    high = max(0.0, time_ms - max(fused_ms, floor_ms))
    mid = min(high, max(0.0, time_ms - max(fused_ms / TARGET_PCT * 100, shortest_ms)))
    low = min(mid, max(0.0, time_ms - max(time_ms * traffic, shortest_ms)))
    return low, mid, high


def _of_epilogue(run: RunDirectory, facts: Facts) -> Saving:
    """All of the steps' time; what else they move stays, and 15% at worst."""
    (time_ms,), (added,), (now,) = (facts[n] for n in ("time_ms", "fused_bytes", "step_bytes"))
    bandwidth = (run.hardware or {})["mem_bw_gbps"] * 1e6
    mid = max(0.0, time_ms - added / bandwidth / TARGET_PCT * 100)
    low = min(mid, time_ms * (1 - min(1.0, added / now)) * 0.85)
    return low, mid if mid < time_ms else (low + time_ms) / 2, time_ms


def _of_waiting(run: RunDirectory, finding: dict[str, Any], facts: Facts) -> Saving | None:
    check = finding["check"]
    if check == "gpu_idle":
        doubtful = sum(sum(facts.get(f"{cause}_idle_ms", ())) for cause in DOUBTFUL_CAUSES)
        sure = max(0.0, facts["idle_ms"][0] - doubtful)
        busy = run.timeline_ms["busy_time"]
        to_target = max(0.0, run.total_ms - busy / (1 - IDLE_TARGET_PCT / 100))
        return 0.0, min(sure, to_target), sure
    if check == "idle_causes":
        if finding["time_pool"].removeprefix("idle ") in DOUBTFUL_CAUSES:
            return None
        (spent,) = facts["own_in_window_ms"]
        return 0.0, spent / 2, spent
    (exposed,), (total,) = facts["exposed_comm_ms"], facts["comm_ms"]
    window_ms = run.timeline_ms["exposed_comm_time"]
    wanted = min(exposed, max(0.0, window_ms - total * (1 - OVERLAP_TARGET_PCT / 100)))
    if check == "exposed_communication":
        return 0.0, wanted, exposed
    hidden = min(facts["free_compute_ms"][0], wanted)
    return 0.0, hidden / 2, hidden


def start_pcts(finding: dict[str, Any], facts: Facts) -> list[float]:
    """The efficiency that a saving starts from; of a chain that of one fused kernel."""
    if finding["check"] == "fusible_chain" and "fused_ms" in facts:
        floor_ms = facts["instances"][0] * KERNEL_FLOOR_US / 1000
        return [share(max(facts["fused_ms"][0], floor_ms), facts["time_ms"][0])]
    if finding["check"] == "estimated_bandwidth":
        return facts["estimated_pct"]
    return facts.get("efficiency_pct", [])


def projected(
    time_ms: float, own_pct: float, target_pct: float, run: RunDirectory
) -> tuple[float, float, float, float] | None:
    """Time at a target, and what is saved in percent of it, of compute, of the GPU window."""
    if target_pct <= own_pct:
        return None
    at_target = time_ms * own_pct / target_pct
    saved = time_ms - at_target
    return (
        at_target,
        share(saved, time_ms),
        share(saved, run.compute_ms),
        share(saved, run.total_ms),
    )


def priority_of(run: RunDirectory, finding: dict[str, Any], facts: Facts) -> str | None:
    """The priority of a finding on the efficiency of operations; None of another."""
    if finding["check"] not in ("low_efficiency", "opportunity", "slow_kernel"):
        return None
    rows = own_rows(run, finding)
    (compute_pct,), (own_pct,) = facts["compute_pct"], facts["efficiency_pct"]
    saving = saving_of(run, finding, facts)
    assert saving is not None
    top = {uid for op in run.manifest["top_operations"] for uid in op["operation_uids"]}
    is_top = any(row.uid in top for row in rows)
    is_notable = any(f"({pattern})" in finding["title"] for pattern in NOTABLE)
    largest_pct = max(compute_pct, facts["category_pct"][0])
    place = 3
    if compute_pct > 5 or is_notable:
        place = 2
    if is_top or (own_pct < 40 and largest_pct > 10):
        place = 1
    if is_top and own_pct < 30 and compute_pct > 15:
        place = 0
    if compute_pct <= 1 or share(saving[1], run.compute_ms) < 0.5 or saving[1] < 0.01:
        place = 3
    band = band_of(finding, rows[0], facts) if finding["check"] != "slow_kernel" else None
    if band and band[2] >= band[0]:
        place = min(place + 1, 3)
    return PRIORITIES[in_steps(place, finding)]


def in_steps(place: int, finding: dict[str, Any]) -> int:
    """The place of a priority, bounded and raised by the share of the steps that is saved."""
    if not (shares := finding["impact"]["step_pct"]):
        return place
    pct = shares["mid"]
    place = max(place, 3 if pct < 0.5 else 2 if pct < 1 else 1 if pct < 5 else 0)
    return min(place, 0 if pct >= 40 else 1 if pct >= 1 else 2 if pct >= 0.5 else 3)


def gain_of(finding: dict[str, Any]) -> float:
    """The step time that a finding saves in ms: the middle, the high end of an interval."""
    gain = finding["impact"]
    end = "high" if gain["is_interval"] else "mid"
    return float((gain["step_ms"] or gain["saved_ms"])[end])


def step_saving_of(
    run: RunDirectory, finding: dict[str, Any], saving: Saving, facts: Facts
) -> Saving | None:
    """The same saving of step time, by replays or within what bounds the steps; None if they are
    not known.

    Idle time at the edges of steps can lie outside the GPU window.
    """
    steps = run.manifest["totals"]["step"]
    if steps["step_ms"] is None:
        return None
    pool = finding["time_pool"]
    if pool is not None:
        names = {
            "idle": "idle_ms",
            "exposed communication": "comm_ms",
            "exposed copies": "copies_ms",
        }
        limit = next(steps[name] for start, name in names.items() if pool.startswith(start))
        if _is_awaited(finding, steps):
            limit = min(limit, steps["kernels_ms"])
    replays = replayed_savings(run, finding, _own_work(run, finding), saving)
    if replays is not None:
        limit = without_kernels_ms(run) if pool is None else limit
        if not finding["impact"]["is_interval"]:
            low, mid, high = (min(max(each, 0.0), limit) for each in replays)
            ends = [min(low, mid), mid, max(mid, high)]
            if pool is None and finding["check"] not in FUSED:
                ends = [min(end, kernel_ms) for end, kernel_ms in zip(ends, saving, strict=True)]
            return ends[0], ends[1], ends[2]
        limit = min(limit, *replays[2:])
    elif pool is None:
        limit = min(steps["kernels_ms"], _running_ms(run, finding, steps))
    elif finding["check"] in ("step_edges", "idle_causes"):
        (idle_ms,) = facts["edges_ms" if finding["check"] == "step_edges" else "own_cause_ms"]
        saving = 0.0, idle_ms / 2, idle_ms
    factor = min(1.0, limit / saving[2]) if saving[2] > 0 else 0.0
    low, mid, high = (factor * end for end in saving)
    return low, mid if mid < high else (low + high) / 2, high


def _own_work(run: RunDirectory, finding: dict[str, Any]) -> list[dict[str, Any]]:
    if finding.get("events"):
        return [event for event in run.table("gpu_work") if event["uid"] in finding["events"]]
    uids, kernels = rows_of(finding), finding["kernels"]
    return [
        event
        for event in run.table("gpu_work")
        if event["operation_uid"] in uids and (not kernels or event["name"] in kernels)
    ]


def _is_awaited(finding: dict[str, Any], steps: dict[str, Any]) -> bool:
    """Whether it saves time in which the host waits: kernels, communication, and copies where the
    GPU sets the pace."""
    pool = finding["time_pool"] or "exposed communication"
    by_gpu = steps["by_gpu"] and pool.startswith("exposed copies")
    return by_gpu or pool.startswith("exposed communication")


def _running_ms(run: RunDirectory, finding: dict[str, Any], steps: dict[str, Any]) -> float:
    """How long any kernel of the finding runs in the steps, outside the times in which a collective
    hides it."""
    own = _own_work(run, finding)
    first, last = steps["start_ns"], steps["end_ns"]
    hidden = [(max(start, first), min(end, last)) for start, end in steps["hidden"]]
    within = (_covered_ms(own, start, end) for start, end in hidden)
    return _covered_ms(own, first, last) - math.fsum(within)


def _covered_ms(own: list[dict[str, Any]], first: int, last: int) -> float:
    reached, running = first, 0
    for start, length in sorted((event["ts_ns"], event["dur_ns"]) for event in own):
        end = min(start + length, last)
        running += max(0, end - max(start, reached))
        reached = max(reached, end)
    return running / 1e6


def ranked(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Findings by the step time that they save, then by kernel time; those without one last."""

    def order(finding: dict[str, Any]) -> tuple[Any, ...]:
        gain = finding["impact"]
        return (
            not finding["leads"],
            gain is None,
            -round(gain_of(finding), 3) if gain else 0.0,
            -gain["saved_ms"]["mid"] if gain else 0.0,
            PRIORITIES.index(finding["priority"]),
            -float(quantities_of(finding).get("gpu_time_ms", 0.0)),
            finding["category"],
            finding["title"],
        )

    return sorted(findings, key=order)


def rows_of(finding: dict[str, Any]) -> set[int]:
    """The uids that a finding is about or shares."""
    return {op["uid"] for op in finding["operations"]} | set(finding["shared_uids"])


def sources_of(finding: dict[str, Any]) -> set[Any]:
    """Rows and pool of time that a saving comes from."""
    return rows_of(finding) | ({finding["time_pool"]} if finding["time_pool"] else set())


def has_card(finding: dict[str, Any]) -> bool:
    """Whether files for other tools have an item of it."""
    return {finding["priority"], finding["priority_before"] or "Low"} != {"Low"}


def local_numbers(run: RunDirectory, ordered: list[dict[str, Any]]) -> dict[int, tuple[str, int]]:
    """Category and number among the items of it (of the tier outside of compute), by place in the
    order."""
    counts: Counter[str] = Counter()
    found = {}
    for place, finding in enumerate(ordered):
        key = finding["category"]
        tier = run.results[key]["tier"]
        counter = key if tier == "compute" else tier
        counts[counter] += has_card(finding)
        found[place] = (key, counts[counter])
    return found
