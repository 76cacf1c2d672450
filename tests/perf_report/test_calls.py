"""Lookup of host calls and GPU work."""

import polars as pl
import pytest

from jarvis.perf_report.calls import HostCalls, host_calls
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
