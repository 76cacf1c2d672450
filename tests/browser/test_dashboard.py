"""What only a browser can show: the URL that widgets write, cold links."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from jarvis.server.ingest.intake import SAMPLE_NAME
from tests.browser.conftest import START_SECONDS, Server, copied_link, page_links, settled

STEPS_DOWN = 7
VIEWPORT = {"width": 1440, "height": 900}


def figures(page: Page) -> list[str]:
    return page.get_by_test_id("stMetricValue").all_inner_texts()


@pytest.fixture(scope="module")
def server(own_server: Server) -> Server:
    """The sample is new to it."""
    return own_server


@pytest.fixture(scope="module")
def overview_url(server: Server, browser: Browser) -> str:
    """The sample, ingested through the page; the address of its overview."""
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(server.url)
    settled(page)
    page.get_by_role("radio", name="sample").click()
    button = page.get_by_test_id("stBaseButton-primary")
    expect(button).to_be_enabled(timeout=START_SECONDS * 1000)  # once the worker has read it
    settled(page)
    button.click()
    page.wait_for_url("**/overview?analysis=*", timeout=START_SECONDS * 1000)
    settled(page)
    url = page.url
    expect(page.get_by_text(SAMPLE_NAME).first).to_be_visible()
    page.close()
    return url


def test_a_link_shows_the_same_page_on_a_server_that_has_just_started(
    server: Server, browser: Browser, overview_url: str
) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(overview_url)
    settled(page)
    page.get_by_role("link", name="GEMM").first.click()
    page.wait_for_url("**/gemm?analysis=*")
    settled(page)
    before = figures(page)
    slider = page.get_by_role("slider", name="Target efficiency")
    for _ in range(STEPS_DOWN):
        slider.press("ArrowLeft")
    page.wait_for_url(re.compile(r"[?&]target=73"))
    settled(page)
    expect(page.get_by_test_id("stMetricLabel").get_by_text("Kernel saving at 73%")).to_be_visible()
    shown = figures(page)
    assert shown != before
    url = page.url
    copied = copied_link(page)
    page.close()
    assert copied.startswith(f"{server.url}/gemm?analysis=")
    assert "below=40" in copied

    server.restart()
    for address in (url, copied):
        context = browser.new_context(viewport=VIEWPORT)
        fresh = context.new_page()
        fresh.goto(address)
        settled(fresh)
        expect(fresh.get_by_role("heading", name="GEMM")).to_be_visible()
        expect(fresh.get_by_role("slider", name="Target efficiency")).to_have_value("73")
        expect(fresh.get_by_role("slider", name="Highlight below")).to_have_value("40")
        assert figures(fresh) == shown
        context.close()


def test_one_click_copies_the_link_and_says_so(browser: Browser, overview_url: str) -> None:
    context = browser.new_context(viewport=VIEWPORT)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(overview_url)
    settled(page)
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Link copied")).to_be_visible()
    read = "navigator.clipboard.readText()"
    assert page.evaluate(read) == copied_link(page)
    # Browsers offer no clipboard on plain http: the older command copies there.
    page.evaluate("navigator.clipboard.writeText('before')")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(Error()) }")
    page.get_by_role("button", name="Link copied").click()
    page.wait_for_function(f"async link => await {read} === link", arg=copied_link(page))
    context.close()


def test_a_control_keeps_its_value_when_its_page_is_left_and_opened_again(
    browser: Browser, overview_url: str
) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(overview_url)
    settled(page)
    page_links(page).filter(has_text="GEMM").click()
    page.wait_for_url("**/gemm?analysis=*")
    settled(page)
    highlight = page.get_by_role("slider", name="Highlight below")
    expect(highlight).to_have_value("40")
    highlight.press("ArrowLeft")
    page.wait_for_url("**below=39*")
    settled(page)
    page_links(page).filter(has_text="Overview").click()
    page.wait_for_url("**/overview?analysis=*")
    settled(page)
    page_links(page).filter(has_text="GEMM").click()
    page.wait_for_url("**/gemm?*below=39*")
    expect(highlight).to_have_value("39")
    page.go_back()
    page.wait_for_url("**/overview?analysis=*")
    page.close()


def test_the_pages_of_a_finding_open_with_their_row(
    server: Server, browser: Browser, overview_url: str
) -> None:
    analysis = overview_url.split("analysis=")[1]
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(f"{server.url}/gemm?analysis={analysis}")
    settled(page)
    row = page.get_by_role("radio", name=re.compile(r"· \d+ calls")).first
    row.click()
    page.wait_for_url(re.compile(r"gemm_op=\d+"))
    expect(page.get_by_text("Kernel time at higher efficiency")).to_be_visible()
    url = page.url
    page.goto(url)
    settled(page)
    expect(page.get_by_text("Kernel time at higher efficiency")).to_be_visible()
    assert page.url == url
    page.close()


def test_a_click_on_a_bar_brings_its_details_into_view_each_time(
    server: Server, browser: Browser, overview_url: str
) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(f"{server.url}/gemm?analysis={overview_url.split('analysis=')[1]}")
    settled(page)
    bar = page.get_by_test_id("stVegaLiteChart").nth(1).locator("path[aria-roledescription=bar]")
    close = page.get_by_role("button", name="Close details")
    for _ in range(2):
        bar.first.click(force=True)  # a bar of the saving is over it
        page.wait_for_url(re.compile(r"gemm_op=\d+"))
        expect(close).to_be_in_viewport()
        settled(page)
        close.click()
        expect(close).to_have_count(0)
        assert "gemm_op" not in page.url
    page.close()


def test_a_click_on_a_finding_opens_its_card_in_view_and_back_returns(
    browser: Browser, overview_url: str
) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(overview_url)
    settled(page)
    table = page.get_by_test_id("stDataFrame").first
    table.click(position={"x": 200, "y": 35 * 2.5})
    page.wait_for_url(re.compile(r"/(?!overview)\w+\?analysis=.*_finding=\d+"))
    settled(page)
    card = page.locator('.stVerticalBlock[class*="_finding_"][class*="_card"]')
    expect(card).to_be_in_viewport()
    page.go_back()
    page.wait_for_url(overview_url)
    settled(page)
    expect(page.get_by_text("What to do first")).to_be_visible()
    page.close()
