"""What only a browser can show of the overview: links that open the row, choices in the URL."""

import re

import pytest
from playwright.sync_api import Browser, expect

from jarvis.server.ingest.intake import sample_trace
from jarvis.server.submission import Submission, submit
from tests.browser.conftest import Server, settled

VIEWPORT = {"width": 1280, "height": 1000}


@pytest.fixture(scope="module")
def sample_id(server: Server) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(server.home))
        return submit(Submission(sample_trace())).id


def test_the_figure_of_another_tool_is_in_the_link(
    server: Server, browser: Browser, sample_id: str
) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(f"{server.url}/overview?analysis={sample_id}")
    settled(page)
    page.get_by_text("Why other tools report different values").click()
    page.get_by_role("radio", name="GPU busy").click()
    page.wait_for_url(re.compile(r"overview_definition=GPU(\+|%20)busy"))
    settled(page)
    url = page.url
    page.close()

    server.restart()
    again = browser.new_page(viewport=VIEWPORT)
    again.goto(url)
    settled(again)
    expect(again.get_by_role("radio", name="GPU busy")).to_be_checked()
    expect(again.get_by_text("in percent of the time from the first").first).to_be_visible()
    again.close()


def test_the_line_of_a_warning_leads_to_what_it_affects(
    server: Server, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from tests.builders import trace

    built = trace().op("aten::mm", [[8, 8], [8, 8]]).launches("gemm", us=60)
    path = built.unlinked("early", us=40).write(tmp_path_factory.mktemp("t") / "t.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(server.home))
        analysis = submit(Submission(path)).id
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(f"{server.url}/gemm?analysis={analysis}")
    settled(page)
    page.get_by_role("link", name="What this affects").click()
    page.wait_for_url(f"**/overview?analysis={analysis}")
    settled(page)
    expect(page.get_by_text("exclude the unlinked work").first).to_be_visible()
    page.close()
