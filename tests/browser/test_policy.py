"""Pages work under the content security policy: nothing is refused, no other host contacted."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Request

from jarvis.server.submission import Submission, submit
from tests.browser.conftest import Server, settled
from tests.builders import trace

PAGES = ("", "overview", "timeline", "call_tree", "report", "access")
"""Each kind of content: the upload, figures, charts, tables, components, downloads, forms."""

HARMLESS = "Failed to load resource: the server responded with a status of 404"
"""A page first asks below its own path for what is at the top."""


def test_a_browser_refuses_nothing_and_contacts_no_other_host(
    server: Server, browser: Browser, tmp_path: Path
) -> None:
    built = trace(device="AMD Instinct MI300X")
    built.op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(server.home))
        analysis_id = submit(Submission(built.write(tmp_path / "t.json"))).id
    complaints: list[str] = []
    asked: set[str] = set()

    def complain(message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(HARMLESS):
            complaints.append(message.text)

    def ask(request: Request) -> None:
        asked.add(urlsplit(request.url).netloc)

    page = browser.new_page()
    page.on("console", complain)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", ask)
    for name in PAGES:
        page.goto(f"{server.url}/{name}?analysis={analysis_id}")
        settled(page)
        assert page.get_by_test_id("stException").count() == 0
        icon = page.locator("link[rel='shortcut icon']").get_attribute("href") or ""
        assert icon.startswith("data:image/svg+xml")
    page.close()
    assert complaints == []
    assert asked - {""} == {urlsplit(server.url).netloc}
