"""Two web processes, each with a home of its own, on one PostgreSQL and one artifact root."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from jarvis.core.workspace import HOME_VARIABLE
from jarvis.server.database import database
from tests.browser.conftest import START_SECONDS, Server, settled
from tests.builders import trace
from tests.server.working import EVERY_JOB, HELD_WORKER, ended, hold_at, worker
from tests.services.haproxy import haproxy
from tests.services.postgres import URL_VARIABLE

SLOW = {"timeout": 1000 * START_SECONDS}
HELD_STEP = 5
COOKIE = "JARVIS_WEB"


@pytest.fixture
def shared(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What all processes share; this one has the worker's home, to hold its jobs."""
    settings = {
        URL_VARIABLE: postgres_url,
        "JARVIS_ARTIFACT_ROOT": str(tmp_path / "artifacts"),
        "JARVIS_JOB_SLOTS": "0",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "worker"))
    for name in ("worker", "artifacts"):
        (tmp_path / name).mkdir()
    return settings


@dataclass(frozen=True)
class Pair:
    """Two web processes by the names that the proxy gives them, and its address."""

    url: str
    servers: dict[str, Server]


@pytest.fixture
def pair(shared: dict[str, str], tmp_path: Path) -> Iterator[Pair]:
    """Both at work, and the proxy in front of them."""
    servers = {name: Server(tmp_path / name, **shared) for name in ("first", "second")}
    try:
        for server in servers.values():
            server.start()
        with haproxy(*(server.port for server in servers.values())) as url:
            yield Pair(url, servers)
    finally:
        for server in servers.values():
            server.stop()


def which(page: Page) -> str:
    """The web process that a browser is kept with."""
    cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    return cookies[COOKIE]


def test_two_browsers_on_two_processes_see_one_job(
    pair: Pair, browser: Browser, tmp_path: Path
) -> None:
    address = pair.url
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    asks, looks = browser.new_context().new_page(), browser.new_context().new_page()
    with worker(HELD_WORKER, SLOTS="1"):
        hold_at(EVERY_JOB, HELD_STEP)
        asks.goto(address)
        settled(asks)
        looks.goto(f"{address}/jobs")
        settled(looks)
        assert which(asks) != which(looks)

        asks.locator("input[type=file]").first.set_input_files(built.write(tmp_path / "one.json"))
        asks.get_by_text("Detected in the trace").wait_for(**SLOW)
        settled(asks)
        asks.get_by_test_id("stBaseButton-primary").click()
        asks.wait_for_url("**ingest_job=*", **SLOW)
        job = asks.url.partition("ingest_job=")[2].partition("&")[0]
        asks.get_by_text("(5 of 9)").first.wait_for(**SLOW)
        looks.goto(f"{address}/jobs?job={job}")
        looks.get_by_text("(5 of 9)").first.wait_for(**SLOW)

        hold_at(EVERY_JOB, None)
        analysis = ended(database(), job).analysis_id
        looks.get_by_role("link", name="Open the overview").wait_for(**SLOW)
        for page in (asks, looks):
            page.goto(f"{address}/overview?analysis={analysis}")
            settled(page)
            expect(page.get_by_text("one.json").first).to_be_visible()
            expect(page.get_by_test_id("stException")).to_have_count(0)
    pair.servers[which(asks)].kill()
    asks.goto(f"{address}/gemm?analysis={analysis}")  # the other process takes over
    settled(asks)
    expect(asks.get_by_text("one.json").first).to_be_visible()
    assert which(asks) == which(looks)
    asks.context.close()
    looks.context.close()
