"""Step time saved: bounds, order, priority and sum of findings."""

from dataclasses import replace
from itertools import pairwise

import polars as pl
import pytest

from jarvis import impact, savings
from jarvis.findings import Finding, Impact, OpRef, Priority
from jarvis.perf_report.timeline.step_bounds import StepBounds
from jarvis.text.messages import literal, to_text
from tests.analyses.rows import totals

BASES = {"compute_ms": 100.0, "total_ms": 200.0}
WHOLE = totals(100.0, idle_ms=100.0)
BOUNDS = StepBounds(
    steps=1,
    start_ns=0,
    end_ns=100_000_000,
    step_ms=100.0,
    kernels_ms=10.0,
    idle_ms=60.0,
    comm_ms=30.0,
    copies_ms=5.0,
)
STEP = replace(WHOLE, step=BOUNDS)


def finding(
    saved_ms: float | None,
    *uids: int,
    priority: Priority = Priority.HIGH,
    pool: str | None = None,
    title: str = "t",
) -> Finding:
    gain = None
    if saved_ms is not None:
        gain = impact.bounded_impact(saved_ms, saved_ms, mid_ms=saved_ms, **BASES)
    return Finding(
        check="c",
        category="k",
        title=title,
        operations=tuple(OpRef(uid=uid, name="op", operation_count=1) for uid in uids),
        issue="i",
        algorithmic="a",
        kernel="b",
        priority_local=priority,
        priority=priority,
        impact=gain,
        time_pool=pool,
    )


def test_ranking_is_by_priority_then_by_saving() -> None:
    low = finding(9.0, priority=Priority.LOW)
    small, large = finding(1.0, title="small"), finding(5.0, title="large")
    unknown = finding(None, title="unknown")
    assert savings.by_priority([low, unknown, small, large]) == [large, small, unknown, low]


def test_findings_whose_saving_is_shared_come_last_within_their_priority() -> None:
    chain = finding(5.0, title="chain").model_copy(update={"shared_uids": (1, 2)})
    inside, partly, other = (
        finding(4.0, 1, title="inside"),
        finding(3.0, 2, 3, title="partly"),
        finding(1.0, 4, title="other"),
    )
    medium = finding(9.0, 3, 4, priority=Priority.MEDIUM, title="medium")
    order = savings.by_priority([inside, medium, other, partly, chain])
    assert order == [chain, partly, other, inside, medium]


def test_findings_of_a_time_pool_follow_the_whole() -> None:
    idle, cause = finding(5.0, pool="idle", title="idle"), finding(3.0, pool="idle", title="cause")
    kernel = finding(1.0, 1, title="kernel")
    assert savings.by_priority([kernel, cause, idle]) == [idle, cause, kernel]


def test_equal_savings_of_the_same_time_do_not_hide_each_other() -> None:
    pair = [finding(5.0, 1, title="a"), finding(5.0, 1, title="b"), finding(1.0, 2, title="c")]
    assert savings.by_priority(pair) == pair


def test_savings_on_the_same_operations_are_not_added_up() -> None:
    findings = [finding(5.0, 1, 2), finding(4.0, 2, 3), finding(2.0, 4), finding(None, 5)]
    assert savings.together_ms(findings, WHOLE) == pytest.approx(7.0)


def test_savings_from_one_pool_of_time_are_not_added_up() -> None:
    findings = [finding(5.0, pool="idle"), finding(4.0, pool="idle"), finding(1.0, pool="copies")]
    assert savings.together_ms(findings, WHOLE) == pytest.approx(6.0)


def test_savings_of_copies_and_of_the_operators_that_copy_are_not_added_up() -> None:
    copies = finding(4.0, pool="exposed copies D2D").model_copy(update={"shared_uids": (1,)})
    assert savings.together_ms([copies, finding(5.0, 1), finding(1.0, 2)], WHOLE) == 6.0


def test_findings_without_a_saving_are_ranked_by_affected_time() -> None:
    short, long = (
        finding(None, title=title).model_copy(update={"evidence": {"gpu_time_ms": time_ms}})
        for title, time_ms in (("a", 1.0), ("b", 5.0))
    )
    assert savings.by_priority([short, long]) == [long, short]


