"""Implausible numbers: efficiencies above the peak, equal calls whose times differ widely."""

from collections.abc import Iterator

import polars as pl

from jarvis import impact
from jarvis.analyses.advice import values_of
from jarvis.analyses.base import CategoryData
from jarvis.analyses.inefficiency import evidence_of
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup, groups
from jarvis.findings import Finding, OpRef, Priority
from jarvis.text.messages import MessageTable

VARIANCE_RATIO = 1.0
VARIANCE_MIN_CALLS = 10
VARIANCE_MIN_TOTAL_PCT = 5.0
"""Times vary if std/mean exceeds VARIANCE_RATIO, over more than VARIANCE_MIN_CALLS calls, in at
least this share of the wall time."""


IMPOSSIBLE, DOUBTFUL = "impossible", "doubtful"
"""Kinds of efficiencies above the peak, by the excess."""

MESSAGES = MessageTable(
    "plausibility",
    {
        "title.impossible": "Above the peak: {name}",
        "title.doubtful": "At the limit of the peak: {name}",
        "issue": "{name} appears to run at {efficiency_pct} of its {bound} roofline{rate} over "
        "{time_ms}, {consequence}.",
        "rate": " ({achieved:number} of {peak:number} {unit})",
        "consequence.impossible": "so the peak, the perf model or the measured time is wrong",
        "consequence.doubtful": "a little more than the peak allows, so the peak or the modelled "
        "traffic is slightly off",
        "algorithmic": "Ignore the efficiency of {name}; judge the other operators.",
        "kernel": "Verify that the {bound} peak{of_gpu} is that of the recorded GPU, and whether "
        "{arguments} fits in a cache, which makes the modelled {moved_bytes} per call too large.",
        "of_gpu": " of {gpu}",
        "caveat.impossible": "Anomaly: excluded from averages and projections.",
        "caveat.doubtful": "Treat it as close to the roofline: the excess has no meaning.",
        "verify": "Replay {name} alone with {arguments} and compare its time with the recorded "
        "{mean_time_ms} per call.",
        "capture": "Measure the bytes that {kernel} actually moves with the platform's "
        "hardware-counter profiler on the replay package.",
    },
)

VARIANCE = MessageTable(
    "variance",
    {
        "title": "Unsteady times: {name}",
        "issue": "{calls:,} equal calls of {name}{of_arguments} vary widely: standard deviation "
        "{std_us:number} µs around a mean of {mean_us:number} µs.",
        "of_arguments": " of {arguments}",
        "algorithmic": "Check whether the first of the {calls} of {name}, other streams or "
        "changing data cause the difference, and record a later window if it is warm-up.",
        "kernel": "Compare the slow calls of {name} with the fast ones on the timeline before "
        "tuning: their mean represents neither.",
        "caveat": "The saving is not quantified: a trace does not show which of the times is "
        "typical.",
        "verify": "Record several steps after warm-up: the standard deviation of the {calls} of "
        "{name} must fall below {mean_us:number} µs.",
        "capture": "Record with a schedule that skips the first steps (wait and warm-up), over at "
        "least three steps, so that the {calls} of {name} can be separated by step.",
    },
)


def above_peak(data: CategoryData) -> Iterator[Finding]:
    """Efficiencies above the hardware's peak.

    Symptom: an operator seems to exceed what the hardware can do.
    Rule: rows above {impact.ANOMALY_PCT}% of the roofline are excluded from all projections; rows
    between {impact.FULL_PCT}% and {impact.ANOMALY_PCT}% get a warning.
    Threshold: {impact.FULL_PCT}% and {impact.ANOMALY_PCT}% of the roofline; at least
    {MIN_COMPUTE_PCT}% of compute.
    """
    efficiency = pl.col("pct_roofline")
    is_anomaly = efficiency > impact.ANOMALY_PCT
    yield from _doubts(data, is_anomaly, IMPOSSIBLE)
    yield from _doubts(data, (efficiency > impact.FULL_PCT) & ~is_anomaly, DOUBTFUL)


