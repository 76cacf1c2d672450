"""The sidebar's analysis menu: pinning, and removal with confirmation."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from jarvis.dashboard.sidebar import popover_key
from jarvis.run import read_manifest
from jarvis.server import queue
from jarvis.server.database import database
from jarvis.server.jobs.kinds import Export
from jarvis.server.retention.removal import remove_analysis
from jarvis.server.storage.catalog import analysis_root, read_catalog, set_pinned, stored_row
from tests.dashboard.conftest import Draw

Keep = Callable[..., str]
Managed = Callable[[str], AppTest]
OTHER = "0ther"


@pytest.fixture
def keep(sample_id: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keep:
    """Return a function that stores a copy of the sample under an id, in a new home."""
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))

    def stored(analysis_id: str, **changes: str) -> str:
        root = shutil.copytree(
            home / "analyses" / sample_id, tmp_path / "home/analyses" / analysis_id
        )
        manifest = read_manifest(root).model_copy(update={"analysis_id": analysis_id} | changes)
        (root / "manifest.json").write_text(manifest.model_dump_json())
        return analysis_id

    return stored


@pytest.fixture
def managed(filed: Draw) -> Managed:
    """Return a function that draws the overview of an analysis with the popover open."""

    def draw(analysis_id: str) -> AppTest:
        page = filed("overview", analysis=analysis_id)
        assert not page.get("download_button")
        page.session_state[popover_key(analysis_id)] = True
        return page.run()

    return draw


def words(page: AppTest) -> str:
    shown = [*page.success, *page.error, *page.warning, *page.info, *page.caption, *page.markdown]
    return "\n".join(str(element.value) for element in shown)


def test_a_pin_is_set_and_let_go(keep: Keep, managed: Managed) -> None:
    mine = keep("mine")
    page = managed(mine)
    assert page.button(key="keeping_pin").label == "Pin"
    page.button(key="keeping_pin").click().run()
    assert stored_row(mine).is_pinned
    assert page.button(key="keeping_pin").label == "Unpin"
    assert page.button(key="keeping_remove").disabled
    page.button(key="keeping_pin").click().run()
    assert not stored_row(mine).is_pinned
    assert not page.exception


def test_an_analysis_is_removed_after_a_question(keep: Keep, managed: Managed) -> None:
    mine, other = keep("mine"), keep(OTHER, reference="mine")
    page = managed(mine)
    page.button(key="keeping_remove").click().run()
    assert "permanently for everyone" in words(page)
    assert f"compared with it: {other}" in words(page)
    page.button(key="keeping_cancel").click().run()
    assert "permanently" not in words(page)
    page.button(key="keeping_remove").click().run()
    page.button(key="keeping_sure").click().run()
    assert not page.exception
    assert [entry.id for entry in read_catalog().entries] == [other]
    assert f"({mine}): " in words(page)
    assert page.title[0].value.endswith("Ingest")
    assert page.selectbox(key="analysis_choice").value == other
    page.run()
    assert "freed" not in words(page)


def test_the_last_analysis_can_be_removed(keep: Keep, managed: Managed) -> None:
    page = managed(keep("mine"))
    page.button(key="keeping_remove").click().run()
    page.button(key="keeping_sure").click().run()
    assert not page.exception
    assert read_catalog().entries == ()
    assert "No analyses yet" in words(page)


def test_what_a_job_works_with_is_not_removed_and_the_page_says_why(
    keep: Keep, managed: Managed
) -> None:
    mine = keep("mine")
    page = managed(mine)
    page.button(key="keeping_remove").click().run()
    job = queue.submit(database(), Export(mine, "json").new_job())
    page.button(key="keeping_sure").click().run()
    assert f"job {job.id} is using it" in words(page)
    assert analysis_root(mine).is_dir()


def test_what_was_pinned_meanwhile_is_not_removed(keep: Keep, managed: Managed) -> None:
    mine = keep("mine")
    page = managed(mine)
    page.button(key="keeping_remove").click().run()
    set_pinned(mine, is_pinned=True)
    page.button(key="keeping_sure").click().run()
    assert analysis_root(mine).is_dir()
    assert not page.exception


def test_a_page_of_an_analysis_that_another_visitor_removed_says_so(
    keep: Keep, filed: Draw
) -> None:
    mine = keep("mine")
    keep(OTHER)
    page = filed("overview", analysis=mine)
    remove_analysis(mine)
    page.run()
    assert not page.exception
    assert "There is no analysis 'mine' on this server: it was deleted" in page.error[0].value


def test_the_overview_says_that_its_reference_was_removed(keep: Keep, filed: Draw) -> None:
    keep(OTHER)
    mine = keep("mine", reference=OTHER)
    add_comparison(mine)
    assert "the two cannot be compared again" not in words(filed("overview", analysis=mine))
    remove_analysis(OTHER)
    page = filed("overview", analysis=mine)
    assert not page.exception
    assert "the two cannot be compared again" in words(page)


def add_comparison(analysis_id: str) -> None:
    """Return the tables of an analysis with a reference."""
    from jarvis.pipeline import compare
    from jarvis.run import Run, write_run

    root = analysis_root(analysis_id)
    run = Run.load(root)
    write_run(run.with_tables({"comparison_operations": compare(run, run).operations}), root)


def test_compare_goes_on_without_a_reference_that_was_removed(keep: Keep, filed: Draw) -> None:
    mine, other = keep("mine"), keep(OTHER)
    third = keep("third")
    page = filed("compare", analysis=mine, reference=other)
    assert page.selectbox(key="compare_reference").value == other
    remove_analysis(other)
    page.run()
    assert not page.exception
    assert f"This server has no analysis '{other}' to compare with" in words(page)
    assert page.selectbox(key="compare_reference").value == third
    remove_analysis(third)
    page.run()
    assert not page.exception
    assert "This server has no other analysis to compare with" in words(page)
