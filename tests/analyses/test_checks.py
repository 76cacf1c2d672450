"""The checks that all categories share."""

import re
from typing import Any

import pytest

from jarvis.analyses import checks
from jarvis.analyses.call_times import calls_of, time_per_call
from jarvis.analyses.checks import has_work
from jarvis.analyses.operations import describe
from jarvis.findings import Priority
from jarvis.text.messages import Message, to_text
from tests.analyses.rows import category, operation, operations, totals
from tests.worded import Worded, in_words

above_peak = in_words(checks.above_peak)
high_variance = in_words(checks.high_variance)
low_efficiency = in_words(checks.low_efficiency)
many_small_calls = in_words(checks.many_small_calls)
nothing_to_fix = in_words(checks.nothing_to_fix)
opportunity = in_words(checks.opportunity)


def slow(name: str = "aten::foo", time_us: float = 2000.0, pct: float = 20.0, **values):
    return operation(name, time_us=time_us, pct_roofline=pct, bound="memory", **values)


def only(findings) -> Worded:
    (finding,) = findings
    return finding


def test_low_efficiency_names_time_rate_and_both_paths() -> None:
    row = slow(count=4, bytes=53e6, input_dims="((8, 4),)", input_types="('float',)")
    finding = only(low_efficiency(category("other", row)))
    assert finding.evidence["GPU time (ms)"] == pytest.approx(2.0)
    assert finding.evidence["Share of compute (%)"] == pytest.approx(20.0)
    # 4 calls of 53 MB in 2 ms are 0.106 TB/s
    assert finding.evidence["Achieved (TB/s)"] == pytest.approx(0.106)
    assert finding.evidence["Peak (TB/s)"] == 5.3
    assert "`aten::foo`" in finding.issue
    assert "[8,4] fp32" in finding.kernel
    assert finding.algorithmic
    assert finding.verify


def test_saving_is_that_of_reaching_the_target() -> None:
    gain = only(low_efficiency(category("other", slow()))).impact
    # 2 ms at 20 %: 0.5 ms at 80 %, 0.8 ms at half of the way (50 %), 0.4 ms at the roofline
    assert gain.saved_ms.mid == pytest.approx(1.5)
    assert gain.saved_ms.low == pytest.approx(1.2)
    assert gain.saved_ms.high == pytest.approx(1.6)
    assert gain.compute_pct.mid == pytest.approx(15.0)
    assert gain.method == "perf model"


def test_time_spread_over_shapes_is_added_up_before_the_time_test() -> None:
    small = [slow(time_us=40.0, input_dims=f"(({n},),)") for n in range(1, 6)]
    rest = operation("aten::bar", time_us=1800.0, pct_roofline=95.0, bound="memory")
    finding = only(low_efficiency(category("other", *small, rest)))
    # each row is 2 % of the category, together they are 10 %
    assert len(finding.operations) == 5
    assert finding.evidence["Share of category (%)"] == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("time_us", "pct"),
    [(90.0, 20.0), (2000.0, 40.0), (2000.0, None)],
    ids=["4.3 % of the category", "40 %", "unknown"],
)
def test_no_finding_without_time_or_inefficiency(time_us: float, pct: float | None) -> None:
    rest = operation("aten::bar", time_us=2000.0, pct_roofline=95.0, bound="memory")
    assert not list(low_efficiency(category("other", slow(time_us=time_us, pct=pct), rest)))


def test_fifty_milliseconds_count_whatever_the_share_of_the_category() -> None:
    base = totals(compute_ms=4000.0)
    rest = operation("aten::bar", time_us=2e6, pct_roofline=95.0, bound="memory")
    rows = (slow(time_us=51_000.0), rest)
    assert only(low_efficiency(category("other", *rows, base=base)))


def test_nothing_below_half_a_percent_of_compute() -> None:
    data = category("other", slow(time_us=49.0))
    assert data.operations["percent_of_category"][0] == 100.0
    assert not list(low_efficiency(data))


