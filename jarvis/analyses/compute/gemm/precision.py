"""Products in fp32 that leave the tensor cores unused."""

from collections.abc import Iterator, Mapping

import polars as pl

from jarvis import impact
from jarvis.analyses.advice import values_of
from jarvis.analyses.base import CategoryData
from jarvis.analyses.compute.gemm.messages import FP32
from jarvis.analyses.inefficiency import evidence_of
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup, groups
from jarvis.findings import Finding
from jarvis.schemas.names import C

VECTOR_KERNEL = r"sgemm|ffma|simt|f32f32_f32f32|gemm\w*<float"
"""Names (lower case) of kernels that multiply fp32 without tensor cores."""

TENSOR_CORES = {"tf32": "matrix_tf32", "bf16": "matrix_bf16", "fp16": "matrix_fp16"}
"""Peaks of tensor cores for inputs that fp32 can be rounded to."""


def fp32_products(data: CategoryData) -> Iterator[Finding]:
    """Products in fp32 on the vector units of a GPU that has tensor cores.

    Symptom: the kernel of a product in fp32 computes without tensor cores.
    Rule: rows with fp32 inputs that are not memory bound and whose longest kernel is named like
    VECTOR_KERNEL, on a GPU with a peak of tensor cores. The saving is at most the time beyond the
    roofline with the highest of these peaks; the middle is that with the lowest one at the target.
    Threshold: at least {MIN_COMPUTE_PCT}% of compute.
    """
    peaks = _peaks(data)
    if not peaks or data.hardware is None:
        return
    kernel = pl.col(C.main_kernel).str.to_lowercase()
    rows = data.operations.filter(
        (pl.col(C.dtype) == "fp32")
        & pl.col(C.flops).is_not_null()
        & pl.col(C.bound).ne_missing("memory")
        & kernel.str.contains(VECTOR_KERNEL)
        & ~kernel.str.contains("tf32|tensorop")
    )
    for group in groups(rows):
        if group.compute_pct >= MIN_COMPUTE_PCT:
            yield _finding(data, group, peaks)


def _peaks(data: CategoryData) -> dict[str, float]:
    """Return the peaks of tensor cores by type; that of fp16 only without bf16, whose range is that
    of fp32."""
    known = data.hardware.max_achievable_tflops if data.hardware else {}
    peaks = {dtype: known[peak] for dtype, peak in TENSOR_CORES.items() if peak in known}
    if "bf16" in peaks:
        peaks.pop("fp16", None)
    return peaks


def _finding(data: CategoryData, group: OperationGroup, peaks: Mapping[str, float]) -> Finding:
    at_least, at_most = (_roofline_ms(group, data.peak_tb_per_s, peak) for peak in _ends(peaks))
    gain = impact.bounded_impact(
        group.time_ms,
        max(0.0, group.time_ms - at_most),
        mid_ms=max(0.0, group.time_ms - at_least * impact.FULL_PCT / data.target_pct),
        **data.bases,
    )
    priority = impact.final_priority(
        is_top_operation=group.is_top,
        compute_pct=group.compute_pct,
        category_pct=group.category_pct,
        efficiency_pct=None,
        saved_compute_pct=gain.compute_pct.mid,
        saved_ms=gain.saved_ms.mid,
        is_pattern=True,
    )
    vector = data.hardware.peak_tflops("vector_fp32") if data.hardware else None
    values = values_of(group) | {
        "time_ms": group.time_ms,
        "compute_pct": group.compute_pct,
        "vector": FP32("vector", vector_tflops_per_s=vector) if vector else None,
        "peaks": [FP32("peak", dtype=dtype, tensor_tflops_per_s=p) for dtype, p in peaks.items()],
        "tf32": FP32("tf32") if "tf32" in peaks else None,
    }
    return Finding(
        check="fp32_products",
        category=data.key,
        title=FP32.pick("title", values),
        operations=group.operations,
        evidence=evidence_of(group),
        issue=FP32.pick("issue", values),
        algorithmic=FP32.pick("algorithmic", values),
        kernel=FP32.pick("kernel", values),
        priority_local=priority,
        priority=priority,
        impact=gain,
        caveat=FP32("caveat"),
        verify=FP32.pick("verify", values),
        capture=FP32.pick("capture", values),
    )


def _ends(peaks: Mapping[str, float]) -> tuple[float, float]:
    return min(peaks.values()), max(peaks.values())


def _roofline_ms(group: OperationGroup, tb_per_s: float | None, tflops: float) -> float:
    """Return the roofline time of all calls with this compute peak in ms."""
    computing_us = pl.col(C.flops) / tflops / 1e6
    moving_us = pl.col(C.bytes).fill_null(0) / ((tb_per_s or 0.0) * 1e6)
    each_us = pl.max_horizontal(computing_us, moving_us)
    return float(group.rows.select((each_us * pl.col(C.operation_count)).sum()).item()) / 1000
