"""One real server for read-only tests."""

from collections.abc import Iterator

import pytest

from tests.services.serving import Serving, serving


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with a name behind a proxy, whose log is for programs."""
    settings = {
        "JARVIS_PUBLIC_URL": "https://jarvis.example.org",
        "JARVIS_LOG_FORMAT": "json",
        "JARVIS_LOG_LEVEL": "debug",
    }
    with serving(tmp_path_factory.mktemp("served"), settings) as server:
        yield server
