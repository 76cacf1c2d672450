"""What the sections on whole analyses say: overviews, tables of operations, causes, copies."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.arithmetic import tables
from tests.arithmetic.documents import Line
from tests.arithmetic.facts_groups import chain_facts, steps_of
from tests.arithmetic.facts_system import copy_facts, of_communication, of_idle
from tests.arithmetic.rendered import measured_lines
from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.units import (
    KERNEL_FLOOR_US,
    Facts,
    compute_pct,
    efficiency_pct,
    share,
    time_ms,
)

ANY: dict[str, Any] = {"check": "", "quantities": [], "title": ""}
DIRECTIONS = ("D2D", "D2H", "H2D")
IN_FINDINGS_FILE = 25


def category_facts(run: RunDirectory, key: str) -> Facts:
    """All that a section on one analysis may say outside of its cards."""
    facts: Facts = defaultdict(list)
    rows = run.category(key)
    if run.results[key]["tier"] == "compute":
        rated = [row for row in rows if (row.efficiency_pct or 111) <= 110]
        facts["category_ms"].append(time_ms(rows))
        facts["category_of_compute_pct"].append(compute_pct(rows, run))
        facts["category_calls"].append(sum(row.calls for row in rows))
        facts["category_rows"].append(len(rows))
        facts["category_rated_pct"].append(share(time_ms(rated), time_ms(rows)))
        if (average := efficiency_pct(rated)) is not None:
            facts["category_pct"].append(average)
        reasons = [(row.cells["roofline_note"], "GraphLaunch->" in row.name) for row in rows]
        for reason in {(note, is_replayed) for note, is_replayed in reasons if note}:
            same = [row for row, own in zip(rows, reasons, strict=True) if own == reason]
            facts["unmodelled_rows"].append(len(same))
            facts["unmodelled_ms"].append(time_ms(same))
        facts["rows_left"].append(len(rows[IN_FINDINGS_FILE:]))
        facts["left_ms"].append(time_ms(rows[IN_FINDINGS_FILE:]))
    if key == "cpu_idle":
        of_idle(facts, run, ANY)
    if key == "multi_kernel":
        of_communication(facts, run, ANY)
        for direction in DIRECTIONS:
            copy_facts(facts, run, direction)
    facts["total_ms"].append(run.total_ms)
    facts["mean_kernel_us"] += [1000 * value for value in facts.get("mean_kernel_ms", ())]
    return facts


def direction_facts(run: RunDirectory, heading: str) -> Facts | None:
    """Those of the copies in one direction, where a section is about them."""
    if heading[:3] not in DIRECTIONS:
        return None
    facts: Facts = defaultdict(list)
    copy_facts(facts, run, heading[:3])
    return facts


def category_table_problems(line: Line, run: RunDirectory, key: str, facts: Facts) -> Iterator[str]:
    """A line of a table that is about a whole analysis."""
    rows = run.category(key)
    if line.columns[:2] == ("#", "Kernel"):
        yield from tables.kernel_problems(line, rows, run)
    elif "% of Category" in line.columns:
        yield from tables.operation_problems(line, rows[:IN_FINDINGS_FILE], rows)
    elif line.columns[0].startswith("Cause"):
        yield from _cause_problems(line, facts, run)
    elif line.columns[:2] == ("Chain", "Kernels"):
        yield from _chain_problems(line, run)
    elif line.columns == ("Metric", "Value"):
        if line.text not in measured_lines(run, key):
            yield f"no measure of {key} is {line.text}"
    elif line.columns == ("Metric", "Value", "Severity"):
        yield from _metric_problems(line, facts, run)
    elif line.columns[:2] == ("Direction", "Count"):
        yield from _direction_problems(line, run)
    elif line.columns[:2] == ("Rank", "Operation"):
        yield from _collective_problems(line, run)
    else:
        yield f"no arithmetic for a table of {line.columns}"


def _cause_problems(line: Line, facts: Facts, run: RunDirectory) -> Iterator[str]:
    cause, idle, of_idle_time, gaps = line.cells
    key = next(key for key, label in CAUSES.items() if label == cause)
    (idle_ms,) = facts[f"{key}_idle_ms"]
    yield from _differences(
        (idle, idle_ms),
        (of_idle_time, share(idle_ms, facts["idle_ms"][0])),
        (gaps, sum(gap["cause"] == key for gap in run.gaps)),
    )


def _chain_problems(line: Line, run: RunDirectory) -> Iterator[str]:
    cells = dict(zip(line.columns, line.cells, strict=True))
    chain = run.fusion_chains[line.row]
    steps = steps_of(run, chain)
    yield from _differences(
        (cells["Kernels"], len(chain["step_names"])),
        (cells["Instances"], chain["instance_count"]),
        (cells["Time"], sum(step["kernel_time_us"] for step in steps) / 1000),
    )
    saving = cells["Saving at best"]
    if saving != tables.MISSING:
        yield from _differences((saving, best_fusion_saving_ms(run, chain)))


def _metric_problems(line: Line, facts: Facts, run: RunDirectory) -> Iterator[str]:
    label, cell = line.cells[:2]
    if label.endswith("Transfers") or label == "Total Memcpy Events":
        yield from _copy_counts(label, cell, run)
        return
    if cell != tables.MISSING:
        yield from _differences((cell.removesuffix(" of total"), facts[SHARES[label]][0]))


SHARES = {
    "Exposed Communication": "exposed_comm_pct",
    "Compute/Comm Overlap": "overlap_pct",
}
CAUSES = {
    "launch_bound": "Launch-bound",
    "queued": "Between queued kernels",
    "kernel_loading": "Kernel loading",
    "host_work": "Host work",
    "stalled_queue": "Queued work that does not start",
    "synchronization": "Synchronization",
    "communication": "Waiting for communication",
    "data_loading": "Data loading",
    "allocator": "Memory allocation",
    "unlinked_work": "Work without a recorded launch",
    "carried_in": "Work from before the recording",
    "window_edge": "Edge of the recording",
    "unknown": "Unknown",
}


def _copy_counts(label: str, cell: str, run: RunDirectory) -> Iterator[str]:
    directions = DIRECTIONS if label.startswith("Total") else (label[:3],)
    copies = [copy for direction in directions for copy in run.events.copies(direction)]
    count, _, time = cell.removesuffix(")").partition(" (")
    yield from _differences((count, len(copies)))
    if time:
        yield from _differences((time, sum(copy.duration_ns for copy in copies) / 1e6))


def _direction_problems(line: Line, run: RunDirectory) -> Iterator[str]:
    direction, count, time, size, *_ = line.cells
    facts: Facts = defaultdict(list)
    copy_facts(facts, run, direction)
    yield from _differences((count, facts["copies"][0]), (time, facts["copy_ms"][0]))
    if size != tables.MISSING:
        yield from _differences((size, facts["copy_bytes"][0]))


def _collective_problems(line: Line, run: RunDirectory) -> Iterator[str]:
    rank, _, duration, stream, _, message, ranks = line.cells
    events = [event for event in run.events.gpu if event.kind == "communication"]
    longest = sorted(events, key=lambda event: -event.duration_ns)[line.row]
    known = {row["ts_ns"]: row for row in run.table("collectives")}
    reported = known[longest.span[0]]
    yield from _differences(
        (rank, line.row + 1),
        (duration, longest.duration_ns / 1000),
        (stream, longest.args["stream"]),
    )
    if message != tables.MISSING:
        yield from _differences((message, reported["message_mb"]), (ranks, reported["group_size"]))


def _differences(*expected: tuple[str, float]) -> Iterator[str]:
    """What is wrong with cells that should print these values."""
    for cell, value in expected:
        if problem := tables.differs(cell, value):
            yield problem


def best_fusion_saving_ms(run: RunDirectory, chain: dict[str, Any]) -> float:
    """What one kernel at its roofline would save of a chain's time; an epilogue all of it."""
    facts: Facts = defaultdict(list)
    chain_facts(facts, run, chain)
    if chain["product_name"] is not None:
        return float(facts["time_ms"][0])
    floor_ms = chain["instance_count"] * KERNEL_FLOOR_US / 1000
    return max(0.0, facts["time_ms"][0] - max(facts["fused_ms"][0], floor_ms))
