"""An upload becomes an analysis by a job that neither a refresh nor a restart loses."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import START_SECONDS, Server, settled
from tests.builders import trace

VIEWPORT = {"width": 1280, "height": 900}
SLOW = {"timeout": 1000 * START_SECONDS}


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport=VIEWPORT)  # type: ignore[arg-type]
    yield page
    page.close()


def test_an_upload_is_analyzed_across_refresh_restart_and_viewers(
    server: Server, browser: Browser, page: Page, tmp_path: Path
) -> None:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    file = built.write(tmp_path / "uploaded.json")
    page.goto(f"{server.url}/ingest")
    settled(page)
    page.locator("input[type=file]").first.set_input_files(file)
    page.get_by_text("Detected in the trace").wait_for(**SLOW)
    settled(page)
    page.get_by_test_id("stBaseButton-primary").click()
    page.wait_for_url("**ingest_job=*", **SLOW)
    job = page.url.partition("ingest_job=")[2].partition("&")[0]
    page.reload()
    server.restart()  # ends the job's process wherever it is; the next worker does the job
    page.goto(f"{server.url}/?ingest_job={job}")
    link = page.get_by_role("link", name="Open the overview")
    link.wait_for(**SLOW)
    settled(page)
    link.click()
    page.wait_for_url("**/overview?analysis=*", **SLOW)
    settled(page)
    expect(page.get_by_text("uploaded.json").first).to_be_visible()

    second = browser.new_page(viewport=VIEWPORT)  # type: ignore[arg-type]
    second.goto(f"{server.url}/jobs?job={job}")
    settled(second)
    title = second.locator("strong").get_by_text("Analyze uploaded.json")
    expect(title).to_be_visible(**SLOW)
    expect(second.get_by_role("link", name="Open the overview")).to_be_visible()
    assert second.get_by_test_id("stException").count() == 0
    second.close()
