"""GEMM: matrix multiplications (mm, bmm, addmm, their quantized and grouped kin)."""

from collections.abc import Iterator

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses import kernel_names
from jarvis.analyses.base import Advice, Analysis, CategoryData, Claim, Panel
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.operations import (
    LAUNCH_BOUND,
    LAUNCH_BOUND_RULE,
    MIN_COMPUTE_PCT,
    OperationGroup,
    groups,
    parameter,
    parameters,
    short_dtype,
)
from jarvis.analyses.wording import ms, pct, quoted
from jarvis.findings import GPU_TIME, Finding, Priority
from jarvis.schemas import FLAG, INTEGER, TEXT, Column

TINY_BATCH = 1000
TINY_DIM = 64
"""From this many products, each with no dimension above this one, a batch is one of tiny GEMMs."""

SKINNY_RATIO = 64
"""Ratio of M and N from which the output is tall and skinny."""

SHORT_K = 64
"""Up to this K a product has little arithmetic for each element that it writes."""

TILE = 256
SPLIT_K = 8192
FEW_TILES_SHARE = 0.25
"""Output tiles of this edge fill too small a share of the compute units while K is long."""

ALIGNMENT = 64
PAST_ALIGNMENT = 7
ROW_ALIGNMENT = 8
"""Kernels are tuned for multiples of 64; a dimension just past one is treated worst. N and K, which
lie along the rows in memory, should be multiples of 8 at least."""

HELPER_KERNELS = r"postgsu|splitkreduce|splitk_reduce|transpose|memset|fillbuffer"
HELPER_SHARE_PCT = 10.0
"""Kernels beside the product itself, and the share of an operator's time that is worth a word."""

QUANTIZED_NAMES = r"w8a8|int8|fp8|w4a16|w4a4|fp4|a8w8|a4w4|a16w4|scaled_mm|_int_mm"
QUANTIZED_DTYPES = r"fp8|fp4|int8"

ADVICE = {
    "tiny batched": Advice(
        rule=f"{TINY_BATCH} products or more, no dimension above {TINY_DIM}",
        reason="{products} products of M={m}, N={n}, K={k} each are too small to fill the GPU",
        algorithmic="Batch them into fewer, larger products (bmm or grouped GEMM), or restructure "
        "the model so that the small dimension is merged into a larger one.",
        kernel="Give a replay package of {arguments} to the kernel team: more than 5 times slower "
        "than another kernel or GPU for the same shape points to kernel selection.",
        is_notable=True,
    ),
    "few tiles": Advice(
        rule=f"K at least {SPLIT_K} and output tiles of {TILE} for less than a quarter of the "
        "compute units",
        reason="M={m}, N={n}, K={k} gives few output tiles to spread over the GPU",
        algorithmic="Batch more rows or columns into the product so that its output grows; the "
        "long K offers no parallelism of its own.",
        kernel="Ask for a kernel that splits K ({tile_note}) and give a replay package of "
        "{arguments} to the kernel team.",
        is_notable=True,
    ),
    "short K": Advice(
        rule=f"K is at most {SHORT_K}",
        reason="M={m}, N={n}, K={k} has little arithmetic for each element that it writes",
        algorithmic="Fuse the product with what reads its output (in attention, use a fused "
        "attention operator), so that the output need not cross memory.",
        kernel="Tune the kernel for M={m}, N={n}, K={k}, batch {b} ({tile_note}); a replay package "
        "reproduces it.",
        is_notable=True,
    ),
    "tall and skinny": Advice(
        rule=f"M and N differ by {SKINNY_RATIO} times or more",
        reason="the output of M={m}, N={n}, K={k} has one long and one short side ({short_side})",
        algorithmic="{skinny_advice} Where bandwidth decides, quantized weights (W8A8, FP8) move "
        "fewer bytes.",
        kernel="Tune tile sizes for M={m}, N={n}, K={k} ({tile_note}); a replay package "
        "reproduces it.",
        is_notable=True,
    ),
    "misaligned": Advice(
        rule=f"M, N or K lies 1 to {PAST_ALIGNMENT} past a multiple of {ALIGNMENT}, or N or K is "
        f"no multiple of {ROW_ALIGNMENT}",
        reason="{misaligned} is an odd size, and few kernels are tuned for such sizes",
        algorithmic=f"Pad or trim {{misaligned}} to a multiple of {ALIGNMENT}, for instance by "
        "padding the vocabulary, the sequence or the head dimension.",
        kernel="Check the kernel selected for M={m}, N={n}, K={k} ({tile_note}) with a replay "
        "package.",
        is_notable=True,
    ),
    "quantized": Advice(
        rule="8-bit or 4-bit inputs, by dtype or by the operator's name",
        reason="low-precision kernels have an efficiency profile of their own",
        algorithmic="Validate the quantization scheme and its calibration, and make sure that "
        "quantizing and dequantizing do not cost what the narrower product saves.",
        kernel="Give a replay package of {arguments} to the kernel team: kernels for narrow types "
        "often need tuning for the shape ({tile_note}).",
    ),
    LAUNCH_BOUND: Advice(
        rule=LAUNCH_BOUND_RULE,
        reason="M={m}, N={n}, K={k} has so little work that the fixed cost of a kernel "
        "decides its time",
        algorithmic="Batch more rows into each product, or merge products that share an input "
        "(such as query, key and value) into one; torch.compile may batch them.",
        kernel="Use a grouped GEMM that takes the calls together; a GPU graph only shortens the "
        "gaps between them, and tuning the single kernel gains little.",
    ),
    "compute": Advice(
        rule="bound by the compute peak, no pattern",
        reason="the product M={m}, N={n}, K={k} ({dtype}) runs slower than its arithmetic needs",
        algorithmic="Check whether batch sizes leave the last tiles partly empty and whether "
        "torch.compile can batch such products; a narrower type raises the peak.",
        kernel="Tune tile sizes and kernel selection for M={m}, N={n}, K={k}, batch {b} "
        "({tile_note}); a replay package reproduces it.",
    ),
    "memory": Advice(
        rule="bound by memory bandwidth, no pattern",
        reason="M={m}, N={n}, K={k} ({dtype}) moves much data for its arithmetic, and bandwidth is "
        "left unused",
        algorithmic="Quantize the weights (W8A8, FP8) or batch more rows per product to move fewer "
        "bytes; fuse the surrounding elementwise work; use sparsity if the weights have it.",
        kernel="Bandwidth below expectation is a kernel opportunity: give a replay package of "
        "M={m}, N={n}, K={k}, batch {b} to the kernel team ({tile_note}).",
    ),
}

