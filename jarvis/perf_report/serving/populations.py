"""Tell whether the layers of a model have one time, two, or vary."""

import numpy as np
from numpy.typing import NDArray

MIN_LAYERS = 8
MIN_MEMBERS = 3
MIN_RATIO = 0.25
"""Minimum difference of the means of two groups, as a share of the smaller one."""

MIN_BETWEEN = 0.8
"""Minimum share of the variance that is between two groups."""

ODD_DEVIATIONS = 4
"""A layer is odd if it exceeds the median by more than so many median absolute deviations, and by
MIN_RATIO."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def slow_group(times: Floats) -> Flags | None:
    """Return which layers belong to the slower one of two groups of times; None if there is one
    group."""
    count = times.size
    if count < MIN_LAYERS:
        return None
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    sizes = np.arange(MIN_MEMBERS, count - MIN_MEMBERS + 1)
    sums = np.cumsum(ordered)
    low = sums[sizes - 1] / sizes
    high = (sums[-1] - sums[sizes - 1]) / (count - sizes)
    between = sizes * (count - sizes) / count * (high - low) ** 2
    best = int(np.argmax(between))
    total = float(((times - times.mean()) ** 2).sum())
    is_apart = high[best] - low[best] >= MIN_RATIO * low[best] > 0
    if not is_apart or between[best] < MIN_BETWEEN * total:
        return None
    is_slow = np.zeros(count, dtype=bool)
    is_slow[order[sizes[best] :]] = True
    return is_slow


def is_regular(is_slow: Flags) -> bool:
    """Return whether the slower layers follow each other, or are all odd or all even ones."""
    slow, fast = np.flatnonzero(is_slow), np.flatnonzero(~is_slow)
    has_one_parity = any(np.unique(group % 2).size == 1 for group in (slow, fast))
    is_contiguous = any(np.ptp(group) == group.size - 1 for group in (slow, fast))
    return has_one_parity or is_contiguous


def odd_layers(totals: Floats) -> list[int]:
    """Return the layers that take far longer than the median one: beyond the usual deviations, and
    by as much as the layers of another kind (MIN_RATIO), since equal layers deviate very little."""
    median = np.median(totals)
    deviation = np.median(np.abs(totals - median))
    limit = max(median + ODD_DEVIATIONS * deviation, (1 + MIN_RATIO) * median)
    return [int(layer) for layer in np.flatnonzero(totals > limit)]
