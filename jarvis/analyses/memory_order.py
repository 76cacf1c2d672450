"""What differs in memory between the operands of a strided elementwise operator."""

import polars as pl

from jarvis.analyses.access import shared_run
from jarvis.core.literals import parse_literal
from jarvis.perf_models.dtypes import bytes_per_element
from jarvis.schemas.names import C
from jarvis.text.messages import MessageTable

VECTOR_BYTES = 16
"""Number of neighboring bytes that a thread can access at once."""

MESSAGES = MessageTable(
    "memory_order",
    {
        "reason.transposed": "its operands differ in memory order (strides {strides:joined  and "
        "}), so one of them is accessed with large strides",
        "reason.rows": "its operands differ in the order of their rows (strides {strides:joined  "
        "and }), which are {run_bytes} of contiguous memory each",
        "reason.gaps": "its operands are not contiguous (strides {strides:joined  and })",
        "kernel.transposed": "a tiled transpose accesses both operands in contiguous runs.",
        "kernel.rows": "all operands have contiguous rows of {run_bytes}, so {kernel} can access "
        f"{VECTOR_BYTES} bytes of a row per thread.",
        "kernel.gaps": "compare {kernel} with a copy of as much contiguous memory.",
    },
)


def memory_orders(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the bytes of a row that all operands share, and ids of messages, for each row.

    Columns: ``run_bytes``, 0 for a transposition and null without a common row;
    ``order_reason`` and ``order_kernel``, which apply to strided operands.
    """
    operands = rows.select(C.name, C.input_dims, C.input_strides, C.input_types)
    runs = [_run_bytes(*row) for row in operands.iter_rows()]
    return pl.DataFrame({"run_bytes": runs}, schema={"run_bytes": pl.Int64}).with_columns(
        order_reason=_by_order("reason"), order_kernel=_by_order("kernel")
    )


def _run_bytes(name: str, dims: str | None, strides: str | None, types: str | None) -> int | None:
    run = shared_run(name, dims, strides)
    sizes = [bytes_per_element(str(dtype)) for dtype in parse_literal(types) or ()]
    narrowest = min((size for size in sizes if size), default=None)
    return run if not run else narrowest and run * narrowest


def _by_order(text: str) -> pl.Expr:
    run_bytes = pl.col("run_bytes")
    return (
        pl.when(run_bytes == 0)
        .then(pl.lit(MESSAGES.id(f"{text}.transposed")))
        .when(run_bytes >= VECTOR_BYTES)
        .then(pl.lit(MESSAGES.id(f"{text}.rows")))
        .otherwise(pl.lit(MESSAGES.id(f"{text}.gaps")))
    )
