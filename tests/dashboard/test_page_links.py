"""The links of the sidebar to pages: shares of the step, priorities, dimmed pages."""

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from jarvis.core.request import Targets
from jarvis.dashboard.page_links import PageMark, page_marks
from jarvis.dashboard.session.state import Opened
from jarvis.findings import Status
from jarvis.pipeline import at_targets
from jarvis.run import Run
from jarvis.run.figures import RunFigures
from jarvis.text.format import counted
from tests.dashboard.conftest import Draw


def links(page: AppTest) -> dict[str, tuple[str, str, str]]:
    """Return the label, tooltip and parameters of each link of the sidebar by page."""
    protos = (each.proto for each in page.sidebar.get("page_link"))
    return {proto.page: (proto.label, proto.help, proto.query_string) for proto in protos}


@pytest.fixture
def marks(sample_run: Run, sample_id: str) -> dict[str, PageMark]:
    assert sample_run.root is not None
    return dict(page_marks(Opened(sample_id, sample_run.root, sample_run, 0)))


def test_the_run_is_chosen_above_the_pages(registered: Draw) -> None:
    kinds = [child.type for child in registered("gemm").sidebar]
    first_link = kinds.index("page_link")
    for action in ("selectbox", "bidi_component"):
        assert kinds.index(action) < first_link
    assert "popover" not in kinds[first_link:]


def test_a_link_has_the_share_and_the_highest_priority(
    registered: Draw, sample_run: Run, sample_id: str
) -> None:
    figures, totals = RunFigures.of(sample_run.manifest), sample_run.manifest.totals
    assert totals.step is not None
    in_steps = sample_run.table("gpu_work").filter(
        pl.col("operation_uid").is_in(sample_run.category_operations("gemm")["uid"].implode()),
        pl.col("ts_ns").is_between(totals.step.start_ns, totals.step.end_ns),
    )
    share = in_steps["dur_ns"].sum() / 1e4 / totals.step.step_ms
    assert share <= 100 * figures.times_ms["gemm"] / figures.time_ms
    worst = min((f.priority for f in sample_run.results["gemm"].findings), key=lambda p: p.rank)
    label, tooltip, query = links(registered("gemm"))["gemm"]
    assert label.startswith("GEMM ")
    assert f"{share:.0f}%" in label
    assert f"highest priority: {worst}" in tooltip
    assert f"{share:.1f}% of the {figures.basis}" in tooltip
    assert query == f"analysis={sample_id}"


def test_marks_are_those_at_the_target(registered: Draw, sample_run: Run, sample_id: str) -> None:
    found = at_targets(sample_run, Targets(30.0)).results["gemm"].findings
    assert 0 < len(found) < len(sample_run.results["gemm"].findings)
    page = registered("gemm", target="30")
    _, tooltip, query = links(page)["gemm"]
    assert f"{counted(len(found), 'finding')}, highest priority: " in tooltip
    assert query == f"analysis={sample_id}&target=30"
    page.slider(key="target").set_value(80).run()
    every = counted(len(sample_run.results["gemm"].findings), "finding")
    assert f"{every}, highest priority: " in links(page)["gemm"][1]


def test_priorities_differ_by_shape_and_word(marks: dict[str, PageMark]) -> None:
    shown = {mark.worst: mark.label[-2] for mark in marks.values() if mark.worst is not None}
    assert len(shown) > 1
    assert len(set(shown.values())) == len(shown)
    for mark in marks.values():
        assert mark.worst is None or str(mark.worst) in mark.tooltip


def test_pages_without_operations_are_dimmed_but_open(
    registered: Draw, sample_run: Run, marks: dict[str, PageMark]
) -> None:
    empty = [
        result
        for result in sample_run.results.values()
        if result.status is Status.NO_DATA and not result.findings
    ]
    assert empty
    drawn = links(registered("gemm"))
    for result in empty:
        assert drawn[result.key][0] == f":gray[{result.title}]"
        assert not marks[result.key].label
    assert not registered(empty[0].key).exception


def test_pages_of_the_system_have_parts_of_the_step(
    marks: dict[str, PageMark], sample_run: Run
) -> None:
    figures = RunFigures.of(sample_run.manifest)
    assert marks["cpu_idle"].share_pct == pytest.approx(
        100 * figures.times_ms["idle"] / figures.time_ms
    )
    exposed_ms = figures.times_ms["exposed_communication"] + figures.times_ms["exposed_copies"]
    assert marks["multi_kernel"].share_pct == pytest.approx(100 * exposed_ms / figures.time_ms)


def test_without_an_analysis_the_links_have_no_marks(
    filed: Draw, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path))
    label, tooltip, query = links(filed("ingest"))["gemm"]
    assert (label, tooltip, query) == ("GEMM", "", "")


def test_the_peaks_say_what_they_are_for(registered: Draw) -> None:
    captions = [caption.value for caption in registered("gemm").sidebar.caption]
    assert any("Peaks for this run's main operations: 5.30 TB/s memory, " in c for c in captions)
