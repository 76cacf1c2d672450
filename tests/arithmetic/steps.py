"""The parts of the steps, from the events of the trace file."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from tests.arithmetic.facts_system import add_waits, in_window_ms
from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.trace_events import (
    GPU_CATEGORIES,
    LAUNCH_CATEGORIES,
    GpuEvent,
    Span,
    covered,
    gpu_event,
    overlap,
    read_events,
    union,
)
from tests.arithmetic.units import DOUBTFUL_CAUSES, Facts, share

PARTS = (
    "compute_ns",
    "exposed_comm_ns",
    "exposed_copy_ns",
    "idle_before_ns",
    "idle_between_ns",
    "idle_after_ns",
)
HOST_CATEGORIES = (*LAUNCH_CATEGORIES, "cpu_op", "user_annotation", "python_function")


@cache
def _events(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    events = document["traceEvents"] if isinstance(document, dict) else document
    return [event for event in events if event.get("ph") == "X"]


@cache
def _gpu_events(path: Path) -> list[GpuEvent]:
    return [gpu_event(event) for event in _events(path) if event.get("cat") in GPU_CATEGORIES]


def recorded_spans(run: RunDirectory) -> list[Span]:
    """The steps of the profiler, else the whole recording.

    From end to end of the GPU work that they launch, if that is longer than their marks.
    """
    events = _events(run.trace)
    marks = sorted(
        _span(event)
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep#")
    )
    if not marks:
        cats = (*HOST_CATEGORIES, *GPU_CATEGORIES)
        recorded = [_span(event) for event in events if event.get("cat") in cats]
        return [(min(start for start, _ in recorded), max(end for _, end in recorded))]
    launched_ns = {
        event["args"]["correlation"]: _span(event)[0]
        for event in events
        if event.get("cat") in LAUNCH_CATEGORIES and "correlation" in event.get("args", {})
    }
    spans: list[Span] = []
    for first, last in marks:
        own = [
            _span(event)
            for event in events
            if event.get("cat") in GPU_CATEGORIES
            and first <= launched_ns.get(event["args"].get("correlation"), -1) <= last
        ]
        if own:
            before = spans[-1][1] if spans else min(start for start, _ in own)
            spans.append((before, max(before, *(end for _, end in own))))
    return max(marks, spans, key=lambda steps: sum(end - start for start, end in steps))


def step_spans(run: RunDirectory) -> list[Span]:
    """The steps of the table that have a time."""
    rows = [row for row in run.table("steps") if row["dur_ns"] is not None]
    return [(row["start_ns"], row["start_ns"] + row["dur_ns"]) for row in rows]


def account_ns(run: RunDirectory) -> dict[str, int]:
    """The parts of all steps together, by name."""
    parts = [parts_ns(run, span) for span in step_spans(run)]
    return {name: sum(of_step[name] for of_step in parts) for name in PARTS}


def unlinked_compute_ns(run: RunDirectory) -> int:
    """The compute time of the steps in which only kernels without a recorded launch run."""
    linked = read_events(run.trace).of("compute")
    return sum(
        covered(_during(run, span, "compute")) - overlap(linked, [span]) for span in step_spans(run)
    )


def parts_ns(run: RunDirectory, span: Span) -> dict[str, int]:
    """What the GPU does during a span."""
    compute, comm, copies = (_during(run, span, k) for k in ("compute", "communication", "copy"))
    busy = union([*compute, *comm, *copies])
    start, end = span
    first, last = (busy[0][0], busy[-1][1]) if busy else (end, end)
    times = (
        covered(compute),
        covered(comm) - overlap(comm, compute),
        covered(copies) - overlap(copies, union([*compute, *comm])),
        first - start,
        last - first - covered(busy),
        end - last,
    )
    return dict(zip(PARTS, times, strict=True))


def of_step_edges(facts: Facts, run: RunDirectory, finding: dict[str, Any]) -> None:
    """Idle time at one edge of the steps, their mean; the host calls are those of the table."""
    title = str(finding["title"])  # a message, or its text
    place = "before" if "title.before" in title or "starts late" in title else "after"
    parts, spans = account_ns(run), step_spans(run)
    idle_ns, total_ns = parts[f"idle_{place}_ns"], sum(parts.values())
    facts["step_idle_ms"].append(idle_ns / 1e6 / len(spans))
    facts["edge_idle_ms"].append(idle_ns / 1e6 / len(spans))
    facts["edges_ms"].append(idle_ns / 1e6)
    facts["step_time_ms"].append(total_ns / 1e6 / len(spans))
    facts["step_pct"].append(share(idle_ns, total_ns))
    facts["step_count"].append(len(spans))
    gaps = [gap for gap in run.table("step_gaps") if gap["place"] == place]
    facts["edges_in_window_ms"].append(in_window_ms(run, gaps))
    causes = {gap["cause"] for gap in gaps}
    main = max(causes, key=lambda cause: sum(g["dur_ns"] for g in gaps if g["cause"] == cause))
    facts["is_idle"].append(main not in DOUBTFUL_CAUSES)
    add_waits(facts, run, [gap for gap in gaps if gap["cause"] == main])


def _during(run: RunDirectory, span: Span, kind: str) -> list[Span]:
    start, end = span
    clipped = (
        (max(event.span[0], start), min(event.span[1], end))
        for event in _gpu_events(run.trace)
        if event.kind == kind
    )
    return union((a, b) for a, b in clipped if a < b)


def _span(event: dict[str, Any]) -> Span:
    start = round(event["ts"] * 1000)
    return start, start + round(event["dur"] * 1000)
