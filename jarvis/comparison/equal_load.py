"""Compare inference steps of two runs at equal load."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from jarvis.schemas.names import C
from jarvis.text.format import count, counted, microseconds, milliseconds, percent

MAX_DISTANCE = 0.1
"""Maximum difference of tokens of each kind in steps of equal load, as a share of the larger."""

_LOAD = (C.ctx_tokens, C.gen_tokens, C.kv_tokens)


@dataclass(frozen=True, slots=True)
class Load:
    """Inference steps of one phase of a run.

    ``matched_ms`` is the mean time of the steps with a partner of equal load; ``step_ms``,
    ``tokens`` and ``kv_tokens`` are means of all steps.
    """

    steps: int
    matched_ms: float | None
    step_ms: float
    tokens: float
    kv_tokens: float

    @property
    def token_us(self) -> float | None:
        """Return the time per token in µs; None without tokens."""
        return 1e3 * self.step_ms / self.tokens if self.tokens else None

    @property
    def kv_token_us(self) -> float | None:
        """Return the time per token of the KV cache in µs; None without any."""
        return 1e3 * self.step_ms / self.kv_tokens if self.kv_tokens else None


@dataclass(frozen=True, slots=True)
class EqualLoad:
    """The steps of a phase in both runs, and the number of pairs with equal load."""

    phase: str
    pairs: int
    target: Load
    reference: Load

    @property
    def change_pct(self) -> float | None:
        """Return how much longer the target's matched steps take, in percent; None without any."""
        if self.target.matched_ms is None or not self.reference.matched_ms:
            return None
        return 100 * (self.target.matched_ms / self.reference.matched_ms - 1)

    def sentence(self) -> str:
        """Return the comparison as text; without steps of equal load it has no verdict."""
        change, (now, then) = self.change_pct, (self.target, self.reference)
        if change is None:
            return (
                f"{self.phase}: no steps of equal load, so which run is faster is not known. Mean "
                f"step: {_load(now)}; in the reference {_load(then)}. Time per token "
                f"{microseconds(now.token_us)} and {microseconds(then.token_us)}, per KV token "
                f"{microseconds(now.kv_token_us)} and {microseconds(then.kv_token_us)}."
            )
        word = "longer" if change > 0 else "shorter"
        return (
            f"{self.phase} at equal load ({counted(self.pairs, 'pair')} of {now.steps} and "
            f"{then.steps} steps): {milliseconds(now.matched_ms)} a step, "
            f"{milliseconds(then.matched_ms)} in the reference ({percent(abs(change))} {word})."
        )


def equal_load(target: pl.DataFrame, reference: pl.DataFrame) -> Iterator[EqualLoad]:
    """Yield the phases that both runs have, with steps matched one by one by their tokens.

    Steps that the recording cuts, and those without tokens, are left out.

    Args:
        target: The table ``inference_steps`` of a run.
        reference: That of the other one.
    """
    sides = [_known(steps) for steps in (target, reference)]
    phases = [set(side[C.phase]) for side in sides]
    for phase in sorted(phases[0] & phases[1]):
        now, then = (side.filter(pl.col(C.phase) == phase) for side in sides)
        pairs = _pairs(*(side.select(_LOAD).to_numpy().astype(np.float64) for side in (now, then)))
        rows = [pl.Series([pair[at] for pair in pairs], dtype=pl.UInt32) for at in (0, 1)]
        yield EqualLoad(phase, len(pairs), *map(_summary, (now, then), rows))


def _known(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps that the recording does not cut and whose tokens are known."""
    is_whole = pl.col(C.part).is_null() & ~pl.col(C.is_cut) & (pl.col(C.step_time_ms) > 0)
    return steps.filter(is_whole).drop_nulls([C.phase, *_LOAD])


def _pairs(now: NDArray[np.float64], then: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return pairs of row numbers: each step with the nearest free one of equal load."""
    is_free = np.ones(len(then), dtype=bool)
    pairs = []
    for at, load in enumerate(now):
        larger = np.maximum(np.maximum(then, load), 1)
        distances = np.where(is_free, (np.abs(then - load) / larger).max(axis=1), np.inf)
        nearest = int(np.argmin(distances))
        if distances[nearest] <= MAX_DISTANCE:
            is_free[nearest] = False
            pairs.append((at, nearest))
    return pairs


def _summary(steps: pl.DataFrame, matched: pl.Series) -> Load:
    times = steps[C.step_time_ms].to_numpy()
    chosen = times[matched.to_numpy()]
    tokens = (steps[C.ctx_tokens] + steps[C.gen_tokens]).to_numpy()
    return Load(
        steps=steps.height,
        matched_ms=float(chosen.mean()) if chosen.size else None,
        step_ms=float(times.mean()),
        tokens=float(tokens.mean()),
        kv_tokens=float(steps[C.kv_tokens].to_numpy().mean()),
    )


def _load(load: Load) -> str:
    return (
        f"{milliseconds(load.step_ms)} for {count(round(load.tokens))} tokens and "
        f"{count(round(load.kv_tokens))} KV tokens"
    )
