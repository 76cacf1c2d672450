"""Chains of calls that one kernel could replace, and what that kernel would have to move.

A chain is a stretch of neighbouring steps on one stream that can be fused and that data flows
through: all steps of one module or function, or steps that follow each other where one's result
has the shape of the next one's operand. Equal stretches in a row are instances of one chain, so
that the same call on many tensors is none.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from jarvis.perf_report.data_flow import Shape, Traffic, flows, is_part, is_related, traffic
from jarvis.perf_report.fusion_scopes import MAX_STEPS
from jarvis.perf_report.fusion_steps import placed_steps, step_rows
from jarvis.perf_report.intervals import microseconds
from jarvis.perf_report.literals import tuples_text

_ARGUMENTS = ("name", "input_dims", "input_types")
_CHAIN = ("scope_kind", "scope_name", "is_bounded", "step_names")
"""What makes two instances one chain."""

_NORMALIZATIONS = ("layer_norm", "rms_norm")

Call = tuple[str, str, str | None]
"""Name, shapes and dtypes of a step."""


class Chain(NamedTuple):
    """What is known of a stretch of steps from their shapes.

    ``length`` steps make an instance of the chain, 0 where the stretch is none. ``fused_bytes`` is
    what a fused kernel reads and writes for the first instance, None where a shape or dtype is not
    known; ``has_data_flow`` whether every step takes the shape that the one before makes.
    """

    length: int
    has_data_flow: bool = False
    fused_bytes: int | None = None


def chain_members(steps: pl.DataFrame, taken: pl.Series) -> pl.DataFrame:
    """The steps of chains (``steps``: ``fusion_steps``; ``taken``: rows of other groups).

    Columns: ``step`` (row of ``steps``), ``instance`` (row of its first step), ``position`` within
    the instance, ``has_data_flow``, ``fused_bytes`` of the instance.
    """
    rows = steps.with_row_index("step").with_columns(pl.col(_ARGUMENTS).cast(pl.String))
    is_free = ~rows["step"].is_in(taken.implode())
    candidates = rows.with_columns(can_fuse=pl.col("can_fuse") & is_free)
    stretches = _stretches(candidates)
    found = (
        candidates.select("step", *_ARGUMENTS)
        .with_columns(stretch=pl.Series(stretches))
        .filter(pl.col("stretch") >= 0)
        .group_by("stretch", maintain_order=True)
        .agg("step", calls=pl.struct(_ARGUMENTS))
        .filter(pl.col("step").list.len() >= 2)
    )
    known: dict[tuple[Call, ...], list[tuple[int, Chain]]] = {}
    members = []
    for start, calls in zip(found["step"].list.first(), found["calls"].to_list(), strict=True):
        key = tuple((call["name"], call["input_dims"], call["input_types"]) for call in calls)
        if key not in known:
            known[key] = list(_instances(key))
        for offset, chain in known[key]:
            first = start + offset
            members += [
                (first + i, first, i, chain.has_data_flow, chain.fused_bytes)
                for i in range(chain.length)
            ]
    schema = {
        "step": pl.Int64,
        "instance": pl.Int64,
        "position": pl.Int64,
        "has_data_flow": pl.Boolean,
        "fused_bytes": pl.Int64,
    }
    return pl.DataFrame(members, schema=schema, orient="row")


def fusion_tables(steps: pl.DataFrame, members: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables ``fusion_chains``, most time first, and ``fusion_steps``.

    ``members``: ``chain_members`` of ``steps``.
    """
    placed = placed_steps(steps, members)
    instances = placed.group_by("instance", maintain_order=True).agg(
        pl.col("scope_kind", "scope_name", "is_bounded", "has_data_flow", "fused_bytes").first(),
        pl.col("source_uid", "input_dims").first(),
        step_names="name",
        kernel_count=pl.col("kernel_names").list.len().sum(),
        busy_ns=pl.col("busy_ns").sum(),
        modelled_ns=pl.col("busy_ns").filter(pl.col("exact_bytes").is_not_null()).sum(),
        step_bytes=pl.col("exact_bytes").sum(),
        flops=pl.col("exact_flops").sum(),
        compute=pl.col("compute_spec").sort_by("exact_flops", maintain_order=True).last(),
    )
    chains = (
        instances.group_by(_CHAIN, maintain_order=True)
        .agg(
            pl.col("instance"),
            pl.col("has_data_flow").all(),
            instance_count=pl.len().cast(pl.Int64),
            kernel_count=pl.col("kernel_count").sum().cast(pl.Int64),
            kernel_time_us=microseconds(pl.col("busy_ns").sum()),
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
        .with_columns(tuples_text("input_dims"))
    )
    return chains.drop("instance"), step_rows(placed, chains, "chain")


def _stretches(steps: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A number for each step that can be fused, the same within a stretch; -1 for the others."""
    here = steps.select("scope", "is_bounded", "thread", "stream", "can_fuse", *_ARGUMENTS)
    same = pl.all_horizontal(
        pl.col(c).eq_missing(pl.col(c).shift(1)) for c in ("scope", "thread", "stream")
    )
    pairs = here.select(
        *_ARGUMENTS,
        "is_bounded",
        *(pl.col(c).shift(1).alias(f"{c}_before") for c in _ARGUMENTS),
        is_neighbour=same & pl.col("can_fuse") & pl.col("can_fuse").shift(1, fill_value=False),
    )
    key = [c for c in pairs.columns if c != "is_neighbour"]
    distinct = pairs.filter("is_neighbour").unique(key, maintain_order=True)
    joined = [
        _belong_together(row[: len(_ARGUMENTS)], row[-len(_ARGUMENTS) :], row[len(_ARGUMENTS)])
        for row in distinct.select(key).iter_rows()
    ]
    related = pairs.join(
        distinct.with_columns(joins=pl.Series(joined, dtype=pl.Boolean)),
        on=[*key, "is_neighbour"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )["joins"].fill_null(value=False)
    number = np.cumsum(~related.to_numpy())
    return np.where(here["can_fuse"].to_numpy(), number, -1)


def _belong_together(call: Call, before: Call, is_bounded: bool) -> bool:
    one, other = traffic(*before), traffic(*call)
    return is_related(one, other) if is_bounded else flows(one, other)


def _instances(calls: tuple[Call, ...]) -> "list[tuple[int, Chain]]":
    """Where the instances of a chain start in a stretch, and what each of them is."""
    length = _period([call[0] for call in calls])
    if not 2 <= length <= MAX_STEPS:
        return []
    return [
        (start, _chain(calls[start : start + length])) for start in range(0, len(calls), length)
    ]


def _period(names: Sequence[str]) -> int:
    """Length of the shortest part that repeated gives all names."""
    count = len(names)
    return next(
        n
        for n in range(1, count + 1)
        if count % n == 0 and list(names[:n]) * (count // n) == list(names)
    )


def _chain(calls: tuple[Call, ...]) -> Chain:
    parts = [traffic(*call) for call in calls]
    return Chain(
        length=len(calls),
        has_data_flow=all(flows(one, other) for one, other in pairwise(parts)),
        fused_bytes=_fused_bytes(calls, parts),
    )


def _fused_bytes(calls: tuple[Call, ...], parts: list[Traffic]) -> int | None:
    """Bytes of what no step of the chain makes, and of the last step's result.

    An operand counts as made inside if it has the shape of an earlier result, and as read already
    if it is a part of such a tensor. What a normalization reads is written too: the next layer adds
    to it.
    """
    made: list[Shape] = []
    seen: list[Shape] = []
    moved = 0
    for (name, *_), part in zip(calls, parts, strict=True):
        inside = list(made)
        for tensor in part.reads:
            if tensor.shape in inside:
                inside.remove(tensor.shape)
                moved += (tensor.bytes or 0) if name.endswith(_NORMALIZATIONS) else 0
                continue
            if any(is_part(tensor.shape, shape) for shape in seen):
                continue
            if tensor.bytes is None:
                return None
            moved += tensor.bytes
            seen.append(tensor.shape)
        made += part.results[:1]
        seen += part.results[:1]
    written = parts[-1].written
    return None if written is None else moved + written
