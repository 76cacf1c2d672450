"""The Runs page: table, filters in the URL, selection, labels, trend, and the first page."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from jarvis.core.labels import RunLabels
from jarvis.core.workspace import RunPaths, analyses_dir
from jarvis.dashboard import MAIN
from jarvis.dashboard.pages.runs.categories import (
    CHANGE,
    TITLE,
    TREND,
    category_frame,
    column_titles,
    differences,
)
from jarvis.dashboard.pages.runs.page import IS_CLICK, table_key
from jarvis.dashboard.pages.runs.rows import BUSY, FINDING, ID, TIME, TRACE, RunRow, frame_of
from jarvis.dashboard.pages.runs.trend import STEP_TIME, groups_of, points_of
from jarvis.server.access import audit
from jarvis.server.database import database
from jarvis.server.storage.analysis_rows import set_labels
from jarvis.server.storage.catalog import read_catalog
from jarvis.text.format import MISSING
from tests.dashboard.conftest import SECONDS, Draw
from tests.dashboard.copied import copied_parameters

Store = Callable[..., str]


@pytest.fixture
def store(sample_id: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return a function that stores the sample under an id, with another time, in a new home."""
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    source = home / "analyses" / sample_id

    def stored(
        name: str, day: int, factor: float = 1.0, labels: RunLabels | None = None, **changes: object
    ) -> str:
        root = analyses_dir() / name
        shutil.copytree(source, root, copy_function=os.link)
        manifest = json.loads(RunPaths(source).manifest.read_text())
        for key in ("step_ms", "idle_ms"):
            manifest["totals"]["step"][key] *= factor
        for category in manifest["categories"]:
            if category["key"] == "gemm":
                category["gpu_time_ms"] *= factor
        manifest |= {"analysis_id": name, "created": f"2026-11-{day:02}T10:00:00+00:00"} | changes
        RunPaths(root).manifest.unlink()
        RunPaths(root).manifest.write_text(json.dumps(manifest))
        if labels is not None:
            read_catalog()
            set_labels(database(), name, labels)
        return name

    return stored


@pytest.fixture
def three(store: Store) -> None:
    """Three runs: two of a project, on a branch each, and an older one of another model."""
    store("older", 1, model_name="Other model")
    store("first", 2, labels=RunLabels.of("llm", "main", "aaa111", ["nightly"]))
    store("second", 3, 1.5, labels=RunLabels.of("llm", "fp8", "bbb222", ["nightly", "fp8"]))


def ids(page: AppTest) -> list[str]:
    """Return the ids of the runs in the table."""
    assert not page.exception
    return list(page.dataframe[0].value[ID])


def copied(page: AppTest) -> dict[str, list[str]]:
    return copied_parameters(page)


def link_labels(page: AppTest) -> list[str]:
    return [link.label for link in page.get("page_link")]


def words(page: AppTest) -> str:
    shown = [*page.main.caption, *page.main.markdown, *page.main.info, *page.main.warning]
    return "\n".join(str(each.value) for each in shown)


def opened(**parameters: str) -> AppTest:
    """Open the root in a new browser session."""
    page = AppTest.from_file(MAIN, default_timeout=SECONDS)
    for name, value in parameters.items():
        page.query_params[name] = value
    return page.run()


@pytest.mark.usefixtures("three")
def test_the_first_page_is_the_list_of_runs_with_the_newest_one_click_away() -> None:
    page = opened()
    assert page.title[0].value.endswith("Runs")
    assert ids(page) == ["second", "first", "older"]
    newest = page.main.get("page_link")[0]
    assert newest.label.startswith("**Newest run: Sample model · AMD Instinct MI300X")
    assert newest.query_string == "analysis=second"
    assert newest.page == "overview"


@pytest.mark.parametrize("name", ["ingest_source", "archive_job"])
@pytest.mark.usefixtures("three")
def test_links_to_ingest_at_the_root_still_open_it(name: str) -> None:
    assert opened(**{name: "sample"}).title[0].value.endswith("Ingest")


def test_without_runs_the_first_page_is_ingest_and_stays_so_in_the_session(
    store: Store, filed: Draw
) -> None:
    page = opened()
    assert page.title[0].value.endswith("Ingest")
    store("mine", 1)
    assert page.run().title[0].value.endswith("Ingest")
    assert ids(opened()) == ["mine"]


def test_a_server_without_runs_says_what_to_do(store: Store, filed: Draw) -> None:
    page = filed("runs")
    assert "No runs yet" in page.info[0].value
    assert "Analyze a trace" in link_labels(page)


