"""What only a browser can show of the call tree: clicks on boxes and rows, keys, cold links."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from jarvis.server.ingest.intake import sample_trace
from jarvis.server.submission import Submission, submit
from tests.browser.conftest import Server, settled

VIEWPORT = {"width": 1440, "height": 1400}
ROOT = re.compile(r"call_tree_root=(\d+)")


@pytest.fixture(scope="module")
def call_tree_url(server: Server) -> str:
    """The call tree of the analyzed sample."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(server.home))
        analysis_id = submit(Submission(sample_trace())).id
    return f"{server.url}/call_tree?analysis={analysis_id}"


def gpu_time(page: Page) -> str:
    """The card of the root's GPU time."""
    return page.get_by_test_id("stMetric").first.inner_text()


def test_a_click_and_keys_go_down_and_up_and_the_link_opens_again(
    call_tree_url: str, server: Server, browser: Browser
) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(call_tree_url)
    settled(page)
    everything = gpu_time(page)
    canvas = page.get_by_test_id("stVegaLiteChart").first.locator("svg.marks, canvas.marks")
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": box["width"] * 0.2, "y": box["height"] * 0.32})
    page.wait_for_url(ROOT)
    settled(page)
    assert gpu_time(page) != everything

    url = page.url
    page.get_by_role("heading", name="Call tree").click()
    page.keyboard.press("s")
    page.wait_for_url(lambda now: now != url)
    settled(page)
    url, deeper = page.url, gpu_time(page)
    page.close()
    server.restart()
    fresh = browser.new_page(viewport=VIEWPORT)
    fresh.goto(url)
    settled(fresh)
    assert gpu_time(fresh) == deeper
    fresh.get_by_role("heading", name="Call tree").click()
    fresh.keyboard.press("f")
    fresh.wait_for_url(lambda now: "call_tree_root" not in now)
    settled(fresh)
    assert gpu_time(fresh) == everything
    expect(fresh.get_by_test_id("stException")).to_have_count(0)
    fresh.close()
