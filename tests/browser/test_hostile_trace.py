"""A trace whose every name is an attack, in a browser: nothing of it runs, loads or links."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import ConsoleMessage, Dialog, Page

from jarvis.reports import load_reporters
from jarvis.run import Run
from jarvis.server.submission import Submission, submit
from tests.browser.conftest import Server, settled
from tests.hostile import CALLED, HOST, NASTY, write_hostile

PAGES = [
    "overview",
    "gemm",
    "other",
    "multi_kernel",
    "timeline",
    "call_tree",
    "report",
    "report?report_view=rough",
    "replay",
    "ingest",
]
FOREIGN = (
    f"a[href*='//{HOST}'], img[src*='{HOST}'], a[href^='javascript:'], img[src='x'], svg[onload]"
)


class Trap:
    """Catches what a text does that was taken for a program or an address."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.caught: list[str] = []
        page.expose_function(CALLED, lambda *given: self.caught.append(f"called {given}"))
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self._request(request.url))
        page.on("console", self._console)

    def _dialog(self, dialog: Dialog) -> None:
        self.caught.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _request(self, url: str) -> None:
        if HOST in url.partition("?")[0]:
            self.caught.append(f"request {url}")

    def _console(self, message: ConsoleMessage) -> None:
        if CALLED in message.text:
            self.caught.append(f"console {message.text[:200]}")

    def check(self) -> None:
        """Nothing was caught, and nothing waits for a click."""
        found = self.page.locator(FOREIGN).evaluate_all(
            "all => all.map(e => e.parentElement.outerHTML)"
        )
        assert not found
        assert not self.caught


@pytest.fixture(scope="module")
def server(own_server: Server) -> Server:
    """No other test shall find these names in its menus."""
    return own_server


@pytest.fixture(scope="module")
def hostile(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(server.home))
        trace = write_hostile(tmp_path_factory.mktemp("hostile"))
        return submit(Submission(trace, platform="MI300X", model_name=NASTY[0])).id


@pytest.fixture
def trap(page: Page) -> Iterator[Trap]:
    trap = Trap(page)
    yield trap
    trap.check()


def test_the_trap_catches(page: Page) -> None:
    trap = Trap(page)
    page.set_content(NASTY[0])
    page.wait_for_timeout(200)
    with pytest.raises(AssertionError):
        trap.check()


def test_no_page_runs_or_loads_what_names_say(trap: Trap, server: Server, hostile: str) -> None:
    for name in PAGES:
        path, _, more = name.partition("?")
        trap.page.goto(f"{server.url}/{path}?{urlencode({'analysis': hostile})}&{more}")
        settled(trap.page)
        assert trap.page.locator("[data-testid=stException]").count() == 0
        trap.check()


def test_no_link_to_the_dashboard_puts_markup_on_a_page(
    trap: Trap, server: Server, hostile: str
) -> None:
    link = f"[x](http://{HOST}/)"
    for given in (
        {"analysis": f"{NASTY[0]} {link} !{link} http://{HOST}/"},
        {"analysis": hostile, "gemm_target": link, "gemm_sort": f"http://{HOST}/"},
    ):
        trap.page.goto(f"{server.url}/gemm?{urlencode(given)}")
        settled(trap.page)
        trap.page.locator("[data-testid=stAlert]").first.wait_for()
        assert trap.page.locator("[data-testid=stException]").count() == 0
        trap.check()


def test_the_html_report_opens_quietly(
    trap: Trap, server: Server, hostile: str, tmp_path: Path
) -> None:
    run = Run.load(server.home / "analyses" / hostile)
    load_reporters()["html"].render(run, tmp_path / "report.html")
    trap.page.goto((tmp_path / "report.html").as_uri())
    assert CALLED in trap.page.inner_text("main")
