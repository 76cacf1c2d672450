"""What the steps gain under the changes of a finding: the stored graph in plain Python."""

from bisect import bisect_right
from collections.abc import Collection, Iterable
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.arithmetic.recorded_steps import RecordedSteps, Times
from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.units import KERNEL_FLOOR_US, quantities_of

DURATION, HOST, LAUNCH, STREAM, SYNC, FIRST, LAST, UNLINKED = 0, 1, 2, 3, 5, 7, 8, 9
CALL_START, CALL_END, MARK = 0, 1, 4
REMOVED = -(1 << 62)

FUSED = ("fusible_chain", "gemm_epilogue")
SPANS_OF = ("data_loading", "allocator", "kernel_loading")
HELD = ("kernel_loading", "allocator")

Row = dict[str, Any]
Spans = Iterable[tuple[int, int, int]]
"""Thread, start and end."""


def replayed_savings(
    run: RunDirectory, finding: Row, own: list[Row], saving: tuple[float, float, float]
) -> tuple[float, float, float] | None:
    """The step time saved at each end of a saving of kernel time in ms; None if the steps of the
    run are not simulated."""
    if (graph := _graph(run)) is None:
        return None
    pool = finding["time_pool"] or ""
    if pool.startswith("idle"):
        cause = pool.removeprefix("idle").strip()
        low, mid, high = (_idle(run, graph, cause, end) for end in ("low", "mid", "high"))
    elif pool.startswith("exposed communication"):
        uids = [event["uid"] for event in run.table("collectives")]
        weights = graph.without(uids)
        if finding["check"] == "poor_overlap":
            work = run.table("gpu_work")
            own = [each for each in work if each["linked"] and each["uid"] in set(uids)]
            part = max(0.0, 1 - 1e6 * saving[2] / sum(each["dur_ns"] for each in own))
            weights = graph.scaled(list(graph.weight), [each["uid"] for each in own], part)
        low = mid = high = graph.gain_ms(weights)
    elif pool.startswith("exposed copies"):
        direction = pool.removeprefix("exposed copies").strip()
        copies = [e for e in run.table("gpu_work") if e["kind"] == "copy" and e["linked"]]
        own = [event for event in copies if direction in ("", event["direction"])]
        low, mid, high = (_shorter(graph, own, ms, is_copy=True) for ms in saving)
    elif finding["check"] in FUSED:
        return _fused(run, graph, finding, own, saving)
    else:
        least_ns = 1e3 * KERNEL_FLOOR_US if finding["impact"]["method"] == "perf model" else 0.0
        low, mid, high = (_shorter(graph, own, ms, least_ns=least_ns) for ms in saving)
    return low, mid, high


def without_kernels_ms(run: RunDirectory) -> float:
    """What all steps gain if no kernel takes time."""
    graph = _graph(run)
    assert graph is not None
    kernels = [event["uid"] for event in run.table("gpu_work") if event["kind"] == "compute"]
    return graph.gain_ms(graph.without(kernels))


def _idle(run: RunDirectory, graph: "_Graph", cause: str, which: str) -> float:
    if cause == "synchronization":
        return graph.gain_ms(graph.without_waits())
    gaps = [
        (gap["start_ns"], gap["start_ns"] + gap["dur_ns"])
        for gap in run.table("step_gaps")
        if cause in ("", gap["place"]) or (gap["cause"], gap["place"]) == (cause, "between")
    ]
    if cause in SPANS_OF:
        spans = [
            (span["thread"], span["start_ns"], span["end_ns"])
            for span in graph.spans
            if span["cause"] == cause
            and any(span["start_ns"] < end and span["end_ns"] > start for start, end in gaps)
        ]
    else:
        threads = {
            thread
            for what, thread in zip(graph.what, graph.thread, strict=True)
            if what == CALL_START
        }
        spans = [(thread, start, end) for thread in threads for start, end in gaps]
    factor = 0.5 if which == "low" else 0.0
    return graph.gain_ms(graph.without_host(list(graph.weight), spans, factor))


