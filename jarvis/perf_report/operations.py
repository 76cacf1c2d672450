"""The table ``operations``: the rows of the unified sheet with corrected values, for the analyses.

It avoids conventions of the sheets that are known to be wrong (kernel statistics by position, FLOPs
of copies).
"""

import polars as pl

from jarvis.hardware import HardwareSpec
from jarvis.perf_report.call_tree.stacks import CallStacks
from jarvis.perf_report.calls import ARGUMENTS, CALL_KEY, HostCalls, kernels_by_name, numbered
from jarvis.perf_report.efficiency import with_efficiency
from jarvis.perf_report.intervals import busy_ns, microseconds
from jarvis.perf_report.literals import tuples_text
from jarvis.perf_report.timeline.gpu import Totals, copy_direction
from jarvis.perf_report.unified import UnifiedCalls
from jarvis.perf_report.work import COMMUNICATION, COPY, GpuWork

_ORDER = (["kernel_time_us", "uid"], [True, False])


def grouped(unified: UnifiedCalls) -> UnifiedCalls:
    """Return the unified calls with ``operation_uid``: the first call of their row."""
    calls = numbered(unified.calls, CALL_KEY).with_columns(
        operation_uid=pl.col("uid").first().over("group")
    )
    owners = calls.select("operation_uid", "source_uid", owner_uid="uid")
    return UnifiedCalls(calls, unified.work.join(owners, on="owner_uid", maintain_order="left"))


def measured(of: UnifiedCalls, host_calls: HostCalls) -> pl.DataFrame:
    """Return one row per operation with times, kernels and cost, independent of hardware.

    Args:
        of: ``grouped`` unified calls.
    """
    work = of.work.unique(["owner_uid", "gpu_uid"], maintain_order=True)
    per_call = of.calls.with_columns(
        is_known=pl.col("modelled").fill_null(False) & pl.col("failure").is_null()
    )
    rows = per_call.group_by("operation_uid", maintain_order=True).agg(
        *(pl.col(c).first() for c in ("name", "op_category", "process_name", "thread_name")),
        *(pl.col(c).first() for c in ARGUMENTS),
        *(pl.col(c).first() for c in ("source_uid", "is_known", "failure", "uncovered", "params")),
        *(pl.col(c).first() for c in ("makes_row", "is_extension")),
        operation_count=pl.len().cast(pl.Int64),
        kernel_time_us=microseconds(pl.col("busy_ns").fill_null(0).sum()),
        kernel_time_us_mean=pl.col("kernel_time_us").mean(),
        kernel_time_us_std=pl.col("kernel_time_us").std(),
        # Synthetic rows of one graph launch share its host time.
        host_time_us=microseconds(
            pl.col("dur_ns").filter(pl.col("source_uid").is_first_distinct()).sum()
        ),
        modelled=pl.col("modelled").first().fill_null(False),
        flops=pl.col("exact_flops").first(),
        bytes=pl.col("exact_bytes").first(),
        compute=pl.col("compute_spec").first(),
    )
    return (
        rows.join(_of_work(work), on="operation_uid", how="left", maintain_order="left")
        .join(_launchers(work, host_calls), on="operation_uid", how="left", maintain_order="left")
        .join(
            kernels_by_name(work, "operation_uid"),
            on="operation_uid",
            how="left",
            maintain_order="left",
        )
    )


def operations(
    rows: pl.DataFrame, stacks: CallStacks, hardware: HardwareSpec | None, totals: Totals
) -> pl.DataFrame:
    """Return the ``measured`` operations (schema: ``operations``), longest kernel time first."""
    return (
        with_efficiency(rows, hardware)
        .rename({"operation_uid": "uid"})
        .with_columns(
            *(tuples_text(argument) for argument in ARGUMENTS),
            has_perf_model="is_known",
            model_origin=pl.when("is_known").then(
                pl.when("is_extension")
                .then(pl.lit("extension"))
                .when("makes_row")  # the models that TraceLens has too
                .then(pl.lit("tracelens"))
                .otherwise(pl.lit("jarvis"))
            ),
            compute=pl.when(pl.col("compute") != "").then("compute"),
            params=pl.when("is_known").then("params"),
            percent_of_compute=_share(totals.compute_time_ms),
            percent_of_total=_share(totals.total_time_ms),
            **_python_context(rows, stacks),
        )
        .sort(_ORDER[0], descending=_ORDER[1])
    )


def operation_models(rows: pl.DataFrame) -> pl.DataFrame:
    """Return inputs of the efficiency that ``operations`` lacks (schema: ``operation_models``)."""
    return rows.select(
        "modelled", "failure", "uncovered", "compute", "crosses_link", uid="operation_uid"
    ).sort("uid")


