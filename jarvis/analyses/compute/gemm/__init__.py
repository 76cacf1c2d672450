"""GEMM: matrix multiplications (mm, bmm, addmm, and quantized and grouped variants)."""

import polars as pl
from pydantic import JsonValue

from jarvis.analyses.bandwidth import time_ms_by
from jarvis.analyses.base import SHARED_PANELS, Advice, Analysis, CategoryData, Claim, Panel
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.compute.gemm.alignment import ALIGNED_BYTES, FASTER_PCT, PAST_ALIGNMENT
from jarvis.analyses.compute.gemm.products import (
    helper_kernels,
    quantized_without_gain,
    repeated_reads,
)
from jarvis.analyses.compute.gemm.shapes import (
    SHORT_K,
    SKINNY_RATIO,
    SPLIT_K,
    TILE,
    TINY_BATCH,
    TINY_DIM,
    TINY_SLOWDOWN,
    classify,
)
from jarvis.analyses.fp32 import fp32_products
from jarvis.analyses.operations import LAUNCH_BOUND, LAUNCH_BOUND_RULE
from jarvis.schemas.columns import count, flag, text
from jarvis.schemas.names import C

ADVICE = {
    "tiny batched": Advice(
        rule=f"{TINY_BATCH} products or more, no dimension above {TINY_DIM}",
        reason="{products} products of M={m}, N={n}, K={k} each are too small to fill the GPU",
        algorithmic="Batch them into fewer, larger products (bmm or grouped GEMM), or merge one of "
        "the small dimensions M={m}, N={n} into the {products} products.",
        kernel="Give {package} to the kernel team ({tile_note:message}): "
        f"more than {TINY_SLOWDOWN} times slower than another kernel or GPU for the same shape "
        "points to kernel selection.",
        is_notable=True,
    ),
    "few tiles": Advice(
        rule=f"K at least {SPLIT_K} and output tiles of {TILE} for less than a quarter of the "
        "compute units",
        reason="M={m}, N={n}, K={k} gives too few output tiles to fill the GPU",
        algorithmic="Batch more rows than M={m} or more columns than N={n} into the product so "
        "that its output grows; K={k} alone offers no parallelism.",
        kernel="{split_advice:message}",
        is_notable=True,
    ),
    "short K": Advice(
        rule=f"K is at most {SHORT_K}",
        reason="M={m}, N={n}, K={k} does little arithmetic per element that it writes",
        algorithmic="Fuse {name} with the consumer of its output of M={m} by N={n} (in attention, "
        "use a fused attention operator), so that the output stays out of memory.",
        kernel="Tune the kernel of {name} for M={m}, N={n}, K={k}, batch {b} "
        "({tile_note:message}){reproduced}.",
        is_notable=True,
    ),
    "tall and skinny": Advice(
        rule=f"M and N differ by {SKINNY_RATIO} times or more",
        reason="the output of M={m}, N={n}, K={k} has one long and one short side "
        "({short_side:message})",
        algorithmic="{skinny_advice:message}{narrower_note:message}",
        kernel="Tune tile sizes of {name} for M={m}, N={n}, K={k} ({tile_note:message})"
        "{reproduced}.",
        is_notable=True,
    ),
    "misaligned": Advice(
        rule=f"the kernel's name states loads of less than {ALIGNED_BYTES} bytes (`align1`) or an "
        "older generation than the GPU's (`volta_`, `cutlass_75`), a size that is contiguous in an "
        f"operand or the output is not a multiple of {ALIGNED_BYTES} bytes, or the same product "
        f"with an aligned size, up to {PAST_ALIGNMENT} smaller, reaches over {FASTER_PCT:.0f}% "
        "more FLOPS/s",
        reason="{misaligned_note:message}",
        algorithmic="{align_advice:message}",
        kernel="Check the kernel selected for M={m}, N={n}, K={k} ({tile_note:message})"
        "{on_package}, and compare it with the same product padded.",
        is_notable=True,
    ),
    "quantized": Advice(
        rule="8-bit or 4-bit inputs, by dtype or by the operator's name",
        reason="low-precision kernels have a different efficiency profile",
        algorithmic="Validate the scheme ({dtype}) and its calibration for the {calls}{place}, "
        "and check that quantizing and dequantizing do not cost more than the narrower product "
        "saves.",
        kernel="Give {package} to the kernel team: {kernel} may need tuning "
        "for the shape ({tile_note:message}).",
        caveat="A trace shows times, not accuracy: validate the scheme by evaluating the model.",
    ),
    LAUNCH_BOUND: Advice(
        rule=LAUNCH_BOUND_RULE,
        reason="M={m}, N={n}, K={k} has so little work that the fixed cost of a kernel dominates "
        "its time",
        algorithmic="{merge_note:message}Batch more rows than M={m} into {each} of {name}, or "
        "merge products that share an input{place}; torch.compile may batch them.",
        kernel="{grouped_gemm}Fewer calls save the fixed cost of each kernel, which a GPU "
        "graph does not remove. Main kernel: {kernel}.",
    ),
    "compute": Advice(
        rule="bound by the compute peak, no pattern",
        reason="the product M={m}, N={n}, K={k} ({dtype}) runs slower than its arithmetic requires",
        algorithmic="{merge_note:message}{rows_advice:message}{narrower_note:message}",
        kernel="Tune tile sizes and kernel selection of {name} for M={m}, N={n}, K={k}, batch {b} "
        "({tile_note:message}){reproduced}.",
    ),
    "memory": Advice(
        rule="bound by memory bandwidth, no pattern",
        reason="M={m}, N={n}, K={k} ({dtype}) moves much data for its arithmetic and leaves "
        "bandwidth unused",
        algorithmic="{merge_note:message}Batch more rows than M={m} into {each} of {name}, fuse "
        "the elementwise work around it{place}, and use sparsity if the weights have it."
        "{narrower_note:message}",
        kernel="Bandwidth below expectation is a kernel opportunity: give {package} to the "
        "kernel team for M={m}, N={n}, K={k}, batch {b} ({tile_note:message}).",
    ),
}

