"""The recorded steps of a run and how long they take with other times, in plain Python."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import pairwise
from typing import Any

from tests.arithmetic.run_directory import RunDirectory

DURATION, LAUNCH = 0, 2
"""Kinds of edges."""

GPU_END, MARK, BEGIN, END = 3, 4, 5, 6
"""Kinds of nodes."""

Times = list[int]


class RecordedSteps:
    """The dependency graph of a run as lists: a node's time is the latest of its edges."""

    def __init__(self, run: RunDirectory) -> None:
        info: dict[str, Any] = run.manifest["simulation"]
        nodes, edges = run.table("sim_nodes"), run.table("sim_edges")
        self.what, self.uid, self.time, self.thread = (
            [node[name] for node in nodes] for name in ("what", "uid", "t_ns", "thread")
        )
        self.src, self.dst, self.kind, self.weight = (
            [edge[name] for edge in edges] for name in ("src", "dst", "kind", "w_ns")
        )
        self.steps, self.spans = run.table("steps"), run.table("sim_spans")
        self.first_ns, self.constants = info["first_ns"], info["constants"]
        stalls = {(stall["uid"], stall["ns"]) for stall in info["quality"]["stalls"]}
        self.stalls = {
            place: edge["w_ns"] - edge["nominal_ns"]
            for place, edge in enumerate(edges)
            if edge["is_binding"]
            and (self.uid[edge["dst"]], edge["w_ns"] - edge["nominal_ns"]) in stalls
        }
        assert self.replayed(self.weight) == self.time

    @cached_property
    def duration_of(self) -> dict[int, int]:
        """The place of the edge that lasts as long as a GPU event, by its uid."""
        return {
            self.uid[dst]: place
            for place, (kind, dst) in enumerate(zip(self.kind, self.dst, strict=True))
            if kind == DURATION and self.what[dst] == GPU_END
        }

    def without(self, uids: Iterable[int]) -> Times:
        """Return the weights if GPU events take no time."""
        weights = list(self.weight)
        for uid in uids:
            if (place := self.duration_of.get(uid)) is not None:
                weights[place] = 0
        return weights

    def gain_ms(self, weights: Times) -> float:
        """Return what all steps together gain with other weights."""
        for place, left in self.stalls.items():
            weights[place] = max(weights[place], left)
        recorded, changed = self.lengths(self.time), self.lengths(self.replayed(weights))
        return (sum(recorded) - sum(changed)) / 1e6

    def replayed(self, weights: Times) -> Times:
        """Return the time of each node."""
        times: list[int | None] = [None] * len(self.what)
        for src, dst, weight in zip(self.src, self.dst, weights, strict=True):
            reached = (times[src] or 0) + weight
            now = times[dst]
            times[dst] = reached if now is None else max(now, reached)
        return [time or 0 for time in times]

    @cached_property
    def lengths(self) -> Callable[[Times], Times]:
        """How long each step takes, as the table of steps times them."""
        marks, (end,), (begin,) = (
            [node for node, found in enumerate(self.what) if found == what]
            for what in (MARK, END, BEGIN)
        )
        if not marks or not self.steps or self.steps[0]["source"] == "recording":
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
