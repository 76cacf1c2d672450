"""Host calls with their arguments and the names of process and thread; groups of equal calls."""

from collections.abc import Sequence

import polars as pl

from jarvis.perf_report.kernels import kernel_details, trunc_kernel_details
from jarvis.schemas import KERNEL_STATS
from jarvis.trace import Trace

UNKNOWN = "Unknown"
ARGUMENTS = ("input_dims", "input_types", "input_strides", "concrete_inputs")
THREAD = ("process_name", "process_label", "thread_name")
CALL_KEY = ("name", "op_category", *THREAD, *ARGUMENTS)
"""What makes two calls one row of the sheets."""

_PROCESS_TID = "0"  # Kineto writes the names of a process under this thread


def host_calls(trace: Trace) -> pl.DataFrame:
    """Cpu ops and runtime calls in file order.

    Columns: ``uid, name, cat, pid, tid, ts_ns, dur_ns``, the arguments as JSON text (null where
    the trace has none), ``process_name, process_label, thread_name``.
    """
    columns = ("uid", "name", "cat", "pid", "tid", "ts_ns", "dur_ns")
    calls = pl.concat(
        [trace.cpu_ops.select(*columns, *ARGUMENTS), trace.runtime.select(columns)],
        how="diagonal",
    ).sort("uid")
    processes = trace.threads.filter(pl.col("tid") == _PROCESS_TID)
    return (
        calls.join(
            processes.select("pid", "process_name", "process_label"),
            on="pid",
            how="left",
            maintain_order="left",
        )
        .join(
            trace.threads.select("pid", "tid", "thread_name"),
            on=["pid", "tid"],
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.col(THREAD).fill_null(UNKNOWN))
    )


def statistics(column: str, prefix: str, which: Sequence[str]) -> list[pl.Expr]:
    """Aggregations ``prefix_mean``, ... of a column; ``std`` is that of a sample."""
    return [getattr(pl.col(column), name)().alias(f"{prefix}_{name}") for name in which]


def shares(of: str) -> list[pl.Expr]:
    """``percent`` and ``cumulative_percent`` of a column, in row order; null where the sum is 0."""
    total = pl.col(of).sum()
    share = pl.when(total > 0).then(100 * pl.col(of) / total)
    return [share.alias("percent"), share.cum_sum().alias("cumulative_percent")]


def numbered(calls: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Calls with ``call``, their position, and ``group``: the first call that has an equal key."""
    return calls.with_columns(call=pl.int_range(pl.len())).with_columns(
        group=pl.col("call").first().over(key)
    )


def with_kernel_details(
    groups: pl.DataFrame, calls: pl.DataFrame, work: pl.DataFrame
) -> pl.DataFrame:
    """Groups with ``kernel_details`` and ``trunc_kernel_details``; ``[]`` and null without any.

    ``calls``: ``uid, call, group``; ``work``: ``owner_uid, name, stream, dur_ns`` in the order in
    which the kernels of a call are to be listed.
    """
    lists = work.select(
        "name", "stream", "dur_ns", uid="owner_uid", position=pl.int_range(pl.len())
    ).join(calls.select("uid", "call", "group"), on="uid")
    lists = lists.with_columns(position=pl.col("position").rank("ordinal").over("call"))
    details = groups.join(kernel_details(lists), on="group", how="left", maintain_order="left")
    short = [trunc_kernel_details(entries) for entries in details["kernel_details"].to_list()]
    return details.with_columns(
        pl.col("kernel_details").fill_null(pl.lit([], dtype=KERNEL_STATS)),
        trunc_kernel_details=pl.Series(short, dtype=pl.String),
    )
