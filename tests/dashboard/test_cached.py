"""Caches of what pages derive from an analysis."""

from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import altair as alt
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from streamlit.testing.v1 import AppTest

from jarvis.core.request import Targets
from jarvis.dashboard.session.state import Opened, cached, of_opened, of_stored, rows_of
from jarvis.run import Run, category_table
from jarvis.schemas.names import C
from tests.dashboard.conftest import Draw


@pytest.fixture
def now(sample_run: Run) -> Opened:
    return Opened("sample", Path("sample"), sample_run, stamp=1)


def test_a_result_is_that_of_the_arguments_before_those_they_determine(now: Opened) -> None:
    made: list[tuple[str, int]] = []

    @cached(8, of_stored)
    def length(now: Opened, name: str, _rows: int) -> int:
        made.append((name, _rows))
        return len(name) + _rows

    assert [length(now, "a", 1), length(now, "a", 2), length(now, "bb", 1)] == [2, 2, 3]
    assert made == [("a", 1), ("bb", 1)]


def test_only_what_depends_on_the_targets_is_made_for_each(now: Opened) -> None:
    made: list[str] = []

    @cached(8, of_stored)
    def stored(now: Opened) -> None:
        made.append("stored")

    @cached(8, of_opened)
    def opened(now: Opened) -> None:
        made.append("opened")

    other = replace(now, chosen=Targets(55.0))
    changed = replace(now, stamp=2)
    for each in (now, other, now, changed):
        stored(each)
        opened(each)
    assert made == ["stored", "opened", "opened", "stored", "opened"]


def test_only_recent_results_are_kept(now: Opened) -> None:
    made: list[int] = []

    @cached(2, of_stored)
    def same(now: Opened, number: int) -> None:
        made.append(number)

    for number in (1, 2, 1, 3, 1, 2):
        same(now, number)
    assert made == [1, 2, 3, 2]


def test_an_error_is_not_a_result(now: Opened) -> None:
    errors = [ZeroDivisionError(), None]

    @cached(2, of_stored)
    def made(now: Opened) -> str:
        if (error := errors.pop(0)) is not None:
            raise error
        return "made"

    with pytest.raises(ZeroDivisionError):
        made(now)
    assert made(now) == "made"


def test_sessions_wait_for_the_one_that_makes_a_result(now: Opened) -> None:
    made: list[str] = []
    has_begun, may_end = Event(), Event()

    @cached(2, of_stored)
    def result(now: Opened) -> str:
        made.append("made")
        has_begun.set()
        may_end.wait()
        return "made"

    found: list[str] = []
    sessions = [Thread(target=lambda: found.append(result(now))) for _ in range(2)]
    sessions[0].start()
    has_begun.wait()
    sessions[1].start()
    may_end.set()
    for session in sessions:
        session.join()
    assert (found, made) == (["made", "made"], ["made"])


@pytest.mark.parametrize("name", ["overview", "call_tree", "what_if"])
def test_an_unchanged_page_makes_no_chart(
    filed: Draw, sample_id: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert_makes_no_chart(filed(name, analysis=sample_id), monkeypatch)


@pytest.mark.parametrize("name", ["cpu_idle", "multi_kernel"])
def test_an_unchanged_page_of_an_analysis_makes_no_chart(
    registered: Draw, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert_makes_no_chart(registered(name), monkeypatch)


def assert_makes_no_chart(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    for kind in (alt.Chart, alt.LayerChart):
        monkeypatch.setattr(kind, "to_dict", lambda *_, **__: made.append("made"))
    assert not page.run().exception
    assert not page.error
    assert made == []


def test_rows_of_a_category_are_longest_first_and_copied_only_to_sort_them(now: Opened) -> None:
    table = now.run.category_operations("gemm")
    rows = rows_of(now, "gemm")
    assert rows[C.kernel_time_us].flags["SORTED_DESC"]
    assert address_of(rows[C.bytes]) == address_of(table[C.bytes])

    reverse = now.run.with_tables({category_table("gemm"): table.reverse()})
    assert_frame_equal(rows_of(replace(now, stored=reverse, stamp=2), "gemm"), rows)


def address_of(numbers: pl.Series) -> int:
    return numbers.rechunk().to_numpy(allow_copy=False).ctypes.data
