"""Other: everything that no other analysis claims."""

from collections.abc import Iterator

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses.advice import values_of
from jarvis.analyses.base import SAVINGS, Advice, Analysis, CategoryData, Claim, Panel
from jarvis.analyses.checks import SHARED_CHECKS
from jarvis.analyses.kernel_names import first_match
from jarvis.analyses.operations import OperationGroup, message_column
from jarvis.findings import Finding, Priority, texts_of
from jarvis.preconditions import GRAPH_LAUNCH, HOST_READ
from jarvis.schemas.columns import text
from jarvis.schemas.names import C
from jarvis.text.messages import MessageTable, action

MISCELLANEOUS = "miscellaneous"
EMBEDDING = "embedding"
_WORD = r"(?:^|[^a-z])"
_END = r"(?:[^a-z]|$)"

SUB_CATEGORIES = (
    (
        "communication",
        rf"{_WORD}(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_coalesced"
        rf"|collective|c10d|nccl|rccl|symm_mem|deep_ep|_c_custom_ar)",
    ),
    ("graph", r"graph"),
    ("host read", HOST_READ),
    ("fused rotary embedding", rf"rotary|{_WORD}rope{_END}"),
    (EMBEDDING, rf"{_WORD}embedding|embedding_?(?:bag|dense|codegen)|{_WORD}(?:split_?)?lookup"),
    ("pooling", rf"{_WORD}(?:max|avg)?pool"),
    (
        "indexing",
        rf"{_WORD}(?:index|gather|scatter|masked|where|topk|(?:arg)?sort|slice)",
    ),
    ("concatenation", rf"{_WORD}(?:cat|[dhv]?stack|split){_END}"),
)
"""Kind of an operator and the pattern of its name (lower case), by words."""

LOOKS_LIKE = (
    ("Attention", r"fmha|flash_(?:fwd|bwd|attn)|attn_(?:fwd|bwd)|paged_attention"),
    ("Convolution", r"igemm_|conv[123]d|_conv_|convolve"),
    ("GEMM", rf"cijk_|nvjet|(?:{_WORD}[bcdhsz]?|moe)gemm|splitkreduce"),
    ("Normalization", r"rms_?norm|layer_?norm|batch_?norm|group_?norm"),
    ("Reduce", r"softmax|reduce_kernel"),
    ("Elementwise", r"elementwise_kernel|act_and_mul"),
    ("rotary embedding", r"rotary|rotate_half|(?:^|[^a-z])rope"),
    ("cache write", r"reshape_and_cache|kv_?cache"),
)
CATEGORIES = ("Attention", "Convolution", "GEMM", "Normalization", "Reduce", "Elementwise")
"""Kinds that a kernel's name suggests and that have their own analysis."""

ROTARY = "rotary embedding"
ROTATES = r"rotary|rotate|(?:^|[^a-z])rope"
"""Functions that rotate queries and keys, by lower-case name."""

ADVICE = {
    ROTARY: Advice(
        rule="concatenation or indexing in a function that rotates queries and keys",
        reason="a rotary embedding rearranges the halves of queries and keys in memory",
        algorithmic="Use one fused rotary embedding instead of {at}: its {site_calls} of "
        "{name} write "
        "{arguments} to memory for the next operator.",
        kernel="Tune the copy alone, as the saving here assumes: compare {kernel} with a plain "
        "copy of {moved_bytes}{reproduced}.",
        is_notable=True,
    ),
    "concatenation": Advice(
        rule="cat, stack and split",
        reason="{moved_bytes} per call are copied only to make tensors contiguous",
        algorithmic="Let the operators before {name} write {arguments} directly into views of one "
        "preallocated output{place}.",
        kernel="Compare {kernel} on {arguments} with a plain copy of {moved_bytes}{reproduced}.",
    ),
    EMBEDDING: Advice(
        rule="lookups in embedding tables, with and without pooling, and their backward",
        reason="whole rows of a table are moved for each index, with little arithmetic, so the "
        "roofline is that of memory",
        algorithmic="Look up all tables that {name} reads{place} in one batched operator if there "
        "are several, and store the tables in a narrower dtype if the model allows it.",
        kernel="Give {package} to the kernel team, with real indices: the "
        "speed of {kernel} depends on how often indices repeat and on the width of a row.",
        caveat="The modeled bytes count a row for each index; rows of repeated indices may be "
        "served from a cache.",
    ),
    "indexing": Advice(
        rule="index, gather, scatter, sort and similar",
        reason="indexed elements are read and written without arithmetic, so the roofline is that "
        "of memory",
        algorithmic="Batch the {calls} of {name}{place} that read one table, and sort the "
        "indices, so that neighboring elements are read together.",
        kernel="Give {package} to the kernel team, with real indices: the "
        "speed of {kernel} depends on them.",
        caveat="The modeled bytes count each indexed element once; repeated indices may be "
        "served from a cache.",
    ),
    "pooling": Advice(
        rule="pooling, forward and backward",
        reason="each element is read for a few windows, so the roofline is that of memory",
        algorithmic="Keep {arguments} in channels-last layout{place}, or use a strided "
        "convolution instead of the pooling if the model can change.",
        kernel="Give {package} to the kernel team to compare {kernel} in both memory layouts.",
    ),
}

