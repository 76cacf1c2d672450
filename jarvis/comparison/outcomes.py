"""Classify the difference of each pair by what the hardware explains."""

from enum import StrEnum

import polars as pl

from jarvis.comparison.expected import HardwareRatios, has_tiny_roofline, is_launch_bound
from jarvis.comparison.matching import MatchedBy
from jarvis.core.expressions import first_of
from jarvis.impact import REASON_PCT
from jarvis.schemas.names import C

TOLERANCE = 1.2
"""Default tolerance: a call is unexpectedly slow or fast if its ratio differs from the expected one
by more than this factor."""

MUCH = 2.0
"""Beyond this factor, the choice or tuning of a kernel is the likely cause."""


class Outcome(StrEnum):
    """The target's time relative to what the hardware explains."""

    MUCH_SLOWER = "much slower"
    SLOWER = "slower"
    EXPECTED = "as expected"
    FASTER = "faster"
    MUCH_FASTER = "much faster"
    SHORT = "too short"
    UNKNOWN = "not known"


SLOWER = (Outcome.MUCH_SLOWER.value, Outcome.SLOWER.value)
FASTER = (Outcome.MUCH_FASTER.value, Outcome.FASTER.value)

_SLOW = "The target is slower than the hardware explains, which points to its kernels or software."
_MUCH_SLOWER = (
    "The target takes more than twice the time that the hardware explains, most likely because of "
    "the choice or tuning of its kernels."
)
_CAPPED = (
    "The reference is faster than the target's roofline allows: only the time above that roofline "
    "is not explained by the hardware."
)
_FAST = "The target is faster than the hardware explains: the reference may be inefficient here."
_SHORT = (
    "Calls of a few microseconds: starting a kernel takes most of the time, so neither bandwidth "
    "nor compute peaks explain a difference."
)
_TINY = (
    "Launch bound: the roofline of a call is below a microsecond, so neither bandwidth nor compute "
    "peaks explain a difference; the measured times are compared."
)
_SAME = "No difference."
_ON_ONE_GPU = {
    _SLOW: "The target is slower on the same GPU, which points to its kernels or software.",
    _MUCH_SLOWER: "The target takes more than twice the time on the same GPU, most likely because "
    "of the choice or tuning of its kernels.",
    _FAST: "The target is faster on the same GPU: the reference may be inefficient here.",
}
_WITHIN_TOLERANCE = "Within the tolerance: the same time is expected on the same GPU."
_OTHER_WORK = "The two sides do not do the same amount of work here."
_OTHER_TYPE = "Not like for like: {} on the target, {} on the reference."
_NO_FIGURE = "No peak of the two GPUs applies, so no ratio is expected."
_RANGE_FAR_FROM_PEAK = (
    "Within the tolerance of what the two GPUs explain, but so far below the roofline that their "
    "peaks are not the reason."
)
_RANGE = "Within the ratios that bandwidth and compute peaks of the two GPUs explain."


def with_outcomes(
    pairs: pl.DataFrame, ratios: HardwareRatios | None, tolerance: float
) -> pl.DataFrame:
    """Return pairs with ``outcome, is_unexpected, attainable_ms, unexplained_ms, explanation``.

    Raises:
        ValueError: ``tolerance`` is below 1.
    """
    if tolerance < 1:
        raise ValueError(f"the tolerance must be at least 1, not {tolerance}")
    least, most = pl.col(C.expected_ratio_least), pl.col(C.expected_ratio_most)
    ratio, calls = pl.col(C.time_ratio), pl.col(C.target_ms) / pl.col(C.target_us_per_call)
    expected_us = pl.col(C.reference_us_per_call) * most
    roofline_us = pl.col(C.target_roofline_us_per_call)
    if _is_one_gpu(ratios):
        roofline_us = pl.lit(0.0)  # the reference shows what the GPU reaches
    much = max(tolerance, MUCH)
    is_short = is_launch_bound("target") & is_launch_bound("reference")
    outcome = first_of(
        {
            Outcome.UNKNOWN: most.is_null(),
            Outcome.SHORT: is_short & pl.lit(not _is_one_gpu(ratios)),
            Outcome.MUCH_SLOWER: ratio > much * most,
            Outcome.SLOWER: ratio > tolerance * most,
            Outcome.MUCH_FASTER: ratio < least / much,
            Outcome.FASTER: ratio < least / tolerance,
        },
        Outcome.EXPECTED,
    )
    gap_ms = (pl.col(C.target_ms) - pl.col(C.attainable_ms)).clip(lower_bound=0.0)
    has_efficiency = ~pl.col(C.outcome).is_in([Outcome.UNKNOWN.value, Outcome.SHORT.value])
    return (
        pairs.with_columns(
            **{
                C.outcome: outcome,
                C.expected_ratio: pl.when((most - least) <= 1e-9 * most).then(most),
                C.attainable_ms: calls * pl.max_horizontal(expected_us, roofline_us.fill_null(0.0)),
                C.is_roofline_capped: roofline_us > expected_us,
            },
        )
        .with_columns(pl.when(most.is_not_null()).then(C.attainable_ms).alias(C.attainable_ms))
        .with_columns(
            **{
                C.is_unexpected: pl.when(has_efficiency).then(
                    pl.col(C.outcome) != Outcome.EXPECTED.value
                ),
                C.unexplained_ms: pl.when(has_efficiency).then(
                    pl.when(pl.col(C.outcome).is_in(SLOWER)).then(gap_ms).otherwise(0.0)
                ),
                C.explanation: _explanation(ratios),
            },
        )
    )