def kernels(*rows: tuple[int, float, float]) -> pl.DataFrame:
    """GPU work as (uid of the operation, start in ms, duration in ms); the uid is the name too."""
    return pl.DataFrame(
        [(uid, str(uid), round(ts * 1e6), round(dur * 1e6)) for uid, ts, dur in rows],
        schema=["operation_uid", "name", "ts_ns", "dur_ns"],
        orient="row",
    )


LONG = kernels((1, 0.0, 50.0))


def in_steps(found: Finding, work: pl.DataFrame = LONG) -> Impact:
    (bounded,) = savings.with_step_savings([found], STEP, work)
    assert bounded.impact is not None
    return bounded.impact


def modelled(saved_ms: float, *uids: int, **options: object) -> Finding:
    """A finding whose saving is half, three quarters and all of ``saved_ms``."""
    gain = impact.bounded_impact(saved_ms, saved_ms, low_ms=saved_ms / 2, **BASES)
    return finding(saved_ms, *uids).model_copy(update={"impact": gain, **options})


def test_shorter_kernels_save_no_more_than_the_host_waits() -> None:
    gain = in_steps(modelled(40.0, 1))
    assert gain.step_ms is not None
    ends = gain.step_ms.low, gain.step_ms.mid, gain.step_ms.high
    assert ends == pytest.approx((5.0, 7.5, 10.0))
    assert gain.saved_ms.high == 40.0
    assert gain.gain_pct == pytest.approx(7.5)


def test_a_saving_within_the_bound_is_not_scaled() -> None:
    gain = in_steps(modelled(8.0, 1))
    assert gain.step_ms == gain.saved_ms


def test_kernels_save_no_more_than_the_time_in_which_they_run_in_the_steps() -> None:
    at_once = kernels((1, 0.0, 2.0), (1, 1.0, 2.0), (1, 99.0, 50.0), (2, 0.0, 90.0))
    assert in_steps(modelled(40.0, 1), at_once).step_ms == in_steps(modelled(4.0, 1)).step_ms


def test_the_middle_is_less_than_the_bound() -> None:
    gain = impact.bounded_impact(4.0, 4.0, low_ms=2.0, mid_ms=4.0, **BASES)
    bounded = in_steps(finding(4.0, 1).model_copy(update={"impact": gain}))
    assert bounded.step_ms is not None
    assert (bounded.step_ms.mid, bounded.step_ms.high) == (3.0, 4.0)


@pytest.mark.parametrize(
    ("pool", "limit_ms"),
    [("idle", 60.0), ("exposed communication", 10.0), ("exposed copies H2D", 5.0), ("p", 80.0)],
)
def test_time_of_a_pool_saves_no_more_than_the_steps_have_of_it(pool: str, limit_ms: float) -> None:
    gain = in_steps(modelled(80.0, time_pool=pool))
    assert gain.step_ms is not None
    assert gain.step_ms.high == limit_ms


def test_copies_save_no_more_than_the_host_leaves_where_the_gpu_sets_the_pace() -> None:
    paced = replace(WHOLE, step=replace(BOUNDS, by_gpu=True, kernels_ms=3.0))
    copies = modelled(80.0, time_pool="exposed copies D2D")
    found = savings.with_step_savings([copies, modelled(40.0, 1)], paced, LONG)
    assert [f.impact.step_ms.high for f in found if f.impact and f.impact.step_ms] == [3.0, 3.0]
    assert savings.together_ms(found, paced) == pytest.approx(3.0)


def test_an_interval_that_the_host_bounds_says_so() -> None:
    def reason(saved_ms: float) -> str:
        given = finding(saved_ms, pool="exposed communication", priority=Priority.CRITICAL)
        assert given.impact is not None
        given = given.model_copy(update={"impact": impact.as_interval(given.impact)})
        (found,) = savings.with_step_savings([given], STEP, None)
        return to_text(found.priority_reason)

    assert "up to 10.0% of the step, limited by the host" in reason(30.0)
    assert "host" not in reason(9.0)