def reprojected(
    operations: pl.DataFrame, models: pl.DataFrame, hardware: HardwareSpec | None
) -> pl.DataFrame:
    """Return the table ``operations`` for other hardware; ``models``: ``operation_models``."""
    rows = operations.drop("compute").join(models, on="uid", how="left", maintain_order="left")
    compute = pl.when(pl.col("compute") != "").then("compute")
    return with_efficiency(rows, hardware).with_columns(compute=compute)


def _share(of_ms: float) -> pl.Expr:
    share = pl.col("kernel_time_us") / (10 * of_ms) if of_ms else pl.lit(None)
    return share.cast(pl.Float64)


def _of_work(work: pl.DataFrame) -> pl.DataFrame:
    """Return ``operation_uid, kernel_count, comm_time_us, crosses_link`` of GPU work.

    ``crosses_link``: most of the time of its GPU events is in copies from or to the host.
    """
    communication = busy_ns(
        work.filter(pl.col("kind") == COMMUNICATION), ["operation_uid", "owner_uid"]
    )
    is_over_link = (pl.col("kind") == COPY) & copy_direction().is_in(["H2D", "D2H"])
    over_link_ns = pl.col("dur_ns").filter(is_over_link).sum()
    return (
        work.group_by("operation_uid")
        .agg(kernel_count=pl.len(), crosses_link=2 * over_link_ns > pl.col("dur_ns").sum())
        .join(
            communication.group_by("operation_uid").agg(pl.col("busy_ns").sum()),
            on="operation_uid",
            how="left",
        )
        .with_columns(comm_time_us=microseconds(pl.col("busy_ns").fill_null(0)))
        .drop("busy_ns")
    )


def _launchers(work: pl.DataFrame, host_calls: HostCalls) -> pl.DataFrame:
    """Return ``operation_uid, launcher_names`` of all calls, ``launcher_uids`` of the example."""
    launched = (
        work.filter(pl.col("kind") != COMMUNICATION)
        .select("operation_uid", "owner_uid", "launch_uid", "gpu_uid", "launcher_uid")
        .join(_launcher_names(work, host_calls), on="launcher_uid", how="left")
    )
    is_example = pl.col("owner_uid") == pl.col("operation_uid")
    return (
        launched.sort("launch_uid", "gpu_uid")
        .group_by("operation_uid", maintain_order=True)
        .agg(
            launcher_names=pl.col("launcher_name").unique(maintain_order=True),
            launcher_uids=pl.col("launcher_uid").filter(is_example).unique(maintain_order=True),
        )
    )


def _launcher_names(work: pl.DataFrame, host_calls: HostCalls) -> pl.DataFrame:
    """Return ``launcher_uid, launcher_name`` of GPU work."""
    names = host_calls.select(work["launcher_uid"].drop_nulls().unique(), "name")
    return names.rename({"uid": "launcher_uid", "name": "launcher_name"})


def _python_context(rows: pl.DataFrame, stacks: CallStacks) -> dict[str, pl.Series]:
    """Return direction, modules and entry point of the example call of each row."""
    sources = rows["source_uid"].to_list()
    directions = [
        _direction(category, uid, stacks)
        for category, uid in zip(rows["op_category"], sources, strict=True)
    ]
    return {
        "direction": pl.Series(directions, dtype=pl.String),
        "module_path": pl.Series(
            [stacks.modules(uid) for uid in sources], dtype=pl.List(pl.String())
        ),
        "entry_point": pl.Series([stacks.entry_point(uid) for uid in sources], dtype=pl.String),
    }


def _direction(op_category: str, uid: int, stacks: CallStacks) -> str | None:
    """Return the direction by category, else by whether the call runs under an autograd node."""
    if op_category.endswith("_fwd"):
        return "forward"
    is_backward = op_category.endswith("_bwd") or stacks.is_in_autograd(uid)
    return "backward" if is_backward else None


def gpu_work_table(work: GpuWork, of: UnifiedCalls, host_calls: HostCalls) -> pl.DataFrame:
    """Return a row for each GPU event in file order (schema: ``gpu_work``)."""
    rows = of.work.select("operation_uid", uid="gpu_uid").unique("uid", keep="first")
    kinds = pl.col("name").str.extract_groups(r"\((?<src>\w+) -> (?<dst>\w+)\)")
    is_copy = pl.col("kind") == COPY
    return (
        work.events.join(rows, on="uid", how="left", maintain_order="left")
        .join(
            _launcher_names(work.events, host_calls),
            on="launcher_uid",
            how="left",
            maintain_order="left",
        )
        .with_columns(
            direction=pl.when(is_copy).then(copy_direction()),
            src_kind=pl.when(is_copy).then(kinds.struct.field("src")),
            dst_kind=pl.when(is_copy).then(kinds.struct.field("dst")),
        )
    )


def perf_model_failures(of: UnifiedCalls) -> pl.DataFrame:
    """Return the distinct operations whose perf model failed (schema: ``perf_model_failures``)."""
    return (
        of.calls.filter(pl.col("failure").is_not_null())
        .select("name", tuples_text("input_dims"), reason="failure")
        .unique(maintain_order=True)
    )