@pytest.mark.usefixtures("three")
def test_the_table_has_the_figures_of_the_manifest(filed: Draw) -> None:
    page = filed("runs")
    table = page.dataframe[0].value.set_index(ID)
    entry = read_catalog().find("second")
    bounds = entry.manifest.totals.step
    assert bounds is not None
    assert bounds.step_ms is not None
    assert table.loc["second", TIME] == pytest.approx(bounds.step_ms / bounds.steps)
    assert table.loc["second", BUSY] == pytest.approx(100 * (1 - bounds.idle_ms / bounds.step_ms))
    top = entry.manifest.top_finding
    assert top is not None
    assert table.loc["second", FINDING] == top.title.replace("`", "")
    assert table.loc["second", "project"] == "llm"
    assert list(table.loc["second", "tags"]) == ["fp8", "nightly"]
    assert "run_owner" not in table.columns  # access control is off


def test_the_name_of_the_trace_has_a_column_only_where_the_model_is_another(
    store: Store, filed: Draw
) -> None:
    store("unnamed", 1, model_name=None, main_module=None)
    assert TRACE not in filed("runs").dataframe[0].value.columns
    store("known", 2, model_name=None, main_module="BertModel")
    shown = filed("runs").dataframe[0].value
    assert shown["model"][0] == "BertModel"
    assert TRACE in shown.columns


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"runs_search": "BBB222"}, ["second"]),
        ({"runs_search": "sample nightly"}, ["second", "first"]),
        ({"runs_project": "llm"}, ["second", "first"]),
        ({"runs_branch": "main"}, ["first"]),
        ({"runs_model": "Other model"}, ["older"]),
        ({"runs_tags": "fp8"}, ["second"]),
        ({"runs_gpu": "AMD Instinct MI300X"}, ["second", "first", "older"]),
        ({"runs_from_ms": "60"}, ["second"]),
        ({"runs_to_ms": "60"}, ["first", "older"]),
        ({"runs_since": "2026-11-02", "runs_until": "2026-11-02"}, ["first"]),
        ({"runs_busy_below": "95"}, ["second", "first", "older"]),
    ],
)
@pytest.mark.usefixtures("three")
def test_filters_are_stored_in_the_link(
    filed: Draw, parameters: dict[str, str], expected: list[str]
) -> None:
    page = filed("runs", **parameters)
    assert not page.warning
    assert ids(page) == expected
    link = copied(page)
    assert ids(filed("runs", **{key: each[0] for key, each in link.items()})) == expected
    assert link.keys() >= parameters.keys()
    assert f"{len(expected)} of 3 runs" in words(page)


@pytest.mark.parametrize(
    "parameter", ["runs_project", "runs_tags", "runs_from_ms", "runs_since", "runs_selected"]
)
@pytest.mark.usefixtures("three")
def test_a_bad_parameter_is_reported(filed: Draw, parameter: str) -> None:
    page = filed("runs", **{parameter: "nothere"})
    assert ids(page) == ["second", "first", "older"]
    assert page.warning


@pytest.mark.usefixtures("three")
def test_filters_that_no_run_passes_can_be_cleared(filed: Draw) -> None:
    page = filed("runs", runs_search="nothere", runs_project="llm")
    assert "None of the 3 runs passes the filters" in page.info[0].value
    next(each for each in page.button if each.label == "Clear filters").click().run()
    assert ids(page) == ["second", "first", "older"]


@pytest.mark.usefixtures("three")
def test_two_selected_runs_are_compared_also_if_a_filter_hides_one(filed: Draw) -> None:
    page = filed("runs", runs_selected="first,second", runs_branch="fp8")
    assert ids(page) == ["second"]
    assert "2 runs selected** (1 hidden by the filters)" in words(page)
    (compare,) = [
        link for link in page.main.get("page_link") if link.label.startswith("Compare the newer")
    ]
    assert compare.query_string == "analysis=second&reference=first"
    assert copied(page)["runs_selected"] == ["second,first"]
    next(each for each in page.button if each.label == "Clear selection").click().run()
    assert "Select a run" in words(page)
    assert "runs_selected" not in copied(page)


@pytest.mark.usefixtures("three")
def test_several_selected_runs_give_a_table_of_categories(filed: Draw) -> None:
    page = filed("runs", runs_selected="first,second,older")
    assert "different models (Other model, Sample model)" in page.warning[0].value
    table = page.dataframe[1].value
    assert table[TITLE][0] == "Step time"
    assert table[CHANGE][0] == pytest.approx(50.0)
    assert {"run_0", "run_1", "run_2"} <= set(table.columns)


@pytest.mark.usefixtures("three")
def test_category_times_are_those_of_each_run_oldest_first() -> None:
    rows = [RunRow(entry) for entry in reversed(read_catalog().entries)]
    frame, names = category_frame(rows)
    gemm = frame.row(by_predicate=pl.col(TITLE) == "GEMM", named=True)
    times = [row.figures.times_ms["gemm"] for row in rows]
    assert gemm[TREND] == [gemm[name] for name in names] == times
    assert gemm[CHANGE] == pytest.approx(50.0)
    assert "MoE" not in frame[TITLE].to_list()
    assert len(set(column_titles(rows))) == len(rows)
    assert column_titles([rows[0], rows[0]]) == [f"{rows[0].when} · {rows[0].id}"] * 2
    assert differences(rows[1:]) == ""


