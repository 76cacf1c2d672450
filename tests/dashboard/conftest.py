"""Fixtures: an analyzed sample, and pages drawn without a browser."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.elements.lib import policies
from streamlit.testing.v1 import AppTest

from jarvis.dashboard import MAIN
from jarvis.dashboard.isolation import show_failure
from jarvis.dashboard.menu import START, START_PAGES
from jarvis.run import Run
from jarvis.server.ingest.intake import sample_trace
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.submission import Submission, submit

SECONDS = 120

Draw = Callable[..., AppTest]

SHARED = {"target": "80", "below": "40"}
"""What the link of every page of an analysis has."""


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def sample_id(home: Path) -> str:
    """The id of the analyzed sample."""
    return stored_in(home, Submission(sample_trace(), model_name="Sample model"))


def stored_in(home: Path, submission: Submission) -> str:
    """Analyze a trace into the home; return the id."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        return submit(submission).id


@pytest.fixture(autouse=True)
def _uses_home(home: Path, components_found_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(home))


@pytest.fixture
def expects_failures() -> None:
    """Allow parts of pages to fail in a test; each is logged as an error."""


@pytest.fixture(autouse=True)
def _log_is_clean(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[None]:
    """Fail a test in which Streamlit logs a warning, or a part of a page fails."""
    monkeypatch.setattr(policies, "_shown_default_value_warning", False)  # else once per process
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.startswith("streamlit.") and isinstance(logger, logging.Logger):
            monkeypatch.setattr(logger, "propagate", True)
    with caplog.at_level(logging.WARNING):
        yield
    records = [record for when in ("setup", "call") for record in caplog.get_records(when)]
    warnings = [r.getMessage() for r in records if r.name.startswith("streamlit.")]
    assert [text for text in warnings if "missing ScriptRunContext" not in text] == []
    if "expects_failures" not in request.fixturenames:
        assert [r.getMessage() for r in records if r.name == show_failure.__module__] == []


@pytest.fixture
def sample_run(sample_id: str) -> Run:
    return Run.load(analysis_root(sample_id))


def _registered_page(key: str) -> None:
    """Draw a page that is not a file, which AppTest cannot switch to."""
    from functools import partial

    from jarvis.analyses import load_analyses
    from jarvis.dashboard import shell
    from jarvis.dashboard.menu import menu
    from jarvis.dashboard.pages.category import page as category
    from jarvis.dashboard.pages.system import page as system
    from jarvis.dashboard.session import navigation
    from jarvis.server.storage.catalog import read_catalog

    catalog = read_catalog()
    sections = menu(catalog)
    navigation.remember(page for pages in sections.values() for page in pages)
    analysis = load_analyses()[key]
    render = category.render if analysis.tier == "compute" else system.render
    shell.draw(partial(render, analysis), key, catalog, sections)


@pytest.fixture
def registered(sample_id: str) -> Draw:
    """Return a function that draws the page of a registered analysis, with URL parameters."""

    def draw(key: str, analysis: str | None = None, **parameters: str) -> AppTest:
        page = AppTest.from_function(_registered_page, args=(key,), default_timeout=SECONDS)
        page.query_params["analysis"] = sample_id if analysis is None else analysis
        for name, value in parameters.items():
            page.query_params[name] = value
        return page.run()

    return draw


@pytest.fixture
def filed() -> Draw:
    """Return a function that draws a page of ``pages/`` in the app, with URL parameters."""

    def draw(name: str, **parameters: str) -> AppTest:
        page = AppTest.from_file(MAIN, default_timeout=SECONDS)
        for parameter, value in parameters.items():
            page.query_params[parameter] = value
        if name in START_PAGES:  # it is the first page, as its link opens it
            page.session_state[START] = name
            return page.run()
        page.run()
        return page.switch_page(f"../../../pages/{name}.py").run()

    return draw
