"""The tables ``fusion_chains`` and ``fusion_steps``: chains and epilogues."""

import polars as pl

from jarvis.perf_report.fusion.launch_order import LaunchOrder, step_rows
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.literals import tuples_text
from jarvis.schemas.names import C

_CHAIN = (C.scope_kind, C.scope_name, C.is_bounded, C.product_name, C.step_names)
"""Key columns of a chain."""

_PRODUCT = (C.product_name, C.product_dims, C.product_types, C.product_kernel)


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
            pl.col(C.has_data_flow).all(),
            pl.col(_PRODUCT[1:]).first(),
            **{
                C.instance_count: pl.len().cast(pl.Int64),
                C.scope_calls: pl.col("scope")
                .filter(pl.col("scope") >= 0)
                .n_unique()
                .cast(pl.Int64),
                C.kernel_count: pl.col(C.kernel_count).sum().cast(pl.Int64),
                C.kernel_time_us: microseconds(pl.col(C.busy_ns).sum()),
                C.product_time_us: microseconds(pl.col("product_ns").sum()),
                C.kept_count: pl.col("is_kept").sum().cast(pl.Int64),
                C.attention_count: feeds.sum().cast(pl.Int64),
                C.attention_time_us: microseconds(pl.col(C.busy_ns).filter(feeds).sum()),
                C.modelled_pct: 100 * pl.col(C.modelled_ns).sum() / pl.col(C.busy_ns).sum(),
                C.step_bytes: pl.col(C.step_bytes).sum(),
                C.fused_bytes: pl.when(pl.col(C.fused_bytes).null_count() == 0)
                .then(pl.col(C.fused_bytes).sum())
                .cast(pl.Float64),
                C.flops: pl.col(C.flops).sum(),
                C.compute: pl.col(C.compute).first(),
                C.input_dims: pl.col(C.input_dims).first(),
                C.example_uid: pl.col(C.source_uid).first(),
            },
        )
        .sort(C.kernel_time_us, C.example_uid, descending=[True, False])
        .with_columns(pl.int_range(1, pl.len() + 1).alias(C.chain))
        .with_columns(tuples_text(c) for c in (C.input_dims, C.product_dims, C.product_types))
    )
    return groups.drop("instance"), step_rows(placed, groups, C.chain)


def _instances(order: LaunchOrder, placed: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each instance, with the product before an epilogue."""
    instances = placed.group_by("instance", maintain_order=True).agg(
        pl.col(C.scope_kind, C.scope_name, C.is_bounded, C.has_data_flow, C.fused_bytes).first(),
        pl.col("scope", C.source_uid, C.input_dims, "product", "is_kept").first(),
        **{
            C.step_names: pl.col(C.name),
            C.kernel_count: pl.col(C.kernel_count).sum(),
            C.busy_ns: pl.col(C.busy_ns).sum(),
            C.modelled_ns: pl.col(C.busy_ns).filter(pl.col(C.exact_bytes).is_not_null()).sum(),
            C.step_bytes: pl.col(C.exact_bytes).sum(),
            C.flops: pl.col(C.exact_flops).sum(),
            C.compute: pl.col(C.compute_spec).sort_by(C.exact_flops, maintain_order=True).last(),
        },
    )
    places = instances["product"].drop_nulls()
    steps = order.steps[places]
    called = order.operations[steps["operation"]]
    products = pl.DataFrame(
        {
            "product": places,
            C.product_name: called[C.name],
            C.product_dims: called[C.input_dims],
            C.product_types: called[C.input_types],
            C.product_kernel: steps[C.kernel],
            "product_ns": steps[C.busy_ns],
        }
    )
    return instances.join(products, on="product", how="left", maintain_order="left")
