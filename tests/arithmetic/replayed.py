"""What the steps gain without some GPU work: the stored graph, replayed in plain Python."""

from bisect import bisect_right
from collections.abc import Callable, Collection
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.arithmetic.run_directory import RunDirectory

DURATION, HOST, LAUNCH, STREAM, SYNC, FIRST, LAST, UNLINKED = 0, 1, 2, 3, 5, 7, 8, 9
CALL_START, CALL_END, GPU_END, MARK, BEGIN, END = 0, 1, 3, 4, 5, 6

Times = list[int]


def gain_ms(run: RunDirectory, own: list[dict[str, Any]], *, is_removed: bool) -> float | None:
    """What all steps together gain if GPU events take no time; if they are removed, their launches
    neither, nor the host time of the operators that launch them and from launch to launch of them.
    None if the steps of the run are not simulated."""
    info = run.manifest["simulation"]
    if info is None or info["quality"]["grade"] == "not simulated":
        return None
    key = run.root, frozenset(event["uid"] for event in own), is_removed
    if key not in _GAINS:
        _GAINS[key] = _graph(run).gain_ms(own, is_removed=is_removed)
    return _GAINS[key]


_GAINS: dict[tuple[Path, frozenset[int], bool], float] = {}
"""What has been replayed: many tests ask for the same."""


def _graph(run: RunDirectory) -> "_Graph":
    """The graph of the run; that of the last one asked for is in memory."""
    if run.root not in _LAST:
        _LAST.clear()
        _LAST[run.root] = _Graph(run)
    return _LAST[run.root]


_LAST: "dict[Path, _Graph]" = {}