DETAILS = (
    count("m", "M", "rows of the product"),
    count("n", "N", "columns of the product"),
    count("k", "K", "length of the inner products"),
    count("b", "Batch", "products in one call"),
    text(C.dtype, "Dtype", "type of the inputs"),
    text(C.gemm_type, "GEMM type", "quantized or regular"),
    text("pattern", "Pattern", "notable property of the shape"),
    text("tile", "Tile", "macro tile stated in the kernel name"),
    count("output_tiles", "Output tiles", "tiles over the output"),
    text(C.model_part, "Part of the model", "from the names of the enclosing modules"),
    flag("is_misaligned", "Misaligned", "its alignment costs time"),
)


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return counts of quantized and unmodelled rows, hardware peaks, and GPU time by model
    part."""
    rows = data.operations
    patterns = rows["pattern"].drop_nulls().value_counts(sort=True, name="rows")
    parts = rows.with_columns(pl.col(C.model_part).fill_null("not known"))
    return {
        "quantized_count": rows.filter(pl.col(C.gemm_type) == "quantized").height,
        "missing_perf_model_count": rows.filter(~pl.col(C.has_perf_model)).height,
        "peak_maf_tflops": data.hardware.peak_tflops("matrix_bf16") if data.hardware else None,
        "peak_hbm_bw_tbs": data.peak_tb_per_s,
        "patterns": dict(sorted(patterns.iter_rows())),
        "time_ms_by_model_part": time_ms_by(parts, C.model_part),
    }


ANALYSIS = Analysis(
    title="GEMM",
    icon=":material/grid_on:",
    claim=Claim(
        op_categories=("GEMM", "GroupedGEMM_fwd", "GroupedGEMM_bwd"),
        blocks=("gemm",),
        op_names=(
            "*gemm*",
            *(f"*{letter}gemm*" for letter in "bcdhsz"),  # by dtype, as BLAS names them
            "*cijk_*",
            "*nvjet*",
            "*splitkreduce*",
            "aten::linear",
            "aten::matmul",
            "aten::_int_mm",
            "aten::*grouped_mm",
        ),
        order=50,
    ),
    specific=(fp32_products,),
    checks=(*SHARED_CHECKS, helper_kernels, quantized_without_gain, repeated_reads),
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=(
        *SHARED_PANELS,
        Panel("scatter", "Efficiency by size", x=C.flops, y=C.pct_roofline, color="pattern"),
    ),
)
