"""Host calls with arguments, process and thread names; groups of equal calls."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from jarvis.perf_report.kernels import kernel_details, trunc_kernel_details
from jarvis.schemas import KERNEL_STATS
from jarvis.trace import Trace

UNKNOWN = "Unknown"
ARGUMENTS = ("input_dims", "input_types", "input_strides", "concrete_inputs")
THREAD = ("process_name", "process_label", "thread_name")
CALL_KEY = ("name", "op_category", *THREAD, *ARGUMENTS)
"""Key columns of a row in the sheets."""

OPTIONAL_KEY = ("num_kernels", "is_recompute", "overlapping_kernel_names")
"""Optional key columns."""

_PROCESS_TID = "0"  # Kineto writes the names of a process under this thread
_NAME = pl.Categorical()


@dataclass(frozen=True)
class HostCalls:
    """The host calls of a trace: cpu ops, runtime calls, and optionally Python functions.

    There are millions of calls, but most tables need only the few that launch GPU work, so rows are
    selected lazily.
    """

    cpu_ops: pl.DataFrame
    runtime: pl.DataFrame
    python_functions: pl.DataFrame | None
    threads: pl.DataFrame
    recomputed: pl.Series | None = None

    def select(self, uids: pl.Series, *columns: str) -> pl.DataFrame:
        """Return ``uid`` and ``columns`` of the calls with these uids, in file order.

        Columns that a kind of call does not have are null.
        """
        wanted = pl.col("uid").is_in(uids.implode())
        parts = [
            table.select(pl.col(name) for name in ("uid", *columns) if name in table.columns)
            for table in (self.cpu_ops, self.runtime, self.python_functions)
            if table is not None
        ]
        return pl.concat([part.filter(wanted) for part in parts], how="diagonal").sort("uid")

    def rows(self, uids: pl.Series) -> pl.DataFrame:
        """Return the calls with these uids, in file order, with the columns of sheets.

        Columns: ``uid, name, ts_ns, dur_ns``, the arguments as JSON text (null if not recorded),
        ``process_name, process_label, thread_name``; ``is_recompute`` if known. Texts are
        categorical, at four bytes a row.
        """
        calls = self.select(uids, "name", "ts_ns", "dur_ns", "pid", "tid", *ARGUMENTS)
        processes = self.threads.filter(pl.col("tid") == _PROCESS_TID)
        named = (
            calls.join(
                processes.select("pid", pl.col("process_name", "process_label").cast(_NAME)),
                on="pid",
                how="left",
                maintain_order="left",
            )
            .join(
                self.threads.select("pid", "tid", pl.col("thread_name").cast(_NAME)),
                on=["pid", "tid"],
                how="left",
                maintain_order="left",
            )
            .drop("pid", "tid")
            .with_columns(
                pl.col("name").cast(_NAME),
                pl.col(THREAD).fill_null(pl.lit(UNKNOWN, dtype=_NAME)),
            )
        )
        if self.recomputed is None:
            return named
        return named.with_columns(is_recompute=pl.col("uid").is_in(self.recomputed.implode()))


def host_calls(
    trace: Trace, *, with_python: bool = False, recomputed: pl.Series | None = None
) -> HostCalls:
    """Return the host calls of a trace; ``recomputed``: uids of those that run a second time."""
    return HostCalls(
        cpu_ops=trace.cpu_ops,
        runtime=trace.runtime,
        python_functions=trace.python_functions if with_python else None,
        threads=trace.threads,
        recomputed=recomputed,
    )


def statistics(column: str, prefix: str, which: Sequence[str]) -> list[pl.Expr]:
    """Return aggregations ``prefix_mean``, ... of a column; ``std`` is the sample deviation."""
    return [getattr(pl.col(column), name)().alias(f"{prefix}_{name}") for name in which]


def shares(of: str) -> list[pl.Expr]:
    """Return ``percent`` and ``cumulative_percent`` of a column; null if the sum is 0."""
    total = pl.col(of).sum()
    share = pl.when(total > 0).then(100 * pl.col(of) / total)
    return [share.alias("percent"), share.cum_sum().alias("cumulative_percent")]


def key_of(calls: pl.DataFrame, *columns: str) -> list[str]:
    """Return ``columns`` and the columns of OPTIONAL_KEY that the calls have."""
    return [*columns, *(column for column in OPTIONAL_KEY if column in calls.columns)]


def numbered(calls: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return calls with ``call``, their position, and ``group``, the first call with equal key."""
    return calls.with_columns(call=pl.int_range(pl.len(), dtype=pl.UInt32)).with_columns(
        group=pl.col("call").first().over(key)
    )


def with_kernel_details(
    groups: pl.DataFrame,
    calls: pl.DataFrame,
    work: pl.DataFrame,
    names: tuple[str, str] = ("kernel_details", "trunc_kernel_details"),
) -> pl.DataFrame:
    """Return groups with ``kernel_details`` and ``trunc_kernel_details``; ``[]`` and null if none.

    Args:
        calls: ``uid, call, group``.
        work: ``owner_uid, name, stream, dur_ns``, optionally ``stack_of``, in the order in which
            the kernels of a call are listed.
        names: Names of the two columns.
    """
    full, short = names
    optional = [column for column in ("stack_of",) if column in work.columns]
    lists = (
        work.select("name", "stream", "dur_ns", *optional, uid="owner_uid")
        .join(calls.select("uid", "call", "group"), on="uid", maintain_order="left")
        .drop("uid")
    )
    entries_of = kernel_details(lists).rename({"kernel_details": full})
    details = groups.join(entries_of, on="group", how="left", maintain_order="left")
    texts = [trunc_kernel_details(entries) for entries in details[full].to_list()]
    return details.with_columns(
        pl.col(full).fill_null(pl.lit([], dtype=KERNEL_STATS)),
        pl.Series(short, texts, dtype=pl.String),
    )