MESSAGES = MessageTable(
    "other",
    {
        "site": "{site:name}",
        "site.unknown": "its chain of operators",
        "title": "Looks like {kind}: {name}",
        "issue": "{names:names} launch {kernel} but count as {category}, because no category "
        "claims them: {kind} takes {time_ms} ({compute_pct} of compute) more than its page shows.",
        "algorithmic": "Add the {time_ms} of {name}{place} to those of {kind} when setting "
        "priorities.",
        "kernel": "Register {name} in an extension with the category of {kind} and a perf model "
        "for {arguments}.",
        "hypothesis": "The name of {kernel} suggests {kind}; a trace does not show what it "
        "computes.",
        "verify": "With the extension loaded, analyze the same trace again: the {calls} of {name} "
        "must appear under {kind}.",
        "capture": [
            action(
                "Record with `with_stack=True`: the code around {name} shows what it computes.",
                "not has_stacks",
            ),
            action(
                "Record with `record_shapes=True`: the arguments of {name} show what it computes.",
                "not has_shapes",
            ),
        ],
        "evidence.names": "{names:names}",
        "evidence.kernel": "{kernel}",
    },
)

DETAILS = (
    text("sub_category", "Type", "kind suggested by the name; graph: a GPU graph runs the kernel"),
    text("looks_like", "Looks like", "kind suggested by kernel and call site"),
)


def classify(rows: pl.DataFrame, compute_units: int | None) -> pl.DataFrame:
    """Add the likely kind of each operator, from its name, its kernel and its call site."""
    is_replayed = pl.col(C.name).str.contains(GRAPH_LAUNCH)
    by_name = first_match(pl.col(C.name), SUB_CATEGORIES, MISCELLANEOUS)
    call_site = pl.concat_str(
        pl.col(C.entry_point), pl.col(C.module_path).list.last(), separator=" ", ignore_nulls=True
    )
    site = pl.col("site")
    at = pl.when(site.is_null()).then(pl.lit("site.unknown")).otherwise(pl.lit("site"))
    typed = rows.with_columns(
        sub_category=pl.when(is_replayed).then(pl.lit("graph")).otherwise(by_name),
        looks_like=pl.coalesce(
            first_match(pl.col(C.main_kernel), LOOKS_LIKE),
            first_match(call_site, LOOKS_LIKE[-2:]),
        ),
        site=pl.coalesce(
            pl.when(name != "").then(name) for name in map(pl.col, (C.entry_point, C.called_from))
        ),
    )
    rotates = pl.col(C.entry_point).str.to_lowercase().str.contains(ROTATES).fill_null(value=False)
    is_rotary = (
        (pl.col("looks_like") == ROTARY)
        & pl.col("sub_category").is_in(["concatenation", "indexing"])
        # Where a function rotates, the module only prepares its tables of sines and cosines.
        & (rotates | ~rotates.any())
    )
    site_calls = pl.col(C.operation_count).sum().over(C.name, "site")
    named = pl.col("sub_category").is_in(ADVICE)
    return typed.with_columns(
        at=message_column(MESSAGES, at, "site"),
        site_calls=site_calls,
        pattern=pl.when(is_rotary).then(pl.lit(ROTARY)).when(named).then("sub_category"),
    )


def miscategorised(data: CategoryData) -> Iterator[Finding]:
    """Operators whose kernels belong to another category.

    Symptom: the time of an operator is missing from the expected category.
    Rule: rows of an operator that no analysis claims, whose heaviest kernel is named like the work
    of a category, except kernels that a GPU graph replays without shapes.
    Threshold: {impact.RELEVANT_COMPUTE_PCT}% of compute per category.
    """
    lacks_shapes = pl.col(C.uid).is_in(data.replayed_uids) & pl.col(C.input_dims).is_null()
    rows = data.operations.filter(
        pl.col("looks_like").is_in(CATEGORIES)
        & (pl.col("sub_category") == MISCELLANEOUS)
        & ~lacks_shapes
    )
    ordered = rows.sort(C.kernel_time_us, C.uid, descending=[True, False])
    for part in ordered.partition_by("looks_like", maintain_order=True):
        group = OperationGroup(part)
        if group.compute_pct >= impact.RELEVANT_COMPUTE_PCT:
            yield _miscategorised(data, group)


def _miscategorised(data: CategoryData, group: OperationGroup) -> Finding:
    kind = group.heaviest["looks_like"]
    values = values_of(group) | {
        "kind": kind,
        "names": list(dict.fromkeys(group.rows[C.name])),
        "category": data.title,
        "time_ms": group.time_ms,
        "compute_pct": group.compute_pct,
    }
    return Finding(
        check="miscategorised",
        category=data.key,
        **texts_of(MESSAGES, values),
        operations=group.operations,
        evidence={
            "gpu_time_ms": group.time_ms,
            "compute_pct": group.compute_pct,
            "operators": MESSAGES.pick("evidence.names", values),
            "main_kernel": MESSAGES.pick("evidence.kernel", values),
            "looks_like": kind,
        },
        priority_local=Priority.LOW,
        priority=Priority.LOW,
    )


def measure(data: CategoryData) -> dict[str, JsonValue]:
    """Return rows and GPU time by type; those of communication, graphs and the rest by name."""
    rows = data.operations
    by_type = rows.group_by("sub_category").agg(
        rows=pl.len(), **{C.time_ms: pl.col(C.kernel_time_us).sum() / 1000}
    )
    counts = {
        f"{kind}_count": rows.filter(pl.col("sub_category") == kind).height
        for kind in ("communication", "graph", MISCELLANEOUS)
    }
    return {
        **counts,
        **{
            str(row.pop("sub_category")): row
            for row in by_type.sort("sub_category").iter_rows(named=True)
        },
    }


ANALYSIS = Analysis(
    title="Other",
    icon=":material/category:",
    claim=Claim(op_categories=("other",), rest=True),
    checks=(*SHARED_CHECKS, miscategorised),
    advice=ADVICE,
    classify=classify,
    details=DETAILS,
    measure=measure,
    panels=(
        Panel("bars", "Time by operator", x=C.kernel_time_us, y=C.name, color="sub_category"),
        SAVINGS,
    ),
)
