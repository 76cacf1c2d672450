"""Pages of an analysis whose names are injection attempts: they are shown as text."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from jarvis.analyses import load_analyses
from jarvis.server.submission import Submission, submit
from tests.dashboard.conftest import Draw
from tests.hostile import NASTY, write_hostile

FILED = [
    "ingest",
    "overview",
    "timeline",
    "call_tree",
    "what_if",
    "serving",
    "layers",
    "graphs",
    "report",
    "replay",
    "hardware",
    "jobs",
]


@pytest.fixture(scope="module")
def hostile_id(home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        trace = write_hostile(tmp_path_factory.mktemp("hostile"))
        return submit(Submission(trace, platform="MI300X", model_name=NASTY[0])).id


def check(page: AppTest) -> None:
    assert not page.exception
    assert not page.error
    for element in page.markdown:
        assert not element.allow_html, element.value[:200]


@pytest.mark.parametrize("name", FILED)
def test_every_file_page_draws(filed: Draw, hostile_id: str, name: str) -> None:
    check(filed(name, analysis=hostile_id))


@pytest.mark.parametrize("key", load_analyses())
def test_every_page_of_an_analysis_draws(registered: Draw, hostile_id: str, key: str) -> None:
    check(registered(key, analysis=hostile_id))


def test_two_hostile_analyses_can_be_compared(filed: Draw, hostile_id: str, sample_id: str) -> None:
    check(filed("compare", analysis=hostile_id, compare_reference=sample_id))


@pytest.mark.parametrize("text", [text.encode(errors="replace").decode() for text in NASTY])
def test_an_analysis_of_a_hostile_name_is_reported_as_missing(filed: Draw, text: str) -> None:
    page = filed("overview", analysis=text)
    assert not page.exception
