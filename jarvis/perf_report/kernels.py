"""Kernel statistics over many calls: by position as in the sheets, or by name."""

from typing import Any

import polars as pl

from jarvis.perf_report.intervals import microseconds
from jarvis.schemas import KERNEL_STATS, KERNELS

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
    ns = pl.col("dur_ns")
    has_owners = "stack_of" in lists.columns
    return (
        _fitting(lists)
        .group_by("group", "position", maintain_order=True)
        .agg(
            name=pl.col("name").first(),
            stream=pl.col("stream").first(),
            count=pl.len().cast(pl.Int64),
            total_duration_us=microseconds(ns.sum()),
            mean_duration_us=microseconds(ns.sum()) / pl.len(),
            median_duration_us=microseconds(ns.median()),
            std_dev_duration_us=ns.std(ddof=0) / 1e3,
            min_duration_us=microseconds(ns.min()),
            max_duration_us=microseconds(ns.max()),
            **({"stack_owners": pl.col("stack_of").first()} if has_owners else {}),
        )
        .sort("group", "total_duration_us", "name", maintain_order=True)
        .group_by("group", maintain_order=True)
        .agg(
            *(["stack_owners"] if has_owners else []),
            kernel_details=_entries(KERNEL_STATS),
        )
    )


def _fitting(lists: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels, with ``position``, of calls with as many kernels as their template."""
    calls = lists.group_by("call").agg(pl.col("group").first(), length=pl.len()).sort("call")
    of_template = pl.col("length").first().over("group")
    fitting = calls.filter(pl.col("length") == of_template)["call"]
    kernels = lists.filter(pl.col("call").is_in(fitting.implode())).sort(
        "call", maintain_order=True
    )
    row, is_first = pl.int_range(pl.len()), pl.col("call").ne_missing(pl.col("call").shift())
    return kernels.with_columns(position=row - pl.when(is_first).then(row).forward_fill())


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
    ns = pl.col("dur_ns")
    return (
        work.group_by(owner, "name", "stream")
        .agg(
            count=pl.len().cast(pl.Int64),
            total_us=microseconds(ns.sum()),
            mean_us=microseconds(ns.sum()) / pl.len(),
            min_us=microseconds(ns.min()),
            max_us=microseconds(ns.max()),
        )
        .sort([owner, "total_us", "name", "stream"], descending=[False, True, False, False])
        .group_by(owner, maintain_order=True)
        .agg(kernels=_entries(KERNELS))
    )


def _entries(dtype: pl.List) -> pl.Expr:
    assert isinstance(dtype.inner, pl.Struct)
    return pl.struct([field.name for field in dtype.inner.fields])
