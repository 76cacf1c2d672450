"""The operations of a late rank: more kernels, other shapes, or the same ones for longer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from jarvis.ranks.categories import outliers, rank_categories
from jarvis.ranks.delays import delays, with_causes
from jarvis.ranks.findings import rank_findings
from jarvis.ranks.join import join
from jarvis.ranks.members import Member
from jarvis.text.messages import to_text
from tests.ranks.built import US, BuiltRank, Kernel, info, table

MS = 1_000 * US
RANKS, LATE_RANK, STEPS = 4, 1, 4
Work = Sequence[tuple[int, int]]
"""Row of the operations table and duration of each kernel of a step."""

COPY, COPY_BYTES = 0, 1_500_000
NAMES = {
    1: ("aten::mm", "((8, 8), (8, 8))"),
    2: ("aten::mm", "((9, 8), (8, 8))"),
    3: ("aten::bmm", "((2, 8, 8), (2, 8, 8))"),
}
USUAL: Work = [(1, MS), (1, MS), (3, MS)]


_COPIED = {"kind": "copy", "name": "Memcpy HtoD", "direction": "H2D", "bytes": COPY_BYTES}


def ranks(late: Work, late_steps: Sequence[int] = (STEPS - 1,)) -> list[Member]:
    """Return ranks that begin each step together; in late steps, the late rank does its work."""
    kernels: list[list[Kernel]] = [[] for _ in range(RANKS)]
    work: list[list[dict[str, Any]]] = [[] for _ in range(RANKS)]
    begin, steps = MS, []
    for step in range(STEPS):
        arrivals = []
        for rank in range(RANKS):
            at = begin
            for operation, length in late if rank == LATE_RANK and step in late_steps else USUAL:
                uid = 1000 + len(work[rank])
                row = {"uid": uid, "ts_ns": at, "dur_ns": length, "operation_uid": operation}
                kind = _COPIED if operation == COPY else {"kind": "compute", "name": "gemm"}
                work[rank].append(row | kind)
                at += length
            arrivals.append(at)
        end = max(arrivals) + 100 * US
        for rank, arrival in enumerate(arrivals):
            kernels[rank].append(Kernel(arrival, end, {"step": step}))
        described = {"step": step, "number": step, "source": "profiler"}
        steps.append(described | {"start_ns": begin, "dur_ns": end - begin})
        begin = end
    operations = table(
        "operations",
        [
            {"uid": uid, "name": name, "input_dims": dims, "op_category": "GEMM"}
            for uid, (name, dims) in NAMES.items()
        ],
    )
    found = []
    for rank in range(RANKS):
        times = [(row["ts_ns"], row["ts_ns"] + row["dur_ns"], row["kind"]) for row in work[rank]]
        compute = [(start, end) for start, end, kind in times if kind == "compute"]
        copies = [(start, end, "H2D") for start, end, kind in times if kind == "copy"]
        member = BuiltRank(rank, kernels[rank], compute, copies=copies).member(RANKS)
        own = {"gpu_work": table("gpu_work", work[rank]), "operations": operations}
        own["steps"] = table("steps", steps)
        found.append(replace(member, tables={**member.tables, **own}))
    return found


def delay_of(late: Work) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """Return the delay that the work makes, and its operations."""
    tables = join(ranks(late), RANKS).tables
    rows = with_causes(delays(tables["lateness"], tables["instances"]), tables)
    (delay,) = rows.iter_rows(named=True)
    assert delay["rank"] == LATE_RANK
    return delay, tables["lateness_operations"].to_dicts()


def test_the_same_kernels_that_take_longer() -> None:
    delay, (first, second) = delay_of([(1, 2 * MS), (1, MS), (3, MS)])
    assert delay["where"] == "aten::mm 1.0 ms: the same kernels take longer"
    assert (first["name"], first["uid"], delay["uid"]) == ("aten::mm", 1009, 1009)
    assert (first["kernel_time_ns"], first["yardstick_ns"]) == (3 * MS, 2 * MS)
    assert (first["slower_ns"], first["more_kernels_ns"], first["other_shapes_ns"]) == (MS, 0, 0)
    assert (second["name"], second["extra_ns"]) == ("aten::bmm", 0)


def test_more_kernels() -> None:
    delay, (first, _) = delay_of([*USUAL, (1, MS), (1, MS)])
    assert delay["where"] == "aten::mm 2.0 ms: more kernels (4 instead of 2)"
    assert (first["kernel_count"], first["yardstick_kernel_count"]) == (4, 2)
    assert (first["slower_ns"], first["more_kernels_ns"]) == (0, 2 * MS)


def test_kernels_of_other_shapes() -> None:
    delay, (first, _) = delay_of([(2, 2 * MS), (2, 2 * MS), (3, MS)])
    assert delay["where"] == "aten::mm 2.0 ms: other shapes or kernels"
    assert (first["slower_ns"], first["other_shapes_ns"]) == (0, 2 * MS)


def test_more_kernels_that_also_take_longer_are_divided() -> None:
    _, (first, _) = delay_of([(1, 2 * MS), (1, 2 * MS), (1, 2 * MS), (3, MS)])
    assert first["extra_ns"] == 4 * MS
    assert (first["slower_ns"], first["more_kernels_ns"]) == (3 * MS, MS)


def test_copies_are_named_with_their_bytes() -> None:
    delay, found = delay_of([*USUAL, (COPY, MS), (COPY, MS)])
    assert delay["cause"] == "copy: H2D"
    assert delay["where"] == "Memcpy HtoD 2.0 ms: 3.0 MB in 2 copies instead of 0.0 MB in 0"
    (copied,) = (row for row in found if row["state"] == "copy")
    assert (copied["detail"], copied["extra_ns"], copied["uid"]) == ("H2D", 2 * MS, delay["uid"])
    assert (copied["kernel_count"], copied["yardstick_kernel_count"]) == (2, 0)
    assert (copied["bytes"], copied["yardstick_bytes"]) == (2 * COPY_BYTES, 0)
    computed = [row for row in found if row["state"] == "compute"]
    assert [row["bytes"] for row in computed] == [None, None]


def test_a_finding_names_the_bytes_of_copies() -> None:
    joined = join(ranks([*USUAL, (COPY, MS), (COPY, MS)], range(STEPS)), RANKS)
    found = to_text(rank_findings(joined, RANKS).findings[0].issue)
    assert "copy (H2D) 2.00 ms (`Memcpy HtoD`: 3.00 MB in 2 instead of 0 B in 0)" in found


def test_runs_without_operations_have_none() -> None:
    whole = ranks([*USUAL, (1, MS)])
    bare = [
        replace(each, tables={k: v for k, v in each.tables.items() if k != "operations"})
        for each in whole
    ]
    tables = join(bare, RANKS).tables
    assert tables["lateness_operations"].is_empty()
    earlier = {name: tables[name] for name in tables if name != "lateness_operations"}
    (delay,) = with_causes(delays(tables["lateness"], tables["instances"]), earlier).to_dicts()
    assert (delay["cause"], delay["where"], delay["uid"]) == ("compute: GEMM", None, None)


def test_the_ranks_with_the_nearest_numbers_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis.ranks.operations.MAX_YARDSTICK_RANKS", 1)
    whole = ranks([*USUAL, (1, MS)])
    tables = join(whole, RANKS).tables
    found = tables["lateness_operations"]
    assert found["yardstick_ranks"].unique().to_list() == [1]
    assert found.filter(pl.col("extra_ns") > 0)["extra_ns"].to_list() == [MS]


def test_the_time_of_categories_is_compared_between_the_ranks_of_a_role() -> None:
    whole = ranks([*USUAL, (1, MS)])
    found = join(whole, RANKS).tables["rank_categories"]
    usual_ms = len(USUAL) * STEPS
    times = [usual_ms + (rank == LATE_RANK) for rank in range(RANKS)]
    assert found["time_ms"].to_list() == times
    assert found["median_ms"].to_list() == [usual_ms] * RANKS
    assert found["is_outlier"].to_list() == [rank == LATE_RANK for rank in range(RANKS)]
    (row,) = outliers(found).to_dicts()
    assert (row["rank"], row["category"], row["extra_ms"]) == (LATE_RANK, "GEMM", 1)
    assert row["extra_pct"] == pytest.approx(100 / usual_ms)
    two = [member for member in whole if member.rank < 2]
    found = join(two, RANKS).tables["rank_categories"]
    assert found["median_ms"].null_count() == 2
    assert not found["is_outlier"].any()


def test_ranks_of_other_stages_and_gpus_are_not_compared() -> None:
    def times(values: Sequence[float]) -> pl.DataFrame:
        schema = {"rank": pl.Int32, "detail": pl.String, "ns": pl.Int64}
        rows = [(rank, "GEMM", round(ms * MS)) for rank, ms in enumerate(values) if ms]
        return pl.DataFrame(rows, schema, orient="row")

    members = [Member(rank, "", info(rank, "A" if rank < 6 else "B"), {}) for rank in range(9)]
    stages = {rank: rank // 3 for rank in range(6)}
    found = rank_categories(times([1, 1, 2, 4, 4, 0, 9, 9, 9]), members, stages)
    assert found["time_ms"].to_list() == [1, 1, 2, 4, 4, 0, 9, 9, 9]
    assert found["median_ms"].to_list() == [1] * 3 + [4] * 3 + [9] * 3
    assert found.filter("is_outlier")["rank"].to_list() == [2, 5]
    assert outliers(found)["extra_ms"].to_list() == [-4, 1]
