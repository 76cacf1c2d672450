"""The first request of a browser is a copied link, of a server too for each kind of page."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from jarvis.server.ingest.addresses import HOSTS_VARIABLE
from tests.browser.conftest import Server, copied_link, page_links, settled
from tests.dashboard.linked_trace import keep_linked
from tests.dashboard.test_release_links import FILES, STORED, VERSION, parameters_of

VIEWPORT = {"width": 1280, "height": 900}
KINDS = {*FILES, "gemm", "cpu_idle"}
"""One page of each kind: all of pages/, and one category of each layout. They are asked for by two
browsers at once, and first of a server that has just started; the others share their code."""


@pytest.fixture(scope="module")
def home(own_server: Server) -> Server:
    """A server that keeps the analyses which the stored links are about.

    From its first restart on it has no worker, whose start would take a third of each test's time.
    """
    own_server.settings |= {"JARVIS_JOB_SLOTS": "0", HOSTS_VARIABLE: "traces.example.org"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(own_server.home))
        keep_linked()
    return own_server


def list_troubles(page: Page) -> list[str]:
    """Return a list that grows with each error in the page's console and each refused request."""
    found: list[str] = []
    page.on(
        "console",
        lambda line: found.append(line.text) if line.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on(
        "response",
        lambda answer: (
            found.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None
        ),
    )
    return found


@pytest.fixture(scope="module")
def contexts(browser: Browser) -> Iterator[list[BrowserContext]]:
    """Two browsers that share nothing; they load the front end once."""
    two = [browser.new_context(viewport=VIEWPORT) for _ in range(2)]
    yield two
    for context in two:
        context.close()


@pytest.mark.parametrize("path", list(STORED[VERSION]))
def test_a_copied_link_opens_first(home: Server, contexts: list[BrowserContext], path: str) -> None:
    link = STORED[VERSION][path]
    if path in KINDS:
        home.restart()
    asking = contexts if path in KINDS else contexts[:1]
    pages = [context.new_page() for context in asking]
    troubles = [list_troubles(page) for page in pages]
    for page in pages:
        page.goto(home.url + link, wait_until="commit")
    for page in pages:
        settled(page)
        assert page.get_by_test_id("stException").count() == 0
        assert page.get_by_text("cannot be shown").count() == 0
        expect(page_links(page).first).to_be_visible()
        assert parameters_of(copied_link(page)) == parameters_of(link)
    assert troubles == [[] for _ in pages]
    titles = {page.get_by_role("heading", level=1).first.inner_text() for page in pages}
    assert len(titles) == 1
    for page in pages:
        page.close()
