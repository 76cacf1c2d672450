"""Model FLOPs utilization (MFU) and hardware FLOPs utilization (HFU).

The FLOPs of a step against the peak of the GPU, without and with repeated ones.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import polars as pl

from jarvis.core.expressions import contains
from jarvis.hardware import peak_label
from jarvis.impact import MOSTLY_PCT, NEARLY_ALL_PCT, share_pct
from jarvis.perf_report.timeline.step_account import StepAccount
from jarvis.perf_report.timeline.step_bounds import StepBounds
from jarvis.perf_report.work import COMPUTE
from jarvis.reports.messages import MESSAGES
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.messages import Message, to_text

RECOMPUTES = r"torch/utils/checkpoint\.py\(\d+\): recompute_fn$"
"""Pattern of PyTorch's function that computes activations again."""

_REPEATED = "repeated"


@dataclass(frozen=True, slots=True)
class Utilization:
    """The FLOPs per second of step time, and the peak that they are a share of.

    Of the FLOPs executed, which ``hfu_pct`` counts, those of a repeated forward pass
    (``repeated_gflop`` per step) are in no other figure; they are 0 if none is recorded.
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
    repeated_gflop: float
    hfu_pct: float


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
    repeated, executed = (float(known[name].sum()) / 1e12 for name in (_REPEATED, C.flops))
    tflop, seconds = executed - repeated, account.total_ns / 1e9
    tflops_per_s = tflop / seconds
    return Utilization(
        gflop_per_step=1e3 * tflop / account.step_count,
        tflops_per_s=tflops_per_s,
        peak_tflops=peak_tflops,
        compute=compute,
        gpu=hardware.title,
        per="per step" if account.is_marked else "in the recording",
        covered_pct=covered_pct,
        mfu_pct=share_pct(tflops_per_s, peak_tflops),
        repeated_gflop=1e3 * repeated / account.step_count,
        hfu_pct=share_pct(executed / seconds, peak_tflops),
    )


def sentence(found: Utilization | Message) -> str:
    """Return the utilization with its denominator, or why it is not known."""
    if isinstance(found, Message):
        return to_text(found)
    key = "mfu" if found.covered_pct >= NEARLY_ALL_PCT else "mfu.partial"
    values = asdict(found) | {"compute": peak_label(found.compute)}
    has_repeated = found.repeated_gflop > 0
    values["which"] = MESSAGES("mfu.once" if has_repeated else "mfu.executed")
    values["hfu"] = MESSAGES.pick(f"{key}.hfu", values) if has_repeated else None
    return to_text(MESSAGES.pick(key, values))


def recomputed(run: Run) -> pl.DataFrame:
    """Return the rows of ``gpu_work`` launched in the function that repeats a forward pass."""
    work = run.table("gpu_work") if "gpu_work" in run.tables else pl.DataFrame()
    if "host_slices" not in run.tables:
        return work.clear()
    return work.filter(pl.col(C.launch_uid).is_in(recomputed_calls(run).implode()))


def recomputed_calls(run: Run) -> pl.Series:
    """Return the ``uid`` of the host calls in the function that repeats a forward pass."""
    if "host_slices" not in run.tables:
        return pl.Series(C.uid, [], pl.Int64)
    slices, start = run.table("host_slices"), pl.col(C.ts_ns)
    repeats = slices.filter(contains(slices[C.name], RECOMPUTES)).select(
        repeated=C.thread, begin=start, end=start + pl.col(C.dur_ns)
    )
    if repeats.is_empty():
        return pl.Series(C.uid, [], pl.Int64)
    found = slices.select(C.thread, C.uid, called=start).join_where(
        repeats,
        pl.col(C.thread) == pl.col("repeated"),
        pl.col("called") >= pl.col("begin"),
        pl.col("called") < pl.col("end"),
    )
    return found[C.uid].unique()


def category_times_in_steps_ms(run: Run) -> Mapping[str, float]:
    """Return the kernel time of each category that runs in the steps, the mean of the steps in ms;
    nothing if that is not known."""
    bounds = run.manifest.totals.step
    if bounds is None or not bounds.step_ms or "gpu_work" not in run.tables:
        return {}
    by_category = _in_steps(run, bounds).group_by(C.category).agg(pl.col(C.kernel_time_us).sum())
    return {name: us / 1000 / bounds.steps for name, us in by_category.drop_nulls().iter_rows()}


def _in_steps(run: Run, bounds: StepBounds) -> pl.DataFrame:
    """Return kernel time, FLOPs and repeated FLOPs of the operations, as far as they run in the
    steps."""
    is_repeated = pl.col(C.uid).is_in(recomputed(run)[C.uid].implode())
    parts = (
        run.table("gpu_work")
        .drop_nulls(C.operation_uid)
        .group_by(pl.col(C.operation_uid).alias("operation"))
        .agg(
            _ns_within(bounds).sum().alias("part") / pl.col(C.dur_ns).sum(),
            (_ns_within(bounds) * is_repeated).sum().alias(_REPEATED) / pl.col(C.dur_ns).sum(),
        )
    )
    rows = run.table("operations").select(
        C.uid,
        C.category,
        C.kernel_time_us,
        C.compute,
        pl.col(C.flops) * pl.col(C.operation_count),
    )
    part, repeated = (pl.col(name).fill_nan(0.0).fill_null(0.0) for name in ("part", _REPEATED))
    return rows.join(parts, left_on=C.uid, right_on="operation", how="left").with_columns(
        pl.col(C.flops, C.kernel_time_us) * part, (pl.col(C.flops) * repeated).alias(_REPEATED)
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
