"""Communication and copies: grades of copies, exposure and overlap."""

from dataclasses import replace

import polars as pl
import pytest

from jarvis.analyses.system.multi_kernel import measure, prepare
from jarvis.analyses.system.multi_kernel.communication import exposed_communication, poor_overlap
from jarvis.analyses.system.multi_kernel.copies import memory_copies
from jarvis.findings import Priority, Severity
from jarvis.savings import time_sources
from tests.analyses.rows import operation, operations, system, table, totals
from tests.worded import Worded, supported_in, worded

KEY = "multi_kernel"


def comm(exposed_ms: float, total_ms: float, compute_ms: float = 50.0, idle_ms: float = 0.0):
    return totals(compute_ms, exposed_comm_ms=exposed_ms, comm_ms=total_ms, idle_ms=idle_ms)


@pytest.mark.parametrize(
    ("exposed_ms", "severity"),
    [(21.0, Severity.CRITICAL), (20.0, Severity.HIGH), (10.0, Severity.MEDIUM)],
)
def test_exposed_communication_by_share_of_wall_time(exposed_ms: float, severity: Severity) -> None:
    base = comm(exposed_ms, exposed_ms, compute_ms=100.0 - exposed_ms)
    (finding,) = worded(exposed_communication(system(KEY, base)))
    assert finding.severity is severity
    assert finding.impact.saved_ms.high == pytest.approx(exposed_ms)
    assert finding.impact.e2e_pct.high == pytest.approx(exposed_ms)


@pytest.mark.parametrize("exposed_ms", [5.0, 2.0, 0.0])
def test_little_exposure_is_no_finding(exposed_ms: float) -> None:
    base = comm(exposed_ms, exposed_ms, compute_ms=100.0 - exposed_ms)
    assert not list(exposed_communication(system(KEY, base)))


@pytest.mark.parametrize(
    ("exposed_ms", "severity"),
    [(7.1, Severity.CRITICAL), (7.0, Severity.HIGH), (5.0, Severity.MEDIUM)],
)
def test_overlap_of_ten_milliseconds_of_communication(
    exposed_ms: float, severity: Severity
) -> None:
    (finding,) = worded(poor_overlap(system(KEY, comm(exposed_ms, 10.0))))
    assert finding.severity is severity
    assert finding.evidence["Overlap (% of communication)"] == pytest.approx(100 - 10 * exposed_ms)


def test_good_overlap_and_hardly_any_communication_are_no_findings() -> None:
    assert not list(poor_overlap(system(KEY, comm(3.0, 10.0))))
    assert not list(poor_overlap(system(KEY, comm(0.09, 0.09))))
    assessment = measure(system(KEY, comm(0.09, 0.09)))["overlap_assessment"]
    assert assessment["overlap_ratio"] is None
    assert assessment["severity"] is Severity.NOT_AVAILABLE


def test_overlap_saves_no_more_than_the_compute_that_could_hide_it() -> None:
    # 30 of 40 ms exposed; 70 % hidden would leave 12, but only 15 - 10 = 5 ms of compute are free
    (finding,) = worded(poor_overlap(system(KEY, comm(30.0, 40.0, compute_ms=15.0))))
    assert finding.impact.saved_ms.high == pytest.approx(5.0)
    assert "Only 5.00 ms of compute" in finding.caveat
    (finding,) = worded(poor_overlap(system(KEY, comm(30.0, 40.0, compute_ms=90.0))))
    assert finding.impact.saved_ms.high == pytest.approx(18.0)


def test_poor_overlap_of_negligible_communication_is_graded_but_not_urgent() -> None:
    (finding,) = worded(poor_overlap(system(KEY, comm(1.0, 1.0, compute_ms=99.0))))
    assert finding.severity is Severity.CRITICAL
    assert finding.priority is Priority.LOW


def test_overlap_that_no_compute_could_improve_is_not_urgent() -> None:
    (finding,) = worded(poor_overlap(system(KEY, comm(30.0, 30.0, compute_ms=0.0))))
    assert finding.severity is Severity.CRITICAL
    assert finding.priority is Priority.LOW


def test_exposure_and_overlap_draw_on_the_same_time() -> None:
    data = system(KEY, comm(30.0, 40.0))
    both = [*exposed_communication(data), *poor_overlap(data)]
    assert len(both) == 2
    assert time_sources(both[0]) == time_sources(both[1])


def copies(*rows: dict, time_ms: float = 100.0) -> list[Worded]:
    tables = {"memory_copies": memory_copies_table(*rows)}
    return worded(memory_copies(system(KEY, totals(time_ms), tables=tables)))


