"""Checks shared by every category; each is a pure function ``CategoryData ->
Iterator[Finding]``."""

from jarvis.analyses.inefficiency import low_efficiency, opportunity
from jarvis.analyses.nothing_to_fix import nothing_to_fix
from jarvis.analyses.plausibility import above_peak, high_variance
from jarvis.analyses.small_calls import many_small_calls
from jarvis.analyses.unmodelled import no_perf_model

SHARED_CHECKS = (
    low_efficiency,
    opportunity,
    no_perf_model,
    many_small_calls,
    above_peak,
    high_variance,
    nothing_to_fix,
)

__all__ = [
    "SHARED_CHECKS",
    "above_peak",
    "high_variance",
    "low_efficiency",
    "many_small_calls",
    "no_perf_model",
    "nothing_to_fix",
    "opportunity",
]