@pytest.mark.usefixtures("three")
def test_the_trend_has_a_point_for_each_run_of_a_project_or_model(filed: Draw) -> None:
    rows = [RunRow(entry) for entry in read_catalog().entries]
    groups = groups_of(rows)
    assert {key: [row.id for row in found] for key, found in groups.items()} == {
        "project:llm": ["second", "first"],
        "model:Sample model": ["second", "first"],
    }
    points = points_of(groups["project:llm"], STEP_TIME)
    assert points["shown_ms"].to_list() == [rows[1].figures.time_ms, rows[0].figures.time_ms]
    assert points["created"].is_sorted()
    page = filed("runs", runs_trend="project:llm", runs_shown="gemm")
    assert "GEMM of project llm over its runs" in words(page)
    assert "needs two runs" in words(filed("runs", runs_branch="main"))


def test_the_trend_is_of_the_models_in_the_table(store: Store, filed: Draw) -> None:
    for day, file_name in ((1, "monday.json"), (2, "tuesday.json")):
        trace = json.loads(
            RunPaths(analyses_dir() / store(file_name[:-5], day)).manifest.read_text()
        )
        changed = trace["trace"] | {"file_name": file_name}
        shutil.rmtree(analyses_dir() / file_name[:-5])
        store(file_name[:-5], day, model_name=None, main_module="BertModel", trace=changed)
    assert list(groups_of([RunRow(entry) for entry in read_catalog().entries])) == [
        "model:BertModel"
    ]
    assert "needs two runs" not in words(filed("runs"))


@pytest.mark.usefixtures("three")
def test_the_picker_shows_ids_only_where_names_are_equal(filed: Draw) -> None:
    options = filed("runs").selectbox(key="analysis_choice").options
    assert [("older" in text, " · second" in text) for text in options][-1] == (False, False)
    assert options[0].endswith(" · second")
    assert options[1].endswith(" · first")


@pytest.mark.usefixtures("three")
def test_labels_are_changed_on_the_page(filed: Draw) -> None:
    page = filed("runs", runs_selected="first")
    field = {each.label: each for each in page.main.text_input}
    assert (field["Project"].value, field["Tags"].value) == ("llm", "nightly")
    field["Branch"].set_value("")
    field["Tags"].set_value("a,<b>")
    save = next(each for each in page.button if each.label == "Save labels")
    save.click().run()
    assert "contains" in page.toast[0].value
    assert read_catalog().find("first").labels.branch == "main"
    next(e for e in page.main.text_input if e.label == "Tags").set_value("b, a")
    next(e for e in page.main.text_input if e.label == "Branch").set_value("")
    next(each for each in page.button if each.label == "Save labels").click().run()
    assert read_catalog().find("first").labels == RunLabels.of("llm", None, "aaa111", ["a", "b"])
    (entry,) = audit.recent(database())
    assert (entry.action, entry.via, entry.subject) == ("label", "page", "first")


@pytest.mark.usefixtures("three")
def test_several_runs_get_labels_and_keep_their_others(filed: Draw) -> None:
    page = filed("runs", runs_selected="first,older")
    next(e for e in page.main.text_input if e.label == "Project").set_value("new")
    next(e for e in page.main.text_input if e.label == "Add tags").set_value("x")
    next(each for each in page.button if each.label == "Save labels").click().run()
    catalog = read_catalog()
    assert catalog.find("first").labels == RunLabels.of("new", "main", "aaa111", ["nightly", "x"])
    assert catalog.find("older").labels == RunLabels.of("new", tags=["x"])


def test_a_run_of_an_earlier_release_has_no_top_finding(store: Store, filed: Draw) -> None:
    store("old", 1, top_finding=None)
    store("new", 2)
    table = filed("runs").dataframe[0].value.set_index(ID)
    assert (table[FINDING] == MISSING).to_dict() == {"new": False, "old": True}


@pytest.mark.usefixtures("three")
def test_a_click_counts_also_if_the_url_is_still_that_of_an_earlier_one(filed: Draw) -> None:
    """A browser that selects a second run at once sends the URL without the first one."""
    page = filed("runs", runs_selected="second")
    page.session_state[table_key(ids(page))] = {
        "selection": {"rows": [0, 1], "columns": [], "cells": []}
    }
    page.session_state[IS_CLICK] = True
    del page.query_params["runs_selected"]
    assert "2 runs selected" in words(page.run())
    assert copied(page)["runs_selected"] == ["second,first"]


@pytest.mark.usefixtures("three")
def test_the_list_of_runs_opens_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = read_catalog().entries

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a file was read")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    monkeypatch.setattr(pl, "read_parquet", refuse)
    frame = frame_of(RunRow(entry) for entry in entries)
    assert frame[TIME].null_count() == 0
