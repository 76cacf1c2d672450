"""The table ``operations``: the rows of the unified sheet with corrected values, for the analyses.

It avoids conventions of the sheets that are known to be wrong (kernel statistics by position, FLOPs
of copies).
"""

import orjson
import polars as pl

from jarvis.core.expressions import first_of
from jarvis.hardware import HardwareSpec
from jarvis.perf_report.call_tree.stacks import CallStacks
from jarvis.perf_report.calls import ARGUMENTS, CALL_KEY, HostCalls, kernels_by_name, numbered
from jarvis.perf_report.efficiency import with_efficiency
from jarvis.perf_report.intervals import busy_ns, microseconds
from jarvis.perf_report.literals import tuples_text
from jarvis.perf_report.timeline.gpu import Totals, copy_direction
from jarvis.perf_report.unified import UnifiedCalls
from jarvis.perf_report.work import COMMUNICATION, COPY, GpuWork
from jarvis.schemas.names import C

COPY_TIME_US = "copy_time_us"
"""Time of copies in a row of ``measured``; the table ``operations`` does not have it."""

_ORDER = ([C.kernel_time_us, C.uid], [True, False])


def grouped(unified: UnifiedCalls) -> UnifiedCalls:
    """Return the unified calls with ``operation_uid``: the first call of their row."""
    calls = numbered(unified.calls, CALL_KEY).with_columns(
        pl.col(C.uid).first().over(C.group).alias(C.operation_uid)
    )
    owners = calls.select(C.operation_uid, C.source_uid, pl.col(C.uid).alias(C.owner_uid))
    return UnifiedCalls(calls, unified.work.join(owners, on=C.owner_uid, maintain_order="left"))


def measured(of: UnifiedCalls, host_calls: HostCalls) -> pl.DataFrame:
    """Return one row per operation with times, kernels and cost, independent of hardware.

    Args:
        of: ``grouped`` unified calls.
    """
    work = of.work.unique([C.owner_uid, C.gpu_uid], maintain_order=True)
    per_call = of.calls.with_columns(
        is_known=pl.col(C.modelled).fill_null(False) & pl.col(C.failure).is_null()
    )
    first_captured = host_calls.recorded_events
    is_recorded = pl.lit(True) if first_captured is None else pl.col(C.source_uid) < first_captured
    rows = per_call.group_by(C.operation_uid, maintain_order=True).agg(
        *(pl.col(c).first() for c in (C.name, C.op_category, C.process_name, C.thread_name)),
        *(pl.col(c).first() for c in ARGUMENTS),
        *(pl.col(c).first() for c in (C.source_uid, "is_known", C.failure, C.uncovered, C.params)),
        *(pl.col(c).first() for c in ("makes_row", "is_extension")),
        **{
            C.operation_count: pl.len().cast(pl.Int64),
            C.kernel_time_us: microseconds(pl.col(C.busy_ns).fill_null(0).sum()),
            C.kernel_time_us_mean: pl.col(C.kernel_time_us).mean(),
            C.kernel_time_us_std: pl.col(C.kernel_time_us).std(),
            # Synthetic rows of one graph launch share its host time.
            C.host_time_us: pl.when(is_recorded.any()).then(
                microseconds(
                    pl.col(C.dur_ns)
                    .filter(pl.col(C.source_uid).is_first_distinct() & is_recorded)
                    .sum()
                )
            ),
            C.modelled: pl.col(C.modelled).first().fill_null(False),
            C.flops: _of_one_call(C.exact_flops),
            C.bytes: _of_one_call(C.exact_bytes),
            C.compute: pl.col(C.compute_spec).first(),
        },
    )
    return (
        _with_common_params(rows, per_call)
        .join(_of_work(work), on=C.operation_uid, how="left", maintain_order="left")
        .join(_launchers(work, host_calls), on=C.operation_uid, how="left", maintain_order="left")
        .join(
            kernels_by_name(work, C.operation_uid),
            on=C.operation_uid,
            how="left",
            maintain_order="left",
        )
    )


def _of_one_call(cost: str) -> pl.Expr:
    """Return the cost of a call; the mean if it depends on the step around the call."""
    each = pl.col(cost)
    return pl.when(each.n_unique() == 1).then(each.first()).otherwise(each.mean())


