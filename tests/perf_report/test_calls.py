"""Lookup of host calls and GPU work."""

import polars as pl
import pytest

from jarvis.perf_report.calls import (
    HostCalls,
    host_calls,
    kernel_details,
    kernels_by_name,
    trunc_kernel_details,
)
from jarvis.perf_report.work import gpu_work
from jarvis.trace import Trace
from tests.builders import trace


@pytest.fixture
def read() -> Trace:
    builder = trace().op("outer", [[4, 4]]).launches("a", us=5)
    builder.child("inner", [[2]]).launches("b", us=7)
    return builder.read()


def uid_of(calls: HostCalls, name: str) -> int:
    found = calls.cpu_ops.filter(pl.col("name") == name)["uid"]
    return int(found.item())


def test_selected_calls_are_in_file_order(read: Trace) -> None:
    calls = host_calls(read)
    inner, outer = uid_of(calls, "inner"), uid_of(calls, "outer")
    found = calls.select(pl.Series([inner, outer]), "name")
    assert dict(found.iter_rows()) == {outer: "outer", inner: "inner"}
    assert found["uid"].is_sorted()
    assert calls.select(pl.Series([-1]), "name").is_empty()


def test_runtime_calls_have_no_arguments(read: Trace) -> None:
    calls = host_calls(read)
    launches = read.runtime["uid"]
    outer = uid_of(calls, "outer")
    found = calls.select(pl.concat([launches, pl.Series([outer])]), "input_dims")
    assert found.filter(pl.col("uid") == outer)["input_dims"].to_list() == ["[[4,4]]"]
    assert found.filter(pl.col("uid") != outer)["input_dims"].to_list() == [None, None]


def test_rows_say_which_calls_run_again(read: Trace) -> None:
    calls = host_calls(read, recomputed=read.runtime["uid"])
    inner = uid_of(calls, "inner")
    rows = calls.rows(pl.concat([read.runtime["uid"], pl.Series([inner])]))
    assert dict(rows.select("uid", "is_recompute").iter_rows()) == {
        **dict.fromkeys(read.runtime["uid"], True),
        inner: False,
    }


def test_work_below_nested_owners_is_listed_once_for_each(read: Trace) -> None:
    calls = host_calls(read)
    inner, outer = uid_of(calls, "inner"), uid_of(calls, "outer")
    below = gpu_work(read).below(pl.Series([inner, outer]), ("name",))
    assert below.columns == ["owner_uid", "link_index", "gpu_uid", "name"]
    assert sorted(below.select("owner_uid", "name").iter_rows()) == sorted(
        [(outer, "a"), (outer, "b"), (inner, "b")]
    )


def lists(*calls: list[tuple[str, int]]) -> pl.DataFrame:
    rows = [
        (0, call, name, 7, us * 1000) for call, kernels in enumerate(calls) for name, us in kernels
    ]
    names = ["group", "call", "name", "stream", "dur_ns"]
    return pl.DataFrame(rows, schema=names, orient="row")


def details(*calls: list[tuple[str, int]]) -> list[dict[str, object]]:
    found = kernel_details(lists(*calls))["kernel_details"].to_list()
    return found[0] if found else []


def test_statistics_are_by_position_under_the_names_of_the_first_call() -> None:
    first, second = details([("a", 1), ("b", 9)], [("c", 3), ("b", 11)])
    assert first == {
        "name": "a",
        "stream": 7,
        "count": 2,
        "total_duration_us": 4.0,
        "mean_duration_us": 2.0,
        "median_duration_us": 2.0,
        "std_dev_duration_us": pytest.approx(1.0),
        "min_duration_us": 1.0,
        "max_duration_us": 3.0,
    }
    assert second["name"] == "b"
    assert second["total_duration_us"] == 20.0


def test_calls_of_another_length_are_left_out() -> None:
    (only,) = details([("a", 1)], [("a", 2), ("b", 5)], [("a", 4)])
    assert (only["count"], only["total_duration_us"]) == (2, 5.0)


def test_details_ascend_by_total_then_name() -> None:
    assert [d["name"] for d in details([("z", 5), ("b", 1), ("a", 1)])] == ["a", "b", "z"]


def test_long_names_are_cut_and_means_rounded_half_to_even() -> None:
    entry = {"name": "k" * 65, "stream": 3, "mean_duration_us": 4.645}
    expected = [{"name": "k" * 64 + "...", "stream": 3, "mean_duration_us": 4.64}]
    assert trunc_kernel_details([entry]) == repr(expected)
    assert trunc_kernel_details([]) is None
    assert trunc_kernel_details(None) is None


def test_statistics_by_name_do_not_mix_kernels() -> None:
    work = pl.DataFrame(
        {
            "owner": [1, 1, 1, 2],
            "name": ["a", "b", "a", "a"],
            "stream": [7, 7, 7, 7],
            "dur_ns": [1000, 9000, 3000, 5000],
        }
    )
    by_owner = dict(kernels_by_name(work, "owner").iter_rows())
    b, a = by_owner[1]
    assert b["name"] == "b"
    assert a == {
        "name": "a",
        "stream": 7,
        "count": 2,
        "total_us": 4.0,
        "mean_us": 2.0,
        "min_us": 1.0,
        "max_us": 3.0,
    }
    assert [k["total_us"] for k in by_owner[2]] == [5.0]
