"""``<key>_tree_data.json``: the surroundings of a category's main operations.

Calls and names that several operations share are stored once. ``names``; ``frames``: the calls
above, parents first, each with the index of its parent and of its name; ``calls``: those below, in
order of start; ``operations``: by uid, with the index of the innermost frame and the range of
calls. One row per line.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import polars as pl

from jarvis.perf_report import PerfReport
from jarvis.perf_report.call_tree.paths import (
    Around,
    CallBelow,
    CallPath,
    FrameAbove,
    LaunchedKernel,
)
from jarvis.perf_report.call_tree.stacks import Frame
from jarvis.schemas.names import C

PARTS = ("names", "frames", "calls", "operations")

MAIN_SHARE_PCT = 10.0
MAIN_ROWS = 5
"""Operations above this share of their category get a call path, and at least this many."""


def main_call_paths(
    report: PerfReport, categories: Mapping[str, pl.DataFrame]
) -> dict[str, dict[int, CallPath]]:
    """Return the callers and the subtree of each category's main operations, by key and uid."""
    uids = {key: main_uids(rows) for key, rows in categories.items()}
    found = report.call_paths([uid for wanted in uids.values() for uid in wanted])
    paths = {key: {u: found[u] for u in wanted if u in found} for key, wanted in uids.items()}
    return {key: by_uid for key, by_uid in paths.items() if by_uid}


def main_uids(rows: pl.DataFrame) -> list[int]:
    """Return the uids of a category's rows (most time first) that get a call path."""
    main = rows[[C.uid, C.percent_of_category, C.is_top_operation]].filter(
        (pl.col(C.percent_of_category) > MAIN_SHARE_PCT) | pl.col(C.is_top_operation)
    )
    chosen = main if main.height >= MAIN_ROWS else rows.head(MAIN_ROWS)
    return chosen[C.uid].to_list()


def tree_data(paths: Mapping[int, CallPath]) -> Iterator[bytes]:
    """Yield the content of the file in parts."""
    tables = _Tables()
    operations = {str(uid): row for uid, row in tables.operations(paths)}
    yield b"{"
    for part, rows in zip(PARTS, (tables.names, tables.frames, tables.calls), strict=False):
        yield b'"%b":[\n' % part.encode()
        yield from _lines(map(orjson.dumps, rows))
        yield b"],\n"
    yield b'"operations":{\n'
    yield from _lines(b'"%b":%b' % (u.encode(), orjson.dumps(r)) for u, r in operations.items())
    yield b"}}\n"


def read_tree_data(text: bytes) -> dict[int, CallPath]:
    """Return the call paths of a file, including the format of Jarvis 0.1.

    Raises:
        ValueError, LookupError, TypeError: The file has other content.
    """
    read = orjson.loads(text)
    if "operations" not in read:
        return {int(uid): _unshared(path) for uid, path in read.items()}
    names = read["names"]
    around = Around(
        frames=[
            FrameAbove(row.get("parent"), Frame(names[row["name"]], row["kind"]))
            for row in read["frames"]
        ],
        calls=[
            CallBelow(
                depth=row["depth"],
                name=names[row["name"]],
                kind=row["kind"],
                dur_us=row["dur_us"],
                input_dims=row.get("input_dims"),
                input_types=row.get("input_types"),
            )
            for row in read["calls"]
        ],
    )
    operations = read["operations"].items()
    return {int(uid): _path(int(uid), row, names, around) for uid, row in operations}


def _path(uid: int, row: dict[str, Any], names: list[str], around: Around) -> CallPath:
    entry_point = row["entry_point"]
    return CallPath(
        around=around,
        uid=uid,
        op_name=names[row["name"]],
        input_dims=row["input_dims"],
        frame=row["frame"],
        depth=row["depth"],
        first_call=row["first_call"],
        end_call=row["end_call"],
        nn_module_chain=tuple(names[place] for place in row["nn_module_chain"]),
        entry_point=None if entry_point is None else names[entry_point],
        kernels=tuple(
            LaunchedKernel(**{**kernel, "name": names[kernel["name"]]}) for kernel in row["kernels"]
        ),
    )


def _lines(rows: Iterable[bytes]) -> Iterator[bytes]:
    for number, row in enumerate(rows):
        yield b",\n" + row if number else row
    yield b"\n"


