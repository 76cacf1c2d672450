"""Elementwise: arithmetic, copies, casts and activations, bound by memory bandwidth."""

from collections.abc import Iterator
from itertools import islice

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses import bandwidth
from jarvis.analyses.access import access, memory_orders
from jarvis.analyses.advice import needing
from jarvis.analyses.bandwidth import baseline_metrics, low_baseline, slow_kernel, time_ms_by
from jarvis.analyses.base import SHARED_PANELS, Advice, Analysis, CategoryData, Claim
from jarvis.analyses.baseline import baseline_rows, plain_mean_tb_per_s
from jarvis.analyses.call_times import typical_us
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.kernel_names import first_match
from jarvis.analyses.operations import (
    HYPOTHESIS,
    KERNEL_FLOOR_US,
    LAUNCH_BOUND,
    LAUNCH_BOUND_RULE,
    MIN_COMPUTE_PCT,
    PATTERN,
    SHORT_CALL_US,
    OperationGroup,
)
from jarvis.analyses.tiny_tensors import owner_advice
from jarvis.core.expressions import first_of
from jarvis.findings import Finding, Priority
from jarvis.schemas.columns import flag, text
from jarvis.schemas.names import C
from jarvis.text.messages import NAMES_SHOWN, Message, MessageTable, action

SMALL_BYTES = 2**20
"""Calls that move less are compared with the shortest kernels, not with the bandwidth."""

TINY_BYTES = 2**16
"""Calls that move less, of operators without neighbors, are likely one per parameter. Outside all
modules, where no activations are produced, SMALL_BYTES applies."""

MANY_CALLS = 1000
"""Number of elementwise calls from which their count is reported as a separate finding."""

NEIGHBORS_SHOWN = 4

OP_TYPES = (
    ("copy", r"copy|clone|contiguous|_to\b"),
    ("add", r"add"),
    ("multiply", r"mul"),
    ("divide", r"div"),
    ("subtract", r"sub"),
)

OP_CLASSES = (
    (
        "activation",
        r"relu|gelu|silu|swish|sigmoid|tanh|softplus|act_and_mul|mish|hardtanh|threshold",
    ),
    ("copy", r"copy|clone|contiguous|_to\b|memcpy"),
    ("compare/mask", r"::_?(?:eq|ne|lt|le|gt|ge)_?$|where|mask|logical|bitwise|isnan|isinf|clamp"),
    ("math", r"pow|sqrt|exp|log|sin|cos|neg|abs|reciprocal|erf|square"),
    ("arithmetic", r"add|mul|sub|div|lerp"),
)
"""Class of an operator by its name; a copy between dtypes is a cast."""

STRIDES = r"\(\d+(?:, ?\d+)+\)"
"""The strides of a tensor of two or more dims, as recorded."""

GENERAL_KERNEL = r"(?:^|::)elementwise_kernel|gpu_kernel_impl_nocast|legacy_elementwise"
"""The framework's kernels for arbitrary strides, by lower-case name; those that read several
neighboring elements at once have ``vectorized`` in their name."""

