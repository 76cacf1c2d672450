"""Sides of several steps: what is per step, and what a step spends outside compute."""

from dataclasses import replace

import polars as pl
import pytest

from jarvis.comparison import compare
from jarvis.comparison.rules import Rule, metrics
from jarvis.savings import per_step, whole_ms
from tests.analyses.rows import totals as some_totals
from tests.builders import TraceBuilder, trace
from tests.comparison.sides import FAST, side
from tests.comparison.test_examples import collective
from tests.worded import worded

SQUARE = [[1000, 1000], [1000, 1000]]


def steps(count: int, us: float = 1000, waits_us: float = 0.0, **more: str) -> TraceBuilder:
    """Steps of two products each; the host waits before the second one."""
    builder = trace()
    for number in range(count):
        builder.annotation(f"ProfilerStep#{number}")
        builder.child("aten::mm", SQUARE).launches("gemm", us=us).up()
        builder.waits(us + waits_us).child("aten::mm", SQUARE).launches("gemm", us=us, **more)
        builder.waits(us).up(2)
    return builder


def test_sides_of_different_numbers_of_steps_are_compared_per_step() -> None:
    found = compare(side(steps(4), FAST), side(steps(2), FAST))
    row = found.operations.row(0, named=True)
    assert (row["target_calls"], row["reference_calls"]) == (2, 2)
    assert (row["target_ms"], row["reference_ms"]) == pytest.approx((2.0, 2.0))
    assert row["target_us_per_call"] == pytest.approx(1000)
    assert found.kernels["target_launches"].to_list() == [2]
    assert found.target.compute_ms == pytest.approx(2.0)
    assert found.findings == ()
    assert any(
        "The target has 4 steps, the reference 2 steps: all times" in text for text in found.summary
    )


def test_a_saving_of_one_step_is_not_divided_by_the_steps() -> None:
    found = compare(side(steps(4, us=3000), FAST), side(steps(2), FAST))
    totals = found.totals_of(replace(some_totals(1.0, idle_ms=0.0), step=found.target.bounds))
    gain = found.findings[0].impact
    assert gain is not None
    assert per_step(gain, totals) == gain
    assert gain.step_ms is not None
    assert gain.step_pct is not None
    assert gain.step_pct.high == pytest.approx(100 * gain.step_ms.high / whole_ms(totals))


def test_as_many_steps_are_compared_as_recorded() -> None:
    found = compare(side(steps(2), FAST), side(steps(2), FAST))
    assert found.operations["target_calls"].to_list() == [4]
    assert not any("per step" in text for text in found.summary)


def test_the_gate_on_gpu_time_is_per_step() -> None:
    more, as_many = (compare(side(steps(n), FAST), side(steps(2), FAST)) for n in (4, 2))
    rule = Rule.parse("computation_time > 0.5 ms")
    for found in (more, as_many):
        assert found.has_steps
        assert metrics(found)["computation_time"] == pytest.approx((2.0, 2.0))
        verdict = rule.applied(metrics(found), is_per_step=True)
        assert not verdict.is_met
        assert "on the target per step" in str(verdict)
    unmarked = compare(side(collective(us=1), FAST), side(collective(us=1), FAST))
    assert not unmarked.has_steps


