"""The table ``inference_phases``: time, tokens and rates of the steps of each phase."""

import polars as pl

from jarvis.schemas.names import C

TOP_BLOCKS = 3


def inference_phases(steps: pl.DataFrame, layers: pl.DataFrame) -> pl.DataFrame:
    """Return the phases of the steps (schema: ``inference_phases``), most time first.

    The parts of diffusion steps are phases of their own; their time is in that of the steps, too.

    Args:
        steps: Result of ``inference_steps``.
        layers: The table ``inference_layers``, for the blocks with most time.
    """
    time = pl.col(C.step_time_ms)
    whole_ms = steps.filter(pl.col(C.part).is_null())[C.step_time_ms].sum()
    tokens = pl.col(C.ctx_tokens) + pl.col(C.gen_tokens)

    def mean(rate: str) -> pl.Expr:
        """Return a share of the peak over all steps; null if one is not known."""
        known = pl.col(rate).null_count() == 0
        return pl.when(known).then((pl.col(rate) * time).sum() / time.sum())

    is_counted = tokens.null_count() == 0
    rows = (
        steps.filter(time.is_not_null())
        .group_by(C.phase, maintain_order=True)
        .agg(
            **{
                C.step_count: pl.len(),
                C.time_ms: time.sum(),
                C.share_pct: 100 * time.sum() / whole_ms,
                C.tokens: pl.when(is_counted).then(tokens.sum()),
                C.tokens_per_s: pl.when(is_counted).then(1e3 * tokens.sum() / time.sum()),
                C.mean_ms: time.mean(),
                C.p50_ms: time.median(),
                C.p95_ms: time.quantile(0.95, "linear"),
                C.mfu_pct: mean(C.mfu_pct),
                C.mbu_pct: mean(C.mbu_pct),
            }
        )
    )
    return rows.join(
        _top_blocks(layers), on=C.phase, how="left", nulls_equal=True, maintain_order="left"
    ).sort(C.time_ms, descending=True, maintain_order=True)


def _top_blocks(layers: pl.DataFrame) -> pl.DataFrame:
    """Return ``phase, top_blocks``: the blocks with most GPU time and their shares of it."""
    share = pl.col(C.share_pct)
    return (
        layers.group_by(C.phase, C.block)
        .agg(share.sum())
        .sort(C.share_pct, C.block, descending=[True, False])
        .group_by(C.phase, maintain_order=True)
        .agg(
            pl.format("{} {}%", C.block, share.round(1))
            .head(TOP_BLOCKS)
            .str.join(", ")
            .alias(C.top_blocks)
        )
    )
