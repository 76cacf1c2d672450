"""Choose the capture of each replayed graph."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from jarvis.capture.alignment import MERGED_COVERAGE, MIN_COVERAGE, Alignment, align, coverage
from jarvis.capture.files import Capture
from jarvis.capture.replays import Replay
from jarvis.capture.windows import Window
from jarvis.schemas.names import C

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