def memory_copies_table(*rows: dict) -> pl.DataFrame:
    return table("memory_copies", *rows)


def copy(direction: str, count: int, total_us: float) -> dict:
    return {
        "direction": direction,
        "count": count,
        "total_time_us": total_us,
        "avg_time_us": total_us / count,
        "max_time_us": total_us,
        "exposed_time_us": total_us / 2,
        "total_bytes": 4096 * count,
        "avg_bytes": 4096.0,
    }


@pytest.mark.parametrize(
    ("row", "severity"),
    [
        (copy("D2H", 101, 10.0), Severity.CRITICAL),
        (copy("H2D", 51, 10.0), Severity.HIGH),
        (copy("H2D", 11, 10.0), Severity.MEDIUM),
        (copy("D2H", 1, 10_100.0), Severity.CRITICAL),
        (copy("D2H", 1, 5_100.0), Severity.HIGH),
        (copy("D2H", 1, 2_100.0), Severity.MEDIUM),
        (copy("D2D", 366, 10.0), Severity.MEDIUM),
        (copy("D2D", 366, 5_100.0), Severity.HIGH),
        (copy("D2D", 366, 10_100.0), Severity.CRITICAL),
        (copy("other", 200, 10.0), Severity.MEDIUM),
    ],
)
def test_copies_have_the_worse_of_two_grades(row: dict, severity: Severity) -> None:
    (finding,) = copies(row)
    assert finding.severity is severity


@pytest.mark.parametrize("row", [copy("D2H", 10, 10.0), copy("D2H", 1, 2_000.0)])
def test_few_short_copies_are_no_finding(row: dict) -> None:
    assert not copies(row)


def test_many_copies_that_take_no_time_are_not_urgent() -> None:
    assert copies(copy("D2H", 500, 100.0))[0].priority is Priority.MEDIUM
    assert copies(copy("D2H", 500, 600.0))[0].priority is Priority.CRITICAL


def test_copy_finding_says_cause_as_a_hypothesis_and_saves_exposed_time() -> None:
    (finding,) = copies(copy("D2H", 60, 3_000.0))
    assert finding.title == "60 copies D2H"
    assert finding.hypothesis == "Results are read on the host."
    assert finding.impact.saved_ms.high == pytest.approx(1.5)


def test_without_single_copies_the_totals_decide_and_the_limit_is_reported() -> None:
    base = totals(90.0, exposed_copy_ms=10.1)
    (finding,) = worded(memory_copies(system(KEY, base)))
    assert finding.severity is Severity.CRITICAL
    assert "not available" in finding.caveat


def gpu_work(*rows: tuple[str, int, int, bool]) -> pl.DataFrame:
    return table(
        "gpu_work",
        *(
            {
                "uid": uid,
                "kind": kind,
                "cat": "kernel",
                "ts_ns": start,
                "dur_ns": length,
                "linked": linked,
            }
            for uid, (kind, start, length, linked) in enumerate(rows)
        ),
    )


def test_prepared_numbers_keep_to_the_window_of_the_timeline() -> None:
    work = gpu_work(
        ("compute", 0, 1_000_000, True),
        ("communication", 500_000, 1_000_000, True),
        ("communication", 9_000_000, 5_000_000, False),
    )
    collectives = table(
        "collectives",
        {"uid": 1, "name": "k", "collective": "allreduce", "dur_us": 1000.0, "message_mb": 8.0},
        {"uid": 2, "name": "k", "collective": "allreduce", "dur_us": 5000.0, "message_mb": 8.0},
    )
    base = totals(1.0, exposed_comm_ms=0.5, comm_ms=1.0)
    data = system(KEY, base, tables={"gpu_work": work, "collectives": collectives})
    summary = prepare(data)["nccl_summary"]
    assert summary["total_count"] == 1
    assert summary["total_time_us"] == 1000.0
    validation = measure(data)["cross_validation"]
    assert validation["status"] == "PASS"
    other = system(KEY, totals(1.1, exposed_comm_ms=0.5), tables={"gpu_work": work})
    assert measure(other)["cross_validation"]["status"] == "WARN"


def test_patterns_name_what_was_found() -> None:
    base = comm(30.0, 40.0, compute_ms=60.0)
    tables = {"memory_copies": memory_copies_table(copy("D2H", 101, 100.0))}
    patterns = measure(system(KEY, base, tables=tables))["patterns_detected"]
    assert {p["pattern"] for p in patterns} == {
        "nccl_blocking_compute",
        "poor_comm_compute_overlap",
        "high_d2h_memcpy",
    }


