"""Groups of the calls of an operation whose kernel times lie apart."""

from typing import Any

import pytest

from jarvis.perf_report import PerfReport
from tests.builders import TraceBuilder, trace

MM = [[8, 4], [4, 2]]


def groups(builder: TraceBuilder) -> list[dict[str, Any]] | None:
    row = PerfReport(builder.read(), None).operations.row(0, named=True)
    found: list[dict[str, Any]] | None = row["populations"]
    return found


def calls(*times_us: float) -> TraceBuilder:
    builder = trace()
    for us in times_us:
        builder.op("aten::mm", MM).launches("gemm", us=us)
    return builder


def sizes(*times_us: float) -> list[int]:
    return [group["count"] for group in groups(calls(*times_us)) or []]


def test_times_that_lie_apart_are_groups_shortest_first() -> None:
    fast, slow = groups(calls(20.0, 90.0, 22.0, 100.0, 21.0, 92.0)) or []
    assert (fast["count"], fast["min_us"], fast["mean_us"], fast["max_us"]) == (3, 20.0, 21.0, 22.0)
    assert (slow["count"], slow["mean_us"], slow["total_us"]) == (3, 94.0, 282.0)
    assert not fast["is_outlier"]
    assert not slow["is_outlier"]


@pytest.mark.parametrize(
    "times_us",
    [
        (20.0, 20.0, 20.0, 29.9, 29.9, 29.9),  # less than 1.5 times
        (1.0, 1.0, 1.0, 2.0, 2.0, 2.0),  # twice, but whole microseconds may hide that it is less
        (10.0, 14.0, 19.0, 26.0, 36.0, 50.0),  # far apart, but no gap between neighbors
        (10.0, 20.0, 40.0, 80.0, 160.0),  # scattered: no group at all
        (10.0, 10.0, 10.0, 20.0, 40.0, 80.0, 160.0),  # most calls are in no group
        (10.0,),
    ],
)
def test_times_that_are_one_group(times_us: tuple[float, ...]) -> None:
    assert sizes(*times_us) == []


def test_at_the_limits() -> None:
    assert sizes(20.0, 20.0, 20.0, 30.0, 30.0, 30.0) == [3, 3]
    assert sizes(1.0, 1.0, 1.0, 2.1, 2.1, 2.1) == [3, 3]


def test_few_calls_apart_from_the_others_are_outliers() -> None:
    many, few = groups(calls(20.0, 21.0, 22.0, 149.0, 23.0, 150.0)) or []
    assert (many["count"], many["is_outlier"]) == (4, False)
    assert (few["count"], few["is_outlier"], few["is_first"]) == (2, True, False)


def test_a_slow_first_call_is_named() -> None:
    _, slow = groups(calls(150.0, 20.0, 21.0, 22.0)) or []
    assert slow["is_first"]


def test_calls_of_different_operations_are_not_compared() -> None:
    builder = calls(20.0, 20.0, 20.0)
    for _ in range(3):
        builder.op("aten::bmm", MM).launches("gemm", us=100.0)
    table = PerfReport(builder.read(), None).operations
    assert table["populations"].to_list() == [None, None]


def test_a_group_is_named_by_a_kernel_that_only_it_runs() -> None:
    builder = trace()
    for kernel, us in [("split_k", 60.0), ("gemm", 20.0)] * 3:
        builder.op("aten::mm", MM).launches("cast", us=5.0).launches(kernel, us=us)
    assert [group["kernel"] for group in groups(builder) or []] == ["gemm", "split_k"]
    builder.op("aten::mm", MM).launches("gemm", us=70.0)  # a slow call of the other kernel
    assert [group["kernel"] for group in groups(builder) or []] == [None, None]


def modules(*names: str) -> list[list[str]]:
    """The modules of the groups of attention that is slow in every second module."""
    builder = trace()
    for number, name in enumerate(names):
        builder.op("aten::prepare").python(f"nn.Module: {name}")
        builder.child("aten::mm", MM).launches("attention", us=100.0 if number % 2 else 20.0)
    return [group["modules"] for group in groups(builder) or []]


def test_groups_are_named_by_the_class_of_their_modules() -> None:
    names = ("Sliding_0", "Full_0", "Sliding_1", "Full_1", "Sliding_2", "Full_2")
    assert modules(*names) == [["Sliding"], ["Full"]]


def test_groups_are_named_by_modules_of_one_class() -> None:
    found = modules(*(f"Attention_{number}" for number in range(6)))
    assert found == [
        ["Attention_0", "Attention_2", "Attention_4"],
        ["Attention_1", "Attention_3", "Attention_5"],
    ]


def test_modules_with_calls_of_both_groups_name_none() -> None:
    assert modules(*["Attention_0"] * 6) == [[], []]
