"""Each test has its own home with an analysis, and pages without a browser."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine
from streamlit.testing.v1 import AppTest

from jarvis.core.workspace import HOME_VARIABLE
from jarvis.dashboard import MAIN
from jarvis.server.database import database
from tests.builders import trace

SECONDS = 120

PAGES = ("ingest", "overview", "jobs", "compare", "report", "replay")

Seen = Callable[..., list[str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv(HOME_VARIABLE, str(folder))
    return folder


@pytest.fixture
def engine(home: Path) -> Engine:
    return database()


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    return built.write(tmp_path / "tiny.json")


@pytest.fixture
def pages_are_whole(components_found_once: None) -> Callable[..., None]:
    """Draws pages, with URL parameters; no page may show a stack trace."""

    def draw(*names: str, **parameters: str) -> None:
        page = AppTest.from_file(MAIN, default_timeout=SECONDS)
        for parameter, value in parameters.items():
            page.query_params[parameter] = value
        page.run()
        for name in names or PAGES:
            page.switch_page(f"../../../pages/{name}.py").run()
            assert not page.exception, (name, page.exception[0].stack_trace)

    return draw
