"""Which step of an inference engine encloses an op: the text that its attention models read."""

import polars as pl

from jarvis.perf_models.step_annotation import NO_ANNOTATION

ANNOTATED_PREFIX = "vllm::unified_attention_with_output"
"""Ops whose names begin so are given the annotation around them."""

ANNOTATION_SCHEMA = {"uid": pl.Int64, "annotation": pl.String}


def step_annotations(calls: pl.DataFrame, annotations: pl.DataFrame) -> pl.DataFrame:
    """``uid, annotation`` of the calls that are given one.

    Both tables have ``name, ts_ns, dur_ns``, the calls ``uid`` too. Of the annotations that begin
    no later than the call and end after it, the earliest counts, whatever its thread; "NA" if
    there is none.
    """
    ops = calls.filter(pl.col("name").str.starts_with(ANNOTATED_PREFIX)).drop_nulls(
        ["ts_ns", "dur_ns"]
    )
    end = pl.col("ts_ns") + pl.col("dur_ns")
    steps = (
        annotations.drop_nulls(["ts_ns", "dur_ns"])
        .sort("ts_ns", maintain_order=True)
        .select("ts_ns", reached=end.cum_max(), annotation="name")
    )
    # The ends reached so far only grow: the first that lies beyond a call is found by bisection.
    first = steps["reached"].search_sorted(ops.select(end).to_series(), side="right")
    found = (
        steps.with_row_index("step")
        .select("step", "annotation", step_ts_ns="ts_ns")
        .cast({"step": pl.UInt32})
    )
    return (
        ops.select("uid", "ts_ns", step=first.cast(pl.UInt32))
        .join(found, on="step", how="left", maintain_order="left")
        .select(
            "uid",
            annotation=pl.when(pl.col("step_ts_ns") <= pl.col("ts_ns"))
            .then("annotation")
            .otherwise(pl.lit(NO_ANNOTATION)),
        )
    )