def test_without_steps_findings_are_unchanged() -> None:
    found = [modelled(40.0, 1)]
    unknown = replace(WHOLE, step=StepBounds())
    assert savings.with_step_savings(found, WHOLE, LONG) == found
    assert savings.with_step_savings(found, unknown, None) == found


def of_step(pct: float, *, is_interval: bool = False) -> Impact:
    gain = impact.bounded_impact(pct, pct, mid_ms=pct, **BASES)
    range_ = gain.saved_ms
    fields = {"step_ms": range_, "step_pct": range_, "is_interval": is_interval}
    return gain.model_copy(update=fields)


@pytest.mark.parametrize(
    ("pct", "word", "expected"),
    [
        (0.49, Priority.CRITICAL, Priority.LOW),
        (0.5, Priority.CRITICAL, Priority.MEDIUM),
        (0.99, Priority.LOW, Priority.MEDIUM),
        (1.0, Priority.CRITICAL, Priority.HIGH),
        (4.9, Priority.CRITICAL, Priority.HIGH),
        (5.0, Priority.CRITICAL, Priority.CRITICAL),
        (1.0, Priority.LOW, Priority.HIGH),
        (39.9, Priority.MEDIUM, Priority.HIGH),
        (40.0, Priority.LOW, Priority.CRITICAL),
    ],
)
def test_the_share_of_the_steps_bounds_and_raises_a_priority(
    pct: float, word: Priority, expected: Priority
) -> None:
    assert savings.step_priority(word, of_step(pct)) is expected


def test_no_finding_is_less_urgent_than_one_that_saves_less() -> None:
    """Except from 5% to 40%, where the priority before decides between High and Critical."""
    ends: dict[int, list[float]] = {priority.rank: [] for priority in Priority}
    for pct in (tenths / 10 for tenths in range(1, 1000)):
        for word in Priority:
            ends[savings.step_priority(word, of_step(pct)).rank].append(pct)
    critical, *others = sorted(ends)
    for more_urgent, less_urgent in pairwise(others):
        assert max(ends[less_urgent]) < min(ends[more_urgent])
    assert (min(ends[critical]), max(ends[others[0]])) == (5.0, 39.9)


@pytest.mark.parametrize(
    ("pct", "expected"), [(0.4, Priority.LOW), (0.9, Priority.MEDIUM), (60.0, Priority.MEDIUM)]
)
def test_a_saving_from_one_rank_is_at_most_medium(pct: float, expected: Priority) -> None:
    assert savings.step_priority(Priority.CRITICAL, of_step(pct, is_interval=True)) is expected


def test_a_changed_priority_has_a_reason_and_an_equal_one_has_none() -> None:
    small = modelled(0.4, 1, evidence={"compute_pct": 42.0})
    (low,) = savings.with_step_savings([small], STEP, LONG)
    assert low.priority is Priority.LOW
    assert to_text(low.priority_reason) == (
        "Low: 0.400 ms of GPU time (42.0% of compute) would have a higher priority, but the step "
        "gains only 0.30%, at most 0.40%."
    )
    (raised,) = savings.with_step_savings([modelled(60.0, time_pool="idle")], STEP, LONG)
    assert to_text(raised.priority_reason) == "Critical: it saves 45.0% of the step."
    (equal,) = savings.with_step_savings([modelled(8.0, 1)], STEP, LONG)
    assert equal.priority_reason == ()
    nothing = replace(WHOLE, step=replace(BOUNDS, kernels_ms=0.0))
    (idle_host,) = savings.with_step_savings([small], nothing, LONG)
    assert "the step does not wait for it" in to_text(idle_host.priority_reason)


def test_the_order_is_by_step_time_then_by_kernel_time() -> None:
    bounded = [
        modelled(40.0, 1, title=(literal("long"),)),
        modelled(30.0, 1, title=(literal("short"),)),
    ]
    other = modelled(6.0, 1, title=(literal("unbounded"),))
    interval = modelled(9.0, time_pool="exposed communication")
    assert interval.impact is not None
    up_to = interval.model_copy(update={"impact": impact.as_interval(interval.impact)})
    unknown = finding(None, title="unknown", priority=Priority.CRITICAL)
    found = savings.with_step_savings([unknown, other, *bounded[::-1], up_to], STEP, LONG)
    order = [to_text(each.title) for each in savings.ranked(found, STEP)]
    assert order == ["t", "long", "short", "unbounded", "unknown"]


