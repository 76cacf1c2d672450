"""The hardware page in a browser: a cold link, and re-projection onto another GPU."""

import pytest
from playwright.sync_api import Browser, expect

from jarvis.server.ingest.intake import sample_trace
from jarvis.server.submission import Submission, submit
from tests.browser.conftest import Server, settled

VIEWPORT = {"width": 1280, "height": 900}


def test_a_cold_link_leads_to_an_analysis_on_another_gpu_and_back(
    server: Server, browser: Browser
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(server.home))
        analysis = submit(Submission(sample_trace())).id
    server.restart()
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(f"{server.url}/hardware?analysis={analysis}&hardware_gpu=H100%20SXM")
    settled(page)
    page.get_by_role("button", name="Re-project onto H100 SXM").click()
    link = page.get_by_role("link", name="Open the analysis for H100 SXM")
    link.wait_for()
    settled(page)
    link.click()
    page.wait_for_url("**/overview?analysis=*")
    settled(page)
    assert analysis not in page.url
    expect(page.get_by_text("uses the peaks of H100 SXM").first).to_be_visible()
    page.go_back()
    page.wait_for_url("**/hardware?*")
    settled(page)
    assert f"analysis={analysis}" in page.url
    assert "hardware_gpu=H100" in page.url
    expect(page.get_by_role("button", name="Re-project onto H100 SXM")).to_be_visible()
    page.close()


def test_a_rejected_form_stays_open(server: Server, browser: Browser) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(f"{server.url}/hardware")
    settled(page)
    page.get_by_text("Describe a GPU").click()
    page.get_by_label("Source", exact=True).fill("datasheet")
    settled(page)
    page.get_by_role("button", name="Add GPU").press("Enter")
    page.get_by_text("Not added: fill in name").wait_for()
    settled(page)
    expect(page.get_by_label("Source", exact=True)).to_be_visible()
    expect(page.get_by_label("Source", exact=True)).to_have_value("datasheet")
    page.close()