def test_priority_follows_top_operations_share_and_efficiency() -> None:
    def priority(time_us: float, pct: float, *, is_top: bool) -> Priority:
        data = category("other", slow(time_us=time_us, pct=pct), top={1} if is_top else None)
        return only(low_efficiency(data)).priority

    assert priority(1600, 29.0, is_top=True) is Priority.CRITICAL
    assert priority(1600, 31.0, is_top=True) is Priority.HIGH
    assert priority(1400, 29.0, is_top=True) is Priority.HIGH
    assert priority(1600, 29.0, is_top=False) is Priority.HIGH
    assert priority(90, 29.0, is_top=True) is Priority.LOW


def test_opportunity_takes_top_operations_between_the_threshold_and_the_target() -> None:
    row = operation("aten::foo", time_us=2000.0, pct_roofline=60.0, bound="memory")
    rest = operation("aten::bar", time_us=50_000.0, pct_roofline=95.0, bound="memory")
    base = totals(compute_ms=52.0)
    assert not list(opportunity(category("other", row, rest, base=base)))
    finding = only(opportunity(category("other", row, rest, base=base, top={1})))
    assert finding.check == "opportunity"
    assert finding.impact.saved_ms.mid == pytest.approx(2.0 * (1 - 60 / 80))
    assert not list(opportunity(category("other", row, rest, base=base, top={1}, target_pct=55.0)))


def test_a_row_is_never_both_bottleneck_and_opportunity() -> None:
    data = category("other", slow(), slow("aten::baz", pct=55.0), top={1, 2})
    low, rest = list(low_efficiency(data)), list(opportunity(data))
    assert [f.operations[0].name for f in low] == ["aten::foo"]
    assert [f.operations[0].name for f in rest] == ["aten::baz"]


def test_a_top_operation_close_to_the_target_is_not_urgent() -> None:
    row = operation("aten::foo", time_us=500.0, pct_roofline=78.0, bound="memory")
    finding = only(opportunity(category("other", row, top={1})))
    assert finding.impact.compute_pct.mid < 0.5
    assert finding.priority is Priority.LOW


def test_anomalies_are_flagged_and_never_praised() -> None:
    data = category("other", slow(pct=111.0), slow("aten::bar", pct=95.0))
    finding = only(above_peak(data))
    assert [reference.name for reference in finding.operations] == ["aten::foo"]
    assert finding.title.startswith("Above the peak")
    assert finding.impact is None
    assert "excluded" in finding.caveat
    assert not list(low_efficiency(data))
    assert not list(opportunity(data))
    assert not list(nothing_to_fix(data)), "half of the category is in doubt"


@pytest.mark.parametrize(
    ("pct", "title"),
    [(100.0, None), (101.0, "At the limit"), (110.0, "At the limit"), (111.0, "Above the peak")],
)
def test_a_little_above_the_peak_is_a_warning(pct: float, title: str | None) -> None:
    findings = list(above_peak(category("other", slow(pct=pct))))
    assert [f.title.startswith(title) for f in findings] == ([True] if title else [])
    for finding in findings:
        assert finding.priority is Priority.LOW
        assert not re.search("excellent|good|well", finding.model_dump_json())


def test_many_short_calls() -> None:
    def found(**values) -> list[Worded]:
        row = operation("aten::foo", bound="memory", **values)
        return list(many_small_calls(category("other", row)))

    assert found(time_us=900.0, count=100, pct_roofline=90.0)
    assert not found(time_us=900.0, count=99, pct_roofline=90.0)
    assert not found(time_us=1000.0, count=100, pct_roofline=90.0)
    assert not found(time_us=900.0, count=100, pct_roofline=20.0), "low_efficiency says it"


def test_high_variance_needs_spread_calls_and_share() -> None:
    def found(std: float, count: int, time_us: float = 1000.0) -> list[Worded]:
        row = slow(time_us=time_us, count=count, kernel_time_us_std=std, input_dims="((8,),)")
        return list(high_variance(category("other", row)))

    assert found(101.0, 11, 1100.0)
    assert not found(99.0, 11, 1100.0)
    assert not found(200.0, 10)
    assert not found(101.0, 11, 490.0), "below 5 % of the GPU window"


