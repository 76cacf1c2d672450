"""The timeline page: link, numbers, jumps and empty states."""

import gzip
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from jarvis.charts import LIGHT, category_color
from jarvis.dashboard.pages.timeline.perfetto import address_at
from jarvis.run import Run
from jarvis.run.timeline import PATH, Timeline, Window
from jarvis.server import queue
from jarvis.server.database import database
from jarvis.server.ingest.tickets import ticket_holder, timeline_purpose
from jarvis.server.jobs.kinds import Export, job_file
from jarvis.server.jobs.kinds.exports import HAS_TRACE
from jarvis.server.page_links import timeline_link
from jarvis.server.storage.catalog import Entry
from jarvis.server.submission import Submission, submit
from jarvis.text.format import MISSING, count, percent
from jarvis.text.short_names import short_kernel_name, short_operation_name
from tests.builders import TraceBuilder, trace
from tests.dashboard.conftest import SHARED, Draw
from tests.dashboard.copied import copied_parameters
from tests.dashboard.inline_jobs import do_jobs_at_once
from tests.dashboard.table_widths import is_shown

START, LENGTH, EVENT = "timeline_start", "timeline_length", "timeline_event"


@pytest.fixture
def view(sample_run: Run) -> Timeline:
    return Timeline(sample_run)


def copied_link(page: AppTest) -> dict[str, str]:
    query = copied_parameters(page)
    return {name: values[0] for name, values in query.items()}


def output(page: AppTest) -> str:
    return "\n".join(m.value for m in page.markdown)


def table(page: AppTest, column: str) -> pl.DataFrame:
    return pl.from_pandas(next(d.value for d in page.dataframe if column in d.value.columns))


def opening(page: AppTest) -> list[Any]:
    """The components that open a trace in Perfetto."""
    components = page.get("bidi_component")
    return [each for each in components if each.proto.component_name == "jarvis_perfetto"]


def drawing(page: AppTest) -> dict[str, Any]:
    """What the page gives to the drawing in the browser."""
    components = page.get("bidi_component")
    (drawn,) = (each for each in components if each.proto.component_name == "jarvis_timeline")
    found: dict[str, Any] = json.loads(drawn.proto.json)
    return found


def shown(view: Timeline, start_ms: float, length_ms: float) -> Window:
    assert view.recording is not None
    first = view.recording.start_ns + round(start_ms * 1e6)
    return Window(first, first + round(length_ms * 1e6))


def test_the_whole_recording_comes_first(filed: Draw, sample_id: str, view: Timeline) -> None:
    page = filed("timeline", analysis=sample_id)
    assert not page.exception
    assert view.recording is not None
    assert page.number_input(key=START).value == 0.0
    whole_ms = page.number_input(key=LENGTH).value
    assert 0 <= whole_ms - view.recording.length_ns / 1e6 <= 1e-4
    idle_pct = 100 * view.gaps["dur_ns"].sum() / (whole_ms * 1e6)
    assert f"idle {percent(idle_pct)}" in output(page)
    drawn = drawing(page)
    assert drawn["window"] == [0, drawn["whole"]] == [0, round(whole_ms * 1e6)]
    labels = [label for label, _, _ in drawn["rows"]]
    assert labels[0] == PATH
    assert view.thread_label(0) in labels
    assert {*drawn["legend"]} >= {*view.gpu_events["what"], *view.path["what"], "Python"}
    assert drawn["selected"] is None


def test_the_details_of_an_event_say_what_it_means_for_the_step(
    filed: Draw, sample_id: str, view: Timeline
) -> None:
    on_path = view.path.drop_nulls("uid")
    others = view.gpu_events.join(on_path, on="uid", how="anti")
    for uid, text in ((on_path["uid"][0], "On the"), (others["uid"][0], "Not on the")):
        page = filed("timeline", analysis=sample_id, timeline_event=str(uid))
        assert not page.exception
        assert f"{text} critical path" in output(page)
        drawn = drawing(page)
        assert drawn["selected"] == uid
        marked = {drawn["rows"][place["row"]][0] for place in drawn["places"]}
        assert (PATH in marked) == (text == "On the")
        assert all(launch["start"] <= end["start"] for launch, end in drawn["arrows"])