def test_the_pattern_of_copies_without_a_direction_has_a_name_of_its_own() -> None:
    patterns = measure(system(KEY, totals(90.0, exposed_copy_ms=10.1)))["patterns_detected"]
    assert [p["pattern"] for p in patterns] == ["high_exposed_memcpy"]


def test_copies_name_their_operators_and_share_the_time_of_their_rows() -> None:
    single = {"kind": "copy", "cat": "gpu_memcpy", "linked": True, "ts_ns": 0, "dur_ns": 5_000}
    work = table(
        "gpu_work",
        *({**single, "direction": "D2D", "operation_uid": 7, "launcher_name": "aten::copy_"},) * 2,
        {**single, "direction": "D2D", "operation_uid": 3, "launcher_name": "aten::clone"},
        {**single, "direction": "H2D", "operation_uid": 9, "launcher_name": "aten::to"},
    )
    tables = {"memory_copies": memory_copies_table(copy("D2D", 60, 5_000.0)), "gpu_work": work}
    (finding,) = worded(memory_copies(system(KEY, totals(100.0), tables=tables)))
    assert finding.evidence["Copied by"] == "2 x `aten::copy_`, 1 x `aten::clone`"
    assert finding.shared_uids == (3, 7)


@pytest.mark.parametrize(("direction", "is_gradient"), [("backward", True), ("forward", False)])
def test_advice_on_gradients_needs_a_backward_pass(direction: str, is_gradient: bool) -> None:
    rows = operations(operation("aten::mm", time_us=10.0, direction=direction))
    reduction = table("collectives", {"uid": 1, "collective": "allreduce", "dur_us": 10.0})
    late = gpu_work(("compute", 0, 10, True), ("communication", 10, 90, True))
    tables = {"collectives": reduction, "gpu_work": late}
    data = replace(system(KEY, comm(30.0, 40.0), tables=tables), operations=rows)
    for finding in supported_in(data, (*exposed_communication(data), *poor_overlap(data))):
        assert ("backward pass" in finding.algorithmic) is is_gradient
        assert finding.hypothesis


@pytest.mark.parametrize("compute_ns", [40, 8])
def test_communication_beside_compute_did_not_start_late(compute_ns: int) -> None:
    """The second collective waits for the first one, beside which compute runs."""
    work = gpu_work(
        ("compute", 20, compute_ns, True),
        ("communication", 10, 50, True),
        ("communication", 61, 39, True),
    )
    training = operations(operation("aten::mm", time_us=10.0, direction="backward"))
    reduction = table("collectives", {"uid": 1, "collective": "allreduce", "dur_us": 10.0})
    tables = {"collectives": reduction, "gpu_work": work}
    data = replace(system(KEY, comm(30.0, 40.0), tables=tables), operations=training)
    (finding,) = supported_in(data, poor_overlap(data))
    is_late = compute_ns < 9
    assert ("issued only after the compute" in finding.hypothesis) is is_late
    assert ("asynchronously" in finding.algorithmic) is is_late
    assert ("as soon as the data is ready" in finding.kernel) is is_late


def copied(*sizes: int, **values: object) -> pl.DataFrame:
    single = {"kind": "copy", "direction": "D2D", "linked": True, "ts_ns": 0, "dur_ns": 5_000}
    return table("gpu_work", *({**single, "bytes": size, **values} for size in sizes))


def test_a_mean_of_unlike_sizes_is_not_given() -> None:
    table_of = {"memory_copies": memory_copies_table(copy("D2D", 60, 5_000.0))}

    def evidence(*sizes: int) -> dict[str, object]:
        tables = {**table_of, "gpu_work": copied(*sizes)}
        (finding,) = worded(memory_copies(system(KEY, totals(100.0), tables=tables)))
        return finding.evidence

    unlike, like = evidence(20_000_000, 256, 20_000_000, 256), evidence(1000, 3000)
    assert "Mean size (bytes)" not in unlike
    assert "Mean size (bytes)" in like


@pytest.mark.parametrize("module", ["DistributedDataParallel_0", "Net_0"])
def test_copies_of_data_parallel_training_are_not_clones(module: str) -> None:
    rows = operations(
        operation("aten::copy_", time_us=8.0, module_path=[], entry_point=None),
        operation("aten::copy_", time_us=6.0, module_path=[module]),
        operation("aten::mm", time_us=6.0, module_path=[module, "Linear_0"], direction="backward"),
    )
    tables = {
        "memory_copies": memory_copies_table(copy("D2D", 60, 5_000.0)),
        "gpu_work": pl.concat([copied(16, operation_uid=1), copied(16, operation_uid=2)]),
        "operations": rows,
        "call_tree": table("call_tree", {"name": "aten::clone"}),
    }
    data = replace(system(KEY, totals(100.0), tables=tables), operations=rows)
    (finding,) = supported_in(data, memory_copies(data))
    is_parallel = module.startswith("Distributed")
    assert ("gradient_as_bucket_view" in finding.algorithmic) is is_parallel
    assert ("clones" in finding.hypothesis) is not is_parallel