def group(count: int, mean_us: float, **values: Any) -> dict[str, Any]:
    """One entry of the column ``populations``."""
    rest = {"is_outlier": count < 3, "is_first": False, "kernel": None, "modules": []}
    times = {"total_us": count * mean_us, "mean_us": mean_us, "min_us": mean_us, "max_us": mean_us}
    return {"count": count, **times, **rest, **values}


def parted(*groups: dict[str, Any], **values: Any) -> dict[str, Any]:
    """A row whose calls are in these groups."""
    time_us, count = (sum(each[name] for each in groups) for name in ("total_us", "count"))
    own = {"input_dims": "((8,),)", "kernel_time_us_std": 0.1, "populations": list(groups)}
    return operation("aten::foo", time_us=time_us, count=count, **own | values)


def test_groups_of_calls_are_named_with_what_only_they_have() -> None:
    short = group(6, 20.0, modules=["Sliding"])
    long = group(6, 150.0, min_us=140.0, max_us=160.0, modules=["Full"])
    finding = only(high_variance(category("other", parted(short, long))))
    assert finding.title == "Separate groups of times: `aten::foo`"
    assert "6 calls of 20.0 µs in `Sliding`; 6 calls of 0.140 ms to 0.160 ms in `Full`" in (
        finding.issue
    )
    assert finding.priority is Priority.LOW


def test_groups_need_calls_share_and_arguments() -> None:
    def found(*groups: dict[str, Any], **values: Any) -> list[Worded]:
        return list(high_variance(category("other", parted(*groups, **values))))

    assert found(group(6, 20.0), group(6, 150.0))
    assert not found(group(5, 20.0), group(5, 180.0)), "few calls"
    assert not found(group(6, 5.0), group(6, 60.0)), "below 5 % of GPU wall time"
    assert not found(group(6, 20.0), group(6, 150.0), input_dims=None)
    assert not found(group(11, 80.0), group(1, 129.0)), "an outlier of 0.49 % of the GPU window"


def test_a_single_outlier_is_named_even_if_the_other_times_are_steady() -> None:
    row = parted(group(35, 2.6), group(1, 60.0))
    finding = only(high_variance(category("other", row)))
    assert finding.title == "Outlier calls: `aten::foo`"
    assert "1 outlier of 60.0 µs, 57.4 µs beyond the time of the group below" in finding.issue
    fast = parted(group(35, 80.0), group(1, 2.0))
    assert not list(high_variance(category("other", fast))), "it takes nothing beyond the others"


def test_a_mean_of_several_groups_is_no_evidence() -> None:
    def evidence(*groups: dict[str, Any]) -> dict[str, Any]:
        row = parted(*groups, pct_roofline=20.0, bound="memory")
        return only(low_efficiency(category("other", row))).evidence

    apart = evidence(group(30, 22.6), group(6, 149.0))
    assert apart["Kernel times per call"] == "22.6 µs (30 calls) or 149 µs (6 calls)"
    assert "Mean kernel time per call (µs)" not in apart
    alike = evidence(group(30, 22.6))
    assert alike["Mean kernel time per call (µs)"] == pytest.approx(22.6)


def test_outliers_are_named_with_their_cost() -> None:
    early = group(1, 2000.0, is_first=True)
    rows = parted(group(11, 20.0), early, kernel_time_us_std=571.0)
    finding = only(high_variance(category("other", rows)))
    assert "1 outlier of 2.00 ms, the first to run, 1.98 ms beyond the time of the group below" in (
        finding.issue
    )
    assert finding.priority is Priority.MEDIUM


def test_rows_of_like_times_have_one_time_per_call() -> None:
    def times(*rows: dict[str, Any]) -> object:
        return time_per_call(calls_of(category("other", *rows).operations))

    one, other = (operation("aten::foo", time_us=us, count=10) for us in (200.0, 290.0))
    assert times(one, other) == pytest.approx(0.0245)
    slow_one = operation("aten::foo", time_us=310.0, count=10)
    text = times(one, slow_one)
    assert isinstance(text, Message)
    assert to_text(text) == "20.0 µs (10 calls) or 31.0 µs (10 calls)"
    many = [operation("aten::foo", time_us=us, count=1) for us in (2.0, 4.0, 8.0, 16.0)]
    text = times(*many)
    assert isinstance(text, Message)
    assert to_text(text) == "2.00 µs to 16.0 µs"