def test_a_trace_for_perfetto_is_made_by_a_job(
    filed: Draw, sample_id: str, view: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_jobs_at_once(monkeypatch)
    page = filed("timeline", analysis=sample_id, **{START: "2", LENGTH: "4"})
    page.button(key="timeline_make_Open in Perfetto").click().run()
    assert not page.exception
    file = job_file(queue.find(database(), page.query_params["timeline_job"]).result)
    assert file is not None
    document = json.loads(gzip.decompress(file.read_bytes()))
    (link,) = (each for each in page.get("link_button") if each.proto.label.startswith(file.name))
    assert "every slice of the trace" in "".join(each.value for each in page.caption)
    data = json.loads(opening(page)[0].proto.json)
    assert data["file"].partition("?")[0] == link.proto.url.partition("?")[0]
    window = shown(view, 2, 4)
    assert data["viewer"] == (
        f"https://ui.perfetto.dev/#!/?visStart={window.start_ns}&visEnd={window.end_ns}"
    )
    starts_ns = [round(e["ts"] * 1e3) for e in document["traceEvents"] if e["ph"] == "X"]
    assert min(starts_ns) < window.start_ns < window.end_ns < max(starts_ns)

    monkeypatch.setenv("JARVIS_PERFETTO_URL", "none")
    page = filed("timeline", analysis=sample_id, timeline_job=page.query_params["timeline_job"])
    assert page.button(key="timeline_make_Download for Perfetto").label
    assert not opening(page)
    assert any(each.proto.label.startswith(file.name) for each in page.get("link_button"))


def test_the_page_says_that_a_trace_for_perfetto_is_of_the_analysis(
    filed: Draw, sample_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_jobs_at_once(monkeypatch)
    monkeypatch.setattr(Entry, "source", "a file")
    exported = queue.submit(database(), Export(sample_id, "perfetto").new_job())
    assert exported.result[HAS_TRACE] is False
    page = filed("timeline", analysis=sample_id, timeline_job=exported.id)
    assert "The trace is not on this server" in "".join(each.value for each in page.caption)


def test_a_window_in_perfetto_counts_from_the_origin_of_the_file() -> None:
    address = address_at("https://p.example.org/ui/", Window(5_000, 7_500), 4_000)
    assert address == "https://p.example.org/ui/#!/?visStart=1000&visEnd=3500"


def test_a_link_opens_window_event_and_host_controls(
    filed: Draw, sample_id: str, view: Timeline
) -> None:
    kernel = view.gpu_events.row(5, named=True)
    assert view.recording is not None
    start_ms = round((kernel["ts_ns"] - view.recording.start_ns) / 1e6 - 0.2, 1)
    parameters = {
        START: str(start_ms),
        LENGTH: "0.75",
        EVENT: str(kernel["uid"]),
        "timeline_host": "all",
        "timeline_threads": "1",
        "timeline_depth": "9",
    }
    page = filed("timeline", analysis=sample_id, **parameters)
    assert not page.warning
    assert page.number_input(key=START).value == start_ms
    assert page.number_input(key="timeline_depth").value == 9
    assert kernel["name"] in [c.value for c in page.main.code]
    events = shown(view, start_ms, 0.75).of(view.gpu_events)
    assert events.height > 1
    assert f"**{count(events.height)} GPU events in this window**" in output(page)
    link = copied_link(page)
    assert link == {"analysis": sample_id, **SHARED, **parameters}
    again = filed("timeline", **link)
    assert output(again) == output(page)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (START, "-3"),
        (START, "soon"),
        (LENGTH, "0"),
        (LENGTH, "1e12"),
        (EVENT, "99999999"),
        (EVENT, "x"),
        ("timeline_depth", "4000"),
        ("timeline_host", "none"),
    ],
)
def test_a_bad_parameter_is_corrected_with_a_word(
    filed: Draw, sample_id: str, parameter: str, value: str
) -> None:
    page = filed("timeline", analysis=sample_id, **{parameter: value})
    assert not page.exception
    assert any(value in warning.value for warning in page.warning)
    assert copied_link(page).get(parameter) != value
    page.run()
    assert not page.warning


def _window_of_ten_ms() -> None:
    """Draw the fields of a recording of 10 ms, and buttons that do what gestures report."""
    import streamlit as st

    from jarvis.dashboard.pages.timeline.window import show, window_fields
    from jarvis.dashboard.session.links import begin_page
    from jarvis.run.timeline import Window

    begin_page("timeline")
    shown = window_fields(Window(5, 10_000_005), None)
    st.text(f"{shown.start_ns - 5} {shown.length_ns}")
    for number, chosen in enumerate([(2.3, 0.4), (-5.0, 0.4), (9.99999, 4.0), (3.0, 1e9)]):
        st.button(str(number), key=str(number), on_click=show, args=(*chosen, 10.0))


def test_a_window_of_the_browser_stays_inside_the_recording() -> None:
    page = AppTest.from_function(_window_of_ten_ms).run()
    windows = []
    for number in range(4):
        page.button(key=str(number)).click().run()
        windows.append(page.text[0].value)
    assert windows == ["2300000 400000", "0 400000", "6000000 4000000", "0 10000000"]