DETAILS = (
    Column("m", "M", INTEGER, format=",d", meaning="rows of the product"),
    Column("n", "N", INTEGER, format=",d", meaning="columns of the product"),
    Column("k", "K", INTEGER, format=",d", meaning="length of the inner products"),
    Column("b", "Batch", INTEGER, format=",d", meaning="products in one call"),
    Column("dtype", "Dtype", TEXT, meaning="type of the inputs"),
    Column("gemm_type", "GEMM type", TEXT, meaning="quantized or regular"),
    Column("pattern", "Pattern", TEXT, meaning="what is special about the shape"),
    Column("tile", "Tile", TEXT, meaning="macro tile, as the kernel name states it"),
    Column("is_misaligned", "Misaligned", FLAG, meaning="a dimension of an odd size"),
)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Shape, type, tile and pattern of each product; the most telling pattern wins.

    Where launching decides the time, the shape of the single product does not matter.
    """
    shaped = rows.with_columns(
        m=parameter("M"),
        n=parameter("N"),
        k=parameter("K"),
        b=pl.when(parameter("M").is_not_null()).then(parameter("B").fill_null(1)),
        dtype=pl.Series([_dtype(p) for p in parameters(rows)], dtype=pl.String),
        tile=kernel_names.tile(pl.col("main_kernel")),
    )
    smallest, largest = pl.min_horizontal("m", "n"), pl.max_horizontal("m", "n")
    products = pl.max_horizontal(pl.col("b"), pl.col("operation_count"))
    is_tiny = (products >= TINY_BATCH) & (pl.max_horizontal("m", "n", "k") <= TINY_DIM)
    tiles = pl.col("b") * _ceil_div("m", TILE) * _ceil_div("n", TILE)
    has_few_tiles = (pl.col("k") >= SPLIT_K) & (tiles < FEW_TILES_SHARE * (compute_units or 0))
    has_few_rows = pl.col("m") < pl.col("n")
    is_quantized = pl.col("name").str.to_lowercase().str.contains(QUANTIZED_NAMES) | pl.col(
        "dtype"
    ).str.contains(QUANTIZED_DTYPES).fill_null(value=False)
    is_off = {"m": _is_past("m"), "n": _is_odd("n"), "k": _is_odd("k")}
    off_text = [
        pl.when(flag).then(pl.format("{}={}", pl.lit(d.upper()), pl.col(d)))
        for d, flag in is_off.items()
    ]
    return shaped.with_columns(
        products=products,
        gemm_type=pl.when(is_quantized).then(pl.lit("quantized")).otherwise(pl.lit("regular")),
        is_misaligned=pl.any_horizontal(*is_off.values()).fill_null(value=False),
        short_side=pl.when(has_few_rows)
        .then(pl.format("M={}", "m"))
        .otherwise(pl.format("N={}", "n")),
        skinny_advice=pl.when(has_few_rows)
        .then(pl.lit("Batch more rows (tokens, requests) into one product, so that M grows."))
        .otherwise(pl.lit("Fuse products that read the same input into one, so that N grows.")),
        misaligned=pl.concat_str(off_text, separator=" and ", ignore_nulls=True),
        tile_note=pl.when(pl.col("tile").is_null())
        .then(pl.lit("the kernel name states no tile"))
        .otherwise(pl.format("tile {} from the kernel name", "tile")),
        pattern=pl.when(is_tiny)
        .then(pl.lit("tiny batched"))
        .when("is_launch_bound")
        .then(None)
        .when(has_few_tiles)
        .then(pl.lit("few tiles"))
        .when(pl.col("k") <= SHORT_K)
        .then(pl.lit("short K"))
        .when(largest >= SKINNY_RATIO * smallest)
        .then(pl.lit("tall and skinny"))
        .when(pl.any_horizontal(*is_off.values()))
        .then(pl.lit("misaligned"))
        .when(is_quantized)
        .then(pl.lit("quantized")),
    )


def helper_kernels(data: CategoryData) -> Iterator[Finding]:
    """Products that need kernels beside the product itself.

    Symptom: an operator launches a reduction over split K, a transpose or a clearing kernel with
    each product.
    Rule: launches named like HELPER_KERNELS take at least HELPER_SHARE_PCT of the operator's time.
    Threshold: 10% of the operator's time; at least 0.5% of compute.
    """
    rows = data.operations.with_columns(helper_us=kernel_names.time_us(HELPER_KERNELS))
    for group in groups(rows.filter(pl.col("helper_us") > 0)):
        helper_ms = float(group.rows["helper_us"].sum()) / 1000
        share = impact.share_pct(helper_ms, group.time_ms)
        helper_compute_pct = impact.share_pct(helper_ms, data.totals.compute_time_ms)
        if share >= HELPER_SHARE_PCT and helper_compute_pct >= MIN_COMPUTE_PCT:
            yield _helper_finding(data, group, helper_ms, share, helper_compute_pct)


def _helper_finding(
    data: CategoryData, group: OperationGroup, helper_ms: float, share: float, compute_pct: float
) -> Finding:
    is_relevant = compute_pct > impact.RELEVANT_COMPUTE_PCT
    priority = Priority.MEDIUM if is_relevant else Priority.LOW
    heaviest = group.heaviest
    return Finding(
        check="helper_kernels",
        category=data.key,
        title=f"Helper kernels: {quoted(group.name)}",
        operations=group.operations,
        evidence={
            "Helper time (ms)": helper_ms,
            "Share of the operator (%)": share,
            GPU_TIME: group.time_ms,
            "Calls": group.calls,
            "Launches": group.launches,
        },
        issue=f"Reductions, transposes or clears around the product take {ms(helper_ms)} "
        f"({pct(share)}) of the {ms(group.time_ms)} of {quoted(group.name)}.",
        algorithmic="Store the weights in the layout that the product reads, and batch the calls "
        "so that K need not be split.",
        kernel="Compare with a kernel that needs no helper for "
        f"{heaviest['arguments'] or 'the heaviest call'}; a replay package reproduces it.",
        priority_local=priority,
        priority=priority,
        impact=impact.bounded_impact(group.time_ms, helper_ms, **data.bases),
        verify="Record the trace again: the helper kernels are gone and the product itself is not "
        "slower.",
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Counts of quantized and of unmodelled rows, and the peaks of the hardware."""
    rows = data.operations
    patterns = rows["pattern"].drop_nulls().value_counts(sort=True, name="rows")
    return {
        "quantized_count": rows.filter(pl.col("gemm_type") == "quantized").height,
        "missing_perf_model_count": rows.filter(~pl.col("has_perf_model")).height,
        "peak_maf_tflops": data.hardware.peak_tflops("matrix_bf16") if data.hardware else None,
        "peak_hbm_bw_tbs": data.peak_tb_per_s,
        "patterns": dict(sorted(patterns.iter_rows())),
    }


