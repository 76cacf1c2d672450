"""What only a browser can show of the timeline: gestures, keys, clicks on events and rows."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from jarvis.server.ingest.intake import sample_trace
from jarvis.server.submission import Submission, submit
from tests.browser.conftest import Server, settled

VIEWPORT = {"width": 1440, "height": 1400}
INSIDE_A_COPY = "timeline_start=20&timeline_length=4"
"""A window in the middle of which a GEMM is on the critical path."""

GUTTER_PX, ROWS_PX = 180, 75
"""Places on the canvas: where time begins, and the row of the critical path."""

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


def drawing(page: Page) -> Locator:
    """The canvas of the timeline, when it is drawn with the events of the shown time."""
    canvas = page.get_by_role("application", name="Timeline of the recording")
    expect(canvas).to_have_attribute("data-start", re.compile(r"\d"))
    expect(page.locator(".loading")).to_have_text("")
    return canvas


def shown(canvas: Locator) -> tuple[float, float]:
    """Start and length in ms, as drawn."""
    start, length = (canvas.get_attribute(f"data-{name}") for name in ("start", "length"))
    assert start is not None
    assert length is not None
    return float(start) / 1e6, float(length) / 1e6


def place(canvas: Locator, share: float, y: float = ROWS_PX) -> tuple[float, float]:
    """A point of the canvas, at a share of the shown time."""
    box = canvas.bounding_box()
    assert box is not None
    return box["x"] + GUTTER_PX + share * (box["width"] - GUTTER_PX), box["y"] + y


def changed(canvas: Locator, before: tuple[float, float]) -> tuple[float, float]:
    """The window, once it is drawn differently."""
    canvas.page.wait_for_function(
        "([canvas, before]) => Number(canvas.dataset.start) / 1e6 !== before[0]"
        " || Number(canvas.dataset.length) / 1e6 !== before[1]",
        arg=[canvas.element_handle(), list(before)],
    )
    return shown(canvas)


def test_zoom_and_move_need_no_rerun_and_the_link_has_the_window_afterwards(
    timeline_url: str, browser: Browser
) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    sent: list[object] = []
    problems: list[str] = []
    page.on("websocket", lambda it: it.on("framesent", lambda frame: sent.append(frame)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(timeline_url)
    settled(page)
    canvas = drawing(page)
    whole = shown(canvas)
    assert whole[0] == 0
    reruns, address = len(sent), page.url

    # While the button is down the gesture has not ended, however slow the machine is.
    page.mouse.move(*place(canvas, 0.5))
    page.mouse.down()
    zoomed = whole
    for _ in range(5):
        page.mouse.wheel(0, -300)
        zoomed = changed(canvas, zoomed)
    assert zoomed[1] < whole[1] / 10
    middle_ms = whole[1] / 2
    assert zoomed[0] < middle_ms < zoomed[0] + zoomed[1]
    assert (middle_ms - zoomed[0]) / zoomed[1] == pytest.approx(0.5, abs=0.02)
    page.mouse.move(*place(canvas, 0.3), steps=4)
    canvas.page.wait_for_function(
        "([canvas, start]) => Number(canvas.dataset.start) / 1e6 > start",
        arg=[canvas.element_handle(), zoomed[0]],
    )
    assert (len(sent), page.url) == (reruns, address)
    page.mouse.up()
    page.wait_for_url(re.compile("timeline_length="))
    settled(page)
    assert len(sent) == reruns + 1
    moved = shown(canvas)
    assert moved[1] == pytest.approx(zoomed[1], abs=1e-3)
    assert moved[0] == pytest.approx(zoomed[0] + 0.2 * zoomed[1], abs=0.02 * zoomed[1])
    assert window(page) == pytest.approx(moved, abs=2e-4)
    assert not problems
    page.close()


def test_keys_choose_the_window_and_its_link_opens_it_after_a_restart(
    timeline_url: str, server: Server, browser: Browser
) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(f"{timeline_url}&{INSIDE_A_COPY}")
    settled(page)
    canvas = drawing(page)
    page.get_by_role("heading", name="Timeline").click()
    page.keyboard.press("w")
    nearer = changed(canvas, (20, 4))
    assert nearer[1] < 4
    canvas.focus()
    page.keyboard.press("ArrowRight")
    later = changed(canvas, nearer)
    assert later[0] > nearer[0]
    page.wait_for_url(lambda _: window(page) == pytest.approx(later, abs=2e-4))
    settled(page)

    url, text = page.url, page.get_by_text("of this window").first.inner_text()
    assert "streamlit.elements" not in server.log.read_text(encoding="utf-8")
    page.close()
    server.restart()
    fresh = browser.new_page(viewport=VIEWPORT)
    fresh.goto(url)
    settled(fresh)
    expect(fresh.get_by_text("of this window").first).to_have_text(text)
    assert shown(drawing(fresh)) == pytest.approx(later, abs=2e-4)
    assert fresh.get_by_test_id("stException").count() == 0
    fresh.close()


def test_back_and_forward_show_the_windows_before(timeline_url: str, browser: Browser) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(f"{timeline_url}&{INSIDE_A_COPY}")
    settled(page)
    canvas = drawing(page)
    first = shown(canvas)
    assert first == (20, 4)
    canvas.focus()
    page.keyboard.press("w")
    second = changed(canvas, first)
    page.wait_for_url(lambda _: window(page) == pytest.approx(second, abs=2e-4))
    settled(page)
    page.go_back()
    changed(canvas, second)
    assert shown(canvas) == first
    settled(page)
    page.go_forward()
    changed(canvas, first)
    assert shown(canvas) == pytest.approx(second, abs=2e-4)
    page.close()


def test_a_page_that_was_open_for_too_long_gets_another_ticket(
    timeline_url: str, browser: Browser
) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    tickets: list[str] = []

    def answer(route: Route) -> None:
        tickets.append(route.request.headers["authorization"])
        if tickets[-1] == tickets[0]:
            route.fulfill(status=401, json={"error": "The page has been open for too long."})
        else:
            route.continue_()

    page.route("**/timeline/part?*", answer)
    with page.expect_response(lambda response: response.ok and "/timeline/part" in response.url):
        page.goto(timeline_url)
    settled(page)
    drawing(page)
    expect(page.locator(".problem")).to_be_hidden()
    assert len(set(tickets)) > 1
    page.close()


def test_search_goes_from_match_to_match_and_a_range_is_measured(
    timeline_url: str, browser: Browser
) -> None:
    page = browser.new_page(viewport=VIEWPORT)
    page.goto(f"{timeline_url}&{INSIDE_A_COPY}")
    settled(page)
    canvas = drawing(page)
    found = page.locator(".found")
    page.get_by_role("searchbox", name="Search events by name").fill("gemm")
    expect(found).to_have_text(re.compile(r"\d+ matches"))
    matches = int(found.inner_text().split()[0])
    before = shown(canvas)
    page.keyboard.press("Enter")
    expect(found).to_have_text(re.compile(rf"\d+ of {matches}"))
    first = int(found.inner_text().split()[0])
    page.get_by_role("button", name="Next match").click()
    expect(found).to_have_text(f"{first % matches + 1} of {matches}")
    assert changed(canvas, before) != before

    page.keyboard.down("Shift")
    page.mouse.move(*place(canvas, 0.2))
    page.mouse.down()
    page.mouse.move(*place(canvas, 0.7), steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    table = page.get_by_role("region", name="Statistics of a range")
    expect(table.get_by_role("row").nth(1)).to_contain_text("%")
    table.get_by_role("button", name="Close").click()
    expect(table).to_have_count(0)
    page.close()


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
    canvas = drawing(page)
    page.mouse.click(*place(canvas, 0.5))
    page.wait_for_url(re.compile("timeline_event="))
    settled(page)
    expect(page.get_by_text("Selected: GEMM")).to_be_visible()
    expect(page.get_by_text("On the critical path")).to_be_visible()
    before = page.url
    page.get_by_test_id("stDataFrame").first.click(position=FIRST_ROW)
    page.wait_for_url(lambda url: url != before)
    settled(page)
    assert window(page)[1] < 4.0
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_text("Selected:")).to_have_count(0)
    page.close()


def test_the_details_of_a_row_are_in_view_with_the_event_on_the_canvas(
    timeline_url: str, browser: Browser
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(timeline_url)
    settled(page)
    drawing(page)
    page.get_by_test_id("stDataFrame").last.click(position=FIRST_ROW)
    page.wait_for_url(re.compile("timeline_event="))
    settled(page)
    expect(page.get_by_text("Selected:")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Close")).to_be_in_viewport()
    expect(drawing(page)).to_be_in_viewport(ratio=0.5)
    page.mouse.wheel(0, -5000)
    expect(page.get_by_role("heading", level=1)).to_be_in_viewport()
    expect(page.get_by_text("Selected:")).to_be_in_viewport()
    page.close()


def test_the_legend_is_one_line_until_it_is_opened(timeline_url: str, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(timeline_url)
    settled(page)
    drawing(page)
    items, more = page.locator(".legend .item"), page.locator(".legend button")
    tops = "items => new Set(items.filter(i => !i.hidden).map(i => i.offsetTop)).size"
    assert items.evaluate_all(tops) == 1
    hidden = items.evaluate_all("items => items.filter(item => item.hidden).length")
    expect(more).to_have_text(f"+{hidden} more")
    more.click()
    expect(more).to_have_text("less")
    assert items.evaluate_all("items => items.every(item => !item.hidden)")
    page.close()