def test_a_call_of_the_runtime_copies_nothing() -> None:
    tables = {
        "memory_copies": memory_copies_table(copy("D2D", 60, 5_000.0)),
        "gpu_work": copied(16, launcher_name="cudaMemcpyAsync"),
    }
    (finding,) = worded(memory_copies(system(KEY, totals(100.0), tables=tables)))
    assert "Copied by" not in finding.evidence


@pytest.mark.parametrize(
    ("sizes", "launcher", "words", "others"),
    [
        ([4, 8, 16], "aten::copy_", "`.item()`", "`.cpu()`"),
        ([4, 17], "aten::copy_", "1 copy reads a single value", "Results"),
        ([400_000, 400_000], "aten::copy_", "`.cpu()`", "`.item()`"),
        ([None, 4], "aten::copy_", "Results are read", "`.item()`"),
        ([None, None], "aten::_local_scalar_dense", "`.item()`", "`.cpu()`"),
    ],
)
def test_only_copies_of_the_size_of_a_value_read_single_values(
    sizes: list[int | None], launcher: str, words: str, others: str
) -> None:
    single = {"kind": "copy", "linked": True, "ts_ns": 0, "dur_ns": 5_000, "direction": "D2H"}
    work = table("gpu_work", *({**single, "bytes": n, "launcher_name": launcher} for n in sizes))
    tables = {"memory_copies": memory_copies_table(copy("D2H", 60, 3_000.0)), "gpu_work": work}
    (finding,) = worded(memory_copies(system(KEY, totals(100.0), tables=tables)))
    assert words in finding.hypothesis
    assert others not in finding.hypothesis


def test_different_sizes_are_stated() -> None:
    single = {"kind": "copy", "linked": True, "ts_ns": 0, "dur_ns": 5_000, "direction": "D2H"}
    tables = {"memory_copies": memory_copies_table(copy("D2H", 60, 3_000.0))}
    for sizes, shown in (([4, 4_000_000], "4 B to 4.00 MB"), ([4, 4], None)):
        tables["gpu_work"] = table("gpu_work", *({**single, "bytes": n} for n in sizes))
        (finding,) = worded(memory_copies(system(KEY, totals(100.0), tables=tables)))
        assert finding.evidence.get("Sizes") == shown


def test_copies_through_pageable_memory_are_counted() -> None:
    single = {"kind": "copy", "cat": "gpu_memcpy", "linked": True, "ts_ns": 0, "dur_ns": 5_000}
    pinned, pageable = {"src_kind": "Pinned"}, {"src_kind": "Pageable"}
    rows = [{**single, "direction": "H2D", **kind} for kind in (pinned, pageable, pageable)]
    tables = {"memory_copies": memory_copies_table(copy("H2D", 60, 5_000.0))}
    tables["gpu_work"] = table("gpu_work", *rows)
    (finding,) = worded(memory_copies(system(KEY, totals(100.0), tables=tables)))
    assert finding.evidence["Copies from or to pageable memory"] == 2
    assert finding.evidence["Copies from or to pinned memory"] == 1
    tables["gpu_work"] = table("gpu_work", rows[0])
    (finding,) = worded(memory_copies(system(KEY, totals(100.0), tables=tables)))
    assert "Copies from or to pageable memory" not in finding.evidence


def test_without_single_events_the_totals_speak_and_the_limits_are_reported() -> None:
    data = system(KEY, comm(30.0, 40.0))
    (finding,) = worded(exposed_communication(data))
    assert "sizes" in finding.caveat
    assert "all ranks" in finding.capture
    metrics = measure(data)
    assert metrics["nccl_summary"] == {"total_count": None, "total_time_us": 40_000.0}
    assert metrics["cross_validation"]["status"] == "NOT_AVAILABLE"
    assert metrics["nccl_blocking_assessment"]["recoverable_ms"] == 30.0


def collective(dur_us: float, message_mb: float, count: int = 1, **values) -> list[dict]:
    row = {"name": "k", "collective": "allreduce", "dur_us": dur_us, "message_mb": message_mb}
    return [row | {"uid": uid, "group_size": 8} | values for uid in range(count)]


