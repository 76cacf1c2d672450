"""The calls that launch GPU work, in launch order: which can be fused, and their scopes.

A step is a row of the unified calls. Matrix products, convolutions, attention, fused kernels,
communication and copies cannot be fused and end a chain. The scope of a step is a frame (module,
function or operator) with only fusible steps, else the nearest frame with other steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson
import polars as pl

from jarvis.perf_report.call_tree.frames import NONE, Marked, call_frames, marked
from jarvis.perf_report.calls import HostCalls
from jarvis.perf_report.fusion.data_flow import Traffic, traffic
from jarvis.perf_report.fusion.scopes import SEQUENCE, scope_labels, scopes
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.literals import tuples_text
from jarvis.perf_report.unified import UnifiedCalls
from jarvis.perf_report.work import COMMUNICATION, COMPUTE
from jarvis.schemas.names import C

GEMM, ELEMENTWISE = "GEMM", "elementwise"

_ATTENTION = ("SDPA_fwd", "InferenceAttention")
_FUSIBLE_CATEGORIES = (ELEMENTWISE, "reduce")
# Normalizations of rows only: batch statistics need all data before the first result.
_FUSIBLE_OPS = (
    r"^aten::((native_)?layer_norm|rms_norm|cat|stack|masked_fill_?|native_dropout(_backward)?"
    r"|_?(safe_|log_)?softmax|_(log_)?softmax_backward_data)$"
)
_FUSED = r"(?i)triton|flash|fmha|attn_(fwd|bwd)|paged_attention|_and_mul|fused_|foreach"
_DROPOUT = "fused_dropout"  # fused with its random numbers, not with its neighbors

_KINDS = ("can_fuse", "is_product", "is_attention", "is_elementwise")
_OF_CALL = (C.busy_ns, C.exact_flops, C.exact_bytes, C.compute_spec)
_OF_OPERATION = (C.name, C.input_dims, C.input_types, C.params)


class Call(NamedTuple):
    """Name, shapes and dtypes of a step, and parameters of its perf model; the last three as JSON
    text."""

    name: str
    input_dims: str
    input_types: str | None
    params: str | None

    @property
    def traffic(self) -> Traffic:
        """Operands and result shapes."""
        return traffic(self.name, self.input_dims, self.input_types)


def product_sizes(params: str | None) -> tuple[int, int, int, int] | None:
    """Return batch, M, N and K of a matrix product, or None if not all are known."""
    sizes = orjson.loads(params) if params else {}
    try:
        return int(sizes.get("B", 1)), int(sizes["M"]), int(sizes["N"]), int(sizes["K"])
    except (KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True)
class LaunchOrder:
    """Steps in launch order by thread, with their positions in the tree.

    ``steps``: ``source_uid, busy_ns, exact_flops, exact_bytes, compute_spec, stream, thread,
    kernel`` (the longest), ``kernel_count, can_fuse, is_product, is_attention, is_elementwise``;
    ``order``, its position in the tree; ``operation``, a row of ``operations`` (``operation_uid``
    and the fields of ``Call``), -1 for communication, for which most columns are null; ``scope``
    (position in the tree, or -1) and ``is_bounded`` (the scope has only fusible steps). Steps of
    one operation are equal calls. ``marks``: the steps in the tree.
    """

    steps: pl.DataFrame
    operations: pl.DataFrame
    marks: Marked
    host_calls: HostCalls

    @property
    def calls(self) -> list[Call]:
        """The call of each operation."""
        return [Call(*row) for row in self.operations.select(_OF_OPERATION).iter_rows()]

    def placed(self, of: pl.DataFrame) -> pl.DataFrame:
        """Return the steps of ``of`` (``members``), in launch order, with their calls and
        ``scope_kind, scope_name``."""
        of = of.sort("step")
        rows = self.steps[of["step"]].hstack(of)
        called = self.operations[rows["operation"]]
        places = rows["scope"].unique().to_numpy()
        labels = scope_labels(self.marks, places[places >= 0], self.host_calls)
        return (
            rows.hstack(called)
            .join(labels, on="scope", how="left", maintain_order="left")
            .with_columns(pl.col(C.scope_kind).fill_null(SEQUENCE))
        )


def launch_order(
    of: UnifiedCalls, gpu_events: pl.DataFrame, tree: pl.DataFrame, host_calls: HostCalls
) -> LaunchOrder:
    """Return the steps of a trace.

    Args:
        of: ``grouped`` unified calls, which have no communication.
        gpu_events: ``GpuWork.events``; communication in them becomes separate steps.
        tree: Call tree, with Python functions if the trace has them.
        host_calls: Host calls, with Python functions if the trace has them.
    """
    communication = (
        gpu_events.filter(pl.col(C.kind) == COMMUNICATION)
        .select(pl.col(C.launch_uid).alias(C.source_uid))
        .drop_nulls()
        .unique()
    )
    operations = of.calls.filter(pl.col(C.uid) == pl.col(C.operation_uid))
    calls = (
        of.calls.select(C.uid, C.source_uid, C.operation_uid, *_OF_CALL)
        .join(_launched(of.work), on=C.uid)
        .join(_kinds(operations), on=C.operation_uid, maintain_order="left")
        .with_columns(pl.col("can_fuse") & pl.col("is_compute") & ~pl.col("is_fused"))
        .drop(C.operation_uid, "is_compute", "is_fused")
    )
    steps = pl.concat([calls, communication], how="diagonal").with_columns(
        pl.col("operation").fill_null(NONE),
        *(pl.col(flag).fill_null(value=False) for flag in _KINDS),
    )
    frames = call_frames(tree)
    order = frames.places(steps[C.source_uid].to_numpy())
    is_placed = (order >= 0) & ~frames.is_dropped[order]
    steps = steps.with_columns(order=order).filter(is_placed)
    steps = steps.sort("order", C.uid, maintain_order=True)
    at = steps["order"].to_numpy()
    marks = marked(frames, at)
    scope, is_bounded = scopes(marks, at, steps["can_fuse"].to_numpy(), host_calls)
    return LaunchOrder(
        steps=steps.with_columns(
            **{
                C.thread: _threads(steps[C.source_uid], host_calls),
                "scope": pl.Series(scope),
                C.is_bounded: pl.Series(is_bounded),
            },
        ),
        operations=operations.select(C.operation_uid, *(_text(c) for c in _OF_OPERATION)),
        marks=marks,
        host_calls=host_calls,
    )


def members(
    instances: Sequence[tuple[Any, ...]], facts: Mapping[str, type[pl.DataType]]
) -> pl.DataFrame:
    """Return ``step, instance, position`` and ``facts`` of each step of some instances.

    Args:
        instances: Row of the first step (the id of the instance), number of steps, and the values
            of ``facts``, for each instance.
        facts: Names and dtypes of additional columns.
    """
    schema: dict[str, type[pl.DataType]] = {"instance": pl.Int64, "length": pl.Int64, **facts}
    return (
        pl.DataFrame(instances, schema=schema, orient="row")
        .filter(pl.col("length") > 0)
        .with_columns(pl.int_ranges(0, "length").alias(C.position))
        .explode(C.position)
        .select("instance", C.position, *facts, step=pl.col("instance") + pl.col(C.position))
    )


def step_rows(placed: pl.DataFrame, groups: pl.DataFrame, group: str) -> pl.DataFrame:
    """Return a row for each operation at each position of a group of instances.

    Args:
        placed: Result of ``LaunchOrder.placed``.
        groups: The number ``group`` and the ``instance`` list of each group.
        group: Name of the number column.
    """
    return (
        placed.join(
            groups.select(group, "instance").explode("instance"),
            on="instance",
            maintain_order="left",
        )
        .group_by(group, C.position, C.operation_uid, maintain_order=True)
        .agg(
            pl.col(C.name, C.input_dims, C.input_types, C.kernel).first(),
            pl.len().cast(pl.Int64).alias(C.calls),
            microseconds(pl.col(C.busy_ns).sum()).alias(C.kernel_time_us),
            pl.col(C.exact_bytes).first().alias(C.bytes),
        )
        .sort(group, C.position, C.operation_uid)
        .with_columns(tuples_text(C.input_dims), tuples_text(C.input_types))
    )


def _threads(source_uids: pl.Series, host_calls: HostCalls) -> pl.Series:
    """Return a thread number for each host call."""
    without_python = replace(host_calls, python_functions=None)
    threads = without_python.select(source_uids.unique(), C.pid, C.tid).select(
        **{
            C.source_uid: pl.col(C.uid),
            C.thread: pl.col(C.pid).to_physical().cast(pl.Int64) * 2**32
            + pl.col(C.tid).to_physical(),
        },
    )
    return source_uids.to_frame().join(threads, on=C.source_uid, how="left", maintain_order="left")[
        C.thread
    ]


def _launched(work: pl.DataFrame) -> pl.DataFrame:
    """Return ``uid, kernel, kernel_count, stream, is_compute, is_fused`` of calls with GPU work."""
    names = work[C.name].unique()
    fused = names.filter(names.str.replace_all(_DROPOUT, "", literal=True).str.contains(_FUSED))
    return (
        work.select(
            C.gpu_uid,
            C.name,
            C.stream,
            C.dur_ns,
            pl.col(C.owner_uid).alias(C.uid),
            is_compute=pl.col(C.kind) == COMPUTE,
            is_fused=pl.col(C.name).is_in(fused.implode()),
        )
        .group_by(C.uid)
        .agg(
            pl.col(C.stream).first(),
            pl.col("is_compute").all(),
            pl.col("is_fused").any(),
            pl.col(C.name).get(pl.col(C.dur_ns).arg_max()).alias(C.kernel),
            pl.col(C.gpu_uid).n_unique().alias(C.kernel_count),
        )
        .sort(C.uid)
    )


def _kinds(operations: pl.DataFrame) -> pl.DataFrame:
    """Return ``operation_uid``, its row ``operation`` and the flags of _KINDS."""
    name, category = _text(C.name), _text(C.op_category)
    has_shapes = pl.col(C.input_dims).is_not_null()
    is_known = category.is_in(_FUSIBLE_CATEGORIES) | name.str.contains(_FUSIBLE_OPS)
    return operations.select(
        C.operation_uid,
        operation=pl.int_range(pl.len(), dtype=pl.Int64),
        can_fuse=has_shapes & ~pl.col(C.is_synthetic) & is_known & ~name.str.contains(_FUSED),
        is_product=(category == GEMM).fill_null(value=False),
        is_attention=category.is_in(_ATTENTION).fill_null(value=False),
        is_elementwise=(category == ELEMENTWISE).fill_null(value=False),
    )


def _text(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.String)