def _is_one_gpu(ratios: HardwareRatios | None) -> bool:
    return ratios is not None and ratios.is_same


def _explanation(ratios: HardwareRatios | None) -> pl.Expr:
    outcome, name = pl.col(C.outcome), pl.col(C.name)
    is_other_work = (
        (pl.col(C.matched_by) != MatchedBy.ARGUMENTS.value)
        & pl.lit(ratios is not None)
        & (pl.col(C.work_ratio).is_not_null() | (name == pl.col(C.reference_name)))
    )
    is_other_type = (pl.col(C.dtype) != pl.col(C.reference_dtype)).fill_null(value=False)
    types = pl.format(_OTHER_TYPE, C.dtype, C.reference_dtype)
    is_same = pl.col(C.time_ratio).is_close(1.0, rel_tol=1e-12)
    is_one_gpu = _is_one_gpu(ratios)

    def word(text: str) -> pl.Expr:
        return pl.lit(_ON_ONE_GPU[text] if is_one_gpu else text)

    return (
        pl.when(is_same & (pl.col(C.expected_ratio).is_close(1.0).fill_null(value=True)))
        .then(pl.lit(_SAME))
        .when((outcome == Outcome.UNKNOWN.value) & is_other_type)
        .then(types)
        .when((outcome == Outcome.UNKNOWN.value) & is_other_work)
        .then(pl.lit(_OTHER_WORK))
        .when(outcome == Outcome.UNKNOWN.value)
        .then(pl.lit(_NO_FIGURE))
        .when(outcome == Outcome.SHORT.value)
        .then(pl.lit(_SHORT))
        .when(has_tiny_roofline() & pl.lit(not is_one_gpu))
        .then(pl.lit(_TINY))
        .when(outcome.is_in(SLOWER) & pl.col(C.is_roofline_capped))
        .then(pl.lit(_CAPPED))
        .when(outcome == Outcome.MUCH_SLOWER.value)
        .then(word(_MUCH_SLOWER))
        .when(outcome == Outcome.SLOWER.value)
        .then(word(_SLOW))
        .when(outcome.is_in(FASTER))
        .then(word(_FAST))
        .otherwise(pl.lit(_WITHIN_TOLERANCE) if is_one_gpu else _by_hardware())
    )


def _by_hardware() -> pl.Expr:
    """Return which peak explains the time, and which side has the higher one."""
    ratio, expected = pl.col(C.time_ratio), pl.col(C.expected_ratio)
    is_faster, is_slower = ratio < 1, ratio > 1
    reaches = [
        (pl.col(name) >= REASON_PCT).fill_null(value=False)
        for name in (C.efficiency_pct, C.reference_efficiency_pct)
    ]
    is_memory = pl.col(C.bound) == "memory"
    figure = first_of(
        {
            None: pl.col(C.bound) != pl.col(C.reference_bound),
            "memory bandwidth": is_memory,
            "compute": pl.col(C.bound) == "compute",
        }
    )
    bound = first_of({"Memory": is_memory}, "Compute")
    return (
        pl.when(expected.is_null() | figure.is_null())
        .then(pl.lit(_RANGE))
        .when(~pl.all_horizontal(reaches))
        .then(pl.lit(_RANGE_FAR_FROM_PEAK))
        .when(is_faster & (expected < 1))
        .then(pl.format("{} bound: faster, as the target has more {}.", bound, figure))
        .when(is_slower & (expected > 1))
        .then(pl.format("{} bound: slower, as the reference has more {}.", bound, figure))
        .otherwise(pl.format("{} bound: within the tolerance of what {} explains.", bound, figure))
    )
