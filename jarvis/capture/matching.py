"""Choose the capture of each replayed graph."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from jarvis.capture.alignment import (
    MERGED_COVERAGE,
    MIN_COVERAGE,
    Alignment,
    Replayed,
    align,
    coverage,
    token,
)
from jarvis.capture.files import Capture
from jarvis.capture.windows import Window
from jarvis.perf_models.step_annotation import parse
from jarvis.perf_report.annotations import enclosing_steps
from jarvis.schemas.names import C
from jarvis.text.format import cut
from jarvis.trace import Trace
from jarvis.trace.links import GRAPH_LAUNCHES


@dataclass(frozen=True)
class Replay:
    """One launch of a graph: the runtime call (a row of ``Trace.runtime``) and its GPU events.

    ``events`` has ``uid, name, dur_ns, stream`` by start. ``graph_id`` is None if it is not
    recorded. ``annotation`` is that of the step around the launch.
    """

    launch_uid: int
    dur_ns: int
    annotation: str | None
    graph_id: int | None
    events: pl.DataFrame

    @cached_property
    def tokens(self) -> int | None:
        """Tokens of the step; None if its annotation does not have them."""
        step = parse(cut(self.annotation)) if self.annotation else None
        return step.tokens if step else None

    @cached_property
    def replayed(self) -> Replayed:
        """What is compared with captured calls."""
        return Replayed(
            tokens=tuple(token(name) or "" for name in self.events[C.name]),
            durations_ns=tuple(self.events[C.dur_ns]),
            streams=tuple(self.events[C.stream]),
            node_ids=tuple(self.events[C.graph_node_id]),
        )

    @cached_property
    def key(self) -> str:
        """Equal for replays of the same graph, or of the same kernel names if graphs have no id."""
        names = hashlib.sha256("\n".join(self.replayed.tokens).encode()).hexdigest()[:12]
        return names if self.graph_id is None else f"{self.graph_id}:{names}"


def replays(trace: Trace) -> Iterator[Replay]:
    """Yield the graph launches with GPU work, by start."""
    timed = trace.runtime.drop_nulls([C.ts_ns, C.dur_ns])
    calls = timed.filter(pl.col(C.name).is_in(GRAPH_LAUNCHES)).sort(C.ts_ns, C.uid)
    annotations = dict(zip(calls[C.uid], enclosing_steps(calls, trace.annotations), strict=True))
    events = trace.gpu_events.drop_nulls([C.ts_ns, C.dur_ns]).select(
        C.uid, C.name, C.ts_ns, C.dur_ns, C.stream, C.graph_id, C.graph_node_id
    )
    launched = (
        trace.launches.select(C.runtime_uid, pl.col(C.gpu_uid).alias(C.uid))
        .join(calls.select(pl.col(C.uid).alias(C.runtime_uid)), on=C.runtime_uid, how="semi")
        .join(events, on=C.uid)
        .sort(C.ts_ns, C.uid)
        .partition_by(C.runtime_uid, as_dict=True)
    )
    for uid, dur_ns in calls.select(C.uid, C.dur_ns).iter_rows():
        if (own := launched.get((uid,))) is not None:
            (graph_id, *others) = own[C.graph_id].unique()
            yield Replay(uid, dur_ns, annotations[uid], None if others else graph_id, own)


_TOO_SMALL = 1 << 40
"""Cost of a capture for fewer tokens than the step has; above that of any padding."""

_SAME_COVERAGE = 4
"""Decimals of the coverage by which captures are compared."""

Cost = tuple[float, ...]


@dataclass(frozen=True)
class Candidate:
    """A capture, aligned with a graph: ``index`` in its file, the ``place``-th one.

    ``coverage`` is the share of replayed time with a captured call.
    """

    capture: Capture
    place: int
    index: int
    alignment: Alignment
    coverage: float

    @property
    def window(self) -> Window:
        """The captured calls."""
        return self.capture.windows[self.index]

    @property
    def leftovers(self) -> int:
        """Captured calls without a replayed event."""
        return len(self.window.captured.tokens) - len(self.alignment.pairs)


@dataclass(frozen=True)
class Match:
    """A graph launch and its capture; ``chosen`` is None, with a ``reason``, if there is none.

    ``confidence``: ``names``, ``node ids``, ``batch`` if only the batch size tells captures with
    the same kernels but other shapes apart, ``order`` if their order does, or ``unverified``.
    """

    replay: Replay
    chosen: Candidate | None
    confidence: str = ""
    reason: str = ""

    @cached_property
    def pairs(self) -> pl.DataFrame:
        """Rows ``gpu_uid, dispatch``: event, and position of its call in the capture."""
        pairs = self.chosen.alignment.pairs if self.chosen else ()
        at = pl.Series([at for at, _ in pairs], dtype=pl.UInt32)
        to = pl.Series("dispatch", [to for _, to in pairs], dtype=pl.UInt32)
        return pl.DataFrame([self.replay.events[C.uid].gather(at).alias(C.gpu_uid), to])


class Matcher:
    """Finds the captures that fit a graph, once for each distinct graph."""

    def __init__(self, captures: Sequence[Capture], rank: int | None) -> None:
        self._captures = captures
        self._rank = rank
        self._aligned: dict[str, list[Candidate]] = {}
        self._refused: dict[str, str] = {}

    def matches(self, replays: Sequence[Replay]) -> list[Match]:
        """Return the match of each graph launch, with the launches in the order of their start.

        Captures are chosen by share of replayed time, rank, batch size (the smallest that holds the
        tokens of the step), order (launches of a step use consecutive captures of a file), calls
        left over and file name.
        """
        best = [self._best(replay) for replay in replays]
        return [
            self._match(replay, candidates, chosen)
            for replay, candidates, chosen in zip(replays, best, _in_order(best), strict=True)
        ]

    def _best(self, replay: Replay) -> list[Candidate]:
        """Return the candidates that only order, leftovers and file name tell apart."""
        candidates = self._candidates(replay)
        costs = [self._cost(replay, each) for each in candidates]
        least = min(costs, default=())
        return [each for each, cost in zip(candidates, costs, strict=True) if cost == least]

    def _candidates(self, replay: Replay) -> list[Candidate]:
        if replay.key not in self._aligned:
            aligned = [
                Candidate(capture, place, index, found, coverage(replay.replayed, found.pairs))
                for place, capture in enumerate(self._captures)
                for index, window in enumerate(capture.windows)
                for found in (align(replay.replayed, window.captured),)
            ]
            fitting = [each for each in aligned if each.coverage >= MIN_COVERAGE]
            if not fitting and aligned:
                nearest = max(aligned, key=lambda each: each.coverage)
                share = f"captured calls for {nearest.coverage:.0%} of its time"
                self._refused[replay.key] = (
                    f"{nearest.capture.file}: {nearest.alignment.reason or share}"
                )
            self._aligned[replay.key] = fitting
        return self._aligned[replay.key]

    def _cost(self, replay: Replay, candidate: Candidate) -> Cost:
        capture = candidate.capture
        other_rank = self._rank is not None and capture.rank not in (None, self._rank)
        padding = 0
        if replay.tokens is not None and capture.batch is not None:
            padding = capture.batch - replay.tokens
            padding = padding if padding >= 0 else _TOO_SMALL - padding
        return (-round(candidate.coverage, _SAME_COVERAGE), other_rank, padding)

    def _match(
        self, replay: Replay, candidates: Sequence[Candidate], chosen: Candidate | None
    ) -> Match:
        if chosen is None:
            return Match(replay, None, reason=self._refused.get(replay.key, "no capture"))
        if not chosen.alignment.is_verified:
            return Match(replay, chosen, "unverified", "captured calls have no kernel names")
        gaps = "" if chosen.coverage >= MERGED_COVERAGE else "with gaps"
        if len(candidates) > 1:
            return Match(replay, chosen, "order", gaps)
        same = [
            each
            for each in self._candidates(replay)
            if each.capture is not chosen.capture and each.coverage >= chosen.coverage
        ]
        if any(each.capture.batch != chosen.capture.batch for each in same):
            return Match(replay, chosen, "batch", gaps)
        return Match(replay, chosen, "names", gaps)


def _in_order(best: Sequence[Sequence[Candidate]]) -> list[Candidate | None]:
    """Choose one candidate for each launch so that most use the one after that of the launch
    before, then by leftovers, file and position."""
    last: Sequence[Candidate | None] = [None]
    costs: list[Cost] = [(0, 0, 0, 0)]
    steps: list[tuple[Sequence[Candidate | None], list[int]]] = []
    for candidates in best:
        options: Sequence[Candidate | None] = candidates or [None]
        reached = [
            min(
                (_added(cost, before, each), at)
                for at, (cost, before) in enumerate(zip(costs, last, strict=True))
            )
            for each in options
        ]
        costs = [cost for cost, _ in reached]
        steps.append((options, [at for _, at in reached]))
        last = options
    at = costs.index(min(costs))
    chosen = []
    for options, came_from in reversed(steps):
        chosen.append(options[at])
        at = came_from[at]
    return chosen[::-1]


def _added(cost: Cost, before: Candidate | None, each: Candidate | None) -> Cost:
    if each is None:
        return cost
    if before is None:
        follows = each.index == 0
    else:
        following = (before.index + 1) % len(each.capture.windows)
        follows = before.capture is each.capture and each.index == following
    step = (not follows, each.leftovers, each.place, each.index)
    return tuple(a + b for a, b in zip(cost, step, strict=True))
