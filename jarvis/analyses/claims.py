"""Assign operations to analyses and rank the top operations."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import polars as pl

from jarvis.analyses.base import Analysis
from jarvis.analyses.kernel_names import family_name, main_kernel
from jarvis.analyses.operations import weighted_efficiency
from jarvis.perf_models import BUILTIN, Registry
from jarvis.perf_report.communication_names import STAGING, communication_kind, stages
from jarvis.perf_report.kernel_blocks import block_of
from jarvis.perf_report.work import COMMUNICATION, COMPUTE
from jarvis.schemas.names import C
from jarvis.schemas.rows import RowsByUid
from jarvis.text.format import cut
from jarvis.text.short_names import LAUNCHED, SYNTHETIC_END
from jarvis.trace.links import RUNTIME_CALL

KERNEL_NAME_CATEGORIES = ("elementwise", "reduce", "multi_tensor_apply", "other")
"""Op categories that an unregistered op can get from the name of its first kernel."""

_WORD_BEGINS = r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]))"
"""Where a word begins: ``gemm`` in ``16816gemm`` and ``MoeGemm``, not in ``fbgemm``."""

TOP_OPERATIONS = 10

TOP_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    C.rank: pl.Int64,
    C.name: pl.String,
    C.category: pl.String,
    C.time_ms: pl.Float64,
    C.count: pl.Int64,
    C.percent_of_compute: pl.Float64,
    C.percent_of_total: pl.Float64,
    C.bound: pl.String,
    C.efficiency_pct: pl.Float64,
    C.flops_per_byte: pl.Float64,
    C.has_perf_model: pl.Boolean,
    C.uid: pl.Int64,
    "operation_uids": pl.List(pl.Int64),
}


def claim_operations(
    operations: pl.DataFrame, analyses: Iterable[Analysis], registry: Registry = BUILTIN
) -> pl.DataFrame:
    """Return ``operations`` with a column ``category``: the key of the one analysis that claims the
    row.

    Rows whose longest kernel is of a claimed kind of the table of communication names come first. A
    registered op category goes to the analysis that names it. A category derived only from a
    kernel's name yields to patterns of the op's name, then to the block of its longest kernel; the
    block comes first for kernels without an operator. Unclaimed rows go to the rest.
    """
    claimers = [analysis for analysis in analyses if analysis.claim is not None]
    rows = operations.select(
        C.name, C.op_category, kernel=main_kernel(), kind=_kind(operations)
    ).rows()
    by_kernel = {kind: a.key for a in claimers if a.claim for kind in a.claim.kernel_kinds}
    keys = {
        row: by_kernel.get(kind or "")
        or _claimer(cut(name), category, kernel or "", claimers, registry)
        for row in set(rows)
        for name, category, kernel, kind in [row]
    }
    categories = pl.Series(C.category, [keys[row] for row in rows], dtype=pl.String)
    return operations.with_columns(categories)


def _kind(operations: pl.DataFrame) -> pl.Expr:
    """Return the kind of the longest kernel by the table of communication names."""
    has_place = C.is_in_fsdp in operations.columns  # not in runs of earlier versions
    in_fsdp = pl.col(C.is_in_fsdp) if has_place else pl.lit(None, dtype=pl.Boolean)
    staging = pl.when(stages(main_kernel(), in_fsdp)).then(pl.lit(STAGING))
    return staging.otherwise(communication_kind(main_kernel()))


def _claimer(
    name: str, op_category: str, kernel: str, claimers: list[Analysis], registry: Registry
) -> str:
    exact = {c: a.key for a in claimers if a.claim for c in a.claim.op_categories}
    by_name, by_category = _by_name(name, claimers), exact.get(op_category)
    launcher, separator, launched = name.partition(LAUNCHED)
    choices: tuple[str | None, ...] = (by_category, by_name)
    if op_category in KERNEL_NAME_CATEGORIES and registry.registered_category(name) is None:
        if launcher and separator:
            by_block = _by_block(launched.removesuffix(SYNTHETIC_END), claimers)
            choices = (by_block, by_name, by_category)
        else:
            choices = (by_name, _by_block(kernel, claimers), by_category)
    rest = next((a.key for a in claimers if a.claim and a.claim.rest), "")
    return next((key for key in choices if key is not None), rest)


def _by_block(kernel: str, claimers: list[Analysis]) -> str | None:
    """Return the analysis that claims the block of a kernel; None for compiled kernels."""
    if family_name(kernel) != kernel:
        return None
    block = block_of(kernel)
    return next((a.key for a in claimers if a.claim and block in a.claim.blocks), None)


def _by_name(name: str, claimers: list[Analysis]) -> str | None:
    family = family_name(name)
    matching = (
        (a.claim.order, a.key)
        for a in claimers
        if a.claim and any(_expression(each).fullmatch(family) for each in a.claim.op_names)
    )
    return min(matching, default=(0, None))[1]


def load_patterns(analyses: Iterable[Analysis]) -> None:
    """Compile the patterns of analyses."""
    for analysis in analyses:
        for pattern in analysis.claim.op_names if analysis.claim else ():
            _expression(pattern)


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    """Return the expression of a pattern; a leading ``*`` ends where a word begins."""
    parts = [f"(?i:{re.escape(part)})" if part else "" for part in pattern.split("*")]
    if pattern.startswith("*") and pattern[1:2].isalpha():
        parts[1] = f"{_WORD_BEGINS}{parts[1]}"
    return re.compile(".*".join(parts), flags=re.DOTALL)


def top_operations(
    ops_summary: pl.DataFrame,
    gpu_work: pl.DataFrame,
    claimed: pl.DataFrame,
    *,
    compute_ms: float,
    total_ms: float,
) -> pl.DataFrame:
    """Return the operators with most GPU time that launch it (columns: ``TOP_SCHEMA``).

    ``ops_summary`` names the operators that launch (``aten::miopen_convolution``), ``claimed`` has
    rows for their parent operators that a perf model covers (``aten::convolution``). They are
    joined through the GPU events: an operation row belongs to the launcher that has most of its
    time. ``operation_uids`` are these rows; the first has most time and gives ``uid``. A launcher
    without such a row takes ``uid`` from the row where it has most time. Without GPU events the
    launchers that a row names share its time. Calls of the runtime are no operators: what they
    launch without one counts by the name of the kernel.
    """
    work = gpu_work if gpu_work.height else _named_launchers(claimed)
    shares = _shares(work)
    of_compute = dict(_of_compute(work).rows())
    ranked = claimed.sort(C.kernel_time_us, C.uid, descending=[True, False])
    ranked_rows = RowsByUid(ranked)
    rows: list[dict[str, Any]] = []
    is_operator = ~pl.col(C.name).str.contains(RUNTIME_CALL)
    for top in ops_summary.filter(is_operator).iter_rows(named=True):
        launched = shares.get(top[C.name], [])
        leading = ranked_rows.of(uid for uid, leads in launched if leads)
        other = ranked_rows.of(uid for uid, _ in launched[:1])
        time_ms = top[C.direct_kernel_time_us] / 1000
        compute_part_ms = time_ms * of_compute.get(top[C.name], 1.0)
        rows.append(
            {
                "name": top[C.name],
                "time_ms": time_ms,
                "count": top[C.count],
                "percent_of_compute": _pct(compute_part_ms, compute_ms),
                **_facts(leading if leading.height else other),
                "operation_uids": leading[C.uid].to_list(),
            }
        )
    rows += _kernels_without_operator(ranked)
    heaviest = sorted(rows, key=lambda row: (-row["time_ms"], row["name"]))[:TOP_OPERATIONS]
    for rank, row in enumerate(heaviest, start=1):
        row |= {"rank": rank, "percent_of_total": _pct(row["time_ms"], total_ms)}
    return pl.DataFrame(heaviest, schema=TOP_SCHEMA)


def _pct(time_ms: float, of_ms: float) -> float | None:
    """Return the share in percent; None without time, as of copies in compute."""
    return 100 * time_ms / of_ms if of_ms > 0 and time_ms > 0 else None


def _of_compute(work: pl.DataFrame) -> pl.DataFrame:
    """Return ``launcher_name`` and the part of its work that is compute, not copies."""
    launched = work.filter(pl.col(C.kind) != COMMUNICATION).drop_nulls(C.launcher_name)
    time, is_compute = pl.col(C.dur_ns), pl.col(C.kind) == COMPUTE
    sums = launched.group_by(C.launcher_name).agg(time.sum(), part=time.filter(is_compute).sum())
    return sums.filter(time > 0).select(C.launcher_name, pl.col("part") / time)


def _kernels_without_operator(ranked: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a row for each kernel that a call of the runtime launches outside all operators."""
    parts = pl.col(C.name).str.splitn(LAUNCHED, 2).struct
    named = ranked.with_columns(launcher=parts[0], kernel=parts[1].str.strip_suffix(SYNTHETIC_END))
    found = named.drop_nulls("kernel").filter(pl.col("launcher").str.contains(RUNTIME_CALL))
    for rows in found.partition_by("kernel", maintain_order=True):
        yield {
            "name": rows["kernel"][0],
            "time_ms": float(rows[C.kernel_time_us].sum()) / 1000,
            "count": int(rows[C.operation_count].sum()),
            "percent_of_compute": float(rows[C.percent_of_compute].sum()) or None,
            **_facts(rows),
            "operation_uids": rows[C.uid].to_list(),
        }