def test_the_drawing_reads_only_this_analysis(filed: Draw, sample_id: str) -> None:
    drawn = drawing(filed("timeline", analysis=sample_id, timeline_host="all"))
    assert drawn["address"] == timeline_link(sample_id)
    assert ticket_holder(drawn["ticket"], timeline_purpose(sample_id))
    assert drawn["query"] == {"host": "all", "threads": 3, "depth": 4}


def test_colors_are_those_of_the_category_in_every_run(filed: Draw, sample_id: str) -> None:
    colors = drawing(filed("timeline", analysis=sample_id))["colors"]
    assert colors["GEMM"][0] == category_color("gemm", LIGHT)
    kinds = [color for color, _ in colors.values()]
    assert len(kinds) == len(set(kinds))


def test_gaps_are_ranked_with_what_was_launched_next(
    filed: Draw, sample_id: str, view: Timeline
) -> None:
    page = filed("timeline", analysis=sample_id)
    gaps = table(page, "gap_ms")
    longest = view.gaps.sort("dur_ns", "start_ns", descending=[True, False]).filter(
        pl.col("dur_ns") >= 1000
    )
    assert f"**{longest.height} idle gaps of at least 1 µs in this window" in output(page)
    assert longest.height < view.gaps.height
    assert gaps["gap_ms"].to_list() == (longest["dur_ns"] / 1e6).to_list()
    names = [MISSING if n is None else short_operation_name(n) for n in longest["launcher_name"]]
    assert all(map(is_shown, gaps["launcher_name"], names))


def test_the_tables_have_short_names_and_shapes(
    filed: Draw, sample_id: str, view: Timeline
) -> None:
    events = table(filed("timeline", analysis=sample_id), "track")
    longest = view.gpu_events.sort("dur_ns", "ts_ns", descending=[True, False]).head(100)
    assert len(events) == longest.height
    assert all(map(is_shown, events["name"], map(short_kernel_name, longest["name"])))
    assert not any(text.startswith("(") for text in events["input_dims"])
    assert "\N{MULTIPLICATION SIGN}" in "".join(events["input_dims"])


def test_an_event_leads_to_its_operation_and_back(
    filed: Draw, registered: Draw, sample_id: str, sample_run: Run, view: Timeline
) -> None:
    row = sample_run.category_operations("gemm").row(0, named=True)
    details = registered("gemm", gemm_op=str(row["uid"]))
    link = next(x.proto for x in details.get("page_link") if "example call" in x.proto.label)
    query = {k: v[0] for k, v in parse_qs(link.query_string).items()}
    page = filed("timeline", **query)
    kernel = view.event(int(query[EVENT]))
    assert kernel is not None
    assert kernel["operation_uid"] == row["uid"]
    window = shown(view, float(query[START]), float(query[LENGTH]))
    assert window.start_ns <= kernel["ts_ns"]
    assert kernel["ts_ns"] + kernel["dur_ns"] <= window.end_ns
    back = next(x.proto for x in page.get("page_link") if "page GEMM" in x.proto.label)
    assert parse_qs(back.query_string)["gemm_op"] == [str(row["uid"])]


def analyzed(built: TraceBuilder, folder: Path) -> str:
    path = built.write(folder / "t.json")
    return submit(Submission(path)).id


def test_a_trace_without_gpu_work_shows_the_host(filed: Draw, tmp_path: Path) -> None:
    only_host = analyzed(trace().op("aten::add", [[4]], us=9.0), tmp_path)
    page = filed("timeline", analysis=only_host)
    assert not page.exception
    assert "no GPU work" in output(page)
    assert [row for row in drawing(page)["rows"] if row[2]]


def test_a_trace_without_host_calls_shows_the_gpu(filed: Draw, tmp_path: Path) -> None:
    built = trace()
    gpu = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5.0, "dur": 3.0}
    built.events.append({**gpu, "args": {"device": 0, "stream": 7}})
    page = filed("timeline", analysis=analyzed(built, tmp_path))
    assert not page.exception
    assert "No host calls" in output(page)
    assert "compute 100.0%" in output(page)


def test_a_long_recording_opens_at_its_steps(filed: Draw, tmp_path: Path) -> None:
    built = trace().op("aten::mm").launches("warmup", us=10).waits(50_000)
    built.annotation("ProfilerStep#1", us=1000).child("aten::mm").launches("gemm", us=500).up(2)
    analysis = analyzed(built, tmp_path)
    page = filed("timeline", analysis=analysis)
    start_ms, length_ms = (page.number_input(key=key).value for key in (START, LENGTH))
    assert start_ms > 45
    assert 1 < length_ms < 1.2
    whole = filed("timeline", analysis=analysis, **{START: "0", LENGTH: "51"})
    assert drawing(whole)["window"] == [0, 51_000_000]
