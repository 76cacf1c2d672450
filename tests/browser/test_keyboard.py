"""Keyboard shortcuts: search, list of shortcuts, findings."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from jarvis.server.ingest.intake import sample_trace
from jarvis.server.submission import Submission, submit
from tests.browser.conftest import Server, settled

FOCUSED = "document.activeElement.textContent"
IS_INSIDE = """() => {
    const inner = document.activeElement.shadowRoot?.activeElement;
    return document.activeElement === document.body || inner?.closest("dialog[open]") != null;
}"""
"""Whether the open dialog has the focus, or no part of the page."""

PRESS_AT_ONCE = """keys => {
    for (const key of keys) {
        let target = document.activeElement
        while (target.shadowRoot?.activeElement) target = target.shadowRoot.activeElement
        const options = {key, bubbles: true, composed: true, cancelable: true}
        target.dispatchEvent(new KeyboardEvent("keydown", options))
    }
}"""
"""Presses keys one after the other before the browser draws another frame."""


@pytest.fixture(scope="module")
def analysis(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("sample")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(server.home))
        return submit(Submission(sample_trace(), model_name=f"Keys {folder.name}")).id


def test_the_keyboard_reaches_findings_and_search(
    page: Page, server: Server, analysis: str
) -> None:
    page.goto(f"{server.url}/gemm?analysis={analysis}")
    settled(page)
    page.evaluate("window.isSameDocument = true")
    search, shortcuts = (
        page.get_by_role("dialog", name=n) for n in ("Search", "Keyboard shortcuts")
    )

    cards = page.locator('[class*="st-key-findings_"] summary')
    for number, key in [(0, "j"), (1, "j"), (0, "k")]:
        page.keyboard.press(key)
        assert page.evaluate(FOCUSED) == cards.nth(number).text_content()

    page.keyboard.press("?")
    expect(shortcuts).to_be_visible()
    page.keyboard.press("Escape")
    expect(shortcuts).to_be_hidden()

    typed = page.get_by_role("textbox", name="Search").first
    typed.press_sequentially("j/?k")
    expect(typed).to_have_value("j/?k")
    expect(search).to_be_hidden()
    expect(shortcuts).to_be_hidden()
    typed.fill("")
    typed.press("Enter")
    settled(page)

    cards.first.focus()
    page.keyboard.press("Control+k")
    query = search.get_by_role("searchbox")
    expect(query).to_be_focused()
    for _ in range(9):  # the focus stays in the dialog
        page.keyboard.press("Tab")
        assert page.evaluate(IS_INSIDE)
    query.fill("normalization")
    link = search.get_by_role("link", name=re.compile("^Normalization"))
    expect(link.first).to_be_visible()
    query.focus()
    page.keyboard.press("ArrowDown")
    expect(link.first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1).first).to_contain_text("Normalization")
    page.wait_for_url(f"**/batchnorm?analysis={analysis}*")
    assert page.evaluate("window.isSameDocument")
    page.go_back()
    expect(page.get_by_role("heading", level=1).first).to_contain_text("GEMM")

    page.goto(f"{server.url}/overview?analysis={analysis}")
    settled(page)
    page.keyboard.press("j")  # a table of findings, no cards: their list opens
    expect(search.get_by_role("link").first).to_be_focused()
    page.keyboard.press("j")
    expect(search.get_by_role("link").nth(1)).to_be_focused()
    page.keyboard.press("Escape")
    expect(search).to_be_hidden()
    page.keyboard.press("/")
    query.fill("norm")
    query.press("Escape")  # the field is not only emptied
    expect(search).to_be_hidden()


def test_a_key_right_after_the_search_is_closed_is_not_lost(
    page: Page, server: Server, analysis: str
) -> None:
    page.goto(f"{server.url}/overview?analysis={analysis}")
    settled(page)
    search = page.get_by_role("dialog", name="Search")
    page.keyboard.press("j")
    expect(search.get_by_role("link").first).to_be_focused()
    page.evaluate(PRESS_AT_ONCE, ["Escape", "/"])
    query = search.get_by_role("searchbox")
    expect(query).to_be_focused()
    page.evaluate(PRESS_AT_ONCE, ["Escape", "?"])
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
