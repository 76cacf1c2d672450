"""The kernels of both sides: by name, and by pair of operations."""

import polars as pl

from jarvis.comparison.aggregates import found_in, with_difference
from jarvis.comparison.operations import Paired
from jarvis.comparison.sides import Role


def launched(operations: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each kernel of each operation: ``kernel, launches, us``, other columns."""
    return (
        operations.explode("kernels", empty_as_null=False)
        .drop_nulls("kernels")
        .with_columns(
            kernel=pl.col("kernels").struct.field("name"),
            launches=pl.col("kernels").struct.field("count").cast(pl.Float64),
            us=pl.col("kernels").struct.field("total_us"),
        )
        .drop("kernels")
    )


def kernels(paired: Paired) -> pl.DataFrame:
    """Return GPU work by kernel name, most time of the target first.

    No rows if the kernels of a side are not known.
    """
    of = {
        role: launched(paired.rows[role])
        .group_by("kernel")
        .agg(
            pl.col("launches").sum().cast(pl.Int64).alias(f"{role.value}_launches"),
            (pl.col("us").sum() / 1e3).alias(f"{role.value}_ms"),
        )
        for role in Role
    }
    both = of[Role.TARGET].join(of[Role.REFERENCE], on="kernel", how="full", coalesce=True)
    if any(rows.is_empty() for rows in of.values()):
        both = both.clear()
    per_launch = {
        f"{role.value}_us_per_launch": pl.when(pl.col(f"{role.value}_launches") > 0).then(
            1e3 * pl.col(f"{role.value}_ms") / pl.col(f"{role.value}_launches")
        )
        for role in Role
    }
    return (
        with_difference(found_in(both, "launches"))
        .with_columns(**per_launch)
        .sort("target_ms", "reference_ms", "kernel", descending=[True, True, False])
    )


def lowering(paired: Paired, operations: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of each pair on each side, longest first; ``operations`` are the pairs."""
    share = pl.col("share")
    work = (
        launched(paired.members)
        .group_by("pair", "side", "kernel")
        .agg(
            launches_per_call=(share * pl.col("launches")).sum() / pl.col("calls").first(),
            us_per_call=(share * pl.col("us")).sum() / pl.col("calls").first(),
        )
    )
    time = pl.col("us_per_call")
    sides = pl.col("side").n_unique().over("pair", "kernel")
    return (
        work.join(operations.select("pair", "row", "name", "input_dims", "input_types"), on="pair")
        .with_columns(
            percent=100 * time / time.sum().over("pair", "side"),
            found_in=pl.when(sides > 1).then(pl.lit("both")).otherwise("side"),
        )
        .sort("row", "side", "us_per_call", "kernel", descending=[False, True, True, False])
    )


def main_kernels(lowered: pl.DataFrame) -> pl.DataFrame:
    """Return ``pair`` with its main kernels, launches per call, and whether the names are equal."""
    is_target, launches = pl.col("side") == Role.TARGET.value, pl.col("launches_per_call")
    return lowered.group_by("pair").agg(
        kernel=pl.col("kernel").filter(is_target).first(),
        reference_kernel=pl.col("kernel").filter(~is_target).first(),
        same_kernels=(pl.col("found_in") == "both").all(),
        launches_per_call=launches.filter(is_target).sum(),
        reference_launches_per_call=launches.filter(~is_target).sum(),
    )