@dataclass(slots=True)
class _Tables:
    """The deduplicated rows that the operations of a file refer to by index."""

    names: dict[str, int] = field(default_factory=dict)
    frames: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def operations(self, paths: Mapping[int, CallPath]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield a row for each call path, by uid; fill the tables."""
        by_around: dict[int, list[CallPath]] = {}
        for path in paths.values():
            by_around.setdefault(id(path.around), []).append(path)
        for alike in by_around.values():
            place_of_frame: dict[int, int] = {}
            shifts = self._add_calls(alike)
            for path in alike:
                yield path.uid, self._operation(path, place_of_frame, shifts)

    def _operation(
        self, path: CallPath, place_of_frame: dict[int, int], shifts: "_Shifts"
    ) -> dict[str, Any]:
        entry_point = path.entry_point
        return {
            "name": self._name(path.op_name),
            "input_dims": path.input_dims,
            "frame": self._add_frames(path, place_of_frame),
            "depth": path.depth,
            "first_call": shifts.moved(path.first_call),
            "end_call": shifts.moved(path.first_call) + max(0, path.end_call - path.first_call),
            "nn_module_chain": [self._name(name) for name in path.nn_module_chain],
            "entry_point": None if entry_point is None else self._name(entry_point),
            "kernels": [
                {
                    "name": self._name(kernel.name),
                    "dur_us": kernel.dur_us,
                    "stream": kernel.stream,
                    "call": shifts.moved(kernel.call) if path.has_below(kernel.call) else None,
                }
                for kernel in path.kernels
            ],
        }

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def _add_frames(self, path: CallPath, place_of: dict[int, int]) -> int | None:
        """Add the missing ancestors of a call; return the index of its innermost frame."""
        new, place = [], path.frame
        while place is not None and place not in place_of:
            new.append(place)
            place = path.around.frames[place].parent
        parent = None if place is None else place_of[place]
        for place in reversed(new):
            frame = path.around.frames[place].frame
            row = {"parent": parent, "name": self._name(frame.name), "kind": frame.kind}
            parent = place_of[place] = len(self.frames)
            self.frames.append(row)
        return parent

    def _add_calls(self, paths: list[CallPath]) -> "_Shifts":
        """Add the descendants of calls, without duplicates."""
        shifts, end = _Shifts(), 0
        for path in sorted(paths, key=lambda path: path.first_call):
            if path.first_call >= end:
                shifts.begin(path.first_call, len(self.calls))
            for place in range(max(path.first_call, end), path.end_call):
                row = path.around.calls[place]._asdict()
                row["name"] = self._name(row["name"])
                self.calls.append({key: value for key, value in row.items() if value is not None})
            end = max(end, path.end_call)
        return shifts


@dataclass(slots=True)
class _Shifts:
    """Start indices of ranges of calls, before and after the calls between them are removed."""

    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)

    def begin(self, before: int, after: int) -> None:
        self.before.append(before)
        self.after.append(after)

    def moved(self, place: int) -> int:
        number = bisect_right(self.before, place) - 1
        return place - self.before[number] + self.after[number]


def _unshared(old: dict[str, Any]) -> CallPath:
    """Return a call path of the old format, which does not share its surroundings."""
    frames = [
        FrameAbove(place - 1 if place else None, Frame(frame["name"], frame["kind"]))
        for place, frame in enumerate(old["parent_chain"])
    ]
    calls: list[CallBelow] = []
    launches: dict[tuple[str, float], list[int]] = {}
    for entry in old["subtree"]:
        if entry["kind"] == "kernel":
            launches.setdefault((entry["name"], entry["dur_us"]), []).append(len(calls) - 1)
        else:
            calls.append(CallBelow(*(entry[name] for name in CallBelow._fields)))
    kernels = []
    for kernel in old["kernels"]:
        waiting = launches.get((kernel["name"], kernel["dur_us"]))
        call = waiting.pop(0) if waiting else None
        kernels.append(LaunchedKernel(kernel["name"], kernel["dur_us"], kernel["stream"], call))
    return CallPath(
        around=Around(frames, calls),
        uid=old["uid"],
        op_name=old["op_name"],
        input_dims=old["input_dims"],
        frame=len(frames) - 1 if frames else None,
        depth=0,
        first_call=0,
        end_call=len(calls),
        nn_module_chain=tuple(old["nn_module_chain"]),
        entry_point=old["entry_point"],
        kernels=tuple(kernels),
    )
