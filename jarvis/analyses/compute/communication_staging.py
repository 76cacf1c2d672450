"""Communication staging: copies into and out of the buffers of collectives."""

import polars as pl

from jarvis.analyses.base import SHARED_PANELS, Advice, Analysis, Claim
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.operations import PATTERN
from jarvis.perf_report.communication_names import STAGING

ADVICE = {
    STAGING: Advice(
        rule="copies into and out of the buffer of a collective",
        reason="the tensors are copied only because a collective needs them in one buffer",
        algorithmic="Check whether the library can send the tensors of {name} in place, or group "
        "the parameters{place} differently: the {calls} take time beside the collective's own.",
        kernel="Compare {kernel} on {arguments} with a plain copy of the same size{reproduced}.",
    ),
}


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Give each row the only pattern."""
    return rows.with_columns(pl.lit(STAGING).alias(PATTERN))


ANALYSIS = Analysis(
    title="Communication staging",
    icon=":material/move_down:",
    claim=Claim(kernel_kinds=(STAGING,)),
    checks=SHARED_CHECKS,
    advice=ADVICE,
    classify=classify,
    panels=SHARED_PANELS,
)