def test_no_grade_lifts_a_finding_above_one_that_saves_ten_times_more() -> None:
    graded, large = finding(0.6, 1, title="graded", priority=Priority.CRITICAL), modelled(6.0, 1)
    found = savings.with_step_savings([graded, large.model_copy(update={"title": ()})], STEP, LONG)
    assert savings.ranked(found, STEP)[0] is found[1]


def test_findings_of_earlier_releases_keep_their_order() -> None:
    found = [finding(1.0, 1, priority=Priority.CRITICAL), finding(9.0, 2, priority=Priority.LOW)]
    assert savings.ranked(found, WHOLE) == found
    unknown = replace(WHOLE, step=StepBounds())
    assert savings.ranked(found, unknown) == found[::-1]


def test_savings_of_kernels_add_up_to_no_more_than_bounds_them_all() -> None:
    found = savings.with_step_savings(
        [modelled(40.0, 1), modelled(30.0, 2), modelled(60.0, time_pool="idle")],
        STEP,
        kernels((1, 0.0, 50.0), (2, 50.0, 50.0)),
    )
    assert [each.saved_ms for each in savings.added_savings(found, STEP)] == pytest.approx(
        [45.0, 7.5, 2.5]
    )


def test_an_interval_is_not_added_up() -> None:
    found = modelled(30.0, time_pool="exposed communication")
    assert found.impact is not None
    interval = found.model_copy(update={"impact": impact.as_interval(found.impact)})
    assert savings.together_ms([interval], WHOLE) == 0.0
    assert savings.together_ms([found], WHOLE) > 0.0


def test_a_finding_that_makes_the_others_uncertain_comes_first() -> None:
    leading = finding(None, title="incomplete").model_copy(update={"leads": True})
    found = savings.with_step_savings([modelled(9.0, 1), leading], STEP, LONG)
    assert savings.ranked(found, STEP)[0] is found[1]


def test_work_that_a_collective_hides_saves_nothing() -> None:
    work = kernels((1, 0.0, 4.0), (2, 4.0, 2.0))
    hidden = replace(WHOLE, step=replace(BOUNDS, hidden=((3_000_000, 5_000_000),)))
    found = savings.with_step_savings([finding(9.0, 1), finding(9.0, 2)], hidden, work)
    highs = [each.impact and each.impact.step_ms and each.impact.step_ms.high for each in found]
    assert highs == pytest.approx([3.0, 1.0])
    all_hidden = replace(WHOLE, step=replace(BOUNDS, hidden=((0, 9_000_000),)))
    (low, _) = savings.with_step_savings([finding(9.0, 1), finding(9.0, 2)], all_hidden, work)
    assert "a collective that ends later hides it" in to_text(low.priority_reason)


def test_only_the_kernels_that_a_finding_concerns_bound_its_saving() -> None:
    work = kernels((1, 0.0, 4.0), (2, 4.0, 2.0))
    gain = in_steps(finding(9.0, 1, 2).model_copy(update={"kernels": ("2",)}), work)
    assert gain.step_ms is not None
    assert gain.step_ms.high == pytest.approx(2.0)


def test_a_saving_of_several_steps_is_shown_as_that_of_one() -> None:
    four = replace(STEP, step=replace(BOUNDS, steps=4))
    gain = in_steps(finding(8.0, 1))
    shown = savings.per_step(gain, four)
    assert (shown.gain_ms, shown.gain_pct) == (gain.gain_ms / 4, gain.gain_pct)
    assert shown.saved_ms == gain.saved_ms
    assert savings.whole_ms(four) == 25.0
    assert savings.whole_name(four) == "each step"
    assert savings.per_step(gain, STEP) == gain
    (added,) = savings.added_savings([finding(8.0, 1)], four)
    assert added.saved_ms == 2.0