ADVICE = {
    "strided": Advice(
        rule="operands of equal shape differ in memory order, or have gaps",
        reason="{order_reason:message}",
        algorithmic="{order_advice:message}",
        kernel="Give {package} to the kernel team: {order_kernel:message}",
    ),
    "cast": Advice(
        rule="a copy between dtypes",
        reason="a cast in a separate pass ({arguments}), which the previous or next operator "
        "could include",
        algorithmic="{chain:message}",
        kernel="Give {package} to the kernel team: {pass_kernel:message}",
        expected_pct=bandwidth.SIMPLE_PCT,
    ),
    "broadcast": Advice(
        rule="operands of different shapes",
        reason="one operand is smaller and broadcast ({arguments}), which vectorized kernels do "
        "not support",
        algorithmic="{chain:message}",
        kernel="Give {package} to the kernel team: {kernel} should cache "
        "the smaller operand and read the larger one several elements at a time.",
    ),
    "small tensor": Advice(
        rule=f"less than {SMALL_BYTES // 2**20} MB per call, yet not launch bound",
        reason="{moved_bytes} per call is too little for the memory bandwidth to matter; a kernel "
        f"is assumed to take at least {KERNEL_FLOOR_US:.0f} µs, this one takes {{call_time_ms}}",
        algorithmic="{chain:message}",
        kernel="Check how many blocks {kernel} starts{on_package}: even a small tensor should "
        "occupy the whole GPU.",
    ),
    "memory": Advice(
        rule="bound by memory bandwidth, contiguous operands of one shape and dtype",
        reason="a plain pass over contiguous memory should use most of the bandwidth",
        algorithmic="{chain:message}",
        kernel="Give {package} to the kernel team: {kernel} accesses "
        "contiguous memory and should reach the bandwidth of a copy.",
        expected_pct=bandwidth.SIMPLE_PCT,
    ),
    "tiny tensors": Advice(
        rule=f"launch bound, no neighbors, less than {TINY_BYTES // 2**10} kB per call "
        f"({SMALL_BYTES // 2**20} MB outside all modules)",
        reason="the heaviest call moves {moved_bytes} in {call_time_ms}; a kernel is "
        f"assumed to take at least {KERNEL_FLOOR_US:.0f} µs",
        algorithmic="{owner_advice:message}",
        kernel="{grouped_kernel}Fewer calls save more than a faster {kernel}: a call takes "
        "{mean_time_ms}.",
    ),
    LAUNCH_BOUND: Advice(
        rule=LAUNCH_BOUND_RULE,
        reason="the heaviest call moves {moved_bytes} in {call_time_ms}; a kernel is "
        f"assumed to take at least {KERNEL_FLOOR_US:.0f} µs, so the fixed cost of a kernel "
        "dominates, not bandwidth",
        algorithmic="{chain:message}",
        kernel="Fuse {kernel} with its neighbors rather than tuning it: a call takes "
        "{mean_time_ms}.",
    ),
}

MESSAGES = MessageTable(
    "elementwise",
    {
        "general_path": "The name of {kernel} is that of the general path, which computes an "
        "address for every element, not of the vectorized one.",
        "pass.general": "{kernel} should read several neighboring elements at once.",
        "pass.vectorized": "{kernel} should reach the bandwidth of a copy.",
        "at_place": " in {called_from:name}",
        "alone": "Fuse {name} into the operator that produces its input or reads its "
        "result{at_place:message}.",
        "chain": "Fuse {its_calls?it} with {neighbors:names "
        f"{NEIGHBORS_SHOWN}}}{{more_neighbors:more}}{{at_place:message}}, so that the data moves "
        "through memory once; the kernel fusion analysis measures the chain.",
        "order.copy": "Avoid the reordering{at_place:message}: let the consumer accept the "
        "existing strides, or write the tensor in the required order when it is produced.",
        "order.operands": "Produce its operands in one memory order{at_place:message}, so that "
        "all are accessed sequentially.",
        "many.title": "{calls:,} elementwise calls",
        "many.issue": "{calls:,} elementwise calls ({top:list}{more_operators:more}) take "
        "{time_ms} together ({compute_pct} of compute){short}.",
        "many.short": ", {some:,} of them only {short_us:number} µs each on average",
        "many.times": "{name} {times:,} times",
        "many.algorithmic": [
            action("Compile the model.", "not has_compiled_code"),
            "Fuse operators by hand where they follow each other.",
        ],
        "many.kernel": "Multi-tensor (foreach) calls take lists of tensors at once: for parameters "
        f"and statistics of the same kind, the {{launches}} of calls below {SHORT_CALL_US:.0f} µs "
        "({time_ms} in all) can become a few.",
        "many.caveat": "The saving is not quantified here: the findings on the operators count it.",
        "many.verify": "Record the trace again: the category must have fewer than {calls} for the "
        "same number of steps.",
        "many.capture": action(
            "Record with `with_stack=True` to see which lines of the model call {name}.",
            "not has_stacks",
        ),
    },
)

