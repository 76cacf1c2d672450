"""The first request of a browser is a copied link, of a server too for each kind of page."""

from collections.abc import Iterator
from itertools import chain

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from jarvis.server.ingest.addresses import HOSTS_VARIABLE
from tests.browser.conftest import Server, copied_link, page_links, settled
from tests.dashboard.linked_trace import keep_linked
from tests.dashboard.test_release_links import FILES, STORED, VERSION, parameters_of

VIEWPORT = {"width": 1280, "height": 900}
KINDS = [path for path in STORED[VERSION] if path in {*FILES, "gemm", "cpu_idle"}]
"""One page of each kind: all of pages/, and one category of each layout. They are asked for by two
browsers at once, and first of a server that has just started; the others share their code."""

AT_ONCE = 6
"""Kinds of pages that share the start of a server, which takes longer than any page."""


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


def linked(link: str, page: Page) -> str:
    """Wait for the page of a link, compare its link, and return its title."""
    settled(page)
    assert page.get_by_test_id("stException").count() == 0
    assert page.get_by_text("cannot be shown").count() == 0
    expect(page_links(page).first).to_be_visible()
    assert parameters_of(copied_link(page)) == parameters_of(link)
    return page.get_by_role("heading", level=1).first.inner_text()


@pytest.mark.parametrize(
    "paths", [KINDS[at : at + AT_ONCE] for at in range(0, len(KINDS), AT_ONCE)], ids="-".join
)
def test_a_copied_link_opens_first(
    home: Server, contexts: list[BrowserContext], paths: list[str]
) -> None:
    home.restart()
    links = {path: STORED[VERSION][path] for path in paths}
    pages = {path: [context.new_page() for context in contexts] for path in paths}
    troubles = {path: [list_troubles(page) for page in pages[path]] for path in paths}
    for path, link in links.items():
        for page in pages[path]:
            page.goto(home.url + link, wait_until="commit")
    for path, link in links.items():
        assert len({linked(link, page) for page in pages[path]}) == 1
    assert troubles == {path: [[] for _ in contexts] for path in paths}
    for page in chain.from_iterable(pages.values()):
        page.close()


@pytest.mark.parametrize("path", [path for path in STORED[VERSION] if path not in KINDS])
def test_a_copied_link_opens(home: Server, contexts: list[BrowserContext], path: str) -> None:
    page = contexts[0].new_page()
    troubles = list_troubles(page)
    link = STORED[VERSION][path]
    page.goto(home.url + link, wait_until="commit")
    linked(link, page)
    assert troubles == []
    page.close()
