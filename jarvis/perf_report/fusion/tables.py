"""The tables ``fusion_chains`` and ``fusion_steps``: chains and epilogues."""

import polars as pl

from jarvis.perf_report.fusion.launch_order import LaunchOrder, step_rows
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.literals import tuples_text

_CHAIN = ("scope_kind", "scope_name", "is_bounded", "product_name", "step_names")
"""Key columns of a chain."""

_PRODUCT = ("product_name", "product_dims", "product_types", "product_kernel")


def fusion_tables(
    order: LaunchOrder, chains: pl.DataFrame, epilogues: pl.DataFrame, feeding: pl.Series
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables ``fusion_chains``, most time first, and ``fusion_steps``.

    Args:
        chains: ``chain_members``.
        epilogues: ``epilogue_members``.
        feeding: Instances of chains that feed attention.
    """
    placed = order.placed(pl.concat([chains, epilogues], how="diagonal"))
    feeds = pl.col("instance").is_in(feeding.implode())
    groups = (
        _instances(order, placed)
        .group_by(_CHAIN, maintain_order=True)
        .agg(
            pl.col("instance"),
            pl.col("has_data_flow").all(),
            pl.col(_PRODUCT[1:]).first(),
            instance_count=pl.len().cast(pl.Int64),
            kernel_count=pl.col("kernel_count").sum().cast(pl.Int64),
            kernel_time_us=microseconds(pl.col("busy_ns").sum()),
            product_time_us=microseconds(pl.col("product_ns").sum()),
            kept_count=pl.col("is_kept").sum().cast(pl.Int64),
            attention_count=feeds.sum().cast(pl.Int64),
            attention_time_us=microseconds(pl.col("busy_ns").filter(feeds).sum()),
            modelled_pct=100 * pl.col("modelled_ns").sum() / pl.col("busy_ns").sum(),
            step_bytes=pl.col("step_bytes").sum(),
            fused_bytes=pl.when(pl.col("fused_bytes").null_count() == 0)
            .then(pl.col("fused_bytes").sum())
            .cast(pl.Float64),
            flops=pl.col("flops").sum(),
            compute=pl.col("compute").first(),
            input_dims=pl.col("input_dims").first(),
            example_uid=pl.col("source_uid").first(),
        )
        .sort("kernel_time_us", "example_uid", descending=[True, False])
        .with_columns(chain=pl.int_range(1, pl.len() + 1))
        .with_columns(tuples_text(c) for c in ("input_dims", "product_dims", "product_types"))
    )
    return groups.drop("instance"), step_rows(placed, groups, "chain")


def _instances(order: LaunchOrder, placed: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each instance, with the product before an epilogue."""
    instances = placed.group_by("instance", maintain_order=True).agg(
        pl.col("scope_kind", "scope_name", "is_bounded", "has_data_flow", "fused_bytes").first(),
        pl.col("source_uid", "input_dims", "product", "is_kept").first(),
        step_names="name",
        kernel_count=pl.col("kernel_count").sum(),
        busy_ns=pl.col("busy_ns").sum(),
        modelled_ns=pl.col("busy_ns").filter(pl.col("exact_bytes").is_not_null()).sum(),
        step_bytes=pl.col("exact_bytes").sum(),
        flops=pl.col("exact_flops").sum(),
        compute=pl.col("compute_spec").sort_by("exact_flops", maintain_order=True).last(),
    )
    places = instances["product"].drop_nulls()
    steps = order.steps[places]
    called = order.operations[steps["operation"]]
    products = pl.DataFrame(
        {
            "product": places,
            "product_name": called["name"],
            "product_dims": called["input_dims"],
            "product_types": called["input_types"],
            "product_kernel": steps["kernel"],
            "product_ns": steps["busy_ns"],
        }
    )
    return instances.join(products, on="product", how="left", maintain_order="left")