def _shorter(
    graph: "_Graph",
    own: list[Row],
    saved_ms: float,
    *,
    is_copy: bool = False,
    least_ns: float = 0.0,
) -> float:
    """Kernels that take less time, ``least_ns`` or more, or are removed with their launches if that
    is all of it; copies whose calls do not wait for them."""
    whole_ns = sum(event["dur_ns"] for event in own)
    if not whole_ns:
        return 0.0
    factor = 1 - saved_ms / (whole_ns / 1e6)
    uids = [event["uid"] for event in own]
    if factor < 1e-6 and not is_copy:
        return graph.gain_ms(graph.removed(list(graph.weight), uids, keeps_stream=True))
    weights = graph.scaled(list(graph.weight), uids, factor, least_ns)
    if is_copy:
        weights = graph.without_waits(weights, {event["launch_uid"] for event in own})
    return graph.gain_ms(weights)


def _fused(
    run: RunDirectory, graph: "_Graph", finding: Row, own: list[Row], saving: tuple[float, ...]
) -> tuple[float, float, float]:
    """One kernel for each instance, without the launches of the others and the host time between,
    as long as that saves no more than if no kernel took time."""
    number = int(quantities_of(finding)["instances"])
    size = int(quantities_of(finding)["kernels"]) // number
    chains = _instances(run, graph, {event["uid"] for event in own}, size)[:number]
    if not chains:
        low, mid, high = (_shorter(graph, own, ms) for ms in saving)
        return low, mid, high
    chained = {event["uid"] for chain in chains for event in chain}
    rest = [event for event in own if event["uid"] not in chained]
    part = len(chains) / number

    def gain(saved_ms: float, *, has_host: bool) -> float:
        weights = list(graph.weight)
        chain_ns = sum(event["dur_ns"] for chain in chains for event in chain)
        factor = max(0.0, 1 - saved_ms * part / (chain_ns / 1e6)) if chain_ns else 1.0
        rest_ns = sum(event["dur_ns"] for event in rest)
        if part < 1 and rest_ns:
            share = max(0.0, 1 - saved_ms * (1 - part) / (rest_ns / 1e6))
            weights = graph.scaled(weights, [event["uid"] for event in rest], share)
        for first, *others in chains:
            whole_ns = first["dur_ns"] + sum(event["dur_ns"] for event in others)
            weights[graph.duration_of[first["uid"]]] = round(whole_ns * factor)
        others = [event["uid"] for chain in chains for event in chain[1:]]
        weights = graph.removed(weights, others, keeps_stream=False)
        if has_host:
            spans = [span for chain in chains if (span := graph.launching(chain))]
            weights = graph.without_host(weights, spans, 0.0)
        return graph.gain_ms(weights)

    for has_host in (True, False):
        if gain(saving[2], has_host=has_host) <= without_kernels_ms(run):
            low, mid, high = (gain(ms, has_host=has_host) for ms in saving)
            return low, mid, high
    low, mid, high = (_shorter(graph, own, ms) for ms in saving)
    return low, mid, high


def _instances(
    run: RunDirectory, graph: "_Graph", own: Collection[int], size: int
) -> list[list[Row]]:
    """Kernels of a chain that follow each other on a stream, shortest host time first."""
    ordered = sorted(
        run.table("gpu_work"),
        key=lambda e: (e["device"] or 0, e["stream"] or 0, e["ts_ns"], e["uid"]),
    )
    found: list[list[Row]] = []
    for (_, is_own), group in groupby(
        ordered, lambda e: ((e["device"], e["stream"]), e["uid"] in own)
    ):
        events = list(group)
        if is_own:
            found += [events[at : at + size] for at in range(0, len(events) - size + 1, size)]

    def host_ns(chain: list[Row]) -> float:
        first, last = (graph.calls.get(event["launch_uid"]) for event in (chain[0], chain[-1]))
        return float("inf") if first is None or last is None else last[1] - first[1]

    return sorted(found, key=host_ns)


def _graph(run: RunDirectory) -> "_Graph | None":
    """The graph of the run; that of the last one asked for is in memory."""
    info = run.manifest["simulation"]
    if info is None or info["quality"]["grade"] == "not simulated":
        return None
    if run.root not in _LAST:
        _LAST.clear()
        _LAST[run.root] = _Graph(run)
    return _LAST[run.root]


_LAST: "dict[Path, _Graph]" = {}


