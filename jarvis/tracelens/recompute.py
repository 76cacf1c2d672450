"""Operators that run a second time because of activation checkpointing."""

from dataclasses import replace

import polars as pl

from jarvis.perf_report.work import GpuWork
from jarvis.trace import Trace

_CHECKPOINT_FILE = "torch/utils/checkpoint.py"
_RECOMPUTING_FUNCTION = "recompute_fn"


def recomputed_uids(trace: Trace) -> pl.Series:
    """Return the host events below a recomputing Python frame of the same thread."""
    name = pl.col("name")
    roots = trace.python_functions.filter(
        name.str.contains(_CHECKPOINT_FILE, literal=True)
        & name.str.contains(_RECOMPUTING_FUNCTION, literal=True)
    )["uid"]
    reached = pl.when(pl.col("uid").is_in(roots.implode())).then("subtree_end").otherwise(0)
    return trace.python_call_tree.sort("order").filter(reached.cum_max() > pl.col("order"))["uid"]


def marked_work(work: GpuWork, recomputed: pl.Series) -> GpuWork:
    """Return GPU work whose events have ``is_recompute`` of the call that launched them."""
    is_recompute = pl.col("launch_uid").is_in(recomputed.implode()).fill_null(False)
    return replace(work, events=work.events.with_columns(is_recompute=is_recompute))
