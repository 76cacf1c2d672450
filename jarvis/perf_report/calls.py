"""Host calls with their arguments and thread names; groups of equal calls; their kernels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from jarvis.perf_report.intervals import microseconds
from jarvis.schemas import KERNEL_STATS, KERNELS
from jarvis.schemas.names import C
from jarvis.trace import Trace

NAME_LENGTH = 64


def kernel_details(lists: pl.DataFrame) -> pl.DataFrame:
    """Return kernel statistics by position in the call, as in the sheets.

    The first call with kernels is the template: calls with another number of kernels are ignored,
    and the names are those of the template.

    Args:
        lists: ``group, call, name, stream, dur_ns``, optionally ``stack_of``: one row for each
            kernel of a call, in order; call numbers are unique over all groups.

    Returns:
        ``group, kernel_details``, with details in order of total duration, and ``stack_owners``,
        their ``stack_of`` in the same order, if ``lists`` has it.
    """
    ns = pl.col(C.dur_ns)
    has_owners = C.stack_of in lists.columns
    return (
        _fitting(lists)
        .group_by(C.group, C.position, maintain_order=True)
        .agg(
            pl.col(C.name).first(),
            pl.col(C.stream).first(),
            pl.len().cast(pl.Int64).alias(C.count),
            microseconds(ns.sum()).alias(C.total_duration_us),
            (microseconds(ns.sum()) / pl.len()).alias(C.mean_duration_us),
            microseconds(ns.median()).alias(C.median_duration_us),
            (ns.std(ddof=0) / 1e3).alias(C.std_dev_duration_us),
            microseconds(ns.min()).alias(C.min_duration_us),
            microseconds(ns.max()).alias(C.max_duration_us),
            **({"stack_owners": pl.col(C.stack_of).first()} if has_owners else {}),
        )
        .sort(C.group, C.total_duration_us, C.name, maintain_order=True)
        .group_by(C.group, maintain_order=True)
        .agg(
            *(["stack_owners"] if has_owners else []),
            entries(KERNEL_STATS).alias(C.kernel_details),
        )
    )


def _fitting(lists: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels, with ``position``, of calls with as many kernels as their template."""
    calls = lists.group_by("call").agg(pl.col(C.group).first(), length=pl.len()).sort("call")
    of_template = pl.col("length").first().over(C.group)
    fitting = calls.filter(pl.col("length") == of_template)["call"]
    kernels = lists.filter(pl.col("call").is_in(fitting.implode())).sort(
        "call", maintain_order=True
    )
    row, is_first = pl.int_range(pl.len()), pl.col("call").ne_missing(pl.col("call").shift())
    return kernels.with_columns(
        (row - pl.when(is_first).then(row).forward_fill()).alias(C.position)
    )


def trunc_kernel_details(details: list[dict[str, Any]] | None) -> str | None:
    """Return the details as short text for a cell; None if there are none."""
    short = [
        {
            "name": d["name"][:NAME_LENGTH] + ("..." if len(d["name"]) > NAME_LENGTH else ""),
            "stream": d["stream"],
            # The sheets round the scaled number half to even.
            "mean_duration_us": round(d["mean_duration_us"] * 100) / 100,
        }
        for d in details or ()
    ]
    return repr(short) if short else None


def kernels_by_name(work: pl.DataFrame, owner: str) -> pl.DataFrame:
    """Return ``owner, kernels``: statistics by kernel name and stream, longest total first.

    Args:
        work: ``owner, name, stream, dur_ns``.
    """
    ns = pl.col(C.dur_ns)
    return (
        work.group_by(owner, C.name, C.stream)
        .agg(
            pl.len().cast(pl.Int64).alias(C.count),
            microseconds(ns.sum()).alias(C.total_us),
            (microseconds(ns.sum()) / pl.len()).alias(C.mean_us),
            microseconds(ns.min()).alias(C.min_us),
            microseconds(ns.max()).alias(C.max_us),
        )
        .sort([owner, C.total_us, C.name, C.stream], descending=[False, True, False, False])
        .group_by(owner, maintain_order=True)
        .agg(entries(KERNELS).alias(C.kernels))
    )


def entries(dtype: pl.List) -> pl.Expr:
    """Return a struct of the columns that are fields of a list column."""
    assert isinstance(dtype.inner, pl.Struct)
    return pl.struct([field.name for field in dtype.inner.fields])


UNKNOWN = "Unknown"
ARGUMENTS = (C.input_dims, C.input_types, C.input_strides, C.concrete_inputs)
THREAD = (C.process_name, C.process_label, C.thread_name)
CALL_KEY = (C.name, C.op_category, *THREAD, *ARGUMENTS)
"""Key columns of a row in the sheets."""

OPTIONAL_KEY = (C.parent_module, C.num_kernels, C.is_recompute, C.overlapping_kernel_names)
"""Optional key columns."""

_PROCESS_TID = "0"  # Kineto writes the names of a process under this thread
_NAME = pl.Categorical()


