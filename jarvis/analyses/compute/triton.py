"""Triton: kernels that a compiler fused from framework operators, or that users wrote."""

import polars as pl
from pydantic import JsonValue

from jarvis.analyses.base import Advice, Analysis, CategoryData, Claim, Panel
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.name_patterns import first_match
from jarvis.schemas import TEXT, Column

KERNEL_TYPES = (
    ("pointwise", r"^triton_poi_"),
    ("reduction", r"^triton_red_"),
    ("persistent reduction", r"^triton_per_"),
)

ADVICE = {
    "compute": Advice(
        rule="bound by the compute peak",
        reason="the fused kernel stays below what its arithmetic allows",
        algorithmic="Compare it with the library operator for the same work, which is usually "
        "better tuned for matrix units.",
        kernel="Autotune block sizes and warps for {arguments}; a replay package reproduces it.",
    ),
    "memory": Advice(
        rule="bound by memory bandwidth",
        reason="a fused kernel should use most of the bandwidth",
        algorithmic="Let the compiler fuse more around it: remove graph breaks and dynamic shapes "
        "that split the fusion.",
        kernel="Autotune block sizes and warps for {arguments}, and check that loads are along the "
        "contiguous axis.",
    ),
}

DETAILS = (Column("kernel_type", "Type", TEXT, meaning="by the prefix that the compiler gives"),)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Type of each compiled kernel."""
    return rows.with_columns(kernel_type=first_match(pl.col("name"), KERNEL_TYPES, "other"))


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Rows by bound and by type."""
    rows = data.operations
    by_type = rows["kernel_type"].value_counts(name="rows").sort("kernel_type")
    return {
        "compute_bound_count": rows.filter(pl.col("bound") == "compute").height,
        "memory_bound_count": rows.filter(pl.col("bound") == "memory").height,
        "rows_by_type": dict(by_type.iter_rows()),
    }


ANALYSIS = Analysis(
    title="Triton",
    icon=":material/bolt:",
    claim=Claim(op_categories=("triton",), op_names=("*triton*",), order=70),
    checks=SHARED_CHECKS,
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=(Panel("roofline", "Roofline"), Panel("savings", "Largest savings at the target")),
)