def exposed(rows: list[dict]) -> Worded:
    work = gpu_work(*(("communication", 0, 1_000_000, True),) * len(rows))
    tables = {"gpu_work": work, "collectives": table("collectives", *rows)}
    (finding,) = worded(exposed_communication(system(KEY, comm(30.0, 40.0), tables=tables)))
    return finding


def test_exposed_communication_names_the_collectives_of_most_time() -> None:
    rows = [*collective(9000.0, 16.0, 2), *collective(500.0, 1.0, uid=2)]
    finding = exposed(rows)
    assert "2 x allreduce of 16.8 MB over 8 ranks with 9.00 ms each (1.86 GB/s)" in finding.issue
    assert finding.evidence["Largest by time"].endswith(
        "; 1 x allreduce of 1.05 MB over 8 ranks, 0.500 ms (2.10 GB/s)"
    )


@pytest.mark.parametrize(
    ("kernel", "kind", "time_ms"),
    [
        ("split_with_sizes_copy_out_contiguous_no_cast_kernel", "compute", 2.5),
        ("chunk_cat_cuda_kernel", "communication", None),
        ("CatArrayBatchedCopy", "compute", None),
    ],
)
def test_copies_for_a_collective_are_named_beside_it(
    kernel: str, kind: str, time_ms: float | None
) -> None:
    work = gpu_work((kind, 0, 2_500_000, True)).with_columns(name=pl.lit(kernel))
    (finding,) = worded(
        exposed_communication(system(KEY, comm(30.0, 40.0), tables={"gpu_work": work}))
    )
    assert finding.evidence.get("Copies for collectives (ms)") == time_ms
    assert ("take 2.50 ms besides, as compute" in finding.issue) is bool(time_ms)


@pytest.mark.parametrize(
    ("dur_us", "message_mb", "is_slow"),
    [(2000.0, 16.0, True), (1500.0, 16.0, False), (9000.0, 0.5, False), (9000.0, None, False)],
    ids=["8.4 GB/s", "11.2 GB/s", "small message", "size not known"],
)
def test_late_ranks_come_first_where_the_size_does_not_explain_the_time(
    dur_us: float, message_mb: float | None, is_slow: bool
) -> None:
    finding = exposed(collective(dur_us, message_mb))
    assert finding.algorithmic.startswith("First ask for the other ranks: this rank cannot say ")
    assert ("If ranks are late, look" in finding.algorithmic) is is_slow
    assert ("alone on the same GPUs" in finding.kernel) is is_slow
    assert ("Split the batch" in finding.algorithmic) is not is_slow
    assert "topology" in finding.kernel


@pytest.mark.parametrize("message_mb", [0.5, 16.0])
def test_all_ranks_are_to_be_compared_before_less_is_sent(message_mb: float) -> None:
    advice = exposed(collective(9000.0, message_mb)).algorithmic
    assert advice.startswith("First ask for the other ranks: this rank cannot say how much of ")
    assert advice.count("all ranks") == 1
    assert not any(word in advice.lower() for word in ("send less", "fewer", "compress"))


@pytest.mark.parametrize(
    ("count", "message_mb", "is_small"),
    [(10, 0.5, True), (9, 0.5, False), (10, 1.0, False), (10, None, False)],
    ids=["many small", "few", "large", "size not known"],
)
@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_many_small_messages_are_counted_and_bundled(
    count: int, message_mb: float | None, is_small: bool, direction: str
) -> None:
    rows = [*collective(50.0, message_mb, count), *collective(900.0, 64.0, uid=count)]
    work = gpu_work(*(("communication", 0, 1_000_000, True),) * len(rows))
    tables = {"gpu_work": work, "collectives": table("collectives", *rows)}
    data = replace(
        system(KEY, comm(30.0, 40.0), tables=tables),
        operations=operations(operation("aten::mm", time_us=10.0, direction=direction)),
    )
    (finding,) = supported_in(data, exposed_communication(data))
    assert ("10 messages of allreduce are small: 524 kB on average" in finding.issue) is is_small
    is_bucketed = is_small and direction == "backward"
    assert ("into buckets" in finding.algorithmic) is is_bucketed


def test_overlap_that_compute_limits_saves_a_part_of_exposed_communication() -> None:
    part = "this saving is a part of that of exposed communication"
    (finding,) = worded(poor_overlap(system(KEY, comm(30.0, 40.0))))
    assert part in finding.kernel
    (finding,) = worded(poor_overlap(system(KEY, comm(4.9, 6.0, compute_ms=95.0))))
    assert part not in finding.kernel
