"""Classification of matrix products by shape, dtype, tile and place in the model."""

import polars as pl

from jarvis import impact
from jarvis.analyses import kernel_names
from jarvis.analyses.compute.gemm.alignment import misalignments
from jarvis.analyses.compute.gemm.messages import SHAPES
from jarvis.analyses.kernel_names import first_match
from jarvis.analyses.operations import (
    HYPOTHESIS,
    module_classes,
    parameter,
    parameters,
    short_dtype,
)
from jarvis.core.expressions import first_of
from jarvis.schemas.names import C

TINY_BATCH = 1000
TINY_DIM = 64
"""A batch of TINY_BATCH products, none with a dimension above this one, counts as tiny GEMMs."""

TINY_SLOWDOWN = 5
"""A batch of tiny GEMMs that takes more roofline times than this is slower than its size
explains."""

SKINNY_RATIO = 64
"""Ratio of M and N from which the output is tall and skinny."""

SPLITS_K = r"(?i)splitk|split_k|stream_?k|postgsu|_GSU(?:[2-9]|\d\d)|_SK[1-9]"
"""Names of kernels that split K over several compute units, and of those that add up the parts."""

SHORT_K = 64
"""Up to this K a product does little arithmetic per element that it writes."""

TILE = 256
SPLIT_K = 8192
FEW_TILES_SHARE = 0.25
"""Share of the compute units below which output tiles of TILE by TILE are too few, for a K of at
least SPLIT_K."""

UNEVEN_SHARE = 0.25
"""Share of the capacity that is idle in the last round of output tiles, or padding in all tiles,
from which it is reported."""

UNEVEN_ROWS_SHARE = 0.1
"""Idle share from which another number of rows can be faster."""

FEW_ROUNDS = 2
SMALL_TILE = 128
"""With at most FEW_ROUNDS rounds of output tiles, larger tiles would not fill the compute units; a
tile with less area than the square of this edge reads much data per operation."""

QUANTIZED_NAMES = r"w8a8|int8|fp8|w4a16|w4a4|fp4|a8w8|a4w4|a16w4|scaled_mm|_int_mm"
QUANTIZED_DTYPES = r"fp8|fp4|int8"

MAX_MERGED_PRODUCTS = 4
"""Up to this many equal products under one module may share an input (query, key and value:
three)."""

