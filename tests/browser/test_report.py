"""The report as files: downloaded from the page, opened without a network, printed."""

import io
import json
import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from jarvis.server.ingest.intake import sample_trace
from jarvis.server.submission import Submission, submit
from tests.browser.conftest import Server, saved_from_link, settled
from tests.browser.readable import problems_of

VIEWPORT = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def report_url(server: Server) -> str:
    """The report page of the sample, without P1."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(server.home))
        entry = submit(Submission(sample_trace(), model_name="Sample model"))
    return f"{server.url}/report?analysis={entry.id}&report_without=1"


def downloaded(page: Page, label: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=label, exact=True).click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def open_menu(page: Page) -> None:
    """Open the menu of other formats."""
    page.get_by_role("button", name="Other formats").click()
    page.get_by_role("button", name="Report (Markdown)", exact=True).wait_for()


def made(page: Page, label: str, ending: str) -> bytes:
    """A file that a job makes; the page offers it when it is there."""
    page.get_by_role("button", name=f"{label} …", exact=True).click()
    page.keyboard.press("Escape")
    link = page.get_by_role("link", name=re.compile(rf"\.{ending} \("))
    return saved_from_link(page, link)[1]


@pytest.fixture(scope="module")
def page(browser: Browser, report_url: str) -> Page:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(report_url)
    settled(page)
    return page


def test_files_are_made_when_asked_for_and_are_what_they_say(page: Page) -> None:
    open_menu(page)
    name, fair = downloaded(page, "Report (Markdown)")
    assert name == "Sample_model_standalone_analysis_fair.md"
    assert b"The author left out 1 finding" in fair
    _, workbook = downloaded(page, "Workbook (xlsx)")
    assert "xl/workbook.xml" in zipfile.ZipFile(io.BytesIO(workbook)).namelist()
    document = made(page, "JSON", "json")
    assert "operations" in json.loads(document)["tables"]
    open_menu(page)
    run = made(page, "Whole run (zip)", "zip")
    assert "manifest.json" in zipfile.ZipFile(io.BytesIO(run)).namelist()


def test_the_html_file_is_drawn_offline_in_both_themes_and_prints(
    page: Page, browser: Browser, tmp_path: Path
) -> None:
    name, document = downloaded(page, "Report (HTML)")
    assert b"/report?analysis=" in document
    path = tmp_path / name
    path.write_bytes(document)
    backgrounds = set()
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport=VIEWPORT, offline=True, color_scheme=scheme)
        reader = context.new_page()
        output: list[str] = []
        asked: list[str] = []
        reader.on("console", lambda message, output=output: output.append(message.text))
        reader.on("pageerror", lambda error, output=output: output.append(str(error)))
        reader.on("request", lambda request, asked=asked: asked.append(request.url))
        reader.goto(path.as_uri())
        assert output == []
        assert asked == [path.as_uri()]
        sizes = reader.evaluate(
            "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().height)"
        )
        assert len(sizes) > 3
        assert min(sizes) > 50
        fills = reader.evaluate(
            "[...document.querySelectorAll('svg path')].map(r => getComputedStyle(r).fill)"
        )
        assert len(set(fills)) > 3
        assert problems_of(reader) == [], scheme
        assert reader.evaluate("document.documentElement.scrollWidth") <= VIEWPORT["width"]
        backgrounds.add(reader.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert reader.pdf().startswith(b"%PDF")
        context.close()
    assert len(backgrounds) == 2
