"""What only a browser can show of the timeline: brushing, keys, clicks on events and rows."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from jarvis.server.ingest.intake import sample_trace
from jarvis.server.submission import Submission, submit
from tests.browser.conftest import Server, settled

VIEWPORT = {"width": 1440, "height": 1400}
INSIDE_A_COPY = "timeline_start=20&timeline_length=4"
"""A window in which one host call inside others fills every lane of the sample's main thread."""

FIRST_ROW = {"x": 15, "y": 52}
"""Where a table that lets rows be selected has the mark of the first one."""


@pytest.fixture(scope="module")
def timeline_url(server: Server) -> str:
    """The timeline of the analyzed sample."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(server.home))
        analysis_id = submit(Submission(sample_trace())).id
    return f"{server.url}/timeline?analysis={analysis_id}"


def window(page: Page) -> tuple[float, float]:
    """Start and length in ms, as the URL has them."""
    query = parse_qs(urlsplit(page.url).query)
    start = float(query.get("timeline_start", ["0"])[0])
    return start, float(query.get("timeline_length", ["0"])[0])


def test_a_brush_and_keys_choose_the_window_and_its_link_opens_it_again(
    timeline_url: str, server: Server, browser: Browser
) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(timeline_url)
    settled(page)
    canvas = page.get_by_test_id("stVegaLiteChart").first.locator("svg.marks, canvas.marks")
    box = canvas.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.5, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=5)
    page.mouse.up()
    page.wait_for_url(re.compile("timeline_length="))
    settled(page)
    start, length = window(page)
    assert start > 0

    page.get_by_role("heading", name="Timeline").click()
    page.keyboard.press("w")
    page.wait_for_url(lambda url: f"timeline_length={length}" not in url)
    settled(page)
    zoomed_start, zoomed = window(page)
    assert "streamlit.elements" not in server.log.read_text(encoding="utf-8")
    assert zoomed == pytest.approx(length * 0.4, abs=1e-3)
    assert zoomed_start > start
    page.keyboard.press("d")
    page.wait_for_url(lambda url: f"timeline_start={zoomed_start}&" not in f"{url}&")
    settled(page)
    assert window(page)[0] == pytest.approx(zoomed_start + zoomed / 2, abs=1e-3)

    url, title = page.url, page.get_by_text("of this window").first.inner_text()
    page.close()
    server.restart()
    fresh = browser.new_page(viewport=VIEWPORT)
    fresh.goto(url)
    settled(fresh)
    expect(fresh.get_by_text("of this window").first).to_have_text(title)
    assert fresh.get_by_test_id("stException").count() == 0
    fresh.close()


VIEWER = """<!doctype html><p id="got"></p><script>
addEventListener("message", event => {
  if (event.source !== opener) return
  if (event.data === "PING") opener.postMessage("PONG", event.origin)
  else {
    const {buffer, title, fileName, url} = event.data.perfetto
    const got = {bytes: buffer.byteLength, title, fileName, url, hash: location.hash}
    document.querySelector("#got").textContent = JSON.stringify(got)
  }
})
</script>"""
"""What the Perfetto UI does with the messages of a page that opens it."""


def test_the_trace_is_passed_to_a_window_with_perfetto(
    timeline_url: str, server: Server, browser: Browser
) -> None:
    context = browser.new_context(viewport=VIEWPORT)
    context.route(
        "https://ui.perfetto.dev/**",
        lambda route: route.fulfill(body=VIEWER, content_type="text/html"),
    )
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.goto(f"{timeline_url}&{INSIDE_A_COPY}")
    settled(page)
    page.get_by_role("button", name="Open in Perfetto …").click()
    opening = page.get_by_role("button", name="Open in Perfetto", exact=True)
    with context.expect_page() as popup:
        opening.click()
    expect(popup.value.locator("#got")).not_to_be_empty()
    got = json.loads(popup.value.locator("#got").inner_text())
    (file,) = (server.home / "exports").glob(f"*/{got['fileName']}")
    assert got["bytes"] == file.stat().st_size
    assert got["title"] == "simulated-training-step"
    assert got["url"] == page.url
    shown = parse_qs(got["hash"].removeprefix("#!/?"))
    assert int(shown["visEnd"][0]) - int(shown["visStart"][0]) == 4_000_000
    expect(page.get_by_text("Opened in another window.")).to_be_visible()
    assert not problems
    context.close()


def test_a_click_on_an_event_shows_its_details_and_one_on_a_gap_goes_there(
    timeline_url: str, browser: Browser
) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(f"{timeline_url}&{INSIDE_A_COPY}")
    settled(page)
    chart = page.get_by_test_id("stVegaLiteChart").last
    chart.scroll_into_view_if_needed()
    box = chart.locator("svg.marks, canvas.marks").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.45)
    page.wait_for_url(re.compile("timeline_event="))
    settled(page)
    expect(page.get_by_text("Selected:")).to_be_visible()
    before = page.url
    page.get_by_test_id("stDataFrame").first.click(position=FIRST_ROW)
    page.wait_for_url(lambda url: url != before)
    settled(page)
    assert window(page)[1] < 4.0
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_text("Selected:")).to_have_count(0)
    page.close()