def _doubts(data: CategoryData, is_in_range: pl.Expr, doubt: str) -> Iterator[Finding]:
    for group in groups(data.operations.filter(is_in_range & impact.is_judged())):
        efficiency = group.efficiency_pct
        if efficiency is not None and group.compute_pct >= MIN_COMPUTE_PCT:
            yield _doubt_of(data, group, efficiency, doubt)


def _doubt_of(
    data: CategoryData, group: OperationGroup, efficiency_pct: float, doubt: str
) -> Finding:
    rate = group.rate
    values = values_of(group) | {
        "time_ms": group.time_ms,
        "efficiency_pct": efficiency_pct,
        "rate": MESSAGES("rate", achieved=rate[0], peak=rate[1], unit=rate[2]) if rate else None,
        "of_gpu": MESSAGES("of_gpu", gpu=data.hardware.title) if data.hardware else None,
        "consequence": MESSAGES(f"consequence.{doubt}"),
    }
    return Finding(
        check="above_peak",
        category=data.key,
        title=MESSAGES.pick(f"title.{doubt}", values),
        operations=group.operations,
        evidence=evidence_of(group),
        issue=MESSAGES.pick("issue", values),
        algorithmic=MESSAGES.pick("algorithmic", values),
        kernel=MESSAGES.pick("kernel", values),
        priority_local=Priority.LOW,
        priority=Priority.LOW,
        caveat=MESSAGES(f"caveat.{doubt}"),
        verify=MESSAGES.pick("verify", values),
        capture=MESSAGES.pick("capture", values),
    )


def high_variance(data: CategoryData) -> Iterator[Finding]:
    """Calls with equal arguments whose times differ widely.

    Symptom: the same call is sometimes fast and sometimes slow.
    Rule: a row with recorded arguments whose standard deviation of kernel time exceeds its mean,
    over enough calls and GPU wall time.
    Threshold: std/mean above {VARIANCE_RATIO}; more than {VARIANCE_MIN_CALLS} calls;
    {VARIANCE_MIN_TOTAL_PCT}% of GPU wall time.
    """
    ratio = pl.col("kernel_time_us_std") / pl.col("kernel_time_us_mean")
    rows = data.operations.with_columns(variation=ratio).filter(
        (pl.col("variation") > VARIANCE_RATIO)
        & (pl.col("operation_count") > VARIANCE_MIN_CALLS)
        & (pl.col("percent_of_total") >= VARIANCE_MIN_TOTAL_PCT)
        & pl.col("input_dims").is_not_null()
    )
    for row in rows.iter_rows(named=True):
        arguments = row["arguments"]
        values = {
            "name": row["name"],
            "calls": row["operation_count"],
            "of_arguments": VARIANCE("of_arguments", arguments=arguments) if arguments else None,
            "mean_us": row["kernel_time_us_mean"],
            "std_us": row["kernel_time_us_std"],
        }
        yield Finding(
            check="high_variance",
            category=data.key,
            title=VARIANCE.pick("title", values),
            operations=(
                OpRef.model_validate(
                    {key: row[key] for key in ("uid", "name", "input_dims", "operation_count")}
                ),
            ),
            evidence={
                "mean_us": row["kernel_time_us_mean"],
                "std_us": row["kernel_time_us_std"],
                "std_over_mean": row["variation"],
                "calls": row["operation_count"],
            },
            issue=VARIANCE.pick("issue", values),
            algorithmic=VARIANCE.pick("algorithmic", values),
            kernel=VARIANCE.pick("kernel", values),
            priority_local=Priority.MEDIUM,
            priority=Priority.MEDIUM,
            caveat=VARIANCE("caveat"),
            verify=VARIANCE.pick("verify", values),
            capture=VARIANCE.pick("capture", values),
        )
