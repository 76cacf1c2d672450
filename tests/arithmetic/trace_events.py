"""GPU events of a trace file, read with the standard library: what runs when, and what idles."""

import gzip
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver")
COLLECTIVE_NAME = re.compile(r"nccl|rccl", re.IGNORECASE)
COPY_DIRECTION = re.compile(
    r"\b(?:memcpy|copy)[^A-Za-z]*([DH])(?:evice|ost)?to([DH])", re.IGNORECASE
)
SHORT_KERNEL_NS = 10_000

Span = tuple[int, int]
"""Start and end in ns."""


@dataclass(frozen=True)
class GpuEvent:
    """One kernel, copy or fill."""

    category: str
    name: str
    span: Span
    place: tuple[Any, Any]
    args: dict[str, Any]

    @property
    def duration_ns(self) -> int:
        """How long it runs."""
        return self.span[1] - self.span[0]

    @cached_property
    def kind(self) -> str:
        """``copy``, ``communication`` or ``compute``."""
        if self.category == "gpu_memcpy":
            return "copy"
        return "communication" if COLLECTIVE_NAME.search(self.name) else "compute"

    @cached_property
    def direction(self) -> str | None:
        """``D2H`` and its like, of a copy."""
        found = COPY_DIRECTION.search(self.name)
        return f"{found[1]}2{found[2]}".upper() if found else None


@dataclass(frozen=True)
class TraceEvents:
    """The GPU events that were launched within the trace, or all where none was."""

    gpu: tuple[GpuEvent, ...]

    def of(self, *kinds: str) -> list[Span]:
        """The union of the events of some kinds, as spans that do not touch."""
        return union(event.span for event in self.gpu if event.kind in kinds)

    @property
    def kernels(self) -> list[GpuEvent]:
        """The events that are neither copies nor fills."""
        return [event for event in self.gpu if event.category == "kernel"]

    @property
    def short_kernels(self) -> list[GpuEvent]:
        """Kernels below 10 µs."""
        return [event for event in self.kernels if event.duration_ns < SHORT_KERNEL_NS]

    def copies(self, direction: str) -> list[GpuEvent]:
        """The copies in one direction."""
        return [e for e in self.gpu if e.kind == "copy" and e.direction == direction]

    @cached_property
    def gaps(self) -> list[Span]:
        """Where nothing runs, between the first and the last event."""
        busy = self.of("compute", "communication", "copy")
        return [(a[1], b[0]) for a, b in pairwise(busy)]

    @cached_property
    def timeline_ms(self) -> dict[str, float]:
        """The rows of the GPU timeline in ms, by name."""
        compute, communication = self.of("compute"), self.of("communication")
        copies = self.of("copy")
        busy = self.of("compute", "communication", "copy")
        times_ns = {
            "computation_time": covered(compute),
            "exposed_comm_time": covered(communication) - overlap(communication, compute),
            "exposed_memcpy_time": covered(copies)
            - overlap(copies, self.of("compute", "communication")),
            "busy_time": covered(busy),
            "idle_time": sum(end - start for start, end in self.gaps),
            "total_time": busy[-1][1] - busy[0][0] if busy else 0,
            "total_comm_time": covered(communication),
            "total_memcpy_time": covered(copies),
        }
        return {name: time_ns / 1e6 for name, time_ns in times_ns.items()}


def read_events(path: Path) -> TraceEvents:
    """The linked GPU events of a trace, ``.json`` or ``.json.gz``."""
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    events = document["traceEvents"] if isinstance(document, dict) else document
    found = [gpu_event(e) for e in events if e.get("cat") in GPU_CATEGORIES and e["ph"] == "X"]
    is_linked = _linked_ids(events)
    linked = [event for event in found if is_linked(event)]
    return TraceEvents(tuple(sorted(linked or found, key=lambda event: event.span)))


def gpu_event(event: dict[str, Any]) -> GpuEvent:
    """A GPU event of the trace file."""
    start = round(event["ts"] * 1000)
    span = (start, start + round(event["dur"] * 1000))
    place = (event["pid"], event["tid"])
    return GpuEvent(event["cat"], event["name"], span, place, event.get("args") or {})


def _linked_ids(events: list[dict[str, Any]]) -> Callable[[GpuEvent], bool]:
    """Whether a launch of the trace leads to a GPU event: an arrow from it leads to the
    event's thread, or it replays a graph, which has no arrows."""
    replayed, launched, starts = set(), set(), set()
    ends: dict[Any, Any] = {}
    for event in events:
        if event.get("cat") == "ac2g":
            if event["ph"] == "s":
                starts.add(event["id"])
            elif event["ph"] == "f":
                ends[event["id"]] = (event["pid"], event["tid"])
        elif event.get("cat") in LAUNCH_CATEGORIES:
            is_graph = event["name"].lower().endswith("graphlaunch")
            (replayed if is_graph else launched).add((event.get("args") or {}).get("correlation"))

    def is_linked(event: GpuEvent) -> bool:
        key = event.args.get("correlation")
        has_arrow = key in starts and ends.get(key) == event.place
        return key in replayed or (key in launched and (has_arrow or not ends))

    return is_linked


def union(spans: Iterable[Span]) -> list[Span]:
    """Spans joined where they touch, in order."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def covered(spans: Iterable[Span]) -> int:
    """Sum of lengths of spans that do not overlap, in ns."""
    return sum(end - start for start, end in spans)


def overlap(some: list[Span], others: list[Span]) -> int:
    """How much of two unions lies in both, in ns."""
    return covered(some) + covered(others) - covered(union([*some, *others]))