def test_runs_without_the_column_of_groups_are_described() -> None:
    rows = operations(operation("aten::foo", time_us=10.0)).drop("populations")
    described = describe(rows, frozenset())
    assert described["populations"].to_list() == [None]
    assert described["call_times"].to_list() == [None]


def test_calls_without_recorded_arguments_are_not_called_equal() -> None:
    row = slow(time_us=1100.0, count=11, kernel_time_us_std=101.0, input_dims=None)
    assert not list(high_variance(category("other", row)))


def test_expected_efficiency_lowers_the_priority_one_step() -> None:
    def finding(pct: float) -> Worded:
        params = {"filter_shape": [32, 1, 3, 3], "groups": 32, "input_shape": [8, 32, 14, 14]}
        row = operation(
            "aten::convolution", time_us=2000.0, pct_roofline=pct, bound="memory", params=params
        )
        return only(low_efficiency(category("convolution", row, top={1})))

    assert finding(35.0).priority is Priority.MEDIUM
    assert finding(35.0).caveat
    assert finding(29.0).priority is Priority.CRITICAL


def test_launch_bound_calls_get_an_upper_bound_only() -> None:
    row = slow(count=250, roofline_time_us=1.6)
    finding = only(low_efficiency(category("other", row)))
    assert "(launch bound)" in finding.title
    assert "GPU graph" in finding.kernel
    assert finding.impact.method == "upper bound"
    assert finding.impact.saved_ms.low == 0
    assert finding.impact.saved_ms.high == pytest.approx(1.5)
    assert "upper bound" in finding.caveat


@pytest.mark.parametrize(
    ("time_us", "roofline_us"), [(10.0, 1.0), (8.0, 2.0), (8.0, None)], ids=str
)
def test_longer_calls_are_not_launch_bound(time_us: float, roofline_us: float | None) -> None:
    row = slow(time_us=100 * time_us, count=100, roofline_time_us=roofline_us)
    assert only(low_efficiency(category("other", row))).impact.method == "perf model"


def test_efficiency_of_the_memory_side_alone_is_no_judgement() -> None:
    row = operation("aten::foo", time_us=2000.0, pct_roofline=5.0, bound="memory only")
    data = category("other", row, top={1})
    assert not list(low_efficiency(data))
    assert not list(opportunity(data))


def test_an_efficiency_is_placed_against_what_is_usual() -> None:
    def findings(pct: float) -> list[Worded]:
        params = {"filter_shape": [64, 64, 3, 3], "groups": 1, "input_shape": [8, 64, 56, 56]}
        row = slow("aten::convolution", pct=pct, params=params)
        data = category("convolution", row, top={1}, target_pct=90.0)
        return [*low_efficiency(data), *opportunity(data)]

    below, within = only(findings(39.0)), only(findings(60.0))
    assert "where 50-70% is expected" in below.issue
    assert "within the 50-70%" in within.issue
    assert within.caveat
    assert within.priority.rank == below.priority.rank + 1
    assert not findings(71.0), "better than usual is no opportunity"


def test_little_is_left_to_gain_where_the_target_saves_little() -> None:
    little, more = (only(opportunity(category("other", slow(pct=pct)))) for pct in (72.1, 71.9))
    assert little.impact.saved_ms.mid < 0.1 * little.impact.time_ms < more.impact.saved_ms.mid
    assert "little is left to gain" in little.issue
    assert "little" not in more.issue


def good(name: str = "aten::foo", time_us: float = 600.0, pct: float = 85.0, **values):
    return slow(name, time_us, pct, **values)


def test_a_category_at_its_target_has_nothing_to_fix() -> None:
    row = good(count=6, input_dims="((8, 4),)", input_types="('float',)")
    finding = only(nothing_to_fix(category("other", row)))
    assert finding.title == "Nothing to fix: Other"
    assert finding.priority is Priority.LOW
    assert finding.impact is None
    assert "0.600 ms (6.0% of compute)" in finding.issue
    assert "85.0% of the roofline" in finding.issue
    assert "[8,4] fp32" in finding.algorithmic