def _dtype(params: dict[str, object]) -> str | None:
    types = params.get("dtype_A_B")
    if not isinstance(types, list) or not types:
        return None
    return " x ".join(dict.fromkeys(short_dtype(str(name)) for name in types))


def _ceil_div(column: str, divisor: int) -> pl.Expr:
    return (pl.col(column) + divisor - 1) // divisor


def _is_past(column: str) -> pl.Expr:
    past = pl.col(column) % ALIGNMENT
    return (pl.col(column) > ALIGNMENT) & past.is_between(1, PAST_ALIGNMENT)


def _is_odd(column: str) -> pl.Expr:
    is_ragged = (pl.col(column) > ALIGNMENT) & (pl.col(column) % ROW_ALIGNMENT != 0)
    return _is_past(column) | is_ragged


ANALYSIS = Analysis(
    title="GEMM",
    icon=":material/grid_on:",
    claim=Claim(
        op_categories=("GEMM", "GroupedGEMM_fwd", "GroupedGEMM_bwd"),
        op_names=(
            "*gemm*",
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
    checks=(*SHARED_CHECKS, helper_kernels),
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=(
        Panel("roofline", "Roofline"),
        Panel("savings", "Largest savings at the target"),
        Panel("scatter", "Efficiency by size", x="flops", y="pct_roofline", color="pattern"),
    ),
)
