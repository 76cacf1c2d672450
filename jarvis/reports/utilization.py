"""Model FLOPs utilization (MFU): the FLOPs of a step against the peak of the GPU."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import polars as pl

from jarvis.charts import peak_label
from jarvis.impact import MOSTLY_PCT, NEARLY_ALL_PCT, share_pct
from jarvis.perf_report.timeline.step_account import StepAccount
from jarvis.perf_report.timeline.step_bounds import StepBounds
from jarvis.perf_report.work import COMPUTE
from jarvis.reports.messages import MESSAGES
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.messages import Message, to_text


@dataclass(frozen=True, slots=True)
class Utilization:
    """The FLOPs per second of step time, and the peak that they are a share of.

    ``per`` names what the FLOPs are of. ``compute`` is the kind of compute with most FLOPs
    (``matrix_bf16``), whose peak it is. ``covered_pct`` is the share of the kernel time in
    operations whose FLOPs are known.
    """

    gflop_per_step: float
    tflops_per_s: float
    peak_tflops: float
    compute: str
    gpu: str
    per: str
    covered_pct: float
    mfu_pct: float


def utilization(run: Run, account: StepAccount) -> Utilization | Message:
    """Return the utilization in the steps, or why it is not known."""
    bounds, hardware = run.manifest.totals.step, run.manifest.hardware
    if hardware is None:
        return MESSAGES("mfu.no_hardware")
    if bounds is None or "gpu_work" not in run.tables:
        return MESSAGES("mfu.no_events")
    rows = _in_steps(run, bounds)
    known = rows.drop_nulls(C.flops)
    every_us = float(rows[C.kernel_time_us].sum()) + _unlinked_us(run, bounds)
    covered_pct = share_pct(float(known[C.kernel_time_us].sum()), every_us)
    kinds = known.drop_nulls(C.compute).group_by(C.compute).agg(pl.col(C.flops).sum())
    if covered_pct < MOSTLY_PCT or kinds.is_empty():
        return MESSAGES("mfu.uncovered", covered_pct=covered_pct)
    compute = str(kinds.sort(C.flops, C.compute, descending=[True, False])[C.compute][0])
    peak_tflops = hardware.peak_tflops(compute)
    if peak_tflops is None:
        return MESSAGES("mfu.no_peak", compute=peak_label(compute))
    tflop = float(known[C.flops].sum()) / 1e12
    tflops_per_s = tflop / (account.total_ns / 1e9)
    return Utilization(
        gflop_per_step=1e3 * tflop / account.step_count,
        tflops_per_s=tflops_per_s,
        peak_tflops=peak_tflops,
        compute=compute,
        gpu=hardware.title,
        per="per step" if account.is_marked else "in the recording",
        covered_pct=covered_pct,
        mfu_pct=share_pct(tflops_per_s, peak_tflops),
    )


def sentence(found: Utilization | Message) -> str:
    """Return the utilization with its denominator, or why it is not known."""
    if isinstance(found, Message):
        return to_text(found)
    key = "mfu" if found.covered_pct >= NEARLY_ALL_PCT else "mfu.partial"
    return to_text(MESSAGES(key, **asdict(found) | {"compute": peak_label(found.compute)}))


def category_times_in_steps_ms(run: Run) -> Mapping[str, float]:
    """Return the kernel time of each category that runs in the steps, the mean of the steps in ms;
    nothing if that is not known."""
    bounds = run.manifest.totals.step
    if bounds is None or not bounds.step_ms or "gpu_work" not in run.tables:
        return {}
    by_category = _in_steps(run, bounds).group_by(C.category).agg(pl.col(C.kernel_time_us).sum())
    return {name: us / 1000 / bounds.steps for name, us in by_category.drop_nulls().iter_rows()}


def _in_steps(run: Run, bounds: StepBounds) -> pl.DataFrame:
    """Return kernel time and FLOPs of the operations, as far as they run in the steps."""
    parts = (
        run.table("gpu_work")
        .drop_nulls(C.operation_uid)
        .group_by(pl.col(C.operation_uid).alias(C.uid))
        .agg(part=_ns_within(bounds).sum() / pl.col(C.dur_ns).sum())
    )
    rows = run.table("operations").select(
        C.uid,
        C.category,
        C.kernel_time_us,
        C.compute,
        pl.col(C.flops) * pl.col(C.operation_count),
    )
    part = pl.col("part").fill_nan(0.0).fill_null(0.0)
    return rows.join(parts, on=C.uid, how="left").with_columns(
        pl.col(C.flops, C.kernel_time_us) * part
    )


def _unlinked_us(run: Run, bounds: StepBounds) -> float:
    """Return the time in the steps of kernels that belong to no operation."""
    work = run.table("gpu_work").filter(pl.col(C.operation_uid).is_null(), kind=COMPUTE)
    return float(work.select(_ns_within(bounds).sum()).item()) / 1e3


def _ns_within(bounds: StepBounds) -> pl.Expr:
    """Return how long each GPU event runs in the steps."""
    end = pl.col(C.ts_ns) + pl.col(C.dur_ns)
    within = pl.min_horizontal(end, bounds.end_ns) - pl.max_horizontal(C.ts_ns, bounds.start_ns)
    return within.clip(lower_bound=0)
