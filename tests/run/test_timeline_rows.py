"""Rows of a timeline as a browser draws them: marks, bins, search, positions and arrows."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from jarvis.pipeline import analyze
from jarvis.run import Run, timeline_rows
from jarvis.run.timeline import IDLE, PATH, Timeline, Window
from jarvis.run.timeline_rows import HostChoice, TimelineRows
from jarvis.sample import write_sample
from jarvis.text.format import byte_size
from tests import growing

CAUSES = {"sync": "Synchronization"}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("timeline")
    path = write_sample(folder / "t.json.gz", steps=1, world_size=2, scale="tiny")
    return analyze(path, output_dir=folder / "run")


def rows_of(
    run: Run, host: HostChoice = HostChoice.OPERATORS, threads: int = 9, depth: int = 9
) -> TimelineRows:
    return TimelineRows(Timeline(run), CAUSES, host, threads, depth)


def whole(rows: TimelineRows) -> Window:
    assert rows.timeline.recording is not None
    return rows.timeline.recording


def slices(part: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(part["slices"])


def test_the_path_comes_first_then_idle_time_streams_and_threads(sample: Run) -> None:
    rows = rows_of(sample)
    streams = sorted(rows.timeline.gpu_events["track"].unique())
    labels = [row.label for row in rows.rows]
    assert labels[: 2 + len(streams)] == [PATH, IDLE, *streams]
    threads = [rows.timeline.thread_label(thread) for thread in rows.timeline.shown_threads(9)]
    assert [row.label for row in rows.rows if row.is_bar] == threads
    assert not any(row.is_bar for row in rows_of(sample, threads=0).rows)


def test_a_span_with_few_events_has_all_of_them(sample: Run) -> None:
    rows = rows_of(sample)
    part = rows.part(whole(rows))
    assert part["is_whole"]
    found = slices(part)
    assert found.height == rows.marks.height > 50
    kernel = rows.timeline.gpu_events.row(3, named=True)
    row = [row.label for row in rows.rows].index(kernel["track"])
    (mark,) = found.filter(pl.col("uid") == kernel["uid"], pl.col("row") == row).to_dicts()
    assert mark["start"] == kernel["ts_ns"] - whole(rows).start_ns
    assert mark["length"] == kernel["dur_ns"]
    assert part["names"][mark["name"]][1] == kernel["name"]
    assert part["whats"][mark["what"]] == kernel["what"]
    sent = sample.table("collectives").drop_nulls(["collective", "message_mb"])
    uid, collective, mib = sent.select("uid", "collective", "message_mb").row(0)
    of_sent = found.filter(pl.col("uid") == uid)["name"].unique()
    assert [part["names"][name][0].partition(" · ")[0] for name in of_sent] == [
        f"{collective} {byte_size(mib * 2**20)}"
    ]
    inner = Window(kernel["ts_ns"], kernel["ts_ns"] + 1)
    assert kernel["uid"] in slices(rows.part(inner))["uid"].to_list()
    assert slices(rows.part(inner)).height < found.height


def test_what_is_too_short_to_draw_comes_as_bins_with_the_same_time(
    sample: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(sample, threads=0)
    monkeypatch.setattr(timeline_rows, "_FEW_MARKS", 0)
    monkeypatch.setattr(timeline_rows, "_PIXELS", 200)
    part = rows.part(whole(rows))
    assert not part["is_whole"]
    drawn, bins = slices(part), pl.DataFrame(part["bins"])
    assert drawn["length"].min() >= whole(rows).length_ns // 200  # type: ignore[operator]
    assert 0 < drawn.height < rows.marks.height
    left_out = rows.marks.filter(pl.col("dur_ns") < whole(rows).length_ns // 200)
    busy = bins.with_columns(ns=(pl.col("end") - pl.col("start")) * pl.col("share") / 100)
    room_ns = whole(rows).length_ns / timeline_rows._MARK_BINS
    for (row,), marks in left_out.group_by("row"):
        ns = busy.filter(pl.col("row") == row)["ns"].sum()
        assert ns == pytest.approx(marks["dur_ns"].sum(), abs=room_ns * marks.height / 100 + 1)


def test_the_number_of_marks_is_limited(sample: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(sample)
    monkeypatch.setattr(timeline_rows, "MAX_MARKS", 20)
    part = rows.part(whole(rows))
    assert not part["is_whole"]
    drawn = slices(part)
    assert 0 < drawn.height <= 20
    assert drawn["length"].min() >= rows.marks["dur_ns"].sort(descending=True)[20]  # type: ignore[operator]


def test_bars_of_a_thread_are_stacked_up_to_all_of_its_time(sample: Run) -> None:
    rows = rows_of(sample)
    bins = pl.DataFrame(rows.part(whole(rows))["bins"])
    bars = [number for number, row in enumerate(rows.rows) if row.is_bar]
    assert set(bins["row"]) == set(bars)
    assert (bins["low"] >= 0).all()
    assert ((bins["low"] + bins["share"]) <= 101).all()  # each is rounded
    assert (bins["low"] > 0).any()


def test_calls_are_shown_by_kind_and_depth(sample: Run) -> None:
    table = sample.table("host_slices")
    for host in HostChoice:
        rows = rows_of(sample, host)
        shown = table.filter(pl.col("uid").is_in(rows.marks["uid"].implode()))
        assert set(shown["kind"]) <= set(host.kinds)
        expected = table.filter(pl.col("kind").is_in(host.kinds)).height - rows.starter_count
        assert shown.height + rows.deeper_count == expected
        flat = rows_of(sample, host, depth=1)
        hosts = [n for n, row in enumerate(flat.rows) if not row.label]
        assert flat.marks.filter(pl.col("row").is_in(hosts))["lane"].max() == 0
        assert flat.deeper_count > rows.deeper_count


def test_a_search_finds_events_by_both_names_without_the_path(sample: Run) -> None:
    rows = rows_of(sample)
    event = rows.timeline.gpu_events.row(4, named=True)
    found = rows.search(f"  {event['name'][2:12].upper()} ")
    same = rows.timeline.gpu_events.filter(
        pl.col("name").str.to_lowercase().str.contains(event["name"][2:12].lower(), literal=True)
    )
    assert found["count"] == len(found["uid"]) == same.height
    assert sorted(found["uid"]) == sorted(same["uid"])
    assert found["start"] == sorted(found["start"])
    assert rows.search("no such event")["count"] == rows.search("  ")["count"] == 0


def test_a_search_returns_the_first_matches(sample: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(sample)
    everything = rows.search("a")
    monkeypatch.setattr(timeline_rows, "MAX_FOUND", 3)
    found = rows.search("a")
    assert found["count"] == everything["count"] > 3
    assert found["uid"] == everything["uid"][:3]


def test_arrows_lead_from_a_launch_to_its_kernel_from_both_ends(sample: Run) -> None:
    rows = rows_of(sample)
    calls = sample.table("host_slices")["uid"]
    kernel = rows.timeline.gpu_events.filter(pl.col("launch_uid").is_in(calls.implode())).row(
        0, named=True
    )
    ((launch, end),) = rows.arrows(kernel["uid"])
    origin = whole(rows).start_ns
    called = rows.timeline.event(kernel["launch_uid"])
    assert called is not None
    assert launch["start"] == called["ts_ns"] - origin <= end["start"] == kernel["ts_ns"] - origin
    assert rows.rows[end["row"]].label == kernel["track"]
    assert [launch, end] in rows.arrows(kernel["launch_uid"])
    without_calls = rows_of(sample, depth=0)
    ((bar, _),) = without_calls.arrows(kernel["uid"])
    assert without_calls.rows[bar["row"]].is_bar
    assert rows_of(sample, threads=0).arrows(kernel["uid"]) == []


def test_causes_of_idle_time_have_their_labels(sample: Run) -> None:
    cause = Timeline(sample).gaps["cause"][0]
    rows = TimelineRows(Timeline(sample), {cause: "A label"}, HostChoice.ALL, 3, 4)
    idle = rows.statistics(whole(rows)).filter(pl.col("row") == IDLE)
    assert "A label" in idle["what"].to_list()
    names = [short for short, _ in rows.part(whole(rows))["names"]]
    assert "A label" in names


def test_the_number_of_streams_is_limited(tmp_path: Path) -> None:
    path = growing.streams(40).write(tmp_path / "trace.json")
    rows = rows_of(analyze(path, output_dir=tmp_path / "run"))
    streams = [row for row in rows.rows if "stream" in row.label]
    assert len(streams) + rows.hidden_streams == 40
    assert len(streams) == timeline_rows.MAX_STREAMS
