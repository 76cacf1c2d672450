"""The calls that launch GPU work, in launch order: what can be fused, and inside which frame.

A step is a row of the unified calls. Steps that a fused kernel could contain are told from those
that end a chain: matrix products, convolutions, attention, kernels that are fused already,
communication, copies. A frame (module, function or operator) of which all steps can be fused is
their scope; a step without one has the nearest frame that holds other steps too.
"""

import polars as pl

from jarvis.perf_report.calls import HostCalls
from jarvis.perf_report.fusion_scopes import scopes
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.literals import tuples_text
from jarvis.perf_report.unified import UnifiedCalls
from jarvis.perf_report.work import COMMUNICATION, COMPUTE

GEMM = "GEMM"

_FUSIBLE_CATEGORIES = ("elementwise", "reduce")
# Normalizations of rows only: batch statistics need all data before the first result.
_FUSIBLE_OPS = (
    r"^aten::((native_)?layer_norm|rms_norm|cat|stack|masked_fill_?|native_dropout(_backward)?"
    r"|_?(safe_|log_)?softmax|_(log_)?softmax_backward_data)$"
)
_FUSED = r"(?i)triton|flash|fmha|attn_(fwd|bwd)|paged_attention|_and_mul|fused_|foreach"
_DROPOUT = "fused_dropout"  # fused with its random numbers, not with its neighbours


def fusion_steps(
    of: UnifiedCalls, gpu_events: pl.DataFrame, tree: pl.DataFrame, host_calls: HostCalls
) -> pl.DataFrame:
    """One row for each step in launch order, thread by thread.

    ``of``: ``grouped`` unified calls, which hold no communication: that of ``gpu_events``
    (``GpuWork.events``) makes steps of its own, with little more than a place. ``tree`` and
    ``host_calls``: with Python functions where the trace has them.

    Columns: those of the calls, ``order``, ``thread``, ``stream``, ``kernel_names``, ``can_fuse``,
    ``scope`` (position in the tree, -1 for none), ``is_bounded`` (the scope holds nothing else),
    ``scope_kind``, ``scope_name``.
    """
    communication = gpu_events.filter(pl.col("kind") == COMMUNICATION).select(
        source_uid="launch_uid"
    )
    calls = of.calls.join(_launched(of.work), on="uid").with_columns(can_fuse=_can_fuse())
    steps = pl.concat([calls, communication.unique()], how="diagonal")
    places = tree.filter(
        pl.col("uid").is_in(steps["source_uid"].unique().implode()) & ~pl.col("is_dropped")
    )
    steps = (
        steps.join(places.select("order", source_uid="uid"), on="source_uid")
        .with_columns(pl.col("can_fuse").fill_null(value=False))
        .sort("order", "uid")
    )
    threads = host_calls.select(steps["source_uid"].unique(), "pid", "tid")
    threads = threads.select(source_uid="uid", thread=pl.struct("pid", "tid").rank("dense"))
    steps = steps.join(threads, on="source_uid", how="left", maintain_order="left")
    return steps.hstack(scopes(steps.select("order", "can_fuse"), tree, host_calls))


def placed_steps(steps: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """The rows of ``steps`` that ``members`` (``step, instance, ...``) name, in launch order.

    Texts are strings.
    """
    texts = ("name", "input_dims", "input_types", "compute_spec")
    return (
        steps.with_row_index("step")
        .with_columns(pl.col("step").cast(pl.Int64), *(pl.col(c).cast(pl.String) for c in texts))
        .join(members, on="step")
        .sort("step")
    )


def step_rows(placed: pl.DataFrame, groups: pl.DataFrame, group: str) -> pl.DataFrame:
    """A row for each operation at each position of a group of instances.

    ``groups``: the number ``group`` and the ``instance`` list of each; ``placed``:
    ``placed_steps``.
    """
    return (
        placed.drop(group, strict=False)  # calls have groups of their own
        .join(
            groups.select(group, "instance").explode("instance"),
            on="instance",
            maintain_order="left",
        )
        .group_by(group, "position", "operation_uid", maintain_order=True)
        .agg(
            pl.col("name", "input_dims", "input_types").first(),
            kernel=pl.col("kernel_names").first().list.first(),
            calls=pl.len().cast(pl.Int64),
            kernel_time_us=microseconds(pl.col("busy_ns").sum()),
            bytes=pl.col("exact_bytes").first(),
        )
        .sort(group, "position", "operation_uid")
        .with_columns(tuples_text("input_dims"), tuples_text("input_types"))
    )


def _launched(work: pl.DataFrame) -> pl.DataFrame:
    """``uid, kernel_names, stream, is_compute`` of the calls with GPU work."""
    return (
        work.unique(["owner_uid", "gpu_uid"], maintain_order=True)
        .group_by(uid="owner_uid")
        .agg(
            kernel_names="name",
            stream=pl.col("stream").first(),
            is_compute=(pl.col("kind") == COMPUTE).all(),
        )
    )


def _can_fuse() -> pl.Expr:
    name, kernels = pl.col("name").cast(pl.String), pl.col("kernel_names").list.join("\n")
    is_known = pl.col("op_category").cast(pl.String).is_in(_FUSIBLE_CATEGORIES)
    kernels = kernels.str.replace_all(_DROPOUT, "", literal=True)
    is_fused = name.str.contains(_FUSED) | kernels.str.contains(_FUSED)
    has_shapes = pl.col("input_dims").is_not_null()
    return (
        pl.col("is_compute")
        & has_shapes
        & ~pl.col("is_synthetic")
        & (is_known | name.str.contains(_FUSIBLE_OPS))
        & ~is_fused
    )
