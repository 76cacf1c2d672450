"""Triton: kernels that a compiler generated from framework operators, or that users wrote."""

from collections.abc import Iterator
from math import prod

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses.advice import place_of
from jarvis.analyses.base import SHARED_PANELS, Advice, Analysis, CategoryData, Claim
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.kernel_names import first_match
from jarvis.analyses.operations import (
    MIN_COMPUTE_PCT,
    SHORT_CALL_US,
    OperationGroup,
    likely_bound,
    message_column,
)
from jarvis.analyses.small_calls import MANY_CALLS
from jarvis.core.literals import parse_literal
from jarvis.findings import Finding, Priority, texts_of
from jarvis.perf_models.arguments import total_bytes
from jarvis.perf_models.dtypes import bytes_per_element
from jarvis.perf_models.triton import fused_ops
from jarvis.schemas.columns import text
from jarvis.schemas.names import C
from jarvis.text.messages import MessageTable, action

KERNEL_TYPES = (
    ("pointwise", r"(?:^|->)triton_poi_"),
    ("reduction", r"(?:^|->)triton_red_"),
    ("persistent reduction", r"(?:^|->)triton_per_"),
    ("template", r"(?:^|->)triton_tem_"),
    ("foreach", r"(?:^|->)triton_for_"),
)
OTHER = "other"
PATTERNS = {"pointwise": "pointwise", "reduction": "reduction", "persistent reduction": "reduction"}
"""Kernel types by the compiler's name prefix, and the patterns with their own expected
efficiency."""

FUSION_LOG = (
    "Compile with the compiler's log of its fusion decisions and of the generated code: it shows "
    "why the fusion of {ops} in {name} is not larger."
)

ADVICE = {
    "pointwise": Advice(
        rule="a compiled kernel of elementwise operators, prefix triton_poi_",
        reason="a kernel that fuses {ops} moves each element once and should use most of the "
        "bandwidth",
        algorithmic="{graph_breaks:message}{epilogue:message}",
        kernel="Autotune the block sizes and warps of {name} for {arguments}{reproduced}.",
        expected_pct=(60.0, 80.0),
        caveat="{in_place:message}",
        capture=FUSION_LOG,
    ),
    "reduction": Advice(
        rule="a compiled kernel with a reduction or normalization, prefix triton_red_ or "
        "triton_per_",
        reason="a kernel that fuses {ops} reads its rows for the sum and again for the result",
        algorithmic="Check whether one library operator does {ops} on {arguments}, such as a "
        "normalization or a softmax, or let the compiler fuse the operators around {name}{place}.",
        kernel="Autotune {name} for {arguments}, also as a persistent reduction that keeps a row "
        "on chip{reproduced}.",
        expected_pct=(30.0, 60.0),
        caveat="{in_place:message}",
        capture=FUSION_LOG,
    ),
    "compute": Advice(
        rule="bound by the compute peak",
        reason="{name} runs below the compute peak",
        algorithmic="Compare {name} with the library operator for the same work on {arguments}, "
        "which is usually better tuned for matrix units.",
        kernel="Autotune the block sizes and warps of {name} for {arguments}{reproduced}.",
    ),
    "memory": Advice(
        rule="bound by memory bandwidth",
        reason="{name} leaves memory bandwidth unused",
        algorithmic="Compare {name} with the library operator for the same work on {arguments}, "
        "and fuse it with the operators around it{place}.",
        kernel="Autotune the block sizes and warps of {name} for {arguments}{reproduced}.",
    ),
}

MESSAGES = MessageTable(
    "triton",
    {
        "graph_breaks": action(
            "Let the compiler fuse more than {ops}: the trace has several compiled regions, so "
            "remove graph breaks and recompilations around {name}{place}, so that {moved_bytes} "
            "per call stay out of memory. ",
            "has_several_compiled_regions",
        ),
        "epilogue": action(
            "Compile in max-autotune mode, in which generated matrix products can include {ops}: "
            "{name} runs next to one.",
            "runs_next_to_products",
        ),
        "in_place": "If {name} updates one of its tensors in place, its bytes count that tensor "
        "only once, because a trace does not name the arguments: it would then be closer to its "
        "roofline than stated.",
        "ops": "{fused:name}",
        "ops.unknown": "several operators",
        "title": "Many short compiled kernels: {names:names 1}",
        "issue": "{kernels:count compiled kernel} ({names:names}) run {calls:,} times for "
        "{mean_us:number} µs each, {time_ms} ({compute_pct} of compute) in all: launching them "
        "takes about as long.",
        "algorithmic": action(
            "Broaden the fusion: remove the graph breaks and recompilations{place} that split the "
            "work into {kernels:count kernel}.",
            "has_several_compiled_regions",
        ),
        "kernel": [
            action("Replay the {launches} from a GPU graph.", "not has_graph_replay"),
            action(
                "Let the compiler combine independent ones into one foreach or grouped kernel.",
                "calls_are_independent",
            ),
        ],
        "caveat": "The saving is not quantified: the gaps between launches are idle time of the "
        "GPU, not time of these kernels.",
        "verify": "Record the trace again: there must be fewer than {calls} of compiled kernels, "
        "and less GPU idle time.",
        "capture": "Compile with the compiler's logs of graph breaks and of fusion decisions: they "
        "show what separates {names:names 2}.",
    },
)