DETAILS = (
    text("op_type", "Type", "what the operator does"),
    text("op_class", "Class", "arithmetic, copy, cast, activation, and so on"),
    text("access", "Access", "memory layout of the operands"),
    flag("is_baseline", "Baseline", "included in the bandwidth baseline"),
    *bandwidth.DETAILS,
)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Add type, class and access of each operator, its bandwidth rating, and its neighbors."""
    described = bandwidth.rated(rows.hstack([*_chains(rows), *memory_orders(rows)])).with_columns(
        op_type=first_match(pl.col(C.name), OP_TYPES, "other"),
        op_class=_op_class(),
        access=pl.Series(
            [access(*row) for row in rows.select(C.name, C.input_dims, C.input_strides).rows()],
            dtype=pl.String,
        ),
        is_baseline=pl.col(C.uid).is_in(baseline_rows(rows)[C.uid].to_list()),
        strides=pl.col(C.input_strides).str.extract_all(STRIDES),
        call_time_ms=typical_us() / 1000,
        at_place=first_of({MESSAGES.id("at_place"): pl.col(C.called_from) != ""}, ""),
    )
    is_general = pl.col(C.main_kernel).str.to_lowercase().str.contains(GENERAL_KERNEL)
    is_vectorized = pl.col(C.main_kernel).str.contains("vectorized")
    return described.with_columns(
        _pattern(),
        order_advice=_order_advice(),
        pass_kernel=first_of(
            {MESSAGES.id("pass.vectorized"): is_vectorized}, MESSAGES.id("pass.general")
        ),
        owner_advice=owner_advice(rows),
        **{
            HYPOTHESIS: pl.when(is_general & ~pl.col(C.is_launch_bound)).then(
                pl.lit(MESSAGES.id("general_path"))
            )
        },
    )


def many_calls(data: CategoryData) -> Iterator[Finding]:
    """Thousands of elementwise calls in one trace.

    Symptom: the model consists of many single elementwise operators, each with its own launch and
    pass over memory.
    Rule: more than {MANY_CALLS} calls of the whole category.
    Threshold: {MANY_CALLS} calls; at least {MIN_COMPUTE_PCT}% of compute.
    """
    rows = data.operations.filter(pl.col(C.percent_of_compute) > 0)  # copies are no compute
    group = OperationGroup(rows)
    if group.calls <= MANY_CALLS or group.compute_pct < MIN_COMPUTE_PCT:
        return
    by_name = (
        rows.group_by(C.name)
        .agg(pl.col(C.operation_count).sum(), pl.col(C.kernel_time_us).sum())
        .sort(C.operation_count, C.name, descending=[True, False])
    )
    top = [
        MESSAGES("many.times", name=name, times=count)
        for name, count, _ in by_name.head(NAMES_SHOWN).rows()
    ]
    mean_us = 1000 * group.time_ms / group.calls
    launching_us = float(rows.filter(C.is_launch_bound)[C.kernel_time_us].sum())
    is_large = group.compute_pct > impact.MEDIUM_COMPUTE_PCT
    priority = Priority.MEDIUM if is_large else Priority.LOW
    yield Finding(
        check="many_calls",
        category=data.key,
        title=MESSAGES("many.title", calls=group.calls),
        operations=group.operations,
        evidence={
            "calls": group.calls,
            "launches": group.launches,
            "operators": by_name.height,
            "mean_gpu_time_us": mean_us,
            "gpu_time_ms": group.time_ms,
            "compute_pct": group.compute_pct,
            "launch_bound_pct": impact.share_pct(launching_us / 1000, group.time_ms),
        },
        issue=MESSAGES(
            "many.issue",
            calls=group.calls,
            top=top,
            more_operators=by_name.height - len(top),
            time_ms=group.time_ms,
            compute_pct=group.compute_pct,
            short=_short_calls(group),
        ),
        algorithmic=MESSAGES.texts("many.algorithmic"),
        kernel=_foreach(rows.filter(pl.col("op_class") != "activation")),
        priority_local=priority,
        priority=priority,
        caveat=MESSAGES("many.caveat"),
        verify=MESSAGES("many.verify", calls=group.calls),
        capture=MESSAGES("many.capture", name=by_name[C.name][0]),
    )


def _short_calls(group: OperationGroup) -> Message | None:
    """Return how many calls are short and how long they take; None if all calls are alike."""
    short = group.rows.filter(pl.col(C.kernel_time_us_mean) < SHORT_CALL_US)
    calls = int(short[C.operation_count].sum())
    if calls in (0, group.calls):
        return None
    return MESSAGES("many.short", some=calls, short_us=float(short[C.kernel_time_us].sum()) / calls)


def _foreach(rows: pl.DataFrame) -> Message | None:
    """Return the advice on calls so short that their tensors are small, if they are independent."""
    short = rows.filter(pl.col(C.kernel_time_us_mean) < SHORT_CALL_US)
    if short.is_empty():
        return None
    group = OperationGroup(short)
    advice = MESSAGES("many.kernel", launches=group.launches, time_ms=group.time_ms)
    uids = " ".join(map(str, short[C.uid]))
    return needing(advice, f"calls_are_independent({uids})")


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return the bandwidth that simple operators on large tensors reach, and the unweighted
    mean."""
    return {
        **baseline_metrics(data.baseline),
        "mean_bandwidth_of_simple_ops_tbs": plain_mean_tb_per_s(data.operations),
        "peak_hbm_bw_tbs": data.peak_tb_per_s,
        "launch_bound_percent": impact.share_pct(
            float(data.operations.filter(C.is_launch_bound)[C.kernel_time_us].sum()),
            float(data.operations[C.kernel_time_us].sum()),
        ),
        "time_ms_by_type": time_ms_by(data.operations, "op_type"),
        "time_ms_by_class": time_ms_by(data.operations, "op_class"),
        "time_ms_by_rating": time_ms_by(data.operations, "rating"),
    }


