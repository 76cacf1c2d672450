"""How much faster the clock of one rank runs than that of another."""

import numpy as np

from jarvis.ranks.ends import Ends, Floats

MIN_WINDOW_NS, MIN_INSTANCES = 1e9, 30
MAX_PPM = 200.0
MIN_GAIN = 0.2
"""Part by which the disagreement of ends has to fall."""

_PAIRS = 2_000


def drifts_ppm(ends: Ends) -> dict[int, float]:
    """Return how much faster each clock is than that of the first rank, in ppm; empty if no drift
    is found.

    The slope of the ends of a rank over time is a Theil-Sen estimate: the median of the slopes
    between pairs of ends.
    """
    (known, _, of_ranks), (_, of_instances) = ends.ranks, ends.instances
    if not known.size or np.ptp(ends.end_ns) < MIN_WINDOW_NS:
        return {}
    if of_instances.counts.size < MIN_INSTANCES:
        return {}
    residuals = ends.residuals(ends.offsets)
    slopes: dict[int, float] = {}
    for place, rank in enumerate(known.tolist()):
        rows = of_ranks.rows(np.array([place]))
        rows = rows[np.argsort(ends.end_ns[rows], kind="stable")]
        slopes[rank] = _clear_slope(ends.end_ns[rows], residuals[rows])
    if not any(slopes.values()):
        return {}
    first = slopes[min(slopes)]
    return {rank: (slope - first) * 1e6 for rank, slope in slopes.items()}


def _clear_slope(times: Floats, values: Floats) -> float:
    """Return the slope of residuals if they get clearly smaller without it, else 0."""
    slope = _slope(times, values)
    before = _spread(values)
    after = _spread(values - slope * times)
    is_clear = abs(slope) * 1e6 <= MAX_PPM and after <= (1 - MIN_GAIN) * before
    return slope if is_clear and before > 0 else 0.0


def _spread(values: Floats) -> float:
    return float(np.median(np.abs(values - np.median(values))))


def _slope(times: Floats, values: Floats) -> float:
    """Return the median slope between pairs half the series apart."""
    half = len(times) // 2
    if half == 0:
        return 0.0
    first = np.arange(len(times) - half)
    if first.size > _PAIRS:
        first = first[np.linspace(0, first.size - 1, _PAIRS).astype(np.int64)]
    run = times[first + half] - times[first]
    is_known = run > 0
    if not is_known.any():
        return 0.0
    rise = values[first + half] - values[first]
    return float(np.median(rise[is_known] / run[is_known]))
