"""Pseudo ops: host ops inserted around kernels whose own op does not show what they compute.

A fused layer of an inference engine launches several kernels of different kinds. A pseudo op is
inserted between the layer's op and one launch, or replaces a Python frame. It has the arguments of
the op with the shapes, so that a perf model applies; facts from the context are appended as
name=value.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson
import polars as pl

from jarvis.perf_models.moe import EXPERTS_PER_TOKEN, GATED
from jarvis.perf_report.calls import ARGUMENTS
from jarvis.perf_report.intervals import END
from jarvis.perf_report.work import GpuWork, gpu_work
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.tables import CPU_OP

DEFAULT_ROUTED_EXPERTS = 4
DEFAULT_FOUR_BIT_EXPERTS = 8

_NUMBERED_PREFIX = "sglang_profiler::"
_NAME = pl.col(C.name)
_IS_NUMBERED = _NAME.str.starts_with(_NUMBERED_PREFIX)
_UNNUMBERED = pl.when(_IS_NUMBERED).then(_NAME.str.replace(r"_\d+$", "")).otherwise(_NAME)
_ALL_FUSED, _ROUTED, _FOUR_BIT = _LAYERS = (
    "vllm::rocm_aiter_fused_moe",
    "vllm::moe_forward",
    "vllm::outplace_fused_experts",
)
"""Ops of layers of experts."""

_KERNEL = pl.col(C.kernel)
_FUSED = (
    _KERNEL.str.contains("aiter::", literal=True)
    & _KERNEL.str.contains("fmoe", literal=True)
    & ~_KERNEL.str.contains("MoeSorting|quant")
)
_FRAMES = {
    r": flydsl_moe_stage1$": "pseudo_op::moe_flydsl_stage1",
    r": flydsl_moe_stage2$": "pseudo_op::moe_flydsl_stage2",
    r": mla_decode_fwd$": "pseudo_mla_decode_fwd",
    r": mla_prefill_fwd$": "pseudo_mla_prefill_fwd",
}
_CARRIED = rf',?"{EXPERTS_PER_TOKEN}=\w+","{GATED}=\w+"\]$'
_STAGES_OP = "aiter::fused_moe_"

_SPANS = {
    C.name: pl.String,
    "arguments_uid": pl.Int64,
    "inner_uid": pl.Int64,
    "outer_uid": pl.Int64,
    "carried": pl.String,
}
"""``name`` of the pseudo op; the op with its arguments; the host event that it encloses and the op
that encloses it; additional arguments, as comma-separated JSON strings."""


def with_pseudo_ops(trace: Trace) -> Trace:
    """Return the trace with pseudo ops among its cpu ops, with uids after the last event.

    Numbers that a profiler appended to op names (``sglang_profiler::x_3``) are removed.
    """
    if trace.cpu_ops.select(_IS_NUMBERED.any()).item():
        trace = replace(trace, cpu_ops=trace.cpu_ops.with_columns(_UNNUMBERED.alias(C.name)))
    parts = [_frames(trace)]
    if trace.cpu_ops[C.name].is_in(_LAYERS).any():
        work = gpu_work(trace)
        experts = (_fused_experts, _routed_experts, _four_bit_experts)
        parts = [*(of_layers(trace, work) for of_layers in experts), *parts]
    spans = pl.concat(parts)
    if spans.is_empty():
        return trace
    pseudo = _as_ops(trace, spans)
    return replace(
        trace,
        cpu_ops=pl.concat([trace.cpu_ops, pseudo]),
        event_count=trace.event_count + pseudo.height,
    )


def kernel_pseudo_ops(cpu_ops: pl.DataFrame, first_uid: int) -> pl.Series:
    """Return the uids of the pseudo ops around one kernel, not those that replace a Python frame.

    Args:
        cpu_ops: Ops of a trace with pseudo ops.
        first_uid: Number of events of the trace without them.
    """
    is_of_kernel = (pl.col(C.uid) >= first_uid) & ~_NAME.is_in([*_FRAMES.values()])
    return cpu_ops.filter(is_of_kernel)[C.uid]


def without_carried(calls: pl.DataFrame) -> pl.DataFrame:
    """Return calls with the concrete inputs of their own op, without the additional arguments."""
    inputs = calls[C.concrete_inputs]
    if not inputs.unique().cast(pl.String).str.contains(_CARRIED).any():
        return calls
    stripped = inputs.cast(pl.String).str.replace(_CARRIED, "]")
    return calls.with_columns(stripped.cast(inputs.dtype))


def _fused_experts(trace: Trace, work: GpuWork) -> pl.DataFrame:
    kernels = _kernels(trace, work, _ALL_FUSED).filter(_FUSED)
    only = kernels.filter(pl.len().over("arguments_uid") == 1)
    return _spans(only, pl.lit("pseudo_op::moe_aiter_fused_1stage"), pl.lit(""))


def _routed_experts(trace: Trace, work: GpuWork) -> pl.DataFrame:
    """Return spans of unfused experts.

    The first product is the up projection, others are down projections; another kernel sums their
    results.
    """
    below = _kernels(trace, work, _ROUTED)
    stem = "pseudo_op::moe_triton_unfused_"
    products = below.filter(_KERNEL.str.contains("matmul_ogs", literal=True))
    is_first = _is_first()
    gated = (is_first & _KERNEL.str.contains("_swiglu|_glu")).any().over("arguments_uid")
    owners = products["arguments_uid"].unique(maintain_order=True)
    chosen = _experts_per_token(trace, work, owners)
    carried = _carried(chosen, gated)
    sums = below.filter(_KERNEL.str.contains("finalize_matmul_scatter", literal=True))
    return pl.concat(
        [
            _spans(products, _direction(stem), carried),
            _spans(sums, pl.lit(f"{stem}finalize_matmul_scatter"), pl.lit("")),
        ]
    )


def _four_bit_experts(trace: Trace, work: GpuWork) -> pl.DataFrame:
    products = _kernels(trace, work, _FOUR_BIT).filter(
        _KERNEL.str.contains("fused_moe_kernel_gptq_awq", literal=True)
    )
    ops = trace.cpu_ops.filter(pl.col(C.uid).is_in(products["arguments_uid"].implode()))
    dims = {uid: _parsed(text) for uid, text in ops.select(C.uid, C.input_dims).iter_rows()}
    chosen = {uid: _at(shapes, 4, 1, DEFAULT_FOUR_BIT_EXPERTS) for uid, shapes in dims.items()}
    # The up projection has a row per inner value, two if gated; the down one packs two in a byte.
    gated = [
        uid for uid, shapes in dims.items() if _at(shapes, 1, 1, 0) == 4 * _at(shapes, 2, 2, 0)
    ]
    carried = _carried(chosen, pl.col("arguments_uid").is_in(gated))
    return _spans(products, _direction("pseudo_op::moe_gptq_awq_"), carried)


def _kernels(trace: Trace, work: GpuWork, owner: str) -> pl.DataFrame:
    """Return kernels below the ops named ``owner`` that were launched one by one.

    Columns: ``arguments_uid`` (the op), ``inner_uid`` (the launch), ``outer_uid`` (the nearest op
    above it), ``kernel`` and ``ts_ns``.
    """
    owners = trace.cpu_ops.filter(pl.col(C.name) == owner)[C.uid]
    return (
        work.below(owners)
        .sort(C.owner_uid, C.link_index)
        .unique(C.gpu_uid, keep="last", maintain_order=True)
        .filter(pl.len().over(C.launch_uid) == 1)
        .select(
            C.ts_ns,
            arguments_uid=C.owner_uid,
            inner_uid=C.launch_uid,
            outer_uid=C.op_uid,
            **{C.kernel: pl.col(C.name)},
        )
    )


def _is_first() -> pl.Expr:
    return pl.col(C.ts_ns).rank("ordinal").over("arguments_uid") == 1


def _direction(stem: str) -> pl.Expr:
    return pl.when(_is_first()).then(pl.lit(f"{stem}up")).otherwise(pl.lit(f"{stem}down"))


def _carried(chosen: dict[int, int], gated: pl.Expr) -> pl.Expr:
    experts = pl.col("arguments_uid").replace_strict(chosen, default=0, return_dtype=pl.Int64)
    return pl.format(
        f'"{EXPERTS_PER_TOKEN}={{}}","{GATED}={{}}"',
        experts,
        pl.when(gated).then(pl.lit("True")).otherwise(pl.lit("False")),
    )


def _spans(kernels: pl.DataFrame, name: pl.Expr, carried: pl.Expr) -> pl.DataFrame:
    return kernels.with_columns(name.alias(C.name), carried=carried).select(*_SPANS)


def _experts_per_token(trace: Trace, work: GpuWork, owners: pl.Series) -> dict[int, int]:
    """Return the second argument of the first TopK op below each owner."""
    tree = work.call_tree.sort("order")
    choices = (
        trace.cpu_ops.filter(_NAME.str.contains("TopK", literal=True))
        .select(C.uid, C.concrete_inputs)
        .join(tree.select(C.uid, "order"), on=C.uid)
        .sort("order")
        .select("order", C.concrete_inputs, choice_order="order")
    )
    found = (
        tree.filter(pl.col(C.uid).is_in(owners.implode()))
        .select(C.uid, "order", C.subtree_end)
        .join_asof(choices, on="order", strategy="forward")
        .filter(pl.col("choice_order") < pl.col(C.subtree_end))
    )
    texts = dict(found.select(C.uid, C.concrete_inputs).iter_rows())
    return {uid: _integer(texts.get(uid)) or DEFAULT_ROUTED_EXPERTS for uid in owners}


def _integer(concrete_inputs: str | None) -> int | None:
    values = _parsed(concrete_inputs)
    value = str(values[1]) if len(values) > 1 else ""
    return int(value) if value.isdecimal() else None


def _parsed(text: str | None) -> list[Any]:
    values = orjson.loads(text) if text else []
    return values if isinstance(values, list) else []


def _at(shapes: list[Any], argument: int, dim: int, default: int) -> int:
    shape = shapes[argument] if argument < len(shapes) else []
    extent = shape[dim] if isinstance(shape, list) and dim < len(shape) else default
    return extent if isinstance(extent, int) else default


def _frames(trace: Trace) -> pl.DataFrame:
    """Return spans of Python frames, with GPU work, that a perf model covers."""
    matches = [
        pl.when(_NAME.str.contains(pattern)).then(pl.lit(name)) for pattern, name in _FRAMES.items()
    ]
    named = trace.python_functions.select(C.uid, pl.coalesce(matches).alias(C.name)).drop_nulls(
        C.name
    )
    if named.is_empty():
        return pl.DataFrame(schema=_SPANS)
    work = gpu_work(trace, with_python=True)
    tree = work.call_tree.sort("order")
    place = tree.select(C.uid, "order", C.subtree_end, C.op_uid, C.is_dropped)
    frames = (
        named.join(place, on=C.uid)
        .filter(~pl.col(C.is_dropped) & pl.col(C.uid).is_in(_owners(work, named[C.uid])))
        .sort("order")
        .filter(~_inside_another())
    )
    return pl.concat([_stages(trace, frames), _latent_attention(trace, work, frames)])


def _owners(work: GpuWork, uids: pl.Series) -> pl.Series:
    return work.below(uids)[C.owner_uid].unique().implode()


def _inside_another() -> pl.Expr:
    """Return whether a frame (by ``order``) is inside one that the same pseudo op replaces."""
    reached = pl.col(C.subtree_end).cum_max().shift(1, fill_value=0).over(C.name)
    return reached > pl.col("order")


def _stages(trace: Trace, frames: pl.DataFrame) -> pl.DataFrame:
    """Return spans of expert stages, with the arguments of the op directly above their frame."""
    ops = trace.cpu_ops.filter(_NAME == _STAGES_OP)[C.uid]
    found = frames.filter(
        _NAME.str.starts_with("pseudo_op::") & pl.col(C.op_uid).is_in(ops.implode())
    )
    return found.select(
        C.name,
        arguments_uid=C.op_uid,
        inner_uid=C.uid,
        outer_uid=C.op_uid,
        carried=pl.lit(""),
    )


def _latent_attention(trace: Trace, work: GpuWork, frames: pl.DataFrame) -> pl.DataFrame:
    """Return spans of attention frames, with the arguments of the first op below that launches GPU
    work."""
    found = frames.filter(_NAME.str.starts_with("pseudo_mla"))
    shaped = trace.cpu_ops.drop_nulls(C.input_dims)[C.uid]
    launching = work.call_tree.filter(pl.col(C.uid).is_in(_owners(work, shaped)))
    below = launching.sort("order").select("order", arguments_uid=C.uid, below_order="order")
    return (
        found.select(C.name, "order", C.subtree_end, inner_uid=C.uid, outer_uid=C.op_uid)
        .join_asof(below, on="order", strategy="forward")
        .filter(pl.col("below_order") < pl.col(C.subtree_end))
        .with_columns(carried=pl.lit(""))
        .select(*_SPANS)
    )


def _as_ops(trace: Trace, spans: pl.DataFrame) -> pl.DataFrame:
    """Return rows of ``cpu_ops``: each starts 1 ns before the enclosed event and ends with it.

    Of events with equal start the first in the file is the outer one, and pseudo ops are last.
    """
    times = (C.uid, C.pid, C.tid, C.ts_ns, C.dur_ns)
    hosts = pl.concat(_host_tables(trace, times, spans["inner_uid"]))
    outer = trace.cpu_ops.select(outer_uid=C.uid, outer_ts_ns=C.ts_ns)
    arguments = trace.cpu_ops.select(pl.col(C.uid).alias("arguments_uid"), *ARGUMENTS)
    start = pl.max_horizontal(pl.col(C.ts_ns) - 1, pl.col("outer_ts_ns"))
    placed = (
        spans.join(hosts, left_on="inner_uid", right_on=C.uid)
        .join(outer, on="outer_uid", how="left")
        .join(arguments, on="arguments_uid", how="left")
        .with_columns(start.alias(C.start_ns), END.alias(C.end_ns))
        .sort(C.start_ns, "inner_uid")
        .with_columns(
            (trace.event_count + pl.int_range(pl.len())).alias(C.uid),
            pl.lit(CPU_OP).alias(C.cat),
            pl.col(C.start_ns).alias(C.ts_ns),
            (pl.col(C.end_ns) - pl.col(C.start_ns)).alias(C.dur_ns),
            _with_carried().alias(C.concrete_inputs),
            pl.lit(None, pl.Int64).alias(C.external_id),
            pl.lit(None, pl.Int64).alias(C.sequence_number),
        )
    )
    return placed.select(trace.cpu_ops.columns).cast(trace.cpu_ops.schema)


def _host_tables(trace: Trace, columns: Iterable[str], uids: pl.Series) -> list[pl.DataFrame]:
    wanted = pl.col(C.uid).is_in(uids.implode())
    return [
        table.filter(wanted).select(columns) for table in (trace.runtime, trace.python_functions)
    ]


def _with_carried() -> pl.Expr:
    """Return the text of the concrete inputs with the additional arguments appended."""
    recorded = pl.col(C.concrete_inputs).cast(pl.String)
    present = recorded.fill_null("[]").str.strip_suffix("]")
    separator = pl.when(present == "[").then(pl.lit("")).otherwise(pl.lit(","))
    longer = pl.concat_str(present, separator, "carried", pl.lit("]"))
    return pl.when(pl.col("carried") == "").then(recorded).otherwise(longer)
