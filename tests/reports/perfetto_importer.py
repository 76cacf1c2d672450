"""The rules by which Perfetto imports a JSON trace (SliceTracker of its trace processor)."""

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

MAX_DEPTH = 255
"""Slices from this depth on were dropped by the versions that stored it in a byte."""

Slice = tuple[str, int, int]
"""Name, start and duration in ns."""


def read_document(path: Path) -> dict[str, Any]:
    """Return a trace with its numbers as written."""
    content = path.read_bytes()
    text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    return json.loads(text, parse_float=Decimal)


def ns(us: Decimal | int) -> int:
    """Return microseconds as nanoseconds, as today's importer rounds them."""
    return round(float(us) * 1000.0)


def slices_of(events: Iterable[dict[str, Any]], origin_ns: int = 0) -> Counter[Slice]:
    """Return the slices with their numbers of occurrences."""
    return Counter(
        (event["name"], ns(event["ts"]) + origin_ns, ns(event["dur"]))
        for event in events
        if event["ph"] == "X"
    )


def assert_nested(slices: list[tuple[int, int]]) -> None:
    """Check that of any two slices one is inside the other or they are disjoint."""
    open_ends: list[int] = []
    for start, end in sorted(slices, key=lambda each: (each[0], -each[1])):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1]
        open_ends.append(end)


@dataclass
class Imported:
    """What the importer makes of a trace; a flow has its category and both slices."""

    kept: Counter[Slice] = field(default_factory=Counter)
    dropped: list[Slice] = field(default_factory=list)
    flows: list[tuple[str, str, str]] = field(default_factory=list)
    lost_flows: int = 0


def imported(events: Iterable[dict[str, Any]]) -> Imported:
    """Import the slices and flows of a trace: by time, events of equal time in file order."""
    found = Imported()
    stacks: dict[tuple[Any, Any], list[Slice]] = defaultdict(list)
    begun: dict[tuple[str, int], str] = {}
    timed = [event for event in events if event["ph"] in "Xsf"]
    for event in sorted(timed, key=lambda event: ns(event["ts"])):
        stack = stacks[event["pid"], event["tid"]]
        if event["ph"] == "X":
            _add((event["name"], ns(event["ts"]), ns(event["dur"])), stack, found)
            continue
        flow = event["cat"], event["id"]
        if event["ph"] == "s" and stack:
            begun[flow] = stack[-1][0]
        elif event["ph"] == "f" and stack and flow in begun:
            found.flows.append((event["cat"], begun[flow], stack[-1][0]))
        else:
            found.lost_flows += 1
    return found


def _add(new: Slice, stack: list[Slice], found: Imported) -> None:
    _, start, duration = new
    while stack:
        _, open_start, open_duration = stack[-1]
        end = open_start + open_duration
        both_are_empty = open_duration == 0 and duration == 0
        if end < start or (end == start and not both_are_empty):
            stack.pop()
        else:
            break
    overlaps = any(begin + length < start + duration for _, begin, length in stack)
    if overlaps or len(stack) >= MAX_DEPTH:
        found.dropped.append(new)
    else:
        stack.append(new)
        found.kept[new] += 1