MODEL_PARTS = (
    ("attention", r"attn|attention|selfoutput"),
    ("MoE", r"moe"),
    ("output head", r"lm_?head|mlmhead|prediction|classifier|pooler"),
    ("MLP", r"mlp|ffn|feed_?forward|intermediate|output(?:_\d+)?$"),
)
"""Parts of a model by module name; the innermost module that matches counts."""


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Add shape, dtype, tile, place and pattern of each product; the most specific pattern wins.

    If launch overhead dominates, the shape of the single product does not matter.
    """
    shaped = rows.with_columns(
        m=parameter("M"),
        n=parameter("N"),
        k=parameter("K"),
        b=pl.when(parameter("M").is_not_null()).then(parameter("B").fill_null(1)),
        **{
            C.dtype: pl.lit(pl.Series([_dtype(p) for p in parameters(rows)], dtype=pl.String)),
            "tile": kernel_names.tile(pl.col(C.main_kernel)),
            C.model_part: _model_part(),
            C.compute_units: pl.lit(compute_units, dtype=pl.Int64),
        },
        tiny_slowdown=pl.lit(TINY_SLOWDOWN),
    ).with_columns(
        products=pl.max_horizontal(pl.col("b"), pl.col(C.operation_count)),
        output_tiles=pl.min_horizontal(*_output_tiles()),
        is_quantized=_is_quantized(),
        per_module=_per_module(),
    )
    evidenced = shaped.hstack(misalignments(shaped))
    return evidenced.with_columns(
        first_of({"quantized": "is_quantized"}, "regular").alias(C.gemm_type),
        is_misaligned=pl.when(pl.col("misaligned_note") != "")
        .then(pl.lit(value=True))
        .when(pl.col("m").is_not_null())
        .then(pl.lit(value=False)),
        **_pattern(compute_units),
        **_notes(compute_units),
        **_hypothesis(compute_units),
    )


def _pattern(compute_units: int | None) -> dict[str, pl.Expr]:
    is_tiny = (pl.col("products") >= TINY_BATCH) & _is_tiny()
    tiles = pl.col("b") * _ceil_div("m", pl.lit(TILE)) * _ceil_div("n", pl.lit(TILE))
    has_few_tiles = (pl.col("k") >= SPLIT_K) & (tiles < FEW_TILES_SHARE * (compute_units or 0))
    smallest, largest = pl.min_horizontal("m", "n"), pl.max_horizontal("m", "n")
    pattern = first_of(
        {
            "tiny batched": is_tiny,
            None: C.is_launch_bound,
            "few tiles": has_few_tiles,
            "short K": pl.col("k") <= SHORT_K,
            "misaligned": pl.col("misaligned_note") != "",
            "tall and skinny": largest >= SKINNY_RATIO * smallest,
            "quantized": "is_quantized",
        }
    )
    return {"pattern": pattern}


def _notes(compute_units: int | None) -> dict[str, pl.Expr]:
    """Return ids of messages that apply to some rows only, and their values."""
    has_few_rows = pl.col("m") < pl.col("n")
    has_tile, merged_n = pl.col("tile").is_not_null(), pl.col("n") * pl.col("per_module")
    return {
        "short_side": pl.when(has_few_rows)
        .then(_id("short_side.m"))
        .otherwise(_id("short_side.n")),
        "skinny_advice": pl.when(has_few_rows).then(_id("skinny.m")).otherwise(_id("skinny.n")),
        "tile_note": pl.when(has_tile & pl.col("output_tiles").is_not_null())
        .then(_id("tile.counted"))
        .when(has_tile)
        .then(_id("tile.named"))
        .otherwise(_id("tile.unknown")),
        "for_units": _id("tile.for_units") if compute_units else pl.lit(""),
        "split_advice": pl.when(_splits_k())
        .then(_id("split.done"))
        .otherwise(_id("split.request")),
        "merged_n": merged_n,
        "merge_note": pl.when(merged_n.is_not_null()).then(_id("merge")).otherwise(pl.lit("")),
        "rows_advice": _rows_advice(compute_units),
        "narrower_note": _narrower_note(),
    }


def _id(key: str) -> pl.Expr:
    return pl.lit(SHAPES.id(key))


def _rows_advice(compute_units: int | None) -> pl.Expr:
    """Return the id of the message on another number of rows: for few and small tiles, or rounds of
    tiles that leave compute units idle."""
    if not compute_units:
        return pl.lit("")
    has_few = pl.col("output_tiles") <= FEW_ROUNDS * compute_units
    first, second = _tile_edges()
    is_small = has_few & (first * second < SMALL_TILE**2)
    is_uneven = _idle_share(compute_units) >= UNEVEN_ROWS_SHARE
    advice = pl.when(is_small).then(_id("rows.larger")).when(is_uneven).then(_id("rows.other"))
    return advice.otherwise(pl.lit(""))


def _idle_share(compute_units: int) -> pl.Expr:
    """Return the share of the capacity that the last round of output tiles leaves idle."""
    return pl.min_horizontal(
        *(1 - tiles / (compute_units * _rounds(tiles, compute_units)) for tiles in _output_tiles())
    )


def _narrower_note() -> pl.Expr:
    """Return the id of the message that suggests a narrower dtype supported by the hardware.

    A compute-bound kernel far below its current peak has more to gain from reaching that peak.
    """
    dtype = pl.col(C.dtype)
    is_far = (pl.col(C.bound) == "compute") & (
        pl.col(C.pct_roofline) < impact.BOTTLENECK_EFFICIENCY_PCT
    )
    return (
        pl.when("is_quantized")
        .then(_id("narrower.quantized"))
        .when(dtype.str.contains("fp32|fp64"))
        .then(_id("narrower.wide"))
        .when(is_far)
        .then(pl.lit(""))
        .otherwise(_id("narrower.8bit"))
    )


def _hypothesis(compute_units: int | None) -> dict[str, pl.Expr]:
    """Return the likely cause as the id of a message, and its values."""
    slowdown = impact.FULL_PCT / pl.col(C.pct_roofline)
    is_slow_batch = (
        (pl.col("b") >= TINY_BATCH) & _is_tiny() & (slowdown > TINY_SLOWDOWN) & slowdown.is_finite()
    )
    useful_share = pl.max_horizontal(*_useful_shares())
    is_compute = pl.col(C.bound) == "compute"
    causes = {"slow_batch": is_slow_batch}
    values = {"slowdown": slowdown, "useful_pct": impact.FULL_PCT * useful_share}
    if compute_units:
        idle_share = _idle_share(compute_units)
        is_uneven = is_compute & ~_splits_k() & (idle_share >= UNEVEN_SHARE)
        is_few = pl.col("output_tiles") <= compute_units
        causes |= {"few_tiles": is_uneven & is_few, "last_round": is_uneven}
        values["rounds"] = _rounds(pl.col("output_tiles"), compute_units)
        values["idle_pct"] = impact.FULL_PCT * idle_share
    causes["padded_tiles"] = is_compute & (useful_share <= 1 - UNEVEN_SHARE)
    first = pl.coalesce(pl.when(holds).then(_id(key)) for key, holds in causes.items())
    return {HYPOTHESIS: first, **values}


def _splits_k() -> pl.Expr:
    """Return whether the kernels of a row split K, by their names."""
    names = pl.col(C.kernels).list.eval(pl.element().struct.field(C.name).str.contains(SPLITS_K))
    return names.list.any().fill_null(value=False)


def _is_tiny() -> pl.Expr:
    return pl.max_horizontal("m", "n", "k") <= TINY_DIM


def _is_quantized() -> pl.Expr:
    by_name = pl.col(C.name).str.to_lowercase().str.contains(QUANTIZED_NAMES)
    return by_name | pl.col(C.dtype).str.contains(QUANTIZED_DTYPES).fill_null(value=False)


def _model_part() -> pl.Expr:
    part = first_match(pl.element(), MODEL_PARTS)
    of_modules = pl.col(C.module_path).list.eval(part).list.drop_nulls().list.last()
    return pl.coalesce(of_modules, first_match(pl.col(C.entry_point), MODEL_PARTS[:1]))


def _per_module() -> pl.Expr:
    """Return how often a product runs per run of another one under the same module, if a whole
    number."""
    path = module_classes()
    outer_len = (path.list.len().cast(pl.Int64) - 1).clip(0)
    module = path.list.head(outer_len).list.join("/")
    fewest = pl.col(C.operation_count).min().over(module)
    ratio = pl.col(C.operation_count) // fewest
    is_even = pl.col(C.operation_count) % fewest == 0
    return pl.when((outer_len > 0) & is_even & ratio.is_between(2, MAX_MERGED_PRODUCTS)).then(ratio)


def _output_tiles() -> tuple[pl.Expr, pl.Expr]:
    """Return the number of macro tiles that cover the output, for both orientations of the tile."""
    edges = _tile_edges()
    first, second = (
        pl.col("b") * _ceil_div("m", along_m) * _ceil_div("n", along_n)
        for along_m, along_n in (edges, edges[::-1])
    )
    return first, second


def _useful_shares() -> tuple[pl.Expr, pl.Expr]:
    """Return the share of all tiles that is output, for both orientations of the tile."""
    first, second = _tile_edges()
    output = pl.col("b") * pl.col("m") * pl.col("n")
    along, across = (output / (tiles * first * second) for tiles in _output_tiles())
    return along, across


def _tile_edges() -> tuple[pl.Expr, pl.Expr]:
    """Return the two edges of a macro tile over the output."""
    first, second = (
        pl.col("tile").str.extract(rf"^(?:\d+x){{{i}}}(\d+)").cast(pl.Int64) for i in (0, 1)
    )
    return first, second


def _rounds(tiles: pl.Expr, compute_units: int) -> pl.Expr:
    return (tiles + compute_units - 1) // compute_units


def _dtype(params: dict[str, object]) -> str | None:
    types = params.get("dtype_A_B")
    if not isinstance(types, list) or not types:
        return None
    return " x ".join(dict.fromkeys(short_dtype(str(name)) for name in types))


def _ceil_div(column: str, divisor: pl.Expr) -> pl.Expr:
    return (pl.col(column) + divisor - 1) // divisor
