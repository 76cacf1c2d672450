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

OPTIONAL_KEY = ("num_kernels", "is_recompute", "overlapping_kernel_names")
"""Columns that tell rows apart too, where the calls have them."""

_PROCESS_TID = "0"  # Kineto writes the names of a process under this thread


def host_calls(trace: Trace, *, with_python: bool = False) -> pl.DataFrame:
    """Cpu ops and runtime calls, ``with_python`` Python functions too, in file order.

    Columns: ``uid, name, cat, pid, tid, ts_ns, dur_ns``, the arguments as JSON text (null where
    the trace has none), ``process_name, process_label, thread_name``.
    """
    columns = ("uid", "name", "cat", "pid", "tid", "ts_ns", "dur_ns")
    parts = [trace.cpu_ops.select(*columns, *ARGUMENTS), trace.runtime.select(columns)]
    if with_python:
        parts.append(trace.python_functions.select(columns))
    calls = pl.concat(parts, how="diagonal").sort("uid")
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


def key_of(calls: pl.DataFrame, *columns: str) -> list[str]:
    """``columns`` and those of OPTIONAL_KEY that the calls have."""
    return [*columns, *(column for column in OPTIONAL_KEY if column in calls.columns)]


def numbered(calls: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Calls with ``call``, their position, and ``group``: the first call that has an equal key."""
    return calls.with_columns(call=pl.int_range(pl.len())).with_columns(
        group=pl.col("call").first().over(key)
    )


def with_kernel_details(
    groups: pl.DataFrame,
    calls: pl.DataFrame,
    work: pl.DataFrame,
    names: tuple[str, str] = ("kernel_details", "trunc_kernel_details"),
) -> pl.DataFrame:
    """Groups with ``kernel_details`` and ``trunc_kernel_details``; ``[]`` and null without any.

    ``calls``: ``uid, call, group``; ``work``: ``owner_uid, name, stream, dur_ns`` in the order in
    which the kernels of a call are to be listed, optionally ``stack_of``. ``names`` are other
    names for the two columns.
    """
    full, short = names
    optional = [column for column in ("stack_of",) if column in work.columns]
    lists = work.select(
        "name", "stream", "dur_ns", *optional, uid="owner_uid", position=pl.int_range(pl.len())
    ).join(calls.select("uid", "call", "group"), on="uid")
    lists = lists.with_columns(position=pl.col("position").rank("ordinal").over("call"))
    found = kernel_details(lists).rename({"kernel_details": full})
    details = groups.join(found, on="group", how="left", maintain_order="left")
    texts = [trunc_kernel_details(entries) for entries in details[full].to_list()]
    return details.with_columns(
        pl.col(full).fill_null(pl.lit([], dtype=KERNEL_STATS)),
        pl.Series(short, texts, dtype=pl.String),
    )