class _Graph:
    """The tables of a run as lists."""

    def __init__(self, run: RunDirectory) -> None:
        self.info = run.manifest["simulation"]
        self.first_ns = self.info["first_ns"]
        self.steps = run.table("steps")
        nodes, edges = run.table("sim_nodes"), run.table("sim_edges")
        self.what, self.uid, self.time = (
            [node[name] for node in nodes] for name in ("what", "uid", "t_ns")
        )
        self.thread = [node["thread"] for node in nodes]
        self.spans = run.table("sim_spans")
        self.src, self.dst, self.kind, self.weight = (
            [edge[name] for edge in edges] for name in ("src", "dst", "kind", "w_ns")
        )
        stalls = {(stall["uid"], stall["ns"]) for stall in self.info["quality"]["stalls"]}
        self.stalls = {
            place: edge["w_ns"] - edge["nominal_ns"]
            for place, edge in enumerate(edges)
            if edge["is_binding"]
            and (self.uid[edge["dst"]], edge["w_ns"] - edge["nominal_ns"]) in stalls
        }
        assert self._replay(self.weight) == self.time

    def gain_ms(self, own: list[dict[str, Any]], *, is_removed: bool) -> float:
        """What the steps gain without GPU events."""
        weights = self._without({event["uid"] for event in own}, with_launches=is_removed)
        if is_removed:
            launchers = {event["launcher_uid"] for event in own}
            calls = {event["launch_uid"] for event in own}
            weights = self._without_host(weights, launchers, calls)
        for place, left in self.stalls.items():
            weights[place] = max(weights[place], left)
        recorded, changed = (
            sum(self._measured(self.time)),
            sum(self._measured(self._replay(weights))),
        )
        return (recorded - changed) / 1e6

    def _without(self, uids: Collection[int], *, with_launches: bool) -> Times:
        kinds = list(zip(self.kind, self.src, self.dst, strict=True))
        removed = {
            src
            for kind, src, dst in kinds
            if kind == DURATION and self.what[dst] == GPU_END and self.uid[dst] in uids
        }
        launching = {
            src for kind, src, dst in kinds if kind in (LAUNCH, UNLINKED) and dst in removed
        }
        changed = list(self.weight)
        for place, (kind, src, dst) in enumerate(kinds):
            is_call = kind == DURATION and self.what[dst] == CALL_END
            if kind == DURATION and src in removed:
                changed[place] = 0
            elif with_launches and kind == STREAM and dst in removed:
                changed[place] = min(changed[place], 0)
            elif with_launches and is_call and (src in launching or dst in launching):
                changed[place] = 0
        return changed

    def _between(self, calls: Collection[int]) -> list[tuple[int, int, int]]:
        """Thread and times from the first to the last of calls that launch one after the other."""
        launching = {src for kind, src in zip(self.kind, self.src, strict=True) if kind == LAUNCH}
        ordered = sorted(
            (self.thread[node], self.time[node], self.uid[node])
            for node in launching
            if self.what[node] == CALL_START
        )
        found: list[tuple[int, int, int]] = []
        before: tuple[int, bool] | None = None
        for thread, at, uid in ordered:
            if uid in calls and before == (thread, True):
                found[-1] = thread, found[-1][1], at
            elif uid in calls:
                found.append((thread, at, at))
            before = thread, uid in calls
        return found

    def _without_host(
        self, weights: Times, launchers: Collection[int], calls: Collection[int]
    ) -> Times:
        """The weights without the host time of calls; calls inside them that launch or wait keep
        theirs, unless they load code or allocate."""
        of_thread: dict[int, list[tuple[int, int]]] = {}
        for span in self.spans:
            if span["uid"] in launchers:
                times = (span["start_ns"] - self.first_ns, span["end_ns"] - self.first_ns)
                of_thread.setdefault(span["thread"], []).append(times)
        for thread, start, end in self._between(calls):
            of_thread.setdefault(thread, []).append((start, end))
        disjoint = {thread: _union(spans) for thread, spans in of_thread.items()}
        kinds = list(zip(self.kind, self.src, self.dst, strict=True))
        launching = {src for kind, src, _ in kinds if kind == LAUNCH}
        waiting = {dst for kind, _, dst in kinds if kind == SYNC}
        causes = ("kernel_loading", "allocator")
        held = {span["uid"] for span in self.spans if span["cause"] in causes}
        changed = list(weights)
        for place, (kind, src, dst) in enumerate(kinds):
            is_call = kind == DURATION and self.what[dst] == CALL_END
            if changed[place] <= 0 or not (is_call or kind in (HOST, FIRST, LAST)):
                continue
            start, length = self.time[src], self.weight[place]
            lost = max(
                _overlap(disjoint.get(thread, []), start, start + length)
                for thread in (self.thread[src], self.thread[dst])
            )
            launches = src in launching and self.uid[dst] not in held
            if is_call and (launches or dst in waiting or lost < length):
                continue
            changed[place] = max(changed[place] - lost, 0)
        return changed

    def _replay(self, weights: Times) -> Times:
        times: list[int | None] = [None] * len(self.what)
        for src, dst, weight in zip(self.src, self.dst, weights, strict=True):
            reached = (times[src] or 0) + weight
            now = times[dst]
            times[dst] = reached if now is None else max(now, reached)
        return [time or 0 for time in times]

    @cached_property
    def _measured(self) -> Callable[[Times], Times]:
        """How long each step takes, as the table of steps times them."""
        marks, (end,), (begin,) = (
            [node for node, found in enumerate(self.what) if found == what]
            for what in (MARK, END, BEGIN)
        )
        if not marks or self.steps[0]["source"] == "recording":
            return lambda times: [times[end] - times[begin]]
        if self.steps[0]["timed_by"] == "marks":
            return lambda times: _between(times, [*marks[:-1], end])
        by_gpu = self._by_gpu(marks)
        if self.steps[0]["source"] == "engine":
            return by_gpu
        return lambda times: max(by_gpu(times), _between(times, marks), key=sum)

    def _by_gpu(self, marks: list[int]) -> Callable[[Times], Times]:
        start_ns = min(s["start_ns"] for s in self.steps if s["dur_ns"] is not None)
        start_ns -= self.first_ns
        at = [self.time[mark] for mark in marks]
        kinds = list(zip(self.kind, self.src, self.dst, strict=True))
        ends = {src: dst for kind, src, dst in kinds if kind == DURATION}
        own: dict[int, list[int]] = {}
        for kind, src, dst in kinds:
            step = bisect_right(at, self.time[src]) - 1
            if kind == LAUNCH and step >= 0 and self.time[src] <= at[-1]:
                own.setdefault(min(step, len(marks) - 2), []).append(dst)
        starts = [n for nodes in own.values() for n in nodes if self.time[n] >= start_ns]

        def measured(times: Times) -> Times:
            reached = [min(times[node] for node in starts)]
            for step in sorted(own):
                reached.append(max(reached[-1], *(times[ends[node]] for node in own[step])))
            return _between(reached, list(range(len(reached))))

        return measured


def _between(times: Times, places: list[int]) -> Times:
    return [times[b] - times[a] for a, b in pairwise(places)]


def _union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _overlap(spans: list[tuple[int, int]], start: int, end: int) -> int:
    first = max(bisect_right(spans, (start, 0)) - 1, 0)
    lost = 0
    for begin, stop in spans[first:]:
        if begin >= end:
            break
        lost += max(0, min(stop, end) - max(begin, start))
    return lost