@pytest.mark.parametrize(
    "rows",
    [
        [good(time_us=490.0)],
        [good(), good("aten::bar", pct=79.0)],
        [good(), good("aten::bar", pct=None, time_us=40.0)],
        [good(), good("aten::bar", pct=120.0)],
    ],
    ids=["4.9% of compute", "below the target", "6% without efficiency", "an anomaly"],
)
def test_near_misses_of_nothing_to_fix(rows: list) -> None:
    assert not list(nothing_to_fix(category("other", *rows)))


def test_a_sliver_below_the_target_does_not_matter() -> None:
    rows = [good(time_us=1000.0), good("aten::bar", pct=10.0, time_us=50.0)]
    assert only(nothing_to_fix(category("other", *rows)))


def test_nothing_to_fix_gives_way_to_any_finding_that_names_work() -> None:
    limit = only(above_peak(category("other", good(pct=105.0))))
    work = only(low_efficiency(category("other", slow())))
    assert not has_work([])
    assert not has_work([limit])
    assert has_work([limit, work])


def test_cards_say_how_to_verify_and_what_to_measure() -> None:
    row = slow(
        count=4,
        bytes=53e6,
        input_dims="((8, 4),)",
        input_types="('float',)",
        kernels=[("my_kernel", 2000.0)],
    )
    finding = only(low_efficiency(category("other", row)))
    # 2 ms at 20 % are 0.5 ms at the target of 80 %
    assert "4 calls of `aten::foo`" in finding.verify
    assert "0.500 ms (80% of the roofline)" in finding.verify
    assert "`my_kernel`" in finding.capture
    assert "53.0 MB per call" in finding.capture
    assert "with_stack=True" in finding.capture
    assert "record_shapes" not in finding.capture
    known = slow(input_dims="((8,),)", input_types="('float',)", module_path=["Net_0", "Block_3"])
    finding = only(low_efficiency(category("other", known)))
    assert "with_stack" not in finding.capture
    assert "`Net / Block`" in finding.algorithmic


def test_a_saving_ends_where_calls_of_the_kind_usually_end() -> None:
    params = {"filter_shape": [64, 64, 3, 3], "groups": 1, "input_shape": [8, 64, 56, 56]}
    row = slow("aten::convolution", pct=35.0, params=params)
    gain = only(low_efficiency(category("convolution", row))).impact
    # 50-70% is usual: 2 ms at 35% are 1 ms at 70%
    assert gain.target_pct == pytest.approx(70.0)
    assert gain.saved_ms.mid == pytest.approx(1.0)


def test_an_efficiency_that_the_kernels_of_a_call_cannot_reach_is_not_expected() -> None:
    params = {"filter_shape": [64, 64, 3, 3], "groups": 1, "input_shape": [8, 64, 56, 56]}
    row = slow("aten::convolution", pct=10.0, params=params)
    finding = only(low_efficiency(category("convolution", row)))
    assert "where 50-70% is expected" in finding.issue
    # 2 ms are 400 µs at 50%: less than 201 kernels take
    finding = only(low_efficiency(category("convolution", {**row, "kernel_count": 201})))
    assert "expected" not in finding.issue


def test_a_saving_ends_at_the_shortest_time_of_a_kernel() -> None:
    # 100 calls of 20 µs at 1%: at 80% they would take 0.25 µs, no kernel takes less than 2 µs
    row = slow(pct=1.0, count=100, roofline_time_us=0.2)
    gain = only(low_efficiency(category("other", row))).impact
    assert gain.saved_ms.mid == pytest.approx(1.8)
    assert gain.target_pct == pytest.approx(10.0)


def test_a_place_is_that_of_most_of_the_time() -> None:
    def algorithmic(*modules: str) -> str:
        rows = [
            slow(module_path=["Net_0", f"{m}_0"], time_us=2000.0 - i) for i, m in enumerate(modules)
        ]
        return only(low_efficiency(category("other", *rows))).algorithmic

    assert " in `Net / Block`" in algorithmic("Block", "Block")
    assert " (mostly in `Net / Block`)" in algorithmic("Block", "Head")
