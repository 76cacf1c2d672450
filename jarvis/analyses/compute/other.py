"""Other: everything that no other analysis claims, so that no operation is lost."""

import polars as pl
from pydantic import JsonValue

from jarvis.analyses.base import Analysis, CategoryData, Claim, Panel
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.name_patterns import first_match
from jarvis.schemas import TEXT, Column

SUB_CATEGORIES = (
    ("communication", r"all_?reduce|collective|nccl|rccl|broadcast|all_?gather|reduce_scatter"),
    ("graph", r"graph"),
    ("indexing", r"index|gather|scatter|embedding|masked|where|topk|sort|slice"),
    ("concatenation", r"\bcat\b|::cat|stack|split"),
)

DETAILS = (Column("sub_category", "Type", TEXT, meaning="what the name suggests"),)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """What kind of operator each row seems to be."""
    sub_category = first_match(pl.col("name"), SUB_CATEGORIES, "miscellaneous")
    return rows.with_columns(sub_category=sub_category)


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Rows and GPU time by type."""
    by_type = data.operations.group_by("sub_category").agg(
        rows=pl.len(), time_ms=pl.col("kernel_time_us").sum() / 1000
    )
    return {
        str(row.pop("sub_category")): row
        for row in by_type.sort("sub_category").iter_rows(named=True)
    }


ANALYSIS = Analysis(
    title="Other",
    icon=":material/category:",
    claim=Claim(op_categories=("other",), rest=True),
    checks=SHARED_CHECKS,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=(
        Panel("bars", "Time by operator", x="kernel_time_us", y="name", color="sub_category"),
        Panel("savings", "Largest savings at the target"),
    ),
)