@dataclass(frozen=True)
class HostCalls:
    """The host calls of a trace: cpu ops, runtime calls, and optionally Python functions.

    There are millions of calls, but most tables need only the few that launch GPU work, so rows are
    selected lazily. ``recorded_events`` is the first uid of calls that are not of the recording and
    have no host time of their own; None if all are.
    """

    cpu_ops: pl.DataFrame
    runtime: pl.DataFrame
    python_functions: pl.DataFrame | None
    threads: pl.DataFrame
    recomputed: pl.Series | None = None
    recorded_events: int | None = None
    shown_times: Callable[[pl.DataFrame], pl.DataFrame] = pl.DataFrame.clone

    def select(self, uids: pl.Series, *columns: str) -> pl.DataFrame:
        """Return ``uid`` and ``columns`` of the calls with these uids, in file order.

        Columns that a kind of call does not have are null.
        """
        wanted = pl.col(C.uid).is_in(uids.implode())
        times = (C.ts_ns,) if C.dur_ns in columns else ()
        read = tuple(dict.fromkeys((C.uid, *columns, *times)))
        parts = [
            table.select(pl.col(name) for name in read if name in table.columns)
            for table in (self.cpu_ops, self.runtime, self.python_functions)
            if table is not None
        ]
        calls = pl.concat([part.filter(wanted) for part in parts], how="diagonal").sort(C.uid)
        return self.shown_times(calls).select(
            name for name in (C.uid, *columns) if name in calls.columns
        )

    def rows(self, uids: pl.Series) -> pl.DataFrame:
        """Return the calls with these uids, in file order, with the columns of sheets.

        Columns: ``uid, name, ts_ns, dur_ns``, the arguments as JSON text (null if not recorded),
        ``process_name, process_label, thread_name``; ``is_recompute`` if known. Texts are
        categorical, at four bytes a row.
        """
        calls = self.select(uids, C.name, C.ts_ns, C.dur_ns, C.pid, C.tid, *ARGUMENTS)
        processes = self.threads.filter(pl.col(C.tid) == _PROCESS_TID)
        named = (
            calls.join(
                processes.select(C.pid, pl.col(C.process_name, C.process_label).cast(_NAME)),
                on=C.pid,
                how="left",
                maintain_order="left",
            )
            .join(
                self.threads.select(C.pid, C.tid, pl.col(C.thread_name).cast(_NAME)),
                on=[C.pid, C.tid],
                how="left",
                maintain_order="left",
            )
            .drop(C.pid, C.tid)
            .with_columns(
                pl.col(C.name).cast(_NAME),
                pl.col(THREAD).fill_null(pl.lit(UNKNOWN, dtype=_NAME)),
            )
        )
        if self.recomputed is None:
            return named
        return named.with_columns(
            pl.col(C.uid).is_in(self.recomputed.implode()).alias(C.is_recompute)
        )


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
        recorded_events=None if trace.recording is trace else trace.recording.event_count,
        shown_times=trace.shown_times,
    )


def statistics(columns: Sequence[str], which: Sequence[str]) -> list[pl.Expr]:
    """Return aggregations ``<column>_mean``, ... of each column; ``std`` is the sample
    deviation."""
    return [
        getattr(pl.col(column), name)().alias(f"{column}_{name}")
        for column in columns
        for name in which
    ]


def shares(of: str) -> list[pl.Expr]:
    """Return ``percent`` and ``cumulative_percent`` of a column; null if the sum is 0."""
    total = pl.col(of).sum()
    share = pl.when(total > 0).then(100 * pl.col(of) / total)
    return [share.alias(C.percent), share.cum_sum().alias(C.cumulative_percent)]


def key_of(calls: pl.DataFrame, *columns: str) -> list[str]:
    """Return ``columns`` and the columns of OPTIONAL_KEY that the calls have."""
    return [*columns, *(column for column in OPTIONAL_KEY if column in calls.columns)]


def numbered(calls: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return calls with ``call``, their position, and ``group``, the first call with equal key."""
    return calls.with_columns(call=pl.int_range(pl.len(), dtype=pl.UInt32)).with_columns(
        pl.col("call").first().over(key).alias(C.group)
    )


def with_kernel_details(
    groups: pl.DataFrame,
    calls: pl.DataFrame,
    work: pl.DataFrame,
    names: tuple[str, str] = (C.kernel_details, C.trunc_kernel_details),
) -> pl.DataFrame:
    """Return groups with ``kernel_details`` and ``trunc_kernel_details``; ``[]`` and null if none.

    Args:
        calls: ``uid, call, group``.
        work: ``owner_uid, name, stream, dur_ns``, optionally ``stack_of``, in the order in which
            the kernels of a call are listed.
        names: Names of the two columns.
    """
    full, short = names
    optional = [column for column in (C.stack_of,) if column in work.columns]
    lists = (
        work.select(C.name, C.stream, C.dur_ns, *optional, pl.col(C.owner_uid).alias(C.uid))
        .join(calls.select(C.uid, "call", C.group), on=C.uid, maintain_order="left")
        .drop(C.uid)
    )
    entries_of = kernel_details(lists).rename({C.kernel_details: full})
    details = groups.join(entries_of, on=C.group, how="left", maintain_order="left")
    texts = [trunc_kernel_details(entries) for entries in details[full].to_list()]
    return details.with_columns(
        pl.col(full).fill_null(pl.lit([], dtype=KERNEL_STATS)),
        pl.Series(short, texts, dtype=pl.String),
    )
