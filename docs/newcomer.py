"""Walk through the dashboard as a new user and take the screenshots of the README.

python docs/newcomer.py

Each step must show what the README says. Writes to docs/pictures/. Needs Chromium.
"""

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from docs.picture import save_picture
from jarvis.server.ingest.intake import SAMPLE_NAME, sample_trace
from tests import optional
from tests.browser.conftest import (
    FLAGS,
    START_SECONDS,
    Server,
    copied_link,
    page_links,
    settled,
)

PICTURES = Path(__file__).parent / "pictures"
VIEWPORT = {"width": 1280, "height": 800}
SLOW = "GEMM"
"""The category of the sample whose kernels save most."""

STEPS_OF_THE_SLIDER = 15

_NOWHERE = (800, 5)

Take = Callable[[Page, str], None]


def walk(browser: Browser, server: Server, take: Take) -> None:
    """Upload a trace, open its pages and download the report.

    ``take`` takes a screenshot of a page under a name.
    """
    page = browser.new_page(viewport=VIEWPORT)
    page.set_default_timeout(START_SECONDS * 1000)
    page.goto(server.url)
    settled(page)
    _drop_the_trace(page, take)
    take(page, "overview")
    _open_a_slow_category(page)
    take(page, "gemm")
    shown = _slide_the_target(page)
    take(page, "target")
    link = _copy_the_link(page, take)
    _open_elsewhere(browser, link, shown)
    _look_at_the_timeline(page)
    take(page, "timeline")
    _download_the_report(page)
    take(page, "report")
    page.close()


def _drop_the_trace(page: Page, take: Take) -> None:
    page.locator("input[type=file]").first.set_input_files(sample_trace())
    page.get_by_text("Detected in the trace").first.wait_for()  # a worker reads it
    settled(page)
    take(page, "ingest")
    page.get_by_role("button", name="Analyze", exact=True).click()
    page.wait_for_url("**/overview?analysis=*")
    settled(page)
    expect(page.get_by_text(SAMPLE_NAME).first).to_be_visible()


def _open_a_slow_category(page: Page) -> None:
    page_links(page).filter(has_text=SLOW).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(SLOW)
    settled(page)


def _slide_the_target(page: Page) -> list[str]:
    """Lower the target; return the metrics afterwards."""
    before = _metrics(page)
    slider = page.get_by_role("slider", name="Target efficiency")
    for _ in range(STEPS_OF_THE_SLIDER):
        slider.press("ArrowLeft")
    page.wait_for_url(re.compile(r"[?&]target=65"))
    expect(page.get_by_test_id("stMetricLabel").get_by_text("Kernel saving at 65%")).to_be_visible()
    settled(page)
    after = _metrics(page)
    if before == after:
        raise AssertionError("the metrics do not follow the target")
    return after


def _copy_the_link(page: Page, take: Take) -> str:
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Link copied")).to_be_visible()
    take(page, "link")
    return copied_link(page)


def _open_elsewhere(browser: Browser, link: str, shown: list[str]) -> None:
    context = browser.new_context(viewport=VIEWPORT)
    page = context.new_page()
    page.goto(link)
    settled(page)
    if _metrics(page) != shown:
        raise AssertionError("the link shows other metrics")
    context.close()


def _look_at_the_timeline(page: Page) -> None:
    page_links(page).filter(has_text="Timeline").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Timeline")
    settled(page)
    expect(page.locator(".timeline canvas")).to_have_attribute("data-start", "0")
    expect(page.locator(".timeline .loading")).to_have_text("")


def _download_the_report(page: Page) -> None:
    page_links(page).filter(has_text="Report").click()
    expect(page.get_by_role("heading", level=1).first).to_contain_text("Report")
    settled(page)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Report (HTML)", exact=True).click()
    if b"<svg" not in Path(waiting.value.path()).read_bytes():
        raise AssertionError("the report has no charts")
    settled(page)


def _metrics(page: Page) -> list[str]:
    return page.get_by_test_id("stMetricValue").all_inner_texts()


def _screenshot(page: Page, name: str) -> None:
    page.mouse.move(*_NOWHERE)  # otherwise a chart shows its toolbar
    page.wait_for_timeout(500)  # charts fade in after the script has ended
    save_picture(page.screenshot(), PICTURES / f"{name}.png")


def main() -> int:
    """Walk through the dashboard and write the screenshots."""
    chromium = optional.browser_program()
    if chromium is None:
        sys.stderr.write("No screenshots were taken: chromium is not installed.\n")
        return 0
    PICTURES.mkdir(exist_ok=True)
    expect.set_options(timeout=START_SECONDS * 1000)  # as the tests: the machine may be busy
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        server = Server(Path(home))
        server.start()
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        walk(browser, server, _screenshot)
        browser.close()
        server.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
