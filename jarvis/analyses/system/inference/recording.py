"""What the recording lacks: the shapes of replayed work, and calls that captures do not have."""

from collections.abc import Iterator

import polars as pl

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.system.inference.events import time_ms as sum_ms
from jarvis.analyses.system.inference.messages import MESSAGES
from jarvis.capture.alignment import MERGED_COVERAGE
from jarvis.capture.engines import engine_of
from jarvis.capture.tables import NO_CAPTURES, REPLAYED_PCT
from jarvis.findings import Finding, Priority
from jarvis.schemas.names import C
from jarvis.text.messages import Message

LEADING_PCT = 50.0
"""Above this share of GPU time without shapes, most of it has no efficiency: nothing else leads."""


def shapes_missing(data: CategoryData) -> Iterator[Finding]:
    """Replayed work without shapes.

    Symptom: GPU graphs replay kernels that have no operator, and no capture was given.
    Rule: the time of these replays as a share of all GPU time. The engine is that of most Python
    frames of the recording.
    Threshold: {REPLAYED_PCT}% of GPU time; from {LEADING_PCT}% on it leads, with priority HIGH.
    """
    launches = data.tables["graph_launches"].filter(pl.col(C.reason) == NO_CAPTURES)
    time_ms = float(launches[C.time_ms].sum())
    share_pct = impact.share_pct(time_ms, _gpu_time_ms(data))
    if share_pct <= REPLAYED_PCT:
        return
    leads = share_pct >= LEADING_PCT
    priority = Priority.HIGH if leads else Priority.LOW
    frames = data.tables.get("host_slices")
    engine = engine_of(pl.Series(dtype=pl.String) if frames is None else frames[C.name])
    yield Finding(
        check="shapes_missing",
        category=data.key,
        title=MESSAGES("title.shapes", share_pct=share_pct),
        evidence={
            "gpu_time_ms": time_ms,
            "gpu_time_pct": share_pct,
            "graph_launches": launches.height,
        },
        issue=MESSAGES(
            "issue.shapes", time_ms=time_ms, share_pct=share_pct, launches=launches.height
        ),
        algorithmic=(),
        kernel=MESSAGES("kernel.shapes", engine=engine.name, capture=engine.capture),
        hypothesis=MESSAGES("hypothesis.shapes"),
        verify=MESSAGES("verify.shapes"),
        capture=MESSAGES(
            "capture.shapes", engine=engine.name, capture=engine.capture, recording=engine.step
        ),
        priority_local=priority,
        priority=priority,
        leads=leads,
    )


def coverage_gap(data: CategoryData) -> Iterator[Finding]:
    """Replayed work that the captures do not cover.

    Symptom: captures were given, but replayed kernels have no captured call.
    Rule: graph launches that no capture fits, and those of which the matched kernels take less
    than {MERGED_COVERAGE:.0%} of the time.
    Threshold: one such launch.
    """
    launches = data.tables["graph_launches"].filter(pl.col(C.reason).ne_missing(NO_CAPTURES))
    gaps = launches.filter(pl.col(C.coverage_pct) < 100 * MERGED_COVERAGE)
    if gaps.is_empty():
        return
    unmatched = pl.col(C.time_ms) * (1 - pl.col(C.coverage_pct) / 100)
    missing_ms = float(gaps.select(unmatched.sum()).item())
    yield Finding(
        check="coverage_gap",
        category=data.key,
        title=MESSAGES("title.coverage"),
        evidence={
            "gpu_time_ms": missing_ms,
            "gpu_time_pct": impact.share_pct(missing_ms, _gpu_time_ms(data)),
            "graph_launches": gaps.height,
        },
        issue=MESSAGES(
            "issue.coverage",
            time_ms=missing_ms,
            of=launches.height,
            states=[*_states(gaps)],
        ),
        algorithmic=(),
        kernel=MESSAGES("kernel.coverage"),
        hypothesis=MESSAGES("hypothesis.coverage"),
        verify=MESSAGES("verify.shapes"),
        capture=MESSAGES("capture.coverage"),
        priority_local=Priority.LOW,
        priority=Priority.LOW,
    )


def _states(gaps: pl.DataFrame) -> Iterator[Message]:
    """Yield how many launches are merged with gaps, and for which reasons others are not merged."""
    merged = gaps.drop_nulls(C.capture_file)
    if merged.height:
        least_pct = merged[C.coverage_pct].min()
        yield MESSAGES("coverage.gaps", launches=merged.height, coverage_pct=least_pct)
    rest = gaps.filter(pl.col(C.capture_file).is_null()).group_by(C.reason, maintain_order=True)
    for reason, count in rest.len().iter_rows():
        yield MESSAGES("coverage.none", launches=count, reason=reason)


def _gpu_time_ms(data: CategoryData) -> float:
    return sum_ms(data.tables["gpu_work"])
