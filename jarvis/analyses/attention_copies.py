"""Copies of an attention's own tensors around the fused kernel: layouts made contiguous."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.analyses import kernel_names
from jarvis.analyses.base import CategoryData
from jarvis.analyses.inefficiency import facts_of
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup, arguments, groups
from jarvis.analyses.wording import counted, listed, ms, pct, quoted
from jarvis.findings import GPU_TIME, Finding, Priority
from jarvis.literals import parse_literal

COPY_OPERATORS = ("aten::copy_", "aten::clone", "aten::contiguous")
COPY_KERNELS = r"copy|transpose|memcpy"
"""Operators beside an attention call, and kernels inside one, that only move its tensors."""

COPIES_SHARE_PCT = 10.0
"""Copies that take this share of the attention's time are worth a word."""

Shape = tuple[int, ...]
Place = tuple[str, Any]
_Copy = tuple[int, int, int]

COPIES_PER_CALL = 4
"""Query, key, value and output: more copies than these belong to something else too."""


def contiguous_copies(data: CategoryData) -> Iterator[Finding]:
    """Copies of query, key, value or output around a fused attention call.

    Symptom: tensors are made contiguous before and after attention, which moves as much data as
    attention itself.
    Rule: copies in the module of an attention call, of a tensor with the dimensions of its query or
    key in any order, at most {COPIES_PER_CALL} per call, together with copy kernels inside the
    call.
    Threshold: {COPIES_SHARE_PCT}% of the attention's time; at least {MIN_COMPUTE_PCT}% of compute.
    """
    rows = data.operations.with_columns(inside_us=kernel_names.time_us(COPY_KERNELS))
    for group in groups(rows.filter(pl.col("is_flash"))):
        outside = _copies_around(data, group)
        inside_ms = float(group.rows["inside_us"].sum()) / 1000
        copies_ms = inside_ms + float(outside["kernel_time_us"].sum()) / 1000
        share = impact.share_pct(copies_ms, group.time_ms)
        compute_pct = impact.share_pct(copies_ms, data.totals.compute_time_ms)
        if share >= COPIES_SHARE_PCT and compute_pct >= MIN_COMPUTE_PCT:
            yield _finding(data, group, outside, copies_ms)


def _copies_around(data: CategoryData, group: OperationGroup) -> pl.DataFrame:
    """Rows of the operations table that copy a tensor of the group's calls in their module."""
    every = data.tables.get("operations")
    if every is None:
        return data.operations.clear()
    found: set[int] = set()
    copies = every.filter(pl.col("name").is_in(COPY_OPERATORS) & (pl.col("kernel_time_us") > 0))
    alike = _by_place_and_shape(copies)
    calls = {_sought(call): None for call in group.rows.iter_rows(named=True)}
    for place, shapes, most in calls:
        left = most
        for _, uid, count in sorted(chain(*(alike.get((place, shape), ()) for shape in shapes))):
            if count <= left:
                left -= count
                found.add(uid)
    return copies.filter(pl.col("uid").is_in(found))


def _by_place_and_shape(copies: pl.DataFrame) -> dict[tuple[Place, Shape], list[_Copy]]:
    """Return the order, uid and number of calls of the rows that copy such a tensor there."""
    found: dict[tuple[Place, Shape], list[_Copy]] = {}
    for order, copy in enumerate(copies.iter_rows(named=True)):
        for shape in _tensors(copy["input_dims"])[:1]:
            entry = order, copy["uid"], copy["operation_count"]
            for key in ("module_path", "entry_point"):
                found.setdefault((_place(copy, key), tuple(sorted(shape))), []).append(entry)
    return found


def _sought(call: dict[str, Any]) -> tuple[Place, frozenset[Shape], int]:
    """Return where copies of a call are, the shapes of its first two tensors, and the most."""
    shapes = frozenset(tuple(sorted(shape)) for shape in _tensors(call["input_dims"])[:2])
    place = _place(call, "module_path" if call["module_path"] else "entry_point")
    return place, shapes if place[1] else frozenset(), COPIES_PER_CALL * call["operation_count"]


def _tensors(input_dims: str | None) -> list[Shape]:
    """Shapes of the tensor arguments of three dimensions and more."""
    return [s for s in parse_literal(input_dims) if len(s) > 2 and not isinstance(s[0], tuple)]


def _place(row: dict[str, Any], key: str) -> Place:
    """Return the module of an example call, or the function that it is called from."""
    value = row[key]
    return key, tuple(value) if isinstance(value, list) else value


def _finding(
    data: CategoryData, group: OperationGroup, outside: pl.DataFrame, copies_ms: float
) -> Finding:
    facts, name = facts_of(group), quoted(group.name)
    ordered = outside.sort("kernel_time_us", "uid", descending=[True, False])
    kinds = [
        f"{counted(row['operation_count'], 'copy')} of "
        f"{(arguments(row['input_dims'], row['input_types']) or '').split(', [')[0]}"
        for row in ordered.iter_rows(named=True)
    ]
    inside_ms = float(group.rows["inside_us"].sum()) / 1000
    what = listed(kinds) if kinds else f"{ms(inside_ms)} of copy kernels inside the calls"
    places = [place for place in ordered["entry_point"].unique(maintain_order=True) if place]
    place = f" in {quoted(places[0])}" if places else facts["place"]
    calls = int(ordered["operation_count"].sum())
    compute_pct = impact.share_pct(copies_ms, data.totals.compute_time_ms)
    is_large = compute_pct > impact.MEDIUM_COMPUTE_PCT
    priority = Priority.HIGH if is_large else Priority.MEDIUM
    return Finding(
        check="contiguous_copies",
        category=data.key,
        title=f"Copies around attention: {name}",
        operations=group.operations if inside_ms > 0 else (),
        evidence={
            "Time of the copies (ms)": copies_ms,
            "Share of compute (%)": compute_pct,
            "Copies per attention call": calls / max(group.calls, 1),
            "Time of attention (ms)": group.time_ms,
            GPU_TIME: copies_ms,
            "Copies": what,
        },
        issue=f"Next to {name} ({ms(group.time_ms)} in {facts['calls']}), copies of its own "
        f"tensors{place} take {ms(copies_ms)} ({pct(compute_pct)} of compute): {what}, "
        f"{calls / max(group.calls, 1):.3g} for each call.",
        algorithmic=f"Pass query, key and value with the strides that they have and read the "
        f"output as it comes: remove the calls that make them contiguous{place}.",
        kernel=f"Use an attention kernel that takes the strides of {facts['arguments']}, and "
        f"compare {facts['kernel']} with and without the copies on the replay package.",
        priority_local=priority,
        priority=priority,
        impact=impact.bounded_impact(copies_ms, copies_ms, **data.bases),
        caveat="Rows of equal copies from other places count in full: the time is an upper bound.",
        verify=f"Record the trace again: the {counted(calls, 'copy')} are gone and {name} is not "
        f"slower than {ms(group.time_ms)}.",
        capture=f"Time {name} alone on strided and on contiguous inputs: the trace does not say "
        "how much slower the kernel is without the copies.",
        shared_uids=tuple(ordered["uid"]),
    )