def _with_common_params(rows: pl.DataFrame, per_call: pl.DataFrame) -> pl.DataFrame:
    """Keep only the params that all calls have in common where the costs of calls differ."""
    varied = (
        per_call.filter(pl.col(C.exact_flops).n_unique().over(C.operation_uid) > 1)
        .group_by(C.operation_uid)
        .agg(pl.col(C.params).cast(pl.String).unique())
    )
    if varied.is_empty():
        return rows
    common = {uid: _common(texts) for uid, texts in varied.iter_rows()}
    params = pl.col(C.operation_uid).replace_strict(common, default=None, return_dtype=pl.String)
    return rows.with_columns(pl.coalesce(params, pl.col(C.params).cast(pl.String)).alias(C.params))


def _common(texts: list[str | None]) -> str:
    every = [orjson.loads(text) for text in texts if text]
    shared = {
        key: value for key, value in every[0].items() if all(p.get(key) == value for p in every)
    }
    return orjson.dumps(shared).decode()


def operations(
    rows: pl.DataFrame, stacks: CallStacks, hardware: HardwareSpec | None, totals: Totals
) -> pl.DataFrame:
    """Return the ``measured`` operations (schema: ``operations``), longest kernel time first."""
    return (
        with_efficiency(rows, hardware)
        .rename({C.operation_uid: C.uid})
        .with_columns(
            *(tuples_text(argument) for argument in ARGUMENTS),
            **{
                C.has_perf_model: pl.col("is_known"),
                C.model_origin: pl.when("is_known").then(
                    # The models that TraceLens has too make rows.
                    first_of({"extension": "is_extension", "tracelens": "makes_row"}, "jarvis")
                ),
                C.compute: pl.when(pl.col(C.compute) != "").then(C.compute),
                C.params: pl.when("is_known").then(C.params),
                C.percent_of_compute: _share_of_compute(totals),
                C.percent_of_total: _share(pl.col(C.kernel_time_us), totals.total_time_ms),
            },
            **_python_context(rows, stacks),
        )
        .sort(_ORDER[0], descending=_ORDER[1])
    )


def operation_models(rows: pl.DataFrame) -> pl.DataFrame:
    """Return inputs of the efficiency that ``operations`` lacks (schema: ``operation_models``)."""
    return rows.select(
        C.modelled,
        C.failure,
        C.uncovered,
        C.compute,
        C.crosses_link,
        pl.col(C.operation_uid).alias(C.uid),
    ).sort(C.uid)


def reprojected(
    operations: pl.DataFrame, models: pl.DataFrame, hardware: HardwareSpec | None
) -> pl.DataFrame:
    """Return the table ``operations`` for other hardware; ``models``: ``operation_models``."""
    rows = operations.drop(C.compute).join(models, on=C.uid, how="left", maintain_order="left")
    compute = pl.when(pl.col(C.compute) != "").then(C.compute)
    return with_efficiency(rows, hardware).with_columns(compute.alias(C.compute))


def _share_of_compute(totals: Totals) -> pl.Expr:
    """Return the share of each row without its copies and communication, which are no compute.

    Kernels that run at the same time count in full, so their sum is the whole if it is longer.
    """
    compute_us = pl.col(C.kernel_time_us) - pl.col(COPY_TIME_US) - pl.col(C.comm_time_us)
    compute_us = compute_us.clip(lower_bound=0.0)
    overlap = pl.max_horizontal(compute_us.sum() / 1000 / (totals.compute_time_ms or 1.0), 1.0)
    return _share(compute_us / overlap, totals.compute_time_ms)


def _share(time_us: pl.Expr, of_ms: float) -> pl.Expr:
    return (time_us / (10 * of_ms) if of_ms else pl.lit(None)).cast(pl.Float64)


def _of_work(work: pl.DataFrame) -> pl.DataFrame:
    """Return ``operation_uid, kernel_count, comm_time_us, copy_time_us, crosses_link`` of GPU work.

    ``crosses_link``: most of the time of its GPU events is in copies from or to the host.
    """
    copies = work.filter(pl.col(C.kind) == COPY)
    over_link = copies.filter(copy_direction().is_in(["H2D", "D2H"]))
    over_link_ns = over_link.group_by(C.operation_uid).agg(over_link_ns=pl.col(C.dur_ns).sum())
    return (
        work.group_by(C.operation_uid)
        .agg(pl.len().alias(C.kernel_count), pl.col(C.dur_ns).sum())
        .join(over_link_ns, on=C.operation_uid, how="left")
        .with_columns(
            (2 * pl.col("over_link_ns").fill_null(0) > pl.col(C.dur_ns)).alias(C.crosses_link)
        )
        .drop(C.dur_ns, "over_link_ns")
        .join(_time_of(work, COMMUNICATION, C.comm_time_us), on=C.operation_uid, how="left")
        .join(_time_of(work, COPY, COPY_TIME_US), on=C.operation_uid, how="left")
        .with_columns(pl.col(C.comm_time_us, COPY_TIME_US).fill_null(0.0))
    )


