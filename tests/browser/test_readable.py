"""Every page shows in both themes, and everybody can read it (WCAG AA)."""

import io
import re
from collections.abc import Iterator
from typing import Literal

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from jarvis.analyses import load_analyses
from jarvis.charts import PALETTES, ink
from jarvis.cli import main
from jarvis.core.labels import RunLabels
from jarvis.core.workspace import resource
from jarvis.sample import Job, write_job
from jarvis.server.ingest.intake import sample_trace
from jarvis.server.storage.analysis_rows import labeled
from jarvis.server.submission import Submission, submit
from tests.browser.conftest import Server, page_links, settled
from tests.browser.readable import CONTRAST, open_details, problems_of

VIEWPORT = {"width": 1440, "height": 900}
ANOTHER_GPU = "H100 SXM"
TAG = "nightly"
IS_STYLED = """(text) => [...document.querySelectorAll("style")].some(
    style => style.textContent.includes(text)
)"""
IN_ADDRESS = {"What-if": "change=", "Compare": "reference="}
"""What makes these pages show more than how to begin."""

MARK = re.compile(r" (<?\d+%|[◆▲●○]).*")
"""Share and priority behind the title of a page."""
OF_INFERENCE = {"serving", "layers", "graphs"}
"""Not in the menu of a trace of training."""

Theme = Literal["light", "dark"]

NO_LOGIN = {"access"}
"""Pages that are in the menu only if people log in."""


@pytest.fixture(scope="module")
def first_url(own_server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The sample in a simulation, which the menu keeps, beside an analysis to compare it with, and
    two ranks of a job."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(own_server.home))
        with labeled(RunLabels.of(tags=[TAG])):
            analysis = submit(Submission(sample_trace())).id
        submit(Submission(sample_trace(), platform=ANOTHER_GPU))
        folder = tmp_path_factory.mktemp("job")
        write_job(Job(2, 2, scale="tiny"), {rank: folder / f"rank{rank}.json" for rank in (0, 1)})
        assert main(["analyze", str(folder), "--id", "--jobs", "1"]) == 0
    return f"{own_server.url}/what_if?analysis={analysis}&change=scale%3Dcompute%3A0.5"


@pytest.fixture
def page(browser: Browser, first_url: str) -> Iterator[Page]:
    context = browser.new_context(viewport=VIEWPORT, color_scheme="light")
    page = context.new_page()
    page.goto(first_url)
    settled(page)
    yield page
    context.close()


def test_all_pages_can_be_read(page: Page) -> None:
    menu = page_links(page)
    pages = {path.stem for path in resource("pages").glob("*.py")} - NO_LOGIN - OF_INFERENCE
    analyses = [each for each in load_analyses().values() if not each.only_with]
    assert menu.count() == len(analyses) + len(pages)
    found = []
    for name in [MARK.sub("", text.splitlines()[-1]) for text in menu.all_inner_texts()]:
        menu.filter(has_text=name).click()
        expect(page.get_by_role("heading", level=1).first).to_contain_text(name)
        settled(page)
        assert IN_ADDRESS.get(name, "") in page.url
        assert page.get_by_test_id("stException").count() == 0, name
        assert_drawn(page, theme_of(page), name)
        open_details(page)
        found += problems_in_both_themes(page, name)
    assert not found, "\n".join(found)


def test_chosen_tags_can_be_read(page: Page, own_server: Server) -> None:
    page.goto(f"{own_server.url}/?runs_tags={TAG}")
    expect(page.get_by_test_id("stMultiSelect").get_by_text(TAG)).to_be_visible()
    settled(page)
    assert problems_in_both_themes(page, "Runs") == []


def problems_in_both_themes(page: Page, name: str) -> list[str]:
    """Look at a page in its theme, and at its colors in the other one, which it keeps."""
    theme = theme_of(page)
    other: Theme = "dark" if theme == "light" else "light"
    found = [f"{theme} {name}: {problem}" for problem in problems_of(page)]
    change_theme(page, other)
    assert_drawn(page, other, name)
    return found + [f"{other} {name}: {problem}" for problem in problems_of(page, (CONTRAST,))]


def theme_of(page: Page) -> Theme:
    """Return the theme of the browser."""
    return (
        "dark" if page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    )


def change_theme(page: Page, theme: Theme) -> None:
    """Change the theme of the browser, and wait until the server has drawn the page for it."""
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    page.wait_for_function(IS_STYLED, arg=f"color: {ink(PALETTES[theme].primary)}")
    settled(page)


def assert_drawn(page: Page, theme: Theme, name: str) -> None:
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    corner = "#{:02X}{:02X}{:02X}".format(*shot.getpixel((VIEWPORT["width"] - 5, 450)))
    assert corner == PALETTES[theme].background, name
    assert len(shot.getcolors(1 << 24)) > 50, name
