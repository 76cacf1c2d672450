"""The call tree as columns."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from jarvis.trace import call_tree, read_trace
from jarvis.trace.call_tree import BLEED_NS, build_call_tree
from tests.trace.plain_call_tree import plain_call_tree

US = 1000


@pytest.fixture(params=["as Python", "as machine code"], scope="module", autouse=True)
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            call_tree, "MAX_INTERPRETED_EVENTS", 1 << 40 if request.param == "as Python" else -1
        )
        yield


def tree(
    *events: tuple[str, int, int], cats: dict[str, str] | None = None, tid: str = "1"
) -> dict[str, dict[str, object]]:
    """Return tree rows by name for events (name, start µs, length µs); uid is the position."""
    frame = host(*((name, ts * US, dur * US) for name, ts, dur in events), cats=cats, tid=tid)
    names = dict(frame.select("uid", "name").iter_rows())
    return {names[row["uid"]]: row for row in build_call_tree(frame).iter_rows(named=True)}


def host(
    *events: tuple[str, int, int], cats: dict[str, str] | None = None, tid: str = "1"
) -> pl.DataFrame:
    rows = [
        (uid, (cats or {}).get(name, "cpu_op"), name, "100", tid, ts, dur)
        for uid, (name, ts, dur) in enumerate(events)
    ]
    schema = {"uid": pl.Int64, **dict.fromkeys(("cat", "name", "pid", "tid"), pl.String)}
    schema |= dict.fromkeys(("ts_ns", "dur_ns"), pl.Int64)
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_calls_nest_by_time() -> None:
    rows = tree(("a", 0, 10), ("b", 1, 4), ("c", 2, 1), ("d", 6, 2), ("e", 20, 1))
    assert [rows[n]["parent_uid"] for n in "abcde"] == [None, 0, 1, 0, None]
    assert [rows[n]["depth"] for n in "abcde"] == [0, 1, 2, 1, 0]
    assert [(rows[n]["order"], rows[n]["subtree_end"]) for n in "abcde"] == [
        (0, 4),
        (1, 3),
        (2, 3),
        (3, 4),
        (4, 5),
    ]
    assert [rows[n]["is_root"] for n in "abcde"] == [True, False, False, False, True]


def test_at_equal_start_the_first_event_of_the_file_is_the_parent() -> None:
    rows = tree(("outer", 0, 10), ("inner", 0, 10))
    assert rows["inner"]["parent_uid"] == 0


def test_a_child_may_start_when_its_sibling_ends() -> None:
    rows = tree(("a", 0, 10), ("b", 1, 4), ("c", 5, 5))
    assert rows["c"]["parent_uid"] == 0


def test_a_short_overlap_makes_a_sibling() -> None:
    events = host(("a", 0, 100 * US), ("b", US, 10 * US), ("c", 11 * US - BLEED_NS + 1, 5 * US))
    c = build_call_tree(events).row(by_predicate=pl.col("uid") == 2, named=True)
    assert (c["parent_uid"], c["is_dropped"]) == (0, False)


def test_a_long_overlap_drops_the_event_and_moves_its_children() -> None:
    events = host(
        ("a", 0, 100 * US),
        ("b", US, 10 * US),
        ("c", 11 * US - BLEED_NS, 5 * US),
        ("d", 11 * US - BLEED_NS + 1, 100),
    )
    rows = {row["uid"]: row for row in build_call_tree(events).iter_rows(named=True)}
    assert (rows[2]["is_dropped"], rows[2]["parent_uid"], rows[2]["is_root"]) == (True, None, False)
    assert rows[2]["subtree_end"] == rows[2]["order"] + 1
    assert rows[3]["parent_uid"] == 1


def test_an_overlap_with_a_root_is_dropped_however_short() -> None:
    events = host(("a", 0, 10 * US), ("b", 10 * US - 1, 5 * US))
    assert build_call_tree(events).filter("is_dropped")["uid"].to_list() == [1]


def test_threads_do_not_nest_in_each_other() -> None:
    both = pl.concat([host(("a", 0, 10 * US)), host(("b", US, US), tid="2")])
    both = both.with_columns(uid=pl.int_range(pl.len()))
    assert build_call_tree(both)["parent_uid"].to_list() == [None, None]


def test_the_nearest_op_and_the_launcher_above() -> None:
    cats = {"frame": "python_function", "launch": "cuda_runtime", "nested": "cuda_driver"}
    rows = tree(
        ("op", 0, 50),
        ("execute", 1, 40),
        ("frame", 2, 30),
        ("launch", 3, 20),
        ("nested", 4, 10),
        cats=cats,
    )
    uid = {name: row["uid"] for name, row in rows.items()}
    assert rows["launch"]["op_uid"] == uid["execute"]
    assert rows["launch"]["launcher_uid"] == uid["op"]  # `execute` only passes on
    assert rows["nested"]["op_uid"] == uid["execute"]
    assert rows["nested"]["launcher_uid"] is None  # another runtime call is between


def test_a_top_level_runtime_call_is_not_a_root() -> None:
    rows = tree(("launch", 0, 5), cats={"launch": "cuda_runtime"})
    assert rows["launch"]["is_root"] is False


def test_events_without_a_time_are_not_in_the_tree() -> None:
    events = host(("a", 0, 10)).with_columns(dur_ns=pl.lit(None, pl.Int64))
    assert build_call_tree(events).is_empty()


EVENTS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=25)


@given(EVENTS)
def test_the_tree_is_a_preorder_whose_ranges_hold_the_descendants(
    spans: list[tuple[int, int]],
) -> None:
    events = host(*((f"e{i}", ts * 300, dur * 300) for i, (ts, dur) in enumerate(spans)))
    rows = build_call_tree(events).sort("order").to_dicts()
    assert sorted(row["uid"] for row in rows) == list(range(len(spans)))
    assert [row["order"] for row in rows] == list(range(len(rows)))
    by_uid = {row["uid"]: row for row in rows}
    for row in rows:
        ancestors = set()
        parent = row["parent_uid"]
        while parent is not None:
            ancestors.add(parent)
            parent = by_uid[parent]["parent_uid"]
        assert row["depth"] == len(ancestors)
        within = {r["uid"] for r in rows if r["order"] < row["order"] < r["subtree_end"]}
        assert within == ancestors


@given(EVENTS)
def test_a_child_starts_after_its_parent_and_its_earlier_siblings(
    spans: list[tuple[int, int]],
) -> None:
    events = host(*((f"e{i}", ts * 300, dur * 300) for i, (ts, dur) in enumerate(spans)))
    joined = build_call_tree(events).join(events.select("uid", "ts_ns", "dur_ns"), on="uid")
    start = dict(events.select("uid", "ts_ns").rows())
    for uid, parent in joined.select("uid", "parent_uid").drop_nulls().rows():
        assert start[parent] <= start[uid]
    for _, group in joined.filter(~pl.col("is_dropped")).group_by("parent_uid"):
        starts = group.sort("order")["ts_ns"].to_list()
        assert all(earlier <= later for earlier, later in pairwise(starts))


def test_an_event_whose_end_overflows_is_clamped() -> None:
    latest = 2**63 - 1
    events = host(("a", latest - 100, latest), ("b", latest - 50, 10), ("c", latest - 40, latest))
    assert build_call_tree(events)["parent_uid"].to_list() == [None, 0, 0]


CATS = st.sampled_from(["cpu_op", "cuda_runtime", "cuda_driver", "python_function"])
HOST_EVENT = st.tuples(
    CATS,
    st.sampled_from(["op", "execute"]),
    st.sampled_from(["100", "200", None]),
    st.sampled_from(["1", "2", None]),
    st.none() | st.integers(0, 60).map(lambda step: step * 250),
    st.none() | st.integers(-2, 60).map(lambda step: step * 250),
)
NAMES = ("cat", "name", "pid", "tid")


@st.composite
def host_events(draw: st.DrawFn) -> pl.DataFrame:
    """Generate events of a few threads on a coarse clock, so that they tie, touch and overlap."""
    rows = draw(st.lists(HOST_EVENT, max_size=30))
    uids = draw(st.permutations(range(len(rows))))
    spread = draw(st.sampled_from([1, 10**14]))  # too wide for thread and time in one number
    schema = dict.fromkeys(NAMES, pl.String) | dict.fromkeys(("ts_ns", "dur_ns"), pl.Int64)
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(uid=pl.Series(uids))
    frame = frame.with_columns(pl.col("uid").cast(pl.Int64), pl.col("ts_ns", "dur_ns") * spread)
    return frame.with_columns(
        pl.col(NAMES).cast(draw(st.sampled_from([pl.String, pl.Categorical])))
    )


@given(host_events())
def test_the_compiled_tree_equals_the_reference(events: pl.DataFrame) -> None:
    assert_frame_equal(build_call_tree(events), plain_call_tree(events))


@pytest.mark.parametrize("with_python", [False, True], ids=["ops", "python"])
def test_compiled_trees_of_recorded_traces_equal_the_reference(
    reference_root: Path, with_python: bool
) -> None:
    for path in sorted((reference_root / "traces").rglob("*.json*")):
        read = read_trace(path)
        frames = [read.cpu_ops, read.runtime, *[read.python_functions] * with_python]
        columns = ("uid", *NAMES, "ts_ns", "dur_ns")
        events = pl.concat([frame.select(columns) for frame in frames])
        assert_frame_equal(build_call_tree(events), plain_call_tree(events))