def _time_of(work: pl.DataFrame, kind: str, name: str) -> pl.DataFrame:
    """Return ``operation_uid`` and the busy time in µs of GPU work of a kind."""
    calls = busy_ns(work.filter(pl.col(C.kind) == kind), [C.operation_uid, C.owner_uid])
    return calls.group_by(C.operation_uid).agg(microseconds(pl.col(C.busy_ns).sum()).alias(name))


def _launchers(work: pl.DataFrame, host_calls: HostCalls) -> pl.DataFrame:
    """Return ``operation_uid, launcher_names`` of all calls, ``launcher_uids`` of the example."""
    launched = (
        work.filter(pl.col(C.kind) != COMMUNICATION)
        .select(C.operation_uid, C.owner_uid, C.launch_uid, C.gpu_uid, C.launcher_uid)
        .join(_launcher_names(work, host_calls), on=C.launcher_uid, how="left")
    )
    is_example = pl.col(C.owner_uid) == pl.col(C.operation_uid)
    return (
        launched.sort(C.launch_uid, C.gpu_uid)
        .group_by(C.operation_uid, maintain_order=True)
        .agg(
            **{
                C.launcher_names: pl.col(C.launcher_name).unique(maintain_order=True),
                C.launcher_uids: pl.col(C.launcher_uid)
                .filter(is_example)
                .unique(maintain_order=True),
            },
        )
    )


def _launcher_names(work: pl.DataFrame, host_calls: HostCalls) -> pl.DataFrame:
    """Return ``launcher_uid, launcher_name`` of GPU work."""
    names = host_calls.select(work[C.launcher_uid].drop_nulls().unique(), C.name)
    return names.rename({C.uid: C.launcher_uid, C.name: C.launcher_name})


def _python_context(rows: pl.DataFrame, stacks: CallStacks) -> dict[str, pl.Series]:
    """Return direction, modules and entry point of the example call of each row."""
    sources = rows[C.source_uid].to_list()
    directions = [
        _direction(category, uid, stacks)
        for category, uid in zip(rows[C.op_category], sources, strict=True)
    ]
    return {
        C.direction: pl.Series(directions, dtype=pl.String),
        C.module_path: pl.Series(
            [stacks.modules(uid) for uid in sources], dtype=pl.List(pl.String())
        ),
        C.entry_point: pl.Series([stacks.entry_point(uid) for uid in sources], dtype=pl.String),
        C.is_in_fsdp: pl.Series([stacks.is_in_fsdp(uid) for uid in sources], dtype=pl.Boolean),
    }


def _direction(op_category: str, uid: int, stacks: CallStacks) -> str | None:
    """Return the direction by category, else by whether the call runs under an autograd node."""
    if op_category.endswith("_fwd"):
        return "forward"
    is_backward = op_category.endswith("_bwd") or stacks.is_in_autograd(uid)
    return "backward" if is_backward else None


def gpu_work_table(work: GpuWork, of: UnifiedCalls, host_calls: HostCalls) -> pl.DataFrame:
    """Return a row for each GPU event in file order (schema: ``gpu_work``)."""
    rows = of.work.select(C.operation_uid, pl.col(C.gpu_uid).alias(C.uid)).unique(
        C.uid, keep="first"
    )
    kinds = pl.col(C.name).str.extract_groups(r"\((?<src>\w+) -> (?<dst>\w+)\)")
    copies = work.events.filter(pl.col(C.kind) == COPY).select(
        C.uid,
        copy_direction(),
        kinds.struct.field("src").alias(C.src_kind),
        kinds.struct.field("dst").alias(C.dst_kind),
    )
    return (
        work.events.join(rows, on=C.uid, how="left", maintain_order="left")
        .join(
            _launcher_names(work.events, host_calls),
            on=C.launcher_uid,
            how="left",
            maintain_order="left",
        )
        .join(copies, on=C.uid, how="left", maintain_order="left")
    )


def perf_model_failures(of: UnifiedCalls) -> pl.DataFrame:
    """Return the distinct operations whose perf model failed (schema: ``perf_model_failures``)."""
    return (
        of.calls.filter(pl.col(C.failure).is_not_null())
        .select(C.name, tuples_text(C.input_dims), pl.col(C.failure).alias(C.reason))
        .unique(maintain_order=True)
    )
