"""Tables of the Compare page, one for each kind of difference."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from jarvis.charts import Columns, columns_of
from jarvis.comparison import Comparison
from jarvis.dashboard.pages.compare.charts import OPERATION_COLUMNS
from jarvis.schemas import TABLES

MATCHED, ONLY_TARGET, ONLY_REFERENCE = "matched", "only_target", "only_reference"


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """A table: label, rows, columns, their order, default sort column and description.

    ``key`` is the column with the row ids of the URL; None if rows cannot be selected.
    """

    label: str
    rows: Callable[[Comparison], pl.DataFrame]
    columns: Columns
    names: tuple[str, ...]
    order: str
    about: str
    key: str | None = None


_TIMES = ("target_ms", "reference_ms", "difference_ms", "difference_pct")
_RATIOS = ("time_ratio", "expected_ratio")
_EXPECTED_RANGE = ("expected_ratio_least", "expected_ratio_most")


def _lowering(comparison: Comparison) -> pl.DataFrame:
    """Return the kernels of each operation, with its time and category."""
    own = comparison.operations.select("pair", "category", "target_ms")
    return comparison.lowering.join(own, on="pair", maintain_order="left")


def _alone(side: str, other: str, rows: Callable[[Comparison], pl.DataFrame]) -> ComparisonTable:
    return ComparisonTable(
        f"Only in {side}",
        rows,
        columns_of(TABLES["comparison_unmatched"]),
        (
            *("name", "input_dims", "time_ms", "calls", "percent_of_compute", "category"),
            *("bound", "kernel", "place"),
        ),
        "time_ms",
        f"Operations of the {side} that have no counterpart on the {other}.",
        "uid",
    )


VIEWS: Mapping[str, ComparisonTable] = {
    MATCHED: ComparisonTable(
        "Matched operations",
        lambda comparison: comparison.operations,
        OPERATION_COLUMNS,
        (
            *("outcome", "name", "arguments", "unexplained_ms", *_TIMES, *_RATIOS),
            *("target_us_per_call", "reference_us_per_call", "target_calls", "reference_calls"),
            *("percent_of_compute", "attainable_ms", "bound", "reference_bound"),
            *("efficiency_pct", "reference_efficiency_pct", "matched_by", "reference_name"),
            *("kernel", "reference_kernel", "work_ratio", *_EXPECTED_RANGE),
        ),
        "unexplained_ms",
        "Operations of both sides. Select a row for its kernels, the calculation of the expected "
        "time, and links to its category page.",
        "pair",
    ),
    ONLY_TARGET: _alone("target", "reference", lambda comparison: comparison.only_in_target),
    ONLY_REFERENCE: _alone("reference", "target", lambda comparison: comparison.only_in_reference),
    "kernels": ComparisonTable(
        "Kernels",
        lambda comparison: comparison.kernels,
        columns_of(TABLES["comparison_kernels"]),
        (
            *("kernel", "found_in", *_TIMES, "target_launches", "reference_launches"),
            *("target_us_per_launch", "reference_us_per_launch"),
        ),
        "target_ms",
        "GPU work by kernel name. Libraries of different vendors have different kernel names, so "
        "most rows are on one side only.",
    ),
    "lowering": ComparisonTable(
        "Kernels of each operation",
        _lowering,
        columns_of(TABLES["comparison_operations"], TABLES["comparison_lowering"]),
        (
            *("name", "input_dims", "target_ms", "side", "kernel", "found_in"),
            *("launches_per_call", "us_per_call", "percent"),
        ),
        "target_ms",
        "Kernels that an operation with these shapes launches on each side.",
    ),
    "modules": ComparisonTable(
        "Modules",
        lambda comparison: comparison.modules,
        columns_of(TABLES["comparison_modules"]),
        ("module", "path", "found_in", *_TIMES, "target_calls", "reference_calls"),
        "target_ms",
        "Time by module of the model. A module contains those below it, so the rows do not add up.",
    ),
    "collectives": ComparisonTable(
        "Collectives",
        lambda comparison: comparison.collectives,
        columns_of(TABLES["comparison_collectives"]),
        (
            *("collective", "dtype", "group_size", "message_mb", "found_in"),
            *(*_TIMES, "target_count", "reference_count"),
        ),
        "target_ms",
        "Communication by kind, element type, group size and message. The time of a collective "
        "includes waiting for other ranks.",
    ),
}
