"""Products and convolutions in fp32 that leave the tensor cores unused."""

from collections.abc import Iterator, Mapping

import polars as pl

from jarvis import impact
from jarvis.analyses.advice import values_of
from jarvis.analyses.base import CategoryData
from jarvis.analyses.inefficiency import evidence_of
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup, groups
from jarvis.findings import Finding, Impact, texts_of
from jarvis.schemas.names import C
from jarvis.text.messages import MessageTable

VECTOR_KERNEL = (
    r"sgemm|scudnn|ffma|simt|f32f32_f32f32|(?:gemm|cudnn[\w:]*|(?:dgrad|wgrad)\w*_engine)\w*<float"
)
"""Names (lower case) of kernels of cuBLAS, CUTLASS and cuDNN that multiply fp32 without tensor
cores."""

FP32_INPUTS = r"^\((?:'', )?'float', 'float'"
"""Types of the recorded arguments, of which the first two tensors are the factors."""

NO_TYPES = "()"
"""The types of arguments whose types are not recorded."""

SINGLE = r"sgemm|scudnn|(?:cudnn[\w:]*|(?:dgrad|wgrad)\w*_engine)<float"
"""Names (lower case) of kernels that state fp32."""

TENSOR_CORES = {"tf32": "matrix_tf32", "bf16": "matrix_bf16", "fp16": "matrix_fp16"}
"""Peaks of tensor cores for inputs that fp32 can be rounded to."""


FP32 = MessageTable(
    "fp32_products",
    {
        "title": "fp32 without tensor cores: {name}",
        "issue": "{calls} of {name} in fp32 {calls:either takes|take} {time_ms} ({compute_pct} "
        "of compute) in kernels such as {kernel}, which compute on the vector units{vector}. The "
        "tensor cores reach {peaks:joined  and }.",
        "vector": " (at most {vector_tflops_per_s:number} TFLOP/s)",
        "peak": "{tensor_tflops_per_s:number} TFLOP/s in {dtype}",
        "algorithmic": "{tf32}Run {name} in mixed precision{place}, if accuracy allows.",
        "tf32": "Allow TF32 (`torch.set_float32_matmul_precision('high')`, for convolutions "
        "`torch.backends.cudnn.allow_tf32`), which changes no dtype. ",
        "kernel": "No kernel needs to change: with another dtype{setting}, the library selects "
        "one for tensor cores.",
        "setting": " or setting",
        "caveat": "A trace shows times, not accuracy: evaluate the model with the other precision.",
        "verify": "Record the trace again: {name} must take less than {time_ms}, in kernels for "
        "tensor cores.",
        "capture": "Time {arguments} alone in each precision: the bytes, and so the limit by "
        "memory bandwidth, change with the dtype.",
    },
)


def fp32_products(data: CategoryData) -> Iterator[Finding]:
    """Products and convolutions in fp32 on the vector units of a GPU that has tensor cores.

    Symptom: the kernel of a product in fp32 computes without tensor cores.
    Rule: rows with fp32 inputs, by their kernel's name where no types are recorded, that are not
    memory bound and whose longest kernel is named like VECTOR_KERNEL, on a GPU with a peak of
    tensor cores. The saving is at most the time beyond the roofline with the highest of these
    peaks; the middle is that with the lowest one at the target. Without FLOPs it is not known.
    Threshold: at least {MIN_COMPUTE_PCT}% of compute.
    """
    peaks = _peaks(data)
    if not peaks or data.hardware is None:
        return
    kernel = pl.col(C.main_kernel).str.to_lowercase()
    is_fp32_on_vector_units = (
        (
            pl.col(C.input_types).str.contains(FP32_INPUTS)
            | ((pl.col(C.input_types) == NO_TYPES) & kernel.str.contains(SINGLE))
        )
        & pl.col(C.bound).ne_missing("memory")
        & kernel.str.contains(VECTOR_KERNEL)
        & ~kernel.str.contains("tf32|tensorop")
    )
    for group in groups(data.operations, is_fp32_on_vector_units, MIN_COMPUTE_PCT):
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
    gain = _gain(data, group, peaks)
    priority = impact.final_priority(
        is_top_operation=group.is_top,
        compute_pct=group.compute_pct,
        category_pct=group.category_pct,
        efficiency_pct=None,
        saved_compute_pct=gain.compute_pct.mid if gain else None,
        saved_ms=gain.saved_ms.mid if gain else None,
        is_pattern=True,
    )
    vector = data.hardware.peak_tflops("vector_fp32") if data.hardware else None
    values = values_of(group) | {
        "time_ms": group.time_ms,
        "compute_pct": group.compute_pct,
        "vector": FP32("vector", vector_tflops_per_s=vector) if vector else None,
        "peaks": [FP32("peak", dtype=dtype, tensor_tflops_per_s=p) for dtype, p in peaks.items()],
        "tf32": FP32("tf32") if "tf32" in peaks else None,
        "setting": FP32("setting") if "tf32" in peaks else None,
    }
    return Finding(
        check="fp32_products",
        category=data.key,
        **texts_of(FP32, values),
        operations=group.operations,
        evidence=evidence_of(group),
        priority_local=priority,
        priority=priority,
        impact=gain,
    )


def _gain(data: CategoryData, group: OperationGroup, peaks: Mapping[str, float]) -> Impact | None:
    """Return the saving with the tensor cores; None if the FLOPs of a row are not known."""
    if group.rows[C.flops].null_count():
        return None
    slow_ms, fast_ms = (
        _roofline_ms(group, data.peak_tb_per_s, peak)
        for peak in (min(peaks.values()), max(peaks.values()))
    )
    return impact.bounded_impact(
        group.time_ms,
        max(0.0, group.time_ms - fast_ms),
        mid_ms=max(0.0, group.time_ms - slow_ms * impact.FULL_PCT / data.target_pct),
        **data.bases,
    )


def _roofline_ms(group: OperationGroup, tb_per_s: float | None, tflops: float) -> float:
    """Return the roofline time of all calls with this compute peak in ms."""
    computing_us = pl.col(C.flops) / tflops / 1e6
    moving_us = pl.col(C.bytes).fill_null(0) / ((tb_per_s or 0.0) * 1e6)
    each_us = pl.max_horizontal(computing_us, moving_us)
    return float(group.rows.select((each_us * pl.col(C.operation_count)).sum()).item()) / 1000
