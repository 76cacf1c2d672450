"""Faults of a simulated job: what makes ranks late, and what is wrong with their traces."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from jarvis.core.errors import JarvisError

LOADER, HOST = "loader", "host"
CAUSES = (LOADER, HOST)
"""Where a rank loses time once: while it waits for the next batch, or before the backward pass."""


@dataclass(frozen=True, slots=True)
class Slow:
    """A rank whose kernels take ``factor`` times as long, all or those of a ``family``."""

    rank: int
    factor: float
    family: str | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """A rank that loses ``ms`` in ``step`` (from 0) to a cause of CAUSES."""

    rank: int
    ms: float
    cause: str = LOADER
    step: int = 0


@dataclass(frozen=True, slots=True)
class Faults:
    """What is wrong with a job, by rank.

    ``slow``, ``late``, ``slow_links`` (share of its bandwidth that a link has left),
    ``hot_experts`` (how many times as many tokens as others they get) and ``gpus`` change what
    happens; in an ``is_even`` job all hosts take the same pauses. The others change
    what is recorded: ``clock_offset_us`` and ``clock_drift_ppm`` of the clock, ``has_own_base``
    gives each trace its own ``baseTimeNanoseconds``, ``skipped`` ranks have no trace, ``truncated``
    ones half of it, ``duplicated`` ones two, ``steps_shift`` is the number of steps by which the
    recording starts later, ``dropped`` the number of collectives that are missing. Without
    ``has_metadata`` no trace states its rank, and no collective its size; with ``has_seq``
    collectives are numbered.
    """

    slow: tuple[Slow, ...] = ()
    late: tuple[Late, ...] = ()
    slow_links: Mapping[int, float] = field(default_factory=dict)
    hot_experts: Mapping[int, float] = field(default_factory=dict)
    clock_offset_us: Mapping[int, float] = field(default_factory=dict)
    clock_drift_ppm: Mapping[int, float] = field(default_factory=dict)
    has_own_base: bool = False
    skipped: frozenset[int] = frozenset()
    truncated: frozenset[int] = frozenset()
    duplicated: frozenset[int] = frozenset()
    steps_shift: Mapping[int, int] = field(default_factory=dict)
    dropped: Mapping[int, int] = field(default_factory=dict)
    has_metadata: bool = True
    has_seq: bool = False
    gpus: Mapping[int, str] = field(default_factory=dict)
    is_even: bool = False

    def ranks(self) -> set[int]:
        """Return the ranks that are named."""
        named = {slow.rank for slow in self.slow} | {late.rank for late in self.late}
        by_rank = (
            *(
                self.slow_links,
                self.hot_experts,
                self.clock_offset_us,
                self.clock_drift_ppm,
                self.skipped,
            ),
            *(self.truncated, self.duplicated, self.steps_shift, self.dropped, self.gpus),
        )
        return named.union(*by_rank)

    def described(self) -> dict[str, Any]:
        """Return the faults as JSON values."""
        values = asdict(self)
        return {
            name: sorted(value) if isinstance(value, frozenset) else value
            for name, value in values.items()
            if value != getattr(NO_FAULTS, name) and value != []
        }

    def each_removed(self) -> dict[str, "Faults"]:
        """Return the job without each fault that changes what happens, by the text of the fault."""
        removed = {}
        for slow in self.slow:
            rest = tuple(each for each in self.slow if each is not slow)
            removed[f"slow {slow.rank}"] = replace(self, slow=rest)
        for late in self.late:
            rest_late = tuple(each for each in self.late if each is not late)
            removed[f"late {late.rank} in step {late.step}"] = replace(self, late=rest_late)
        for rank in self.slow_links:
            links = {other: left for other, left in self.slow_links.items() if other != rank}
            removed[f"slow link {rank}"] = replace(self, slow_links=links)
        return removed


NO_FAULTS = Faults()


def slow_ranks(texts: Iterable[str]) -> tuple[Slow, ...]:
    """Return the faults of ``RANK:FACTOR`` or ``RANK:FACTOR:FAMILY``."""
    parts = (_parts(text, 3) for text in texts)
    return tuple(Slow(_rank(p[0]), _number(p[1]), *p[2:]) for p in parts)


def late_ranks(texts: Iterable[str], steps: int) -> tuple[Late, ...]:
    """Return the faults of ``RANK:MS``, ``RANK:MS:CAUSE`` or ``RANK:MS:CAUSE:STEP``; the step is
    the one in the middle by default.

    Raises:
        JarvisError: A cause is unknown.
    """
    found = []
    for text in texts:
        rank, ms, *rest = _parts(text, 4)
        cause = rest[0] if rest else LOADER
        if cause not in CAUSES:
            raise JarvisError(f"A rank is late by {' or '.join(CAUSES)}, not by {cause!r}.")
        step = _rank(rest[1]) if len(rest) > 1 else steps // 2
        found.append(Late(_rank(rank), _number(ms), cause, step))
    return tuple(found)


def numbers_by_rank(texts: Iterable[str]) -> dict[int, float]:
    """Return the values of ``RANK:NUMBER``."""
    return {_rank(rank): _number(value) for rank, value in (_parts(text, 2) for text in texts)}


def texts_by_rank(texts: Iterable[str]) -> dict[int, str]:
    """Return the values of ``RANK:TEXT``."""
    return {_rank(rank): value for rank, value in (_parts(text, 2) for text in texts)}


def clock_offsets(texts: Iterable[str], ranks: int, seed: int) -> dict[int, float]:
    """Return offsets in µs of ``RANK:US``, or of ``uniform:US`` for all ranks but the first."""
    offsets: dict[int, float] = {}
    for text in texts:
        first, value = _parts(text, 2)
        if first == "uniform":
            most, draw = _number(value), random.Random(f"{seed} clocks")
            offsets |= {rank: round(draw.uniform(-most, most), 3) for rank in range(1, ranks)}
        else:
            offsets[_rank(first)] = _number(value)
    return offsets


def _parts(text: str, most: int) -> list[str]:
    parts = text.split(":")
    if not 2 <= len(parts) <= most:
        raise JarvisError(f"{text!r} is not RANK:VALUE, such as 3:1.05.")
    return parts


def _rank(text: str) -> int:
    if not text.isdecimal():
        raise JarvisError(f"{text!r} is not the number of a rank or step; count from 0.")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise JarvisError(f"{text!r} is not a number.") from None