def _op_class() -> pl.Expr:
    is_cast = (
        pl.col(C.input_types).str.extract_all(r"c10::\w+|float|double|int|char").list.n_unique() > 1
    )
    by_name = first_match(pl.col(C.name), OP_CLASSES, "other")
    runs_in_activation = pl.col(C.called_from).str.contains(r"(?:ReLU|Hardtanh)\d*$")
    return (
        pl.when((by_name == "copy") & is_cast.fill_null(value=False))
        .then(pl.lit("cast"))
        .when(pl.col(C.name).str.contains("clamp") & runs_in_activation)
        .then(pl.lit("activation"))
        .otherwise(by_name)
    )


def _pattern() -> pl.Expr:
    bytes_per_launch = pl.col(C.bytes) * pl.col(C.operation_count) / pl.col(C.kernel_count)
    in_module = pl.col(C.called_from).is_not_null()
    is_tiny = (
        (bytes_per_launch < pl.when(in_module).then(TINY_BYTES).otherwise(SMALL_BYTES))
        & pl.col("op_class").is_in(["arithmetic", "copy", "cast", "other"])
        & ~pl.col("has_neighbors")
    )
    return first_of(
        {
            "tiny tensors": pl.col(C.is_launch_bound) & is_tiny,
            None: pl.col(C.is_launch_bound) | pl.col(C.bytes).is_null(),
            "small tensor": bytes_per_launch < SMALL_BYTES,
            "strided": pl.col("access") == "strided",
            "cast": pl.col("op_class") == "cast",
            "broadcast": pl.col("access") == "broadcast",
        }
    ).alias(PATTERN)


def _order_advice() -> pl.Expr:
    """Return the id of the message on avoiding operands of different memory orders."""
    is_copy = pl.col("op_class").is_in(["copy", "cast"])
    return first_of({MESSAGES.id("order.copy"): is_copy}, MESSAGES.id("order.operands"))


def _chains(rows: pl.DataFrame) -> pl.DataFrame:
    """Add what to fuse each row with.

    Columns: ``chain``, the id of a message; the ``neighbors`` that it names, how many
    ``more_neighbors`` there are, and ``has_neighbors``: operators of this category called from the
    same place. Backward operators are no neighbors of forward ones.
    """
    calls = [
        (name, place, "backward" in name)
        for name, place in rows.select(C.name, C.called_from).rows()
    ]
    places: dict[tuple[str | None, bool], dict[str, None]] = {}
    for name, place, is_backward in calls:
        names = places.setdefault((place, is_backward), {})
        if place is not None:
            names[name] = None
    neighbors = [
        list(islice((n for n in places[place, is_backward] if n != name), NEIGHBORS_SHOWN))
        for name, place, is_backward in calls
    ]
    others = [
        len(names := places[place, is_backward]) - (name in names)
        for name, place, is_backward in calls
    ]
    return pl.DataFrame(
        {
            C.chain: [MESSAGES.id("chain" if count else "alone") for count in others],
            "neighbors": neighbors,
            "more_neighbors": [max(0, count - NEIGHBORS_SHOWN) for count in others],
            "has_neighbors": [count > 0 for count in others],
        },
        schema={
            C.chain: pl.String,
            "neighbors": pl.List(pl.String),
            "more_neighbors": pl.Int64,
            "has_neighbors": pl.Boolean,
        },
    )


ANALYSIS = Analysis(
    title="Elementwise",
    icon=":material/exposure:",
    claim=Claim(
        op_categories=("elementwise", "multi_tensor_apply", "GroupQuant"),
        op_names=("*elementwise*", "*act_and_mul*", "*silu_and_mul*", "*gelu*", "*memcpy*"),
        order=80,
    ),
    specific=(slow_kernel,),
    checks=(low_baseline, many_calls, *SHARED_CHECKS),
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=SHARED_PANELS,
)
