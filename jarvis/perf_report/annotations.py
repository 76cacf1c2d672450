"""Find the inference-engine step around an op; attention models read its annotation."""

import polars as pl

from jarvis.perf_models.step_annotation import NO_ANNOTATION
from jarvis.schemas.names import C

ANNOTATED_PREFIX = "vllm::unified_attention_with_output"
"""Name prefix of ops that get the annotation around them."""

ANNOTATION_SCHEMA = {C.uid: pl.Int64, "annotation": pl.String}


def step_annotations(calls: pl.DataFrame, annotations: pl.DataFrame) -> pl.DataFrame:
    """Return ``uid, annotation`` of the calls with ANNOTATED_PREFIX.

    The annotation is the earliest one, on any thread, that starts no later than the call and ends
    after it; "NA" if there is none.

    Args:
        calls: ``uid, name, ts_ns, dur_ns``.
        annotations: ``name, ts_ns, dur_ns``.
    """
    ops = calls.filter(pl.col(C.name).str.starts_with(ANNOTATED_PREFIX)).drop_nulls(
        [C.ts_ns, C.dur_ns]
    )
    end = pl.col(C.ts_ns) + pl.col(C.dur_ns)
    steps = (
        annotations.drop_nulls([C.ts_ns, C.dur_ns])
        .sort(C.ts_ns, maintain_order=True)
        .select(C.ts_ns, reached=end.cum_max(), annotation=C.name)
    )
    # The running maximum of ends is sorted, so bisection finds the first end after a call.
    first = steps["reached"].search_sorted(ops.select(end).to_series(), side="right")
    candidates = (
        steps.with_row_index("step")
        .select("step", "annotation", step_ts_ns=C.ts_ns)
        .cast({"step": pl.UInt32})
    )
    return (
        ops.select(C.uid, C.ts_ns, step=first.cast(pl.UInt32))
        .join(candidates, on="step", how="left", maintain_order="left")
        .select(
            C.uid,
            annotation=pl.when(pl.col("step_ts_ns") <= pl.col(C.ts_ns))
            .then("annotation")
            .otherwise(pl.lit(NO_ANNOTATION)),
        )
    )