DETAILS = (
    text("kernel_type", "Type", "from the compiler's name prefix"),
    text("fused", "Fused operators", "as listed in the kernel name"),
)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Add the type of each compiled kernel and the operators that its name lists."""
    kernel_type = first_match(pl.col(C.name), KERNEL_TYPES, OTHER)
    fused = [fused_ops(name.split("->")[-1]) for name in rows[C.name]]
    texts = [", ".join(ops) or None for ops in fused]
    typed = rows.with_columns(kernel_type=kernel_type, fused=pl.Series(texts, dtype=pl.String))
    key = pl.when(pl.col("fused").is_null()).then(pl.lit("ops.unknown")).otherwise(pl.lit("ops"))
    return typed.with_columns(
        ops=message_column(MESSAGES, key, "fused"),
        graph_breaks=pl.lit(MESSAGES.id("graph_breaks")),
        epilogue=pl.lit(MESSAGES.id("epilogue")),
        in_place=pl.when(_counts_update(rows))
        .then(pl.lit(""))
        .otherwise(pl.lit(MESSAGES.id("in_place"))),
        pattern=kernel_type.replace_strict(PATTERNS, default=None, return_dtype=pl.String),
    )


def _counts_update(rows: pl.DataFrame) -> pl.Series:
    """Return whether the bytes of a kernel are more than those of all its arguments together: a
    tensor that it updates in place counts twice."""
    given = [
        total_bytes(
            *(
                (prod(shape), bytes_per_element(dtype) if shape else 0)
                for shape, dtype in zip(*map(parse_literal, arguments), strict=False)
            )
        )
        for arguments in rows.select(C.input_dims, C.input_types).iter_rows()
    ]
    known = pl.Series([nbytes or None for nbytes in given], dtype=pl.Float64)
    return (rows[C.bytes] > known).fill_null(value=False)


def many_short_kernels(data: CategoryData) -> Iterator[Finding]:
    """Many compiled kernels, each too small for its own finding.

    Symptom: the compiler generates many short kernels where a few long ones would do.
    Rule: kernels of a short mean time that each take little of compute and that no graph replays:
    at least two different ones, with many calls and enough time together.
    Threshold: {SHORT_CALL_US} µs and {MIN_COMPUTE_PCT}% of compute each; {MANY_CALLS} calls;
    {impact.BOTTLENECK_TIME_MS} ms or {impact.BOTTLENECK_CATEGORY_PCT}% of category time, and
    {impact.RELEVANT_COMPUTE_PCT}% of compute.
    """
    per_name = pl.col(C.percent_of_compute).sum().over(C.name)
    mean_us = pl.col(C.kernel_time_us).sum().over(C.name) / pl.col(C.operation_count).sum().over(
        C.name
    )
    is_short = (per_name < MIN_COMPUTE_PCT) & (mean_us < SHORT_CALL_US)
    rows = data.operations.filter(is_short & ~pl.col(C.uid).is_in(data.replayed_uids))
    if rows[C.name].n_unique() < 2:
        return
    group = OperationGroup(rows.sort(C.kernel_time_us, C.uid, descending=[True, False]))
    is_relevant = group.compute_pct >= impact.RELEVANT_COMPUTE_PCT
    if (
        group.calls >= MANY_CALLS
        and is_relevant
        and impact.is_time_relevant(group.time_ms, group.category_pct)
    ):
        yield _short_kernels(data, group)


def _short_kernels(data: CategoryData, group: OperationGroup) -> Finding:
    names = group.rows[C.name].unique(maintain_order=True).to_list()
    mean_us = 1000 * group.time_ms / group.calls
    values = {
        "names": names,
        "kernels": len(names),
        "calls": group.calls,
        "launches": group.launches,
        "mean_us": mean_us,
        "time_ms": group.time_ms,
        "compute_pct": group.compute_pct,
        "place": place_of(group),
    }
    return Finding(
        check="many_short_kernels",
        category=data.key,
        **texts_of(MESSAGES, values),
        operations=group.operations,
        evidence={
            "gpu_time_ms": group.time_ms,
            "compute_pct": group.compute_pct,
            "kernel_names": len(names),
            "calls": group.calls,
            "mean_gpu_time_us": mean_us,
        },
        priority_local=Priority.MEDIUM,
        priority=Priority.MEDIUM,
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return rows by bound (from FLOPs/byte alone without known hardware) and by type."""
    rows = data.operations.with_columns(likely=likely_bound())
    by_type = rows["kernel_type"].value_counts(name="rows").sort("kernel_type")
    return {
        "compute_bound_count": rows.filter(pl.col("likely") == "compute").height,
        "memory_bound_count": rows.filter(pl.col("likely") == "memory").height,
        "mixed_bound_count": rows.filter(pl.col("likely") == "mixed").height,
        "rows_by_type": dict(by_type.iter_rows()),
    }


ANALYSIS = Analysis(
    title="Triton",
    icon=":material/bolt:",
    claim=Claim(op_categories=("triton",), op_names=("*triton*",), order=70),
    checks=(*SHARED_CHECKS, many_short_kernels),
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=SHARED_PANELS,
)
