"""Simulated jobs of several ranks, whose truth is known: clocks, waiting, and who is last."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from jarvis.perf_report import PerfReport
from jarvis.ranks.delays import delays, with_causes
from jarvis.ranks.join import Joined, join
from jarvis.ranks.members import Member
from jarvis.sample import Faults, Job, write_job
from jarvis.sample.faults import Late, Slow, clock_offsets
from jarvis.trace import read_trace

RANKS, STEPS = 4, 3
TABLES = (
    *("collectives", "steps", "gpu_work", "gpu_timeline", "timeline_states", "idle_gaps"),
    "operations",
)
CLEAR_US = 20.0
"""Margin of the last arrival above which the last rank is to be right."""


def members(
    folder: Path, faults: Faults, job: Job | None = None
) -> tuple[dict[str, Any], list[Member]]:
    """Simulate a job; return what is true of it, and its ranks."""
    job = job or Job(STEPS, RANKS, faults=faults)
    truth = write_job(job, {rank: folder / f"rank{rank}.json" for rank in range(RANKS)})
    found = []
    for rank in sorted(set(range(RANKS)) - faults.skipped):
        trace = read_trace(folder / f"rank{rank}.json")
        report = PerfReport(trace, None)
        tables = {name: report.table(name) for name in TABLES}
        found.append(Member(rank, f"rank{rank}.json", trace.info, tables))
    return truth, found


@pytest.fixture(scope="module")
def faultless(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[Member]]:
    return members(tmp_path_factory.mktemp("faultless"), Faults())


def assert_true(joined: Joined, truth: dict[str, Any], tolerance_us: float) -> None:
    """Compare every instance with the truth."""
    rows = joined.tables["instances"].sort("first_ns")
    assert rows.height == len(truth["instances"])
    of_ranks = joined.tables["instance_ranks"]
    for row, true in zip(rows.iter_rows(named=True), truth["instances"], strict=True):
        assert row["bytes"] == true["bytes"]
        waits = of_ranks.filter(pl.col("instance_id") == row["instance_id"]).sort("rank")
        assert (waits["wait_ns"] / 1e3).to_list() == pytest.approx(
            true["waits_us"], abs=tolerance_us
        )
        assert row["transfer_us"] == pytest.approx(true["transfer_us"], abs=tolerance_us)
        arrivals: Sequence[float] = true["arrivals_us"]
        second, last = sorted(arrivals)[-2:]
        if last - second > CLEAR_US:
            assert row["last_rank"] == arrivals.index(last)


def test_waiting_and_transfer_are_those_of_the_job(
    faultless: tuple[dict[str, Any], list[Member]],
) -> None:
    truth, ranks = faultless
    assert_true(join(ranks, RANKS), truth, tolerance_us=0.01)


def test_offsets_drift_and_bases_of_clocks_change_nothing(tmp_path: Path) -> None:
    offsets = clock_offsets(["uniform:5000"], RANKS, seed=1)
    faults = Faults(clock_offset_us=offsets, clock_drift_ppm={2: 50.0}, has_own_base=True)
    truth, ranks = members(tmp_path, faults)
    joined = join(ranks, RANKS)
    assert_true(joined, truth, tolerance_us=10)
    found = dict(joined.tables["ranks"].select("rank", "clock_offset_us").iter_rows())
    for rank, offset in offsets.items():
        assert found[rank] == pytest.approx(offset, abs=10)


def test_communication_is_hidden_where_compute_runs(
    faultless: tuple[dict[str, Any], list[Member]],
) -> None:
    tables = join(faultless[1], RANKS).tables
    exposed = pl.col("exposed_wait_ns").sum() + pl.col("exposed_transfer_ns").sum()
    share = exposed / (pl.col("end_ns") - pl.col("start_ns")).sum()
    of_ranks = tables["instance_ranks"].group_by("rank").agg(share=share).sort("rank")
    hidden = tables["ranks"]["hidden_comm_pct"]
    assert hidden.to_list() == pytest.approx((100 * (1 - of_ranks["share"])).to_list())
    assert hidden.is_between(1, 99).all()


def test_a_rank_that_began_a_step_later_is_matched_by_the_numbers_of_steps(tmp_path: Path) -> None:
    truth, ranks = members(tmp_path, Faults(steps_shift={1: 1}))
    joined = join(ranks, RANKS)
    rows = joined.tables["instances"]
    counts = joined.tables["instance_ranks"].group_by("instance_id").len("ranks")
    of_steps = rows.join(counts, on="instance_id").select("step", "ranks").unique().sort("step")
    assert of_steps.rows() == [(10, RANKS - 1), (11, RANKS), (12, RANKS)]
    unmatched = joined.tables["unmatched"].select("rank", "reason").unique()
    assert unmatched.rows() == [(1, "after_common_window")]
    late = rows.filter(pl.col("step") == 10)["last_rank"].to_list()
    true = [each["arrivals_us"] for each in truth["instances"][: len(late)]]
    for rank, arrivals in zip(late, true, strict=True):
        second, last = sorted(at for other, at in enumerate(arrivals) if other != 1)[-2:]
        assert last - second <= CLEAR_US or arrivals[rank] == last


def test_dropped_collectives_cost_themselves_alone(tmp_path: Path) -> None:
    truth, ranks = members(tmp_path, Faults(dropped={2: 3}))
    joined = join(ranks, RANKS)
    count = len(truth["instances"])
    of_others = joined.tables["instance_ranks"].filter(pl.col("rank") != 2)
    assert of_others.height == (RANKS - 1) * count
    of_rank = joined.tables["instance_ranks"].filter(pl.col("rank") == 2)
    assert of_rank.height >= 0.99 * (count - 3)


def test_a_late_loader_is_one_delay_of_its_length(tmp_path: Path) -> None:
    late_ms, late_rank, steps = 5.0, 1, 6
    faults = Faults(is_even=True, late=(Late(late_rank, late_ms, "loader", 3),))
    job = Job(steps, RANKS, faults=faults)
    _, ranks = members(tmp_path, faults, job)
    tables = join(ranks, RANKS).tables
    rows = delays(tables["lateness"], tables["instances"])
    found = with_causes(rows, tables)
    (row,) = found.filter(pl.col("new_ms") > 0.1 * late_ms).iter_rows(named=True)
    assert (row["rank"], row["cause"]) == (late_rank, "idle: data loading")
    assert row["new_ms"] == pytest.approx(late_ms, rel=0.05)
    assert row["extra_ms"] == pytest.approx(late_ms, rel=0.05)
    gap = ranks[late_rank].tables["idle_gaps"].filter(next_uid=row["uid"]).row(0, named=True)
    assert (gap["cause"], gap["host_frame"]) == ("data_loading", row["where"])
    assert gap["dur_ns"] / 1e6 > late_ms
    in_step = tables["instances"].filter(step=row["step"]).select("instance_id")
    late = tables["lateness"].join(in_step, on="instance_id")
    assert late["rank"].to_list() == [late_rank] * in_step.height
    assert in_step.height > 10
    assert late["new_ns"].sum() / 1e6 == pytest.approx(late_ms, rel=0.05)


def test_the_operation_that_takes_longer_is_that_of_the_slow_kernels(tmp_path: Path) -> None:
    """Of the operations of the late rank, only products of matrices take longer.

    Not all by the factor: kernels for a few small products are of other families.
    """
    factor, late_rank = 1.05, 2
    faults = Faults(is_even=True, slow=(Slow(late_rank, factor, "gemm"),))
    _, ranks = members(tmp_path, faults)
    tables = join(ranks, RANKS).tables
    found = tables["lateness_operations"].filter(rank=late_rank)
    assert found["instance_id"].n_unique() == STEPS - 1
    parts = pl.sum_horizontal("slower_ns", "more_kernels_ns", "other_shapes_ns")
    assert found.filter(pl.col("extra_ns") != parts).is_empty()
    assert found.filter(
        pl.col("kernel_time_ns") - pl.col("yardstick_ns") != pl.col("extra_ns")
    ).is_empty()
    is_gemm = pl.col("detail") == "GEMM"
    gemm, rest = found.filter(is_gemm), found.filter(~is_gemm)
    ratio = gemm["kernel_time_ns"].sum() / gemm["yardstick_ns"].sum()
    assert 0.6 * (factor - 1) < ratio - 1 < factor - 1 + 0.005
    assert rest["kernel_time_ns"].sum() == pytest.approx(rest["yardstick_ns"].sum(), rel=0.01)
    assert gemm["slower_ns"].sum() == pytest.approx(gemm["extra_ns"].sum(), rel=0.01)
    causes = tables["lateness_causes"].filter(state="compute", detail="GEMM")
    sums = gemm.group_by("instance_id").agg(pl.col("extra_ns").sum())
    both = sums.join(causes, on="instance_id", suffix="_state")
    assert (both["extra_ns"] / both["extra_ns_state"]).to_list() == pytest.approx([1] * 2, rel=0.1)
    work = ranks[late_rank].tables["gpu_work"]
    kernel = work.filter(uid=gemm["uid"][0]).row(0, named=True)
    operation = ranks[late_rank].tables["operations"].filter(uid=kernel["operation_uid"])
    assert operation["name"].to_list() == gemm["name"][:1].to_list()


def test_ranks_of_two_jobs_have_no_waiting(
    faultless: tuple[dict[str, Any], list[Member]], tmp_path: Path
) -> None:
    _, ranks = faultless
    job = Job(STEPS, RANKS, seed=7)
    write_job(job, {1: tmp_path / "b.json"})
    other = read_trace(tmp_path / "b.json")
    report = PerfReport(other, None)
    tables = {name: report.table(name) for name in TABLES}
    joined = join([ranks[0], Member(1, "b.json", other.info, tables)], RANKS)
    assert not joined.is_waiting_known
    assert joined.tables["instances"]["wait_us"].null_count() == joined.tables["instances"].height