def _named_launchers(claimed: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of ``gpu_work`` that ``_shares`` reads, from the launchers that rows
    name."""
    return claimed.select(
        pl.lit(COMPUTE).alias(C.kind),
        pl.col(C.uid).alias(C.operation_uid),
        pl.col(C.launcher_names).alias(C.launcher_name),
        pl.col(C.kernel_time_us).alias(C.dur_ns),
    ).explode(C.launcher_name)


def _shares(gpu_work: pl.DataFrame) -> dict[str, list[tuple[int, bool]]]:
    """Return for each launcher the uids of its operation rows, most time first, and whether it has
    most of the row's time."""
    first = pl.int_range(pl.len()).over(C.operation_uid) == 0
    rows = (
        gpu_work.filter(pl.col(C.kind) != COMMUNICATION)
        .drop_nulls([C.operation_uid, C.launcher_name])
        .group_by(C.operation_uid, C.launcher_name)
        .agg(pl.col(C.dur_ns).sum())
        .sort(C.dur_ns, C.launcher_name, C.operation_uid, descending=[True, False, False])
        .select(C.launcher_name, pl.col(C.operation_uid).alias(C.uid), leads=first)
    )
    shares: dict[str, list[tuple[int, bool]]] = {}
    for launcher, uid, leads in rows.iter_rows():
        shares.setdefault(launcher, []).append((uid, leads))
    return shares


def _facts(rows: pl.DataFrame) -> dict[str, object]:
    if rows.is_empty():
        return {}
    first = rows.row(0, named=True)
    return {
        "category": first[C.category],
        "bound": first[C.bound],
        "efficiency_pct": weighted_efficiency(rows),
        "flops_per_byte": first[C.flops_per_byte],
        "has_perf_model": first[C.has_perf_model],
        "uid": first[C.uid],
    }