class _Graph(RecordedSteps):
    """The recorded steps and what changes mean in them."""

    @cached_property
    def edges(self) -> list[tuple[int, int, int]]:
        return list(zip(self.kind, self.src, self.dst, strict=True))

    @cached_property
    def calls(self) -> dict[int, tuple[int, int]]:
        """Thread and start of each call, by its uid."""
        return {
            uid: (thread, time)
            for what, uid, thread, time in zip(
                self.what, self.uid, self.thread, self.time, strict=True
            )
            if what == CALL_START
        }

    @cached_property
    def launches(self) -> set[int]:
        """The nodes from which work is launched."""
        return {src for kind, src, _ in self.edges if kind == LAUNCH}

    @cached_property
    def waits(self) -> set[int]:
        """The ends of calls that wait for GPU work."""
        return {dst for kind, _, dst in self.edges if kind == SYNC}

    def launching(self, chain: list[Row]) -> tuple[int, int, int] | None:
        """The host time from the first to the last launch of a chain, if one thread launches it."""
        uids = [event["launch_uid"] for event in chain]
        calls = [self.calls[uid] for uid in uids if uid in self.calls]
        threads, starts = {thread for thread, _ in calls}, [start for _, start in calls]
        if len(calls) < len(chain) or len(threads) != 1 or starts != sorted(starts):
            return None
        return threads.pop(), starts[0] + self.first_ns, starts[-1] + self.first_ns

    def scaled(
        self, weights: Times, uids: Iterable[int], factor: float, least_ns: float = 0.0
    ) -> Times:
        for uid in uids:
            place = self.duration_of[uid]
            whole = self.weight[place]
            weights[place] = round(max(whole * factor, min(whole, least_ns)))
        return weights

    def removed(self, weights: Times, uids: Collection[int], *, keeps_stream: bool) -> Times:
        """GPU events without time, the gap before them, and the launches of their calls."""
        starts = {self.src[self.duration_of[uid]] for uid in uids}
        for uid in uids:
            weights[self.duration_of[uid]] = 0
        calls = {src for kind, src, dst in self.edges if kind == LAUNCH and dst in starts}
        on_stream = {dst for kind, _, dst in self.edges if kind == STREAM and dst in starts}
        for place, (kind, src, dst) in enumerate(self.edges):
            if kind == STREAM and dst in starts:
                weights[place] = min(weights[place], 0)
            elif kind in (LAUNCH, UNLINKED) and dst in on_stream and not keeps_stream:
                weights[place] = REMOVED
            elif kind == DURATION and self.what[dst] == CALL_END and {src, dst} & calls:
                weights[place] = 0
        return weights

    def without_waits(
        self, given: Times | None = None, calls: Collection[int] | None = None
    ) -> Times:
        """Calls that wait for nothing, by default all."""
        weights = list(self.weight) if given is None else given
        ends = {node for node in self.waits if calls is None or self.uid[node] in calls}
        for place, (kind, src, dst) in enumerate(self.edges):
            if dst in ends and kind == SYNC:
                weights[place] = REMOVED
            elif dst in ends and kind == DURATION:
                least = min(self.time[dst] - self.time[src], self.constants["call"])
                weights[place] = min(weights[place], least)
        return weights

    def without_host(self, weights: Times, spans: Spans, factor: float) -> Times:
        """The weights without a part of host time; calls inside that launch or wait keep theirs,
        unless they load code or allocate."""
        of_thread: dict[int, list[tuple[int, int]]] = {}
        for thread, start, end in spans:
            times = start - self.first_ns, end - self.first_ns
            of_thread.setdefault(thread, []).append(times)
        disjoint = {thread: _union(found) for thread, found in of_thread.items()}
        held = {span["uid"] for span in self.spans if span["cause"] in HELD}
        for place, (kind, src, dst) in enumerate(self.edges):
            is_call = kind == DURATION and self.what[dst] == CALL_END
            if weights[place] <= 0 or not (is_call or kind in (HOST, FIRST, LAST)):
                continue
            start, length = self.time[src], self.weight[place]
            lost = max(
                _overlap(disjoint.get(thread, []), start, start + max(length, 0))
                for thread in (self.thread[src], self.thread[dst])
            )
            launches = src in self.launches and self.uid[dst] not in held
            if is_call and (launches or dst in self.waits or lost < length):
                continue
            weights[place] = max(weights[place] - round((1 - factor) * lost), 0)
        return weights


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