def test_collectives_per_step_are_the_same_collectives() -> None:
    def training(count: int) -> TraceBuilder:
        builder = trace()
        for number in range(count):
            builder.annotation(f"ProfilerStep#{number}").child("c10d::allreduce_")
            builder.launches(
                "ncclDevKernel_AllReduce",
                us=90,
                **{"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1024},
            )
            builder.waits(100).up(2)
        return builder

    found = compare(side(training(4), FAST), side(training(2), FAST))
    assert found.same_collectives is True
    assert found.collectives["target_ms"].to_list() == pytest.approx([0.09])


@pytest.mark.parametrize(("waits_us", "is_found"), [(3000.0, True), (20.0, False)])
def test_longer_idle_time_is_a_finding_ordered_by_its_time(waits_us: float, is_found: bool) -> None:
    target, reference = side(steps(3, 1400, waits_us), FAST), side(steps(3), FAST)
    found = worded(compare(target, reference).findings)
    checks = ["longer_idle"] * is_found + ["slower_than_hardware"]
    assert [finding.check for finding in found] == checks
    if is_found:
        gaps = target.steps_ms("idle_between_ns"), reference.steps_ms("idle_between_ns")
        assert found[0].impact is not None
        assert found[0].impact.saved_ms.high == pytest.approx(9.0, abs=0.1)
        assert gaps[0] is not None
        assert gaps[1] is not None
        assert "in 3 steps" in found[0].issue
        assert "Cause of most of the difference: " in found[0].issue


def test_more_exposed_communication_and_copies_are_findings() -> None:
    def model(comm_us: float, copy_us: float) -> TraceBuilder:
        builder = trace().op("aten::mm", SQUARE).launches("gemm", us=1000)
        builder.op("c10d::allreduce_").launches("ncclDevKernel_AllReduce", us=comm_us)
        builder.op("aten::copy_", [[4096], [4096], []])
        return builder.launches("Memcpy HtoD (Pageable -> Device)", us=copy_us, cat="gpu_memcpy")

    found = compare(side(model(900, 500), None), side(model(200, 100), None)).findings
    assert [finding.check for finding in found][:2] == [
        "more_exposed_communication",
        "more_exposed_copies",
    ]
    assert [f.impact.saved_ms.high for f in found[:2] if f.impact] == pytest.approx([0.7, 0.4])
    near = compare(side(model(205, 102), None), side(model(200, 100), None)).findings
    assert near == ()


def test_without_steps_the_gpu_timeline_shows_the_idle_time() -> None:
    target, reference = (
        side(steps(3, 1000, waits), FAST, without=["steps", "step_gaps"]) for waits in (3000, 0)
    )
    (finding,) = worded(compare(target, reference).findings)
    assert finding.check == "longer_idle"
    assert finding.impact is not None
    assert finding.impact.saved_ms.high == pytest.approx(9.0, abs=0.1)
    idle = compare(target, reference).totals.filter(pl.col("type") == "idle_time")
    assert idle["difference_ms"].to_list() == pytest.approx([9.0], abs=0.1)


@pytest.mark.parametrize(
    ("unlinked_us", "words"),
    [
        (3, None),
        (250, "0.250 ms of GPU work of the target, 20.0% of its GPU time, have no recorded launch"),
        (3000, "The target is not comparable by operation: 3.00 ms of its GPU work, 75.0%"),
    ],
)
def test_unlinked_gpu_work_is_counted_in_words(unlinked_us: float, words: str | None) -> None:
    target = trace().op("aten::mm", SQUARE).launches("gemm", us=600)
    target.op("aten::add", [[1024, 1024]]).launches("extra", us=400)
    target.unlinked("other", us=unlinked_us)
    found = compare(
        side(target, FAST), side(trace().op("aten::mm", SQUARE).launches("gemm", us=600), FAST)
    )
    texts = [text for text in found.unknown if "launch" in text]
    assert len(texts) == (words is not None)
    assert words is None or texts[0].startswith(words)
    alone = [finding for finding in found.findings if finding.check == "only_in_target"]
    assert bool(alone) == (unlinked_us < 3000)


@pytest.mark.parametrize(("calls", "is_same"), [((4, 2), True), ((5, 2), False)])
def test_rounded_numbers_of_collectives_are_not_called_equal(
    calls: tuple[int, int], is_same: bool
) -> None:
    def training(steps: int, count: int) -> TraceBuilder:
        builder = trace()
        for number in range(steps):
            builder.annotation(f"ProfilerStep#{number}").child("aten::add", [[8]]).up()
            builder.launches("k", us=5).waits(10).up()
        for _ in range(count):
            builder.op("c10d::allreduce_")
            more = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1024}
            builder.launches("ncclDevKernel_AllReduce", us=90, **more)
        return builder

    found = compare(side(training(4, calls[0]), FAST), side(training(2, calls[1]), FAST))
    assert found.collectives["target_count"].to_list() == [1]
    assert found.same_collectives is is_same
    assert any("same collectives" in text for text in found.summary) is is_same


def test_collectives_of_unknown_size_are_equal_only_as_far_as_recorded() -> None:
    found = compare(side(collective(1024, us=1), FAST), side(collective(1024, us=1), FAST))
    unknown = trace().op("c10d::allreduce_").launches("ncclDevKernel_AllReduce", us=90)
    bare = compare(side(unknown, FAST), side(unknown, FAST))
    assert any("kinds, types, sizes and counts are equal" in text for text in found.summary)
    assert any("as far as kind, type and size are recorded" in text for text in bare.summary)


def test_steps_marked_on_one_side_only_are_not_compared_with_a_recording() -> None:
    unmarked = trace().op("aten::mm", SQUARE).launches("gemm", us=1000)
    found = compare(side(steps(2, waits_us=9000), FAST), side(unmarked, FAST))
    assert found.steps.is_empty()
    assert any(text.startswith("Only the target marks steps") for text in found.unknown)
    (idle,) = [f for f in worded(found.findings) if f.check == "longer_idle"]
    assert "in the recording" in idle.issue
    assert "of the target's GPU window" in idle.issue
    both = compare(side(steps(2), FAST), side(steps(2), FAST))
    assert both.summary[0].startswith("One step: ")
    assert not any("marks steps" in text for text in both.unknown)


def test_idle_time_of_another_workload_is_no_finding() -> None:
    def other(waits_us: float) -> TraceBuilder:
        builder = trace()
        for _ in range(3):
            builder.op("custom::other", [[7]]).launches("other", us=100).waits(waits_us)
        return builder

    assert compare(side(other(9000), FAST), side(steps(1), FAST)).findings == ()
    found = compare(side(other(9000), FAST), side(other(100), FAST)).findings
    assert [finding.check for finding in found] == ["longer_idle"]
