"""Everything is killed while a job runs; after a restart the user finds it all, or a message."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from jarvis.core.workspace import HOME_VARIABLE
from jarvis.server import queue
from jarvis.server.database import database
from tests.browser.conftest import START_SECONDS, Server, settled
from tests.builders import trace
from tests.server.working import EVERY_JOB, HELD_WORKER, ended, held_process, hold_at, worker

SLOW = {"timeout": 1000 * START_SECONDS}
HELD_STEP = 5


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the server, and of this process, which looks into its queue."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.fixture
def server(home: Path) -> Iterator[Server]:
    """A server whose jobs are left to workers that the test starts."""
    server = Server(home, JARVIS_JOB_SLOTS="0")
    server.start()
    yield server
    server.stop()


def upload(page: Page, server: Server, folder: Path, name: str, m: int) -> Page:
    """Choose a trace on the ingest page, up to the button that analyses it."""
    built = trace().op("aten::mm", [[m, 32], [32, 16]]).launches("gemm_kernel", us=12)
    page.goto(f"{server.url}/ingest")
    settled(page)
    page.locator("input[type=file]").first.set_input_files(built.write(folder / name))
    page.get_by_text("Detected in the trace").wait_for(**SLOW)
    settled(page)
    return page


def asked(page: Page) -> str:
    """The job that the button puts into the queue."""
    page.get_by_test_id("stBaseButton-primary").click()
    page.wait_for_url("**ingest_job=*", **SLOW)
    return page.url.partition("ingest_job=")[2].partition("&")[0]


def test_all_is_there_after_everything_was_killed(
    server: Server, browser: Browser, tmp_path: Path
) -> None:
    page = browser.new_page()
    with worker(HELD_WORKER, SLOTS="1") as first_worker:
        upload(page, server, tmp_path, "first.json", 64)
        done = ended(database(), asked(page))
        link = f"{server.url}/gemm?analysis={done.analysis_id}&target=85"
        upload(page, server, tmp_path, "second.json", 128)
        hold_at(EVERY_JOB, HELD_STEP)
        job = asked(page)
        page.get_by_text("(5 of 9)").first.wait_for(**SLOW)
        process = held_process(job)
        server.kill()
        first_worker.kill()
        os.killpg(process, signal.SIGKILL)
    hold_at(EVERY_JOB, None)

    server.start()
    with worker(HELD_WORKER, SLOTS="1"):
        page.goto(f"{server.url}/?ingest_job={job}")
        page.get_by_text("The worker that ran this job died").wait_for(**SLOW)
        expect(page.get_by_test_id("stException")).to_have_count(0)
        page.get_by_role("button", name="Retry").click()
        page.get_by_role("link", name="Open the overview").wait_for(**SLOW)
        assert queue.find(database(), job).attempts == 2
        page.goto(link)
        settled(page)
        expect(page.get_by_text("first.json").first).to_be_visible()
        expect(page.get_by_role("slider", name="Target efficiency")).to_have_attribute(
            "value", "85"
        )
    page.close()
