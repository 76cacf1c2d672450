"""What the GPU waits for, communicates and copies, from the events of the trace."""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tests.arithmetic.names import PLACE
from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.trace_events import covered, overlap, union
from tests.arithmetic.units import (
    IDLE_TARGET_PCT,
    OVERLAP_TARGET_PCT,
    Facts,
    quantities_of,
    share,
)

BYTES_PER_MIB = 2**20
STAGED = re.compile(r"split_with_sizes_copy_out|chunk_cat_cuda|EpDispatchCopyToStaging")
CARRIED_IN = "carried_in"
LONG_ASYNC_COPY_NS = 50_000


def of_idle(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """Idle time in the GPU window, and its kernels."""
    timeline = run.timeline_ms
    idle_ms, wall_ms = timeline["idle_time"], run.total_ms
    facts["idle_ms"].append(idle_ms)
    facts["idle_pct"].append(share(idle_ms, wall_ms))
    facts["compute_of_total_pct"].append(share(run.compute_ms, wall_ms))
    facts["comm_pct"].append(share(timeline["exposed_comm_time"], wall_ms))
    facts["copy_pct"].append(share(timeline["exposed_memcpy_time"], wall_ms))
    carried_ms = sum(gap["dur_ns"] for gap in run.gaps if gap["cause"] == CARRIED_IN) / 1e6
    busy_pct = share(timeline["busy_time"], wall_ms - carried_ms)
    facts["speedup"].append(max(1.0, (100 - IDLE_TARGET_PCT) / busy_pct))
    kernels, short = run.events.kernels, run.events.short_kernels
    facts["kernel_count"].append(len(kernels))
    facts["short_kernels"].append(len(short))
    facts["short_pct"].append(share(len(short), len(kernels)))
    facts["mean_kernel_ms"].append(sum(k.duration_ns for k in kernels) / len(kernels) / 1e6)
    for cause, gaps in _by_cause(run.gaps).items():
        facts[f"{cause}_idle_ms"].append(sum(gap["dur_ns"] for gap in gaps) / 1e6)
    if run.gaps:
        facts["longest_of_all_ms"].append(max(gap["dur_ns"] for gap in run.gaps) / 1e6)


def of_idle_finding(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """Idle time in the steps, but for what `step_edges` covers, by cause."""
    of_idle(facts, run, finding)
    total_ms = sum(row["dur_ns"] or 0 for row in run.table("steps")) / 1e6
    covered = {f["time_pool"] for f in run.findings if f["check"] == "step_edges"}
    in_steps = _by_cause(
        gap for gap in run.table("step_gaps") if f"idle {gap['place']}" not in covered
    )
    if finding["check"] == "gpu_idle":
        pools = {f["time_pool"] for f in run.findings if f["check"] == "idle_causes"}
        rest = {
            cause: left
            for cause, gaps in in_steps.items()
            if (left := [g for g in gaps if f"idle {cause}" not in pools or _is_at_end(g)])
        }
        sums = {c: sum(gap["dur_ns"] for gap in gaps) / 1e6 for c, gaps in rest.items()}
        facts["idle_ms"] = [sum(sums.values())]
        facts["step_pct"] = facts["idle_pct"] = [share(sum(sums.values()), total_ms)]
        facts |= {f"{cause}_idle_ms": [ms] for cause, ms in sums.items()}
        return
    cause = finding["time_pool"].removeprefix("idle ")
    in_window = cause in (CARRIED_IN, "unlinked_work")
    gaps = _by_cause(run.gaps)[cause] if in_window else in_steps[cause]
    gaps = [gap for gap in gaps if in_window or not _is_at_end(gap)]
    own_ms = sum(gap["dur_ns"] for gap in gaps) / 1e6
    facts["gap_count"].append(len(gaps))
    facts["longest_gap_ms"].append(max(gap["dur_ns"] for gap in gaps) / 1e6)
    facts["own_cause_ms"].append(own_ms)
    facts["step_pct"] = [share(own_ms, run.total_ms if in_window else total_ms)]
    facts["own_in_window_ms"].append(in_window_ms(run, gaps))
    add_waits(facts, run, gaps)
    if cause == "launch_bound":
        _add_after_waits(facts, run, gaps, finding)
    facts["all_kernels"].append(len(run.events.kernels))
    first = min(kernel.span[0] for kernel in run.events.kernels)
    early = sum(gap["dur_ns"] for gap in gaps if gap["start_ns"] < first)
    facts["before_first_kernel_ms"].append(early / 1e6)


def _is_at_end(gap: dict[str, Any]) -> bool:
    """Whether this is host work that no launch follows."""
    return bool(gap["cause"] == "host_work" and gap["place"] == "after")


def _by_cause(gaps: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for gap in gaps:
        found[gap["cause"]].append(gap)
    return found


def in_window_ms(run: RunDirectory, gaps: list[dict[str, Any]]) -> float:
    """How much of the gaps is within the GPU window."""
    window = run.table("timeline_states")
    first, last = window[0]["start_ns"], window[-1]["start_ns"] + window[-1]["dur_ns"]
    within = (
        min(gap["start_ns"] + gap["dur_ns"], last) - max(gap["start_ns"], first) for gap in gaps
    )
    return sum(max(0, length) for length in within) / 1e6


def add_waits(facts: Facts, run: RunDirectory, gaps: list[dict[str, Any]]) -> None:
    """What the host does in gaps of one cause."""
    before: dict[str, int] = defaultdict(int)
    for gap in gaps:
        if gap["launcher_name"] is not None:
            before[gap["launcher_name"]] += gap["dur_ns"]
    facts["waits_ms"] += [ns / 1e6 for ns in before.values()]
    _add_places(facts, gaps)
    named = [gap for gap in gaps if gap["host_call"] is not None]
    if named:
        longest = max(named, key=lambda gap: (gap["dur_ns"], gap["start_ns"]))
        facts["beside_longest_ms"].append(longest["host_call_us"] / 1000)
        facts["named_gap_ms"].append(longest["dur_ns"] / 1e6)
        copy = longest.get("host_copy_uid")
        facts["size_bytes"] += [
            row["bytes"] for row in run.table("gpu_work") if copy is not None and row["uid"] == copy
        ]


def _add_after_waits(
    facts: Facts, run: RunDirectory, gaps: list[dict[str, Any]], finding: dict[str, Any]
) -> None:
    """Of the waits for the GPU that a finding names: how long they are, and the gaps after them."""
    calls = [row | {"end": row["ts_ns"] + row["dur_ns"]} for row in run.table("host_slices")]
    waits = [row for row in calls if row["kind"] == "runtime" and _is_waiting(row)]
    after: dict[int, list[int]] = defaultdict(list)
    for gap in gaps:
        end = gap["start_ns"] + gap["dur_ns"]
        earlier = [(row["end"], row["uid"]) for row in waits if row["end"] <= end]
        if earlier:
            after[max(earlier)[1]].append(gap["dur_ns"])
    for place in _named_waits(finding):
        own = [row for row in waits if row["uid"] in after and _is_at(row, place, calls)]
        lengths = [ns for row in own for ns in after[row["uid"]]]
        facts["after_wait"].append(len(lengths))
        facts["after_wait_ms"].append(sum(lengths) / 1e6)
        facts["place_waits"].append(len(own))
        facts["place_wait_ms"].append(sum(row["dur_ns"] for row in own) / 1e6)
    facts["after_waits"].append(sum(facts["after_wait"]))
    facts["after_waits_ms"].append(sum(facts["after_wait_ms"]))


def _named_waits(finding: dict[str, Any]) -> list[list[str]]:
    """Of each wait that a finding names: the call, its operator and its function."""
    (issue,) = finding["messages"]["issue"]
    after = issue["values"]["host_call"] or {"values": {}}
    places = [wait["values"]["call"]["values"] for wait in after["values"].get("waits", ())]
    return [
        [
            *place["call"]["values"].values(),
            *(place["frame"]["values"].values() if place["frame"] else ()),
        ]
        for place in places
    ]


def _is_waiting(row: dict[str, Any]) -> bool:
    """Whether a runtime call waits for the GPU, asynchronous copies if they last."""
    name = row["name"].lower()
    return bool(re.search("synchronize|memcpy", name)) and (
        "async" not in name or row["dur_ns"] >= LONG_ASYNC_COPY_NS
    )


def _is_at(wait: dict[str, Any], place: list[str], calls: list[dict[str, Any]]) -> bool:
    """Whether a wait is the named call, within the named operator and function."""
    around = [
        row["name"]
        for row in calls
        if row["thread"] == wait["thread"]
        and row["ts_ns"] <= wait["ts_ns"]
        and row["end"] >= wait["end"]
    ]
    call, *others = place
    return wait["name"] == call and all(
        any(name.endswith(other) for name in around) for other in others
    )


def _add_places(facts: Facts, gaps: list[dict[str, Any]]) -> None:
    """Where the host is in the gaps: its calls, or its functions and annotations."""
    beside: dict[tuple[str | None, ...], list[dict[str, Any]]] = defaultdict(list)
    for gap in gaps:
        place = tuple(gap.get(column) for column in PLACE)
        if any(each is not None for each in (place[0], *place[2:])):
            beside[place].append(gap)
    calls = [same for same in beside.values() if same[0]["host_call"] is not None]
    others = [same for same in beside.values() if same[0]["host_call"] is None]
    known = {
        "place_gaps": [len(same) for same in others],
        "place_ms": [sum(gap["dur_ns"] for gap in same) / 1e6 for same in others],
        "host_calls": [len(same) for same in calls],
        "host_call_ms": [max(gap["host_call_us"] for gap in same) / 1000 for same in calls],
    }
    for name, values in known.items():
        facts[name] += values


def of_exposed(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """Exposed communication in the steps."""
    of_communication(facts, run, finding)
    steps = run.table("steps")
    exposed_ns, total_ns = (
        sum(row[name] or 0 for row in steps) for name in ("exposed_comm_ns", "dur_ns")
    )
    facts["exposed_comm_ms"] = [exposed_ns / 1e6]
    facts["step_pct"] = facts["share_of_wall_pct"] = [share(exposed_ns, total_ns)]


def of_communication(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    timeline = run.timeline_ms
    exposed, total = timeline["exposed_comm_time"], timeline["total_comm_time"]
    facts["exposed_comm_ms"].append(exposed)
    facts["exposed_comm_pct"].append(share(exposed, run.total_ms))
    facts["share_of_wall_pct"].append(share(exposed, run.total_ms))
    facts["overlap_target_pct"].append(OVERLAP_TARGET_PCT)
    facts["comm_ms"].append(total)
    facts["overlap_pct"].append(100 - share(exposed, total))
    allowed = total * (100 - OVERLAP_TARGET_PCT) / 100
    facts["wanted_ms"].append(max(0.0, exposed - allowed))
    facts["free_compute_ms"].append(run.compute_ms - (total - exposed))
    collectives = [event for event in run.events.gpu if event.kind == "communication"]
    facts["comm_kernels"].append(len(collectives))
    staged = [event for event in run.events.gpu if STAGED.search(event.name)]
    facts["staging_ms"].append(sum(event.duration_ns for event in staged) / 1e6)
    spans = {event.span[0] for event in collectives}
    kinds: dict[Any, list[float]] = defaultdict(list)
    small: dict[str, list[float]] = defaultdict(list)
    for row in run.table("collectives"):
        if row["ts_ns"] in spans and row["message_mb"] is not None:
            size_bytes = row["message_mb"] * BYTES_PER_MIB
            if size_bytes < 1e6:
                small[row["collective"]].append(size_bytes)
            kinds[row["collective"], size_bytes, row["group_size"]].append(row["dur_us"] / 1000)
    facts["small_collectives"] += [len(sizes) for sizes in small.values()]
    facts["mean_bytes"] += [sum(sizes) / len(sizes) for sizes in small.values()]
    for kind in sorted(kinds, key=lambda kind: -sum(kinds[kind])):
        mean_ms = sum(kinds[kind]) / len(kinds[kind])
        known = {
            "collectives": len(kinds[kind]),
            "message_bytes": kind[1],
            "ranks": kind[2],
            "collective_ms": mean_ms,
            "collective_gb_per_s": kind[1] / mean_ms / 1e6,
        }
        for name, value in known.items():
            facts[name].append(value)
            facts.setdefault(f"longest_{name}", [value])


def of_copies(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    copy_facts(facts, run, quantities_of(finding)["direction"])


def copy_facts(facts: Facts, run: RunDirectory, direction: str) -> None:
    """The copies in one direction: how many, how long, by whom, how much beside nothing else."""
    copies = run.events.copies(direction)
    total_ms = sum(copy.duration_ns for copy in copies) / 1e6
    spans, others = union(copy.span for copy in copies), run.events.of("compute", "communication")
    exposed_ns = covered(spans) - overlap(spans, others)
    sizes = [int(copy.args["bytes"]) for copy in copies if "bytes" in copy.args]
    facts["copies"].append(len(copies))
    starts = {copy.span[0] for copy in copies}
    launchers = [w["launcher_name"] for w in run.table("gpu_work") if w["ts_ns"] in starts]
    facts["copied_by"] += [launchers.count(name) for name in dict.fromkeys(launchers)]
    facts["copy_ms"].append(total_ms)
    facts["copy_of_total_pct"].append(share(total_ms, run.total_ms))
    facts["share_of_wall_pct"].append(share(total_ms, run.total_ms))
    facts["pageable_copies"].append(sum("Pageable" in copy.name for copy in copies))
    facts["pinned_copies"].append(sum("Pinned" in copy.name for copy in copies))
    facts["exposed_copy_ms"].append(exposed_ns / 1e6)
    if sizes:
        facts["copy_bytes"] += [sum(sizes) / len(sizes), min(sizes), max(sizes)]
        facts["single_values"].append(sum(size <= 16 for size in sizes))
