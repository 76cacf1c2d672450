"""Latencies measured in Chromium."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from playwright.sync_api import Page, sync_playwright

from benchmarks.servers import FIGURE, SLIDER, START_SECONDS, Server
from tests import optional

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
VIEWPORT = {"width": 1440, "height": 900}
IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"
_PAUSE_MS = 300
_TURN = 10
"""Moves of the slider in one direction before it turns back."""

WATCH = """(beginning) => {
  const app = document.querySelector('[data-testid=stApp]');
  const label = () => [...document.querySelectorAll('[data-testid=stMetricLabel]')]
    .map(node => node.textContent).find(text => text.startsWith(beginning));
  const before = label();
  const drawn = then => requestAnimationFrame(() => requestAnimationFrame(then));
  window.watched = new Promise(done => {
    addEventListener('keydown', event => {
      const begin = event.timeStamp;
      const since = () => performance.now() - begin;
      let isSeen = false, figure = null, isDone = false;
      new MutationObserver((changes, observer) => {
        if (!isSeen && label() !== before) {
          isSeen = true;
          drawn(() => figure = since());
        }
        const isIdle = app.getAttribute('data-test-script-state') === 'notRunning';
        if (isSeen && isIdle && !isDone) {
          isDone = true;
          observer.disconnect();
          drawn(() => done([figure, since()]));
        }
      }).observe(app.parentElement, {
        subtree: true, childList: true, characterData: true,
        attributes: true, attributeFilter: ['data-test-script-state'],
      });
    }, {once: true, capture: true});
  });
}"""
"""Measures from the key press to the frames with the new metric and with the complete page."""


@contextmanager
def browser_page() -> Iterator[Page]:
    """Yield an empty page of a new browser."""
    chromium = optional.browser_program()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        try:
            yield browser.new_page(viewport=VIEWPORT)
        finally:
            browser.close()


def settled(page: Page) -> None:
    """Wait until the page has finished rendering."""
    page.wait_for_selector(IDLE, timeout=START_SECONDS * 1000)
    page.locator("[data-testid=stSkeleton]").first.wait_for(state="detached")


def slider_to_screen(page: Page, address: str, moves: int) -> tuple[list[float], list[float]]:
    """Return milliseconds from a key press to the new metric, and to the complete page.

    The first moves are not counted, because the browser still compiles its scripts.
    """
    page.goto(address)
    slider = page.get_by_role("slider", name=SLIDER)
    slider.wait_for(timeout=START_SECONDS * 1000)
    figure_label = page.get_by_test_id("stMetricLabel").filter(has_text=FIGURE)
    figure_label.wait_for(timeout=START_SECONDS * 1000)
    settled(page)
    slider.focus()
    figures, pages = [], []
    for number in range(_TURN + moves):
        page.wait_for_timeout(_PAUSE_MS)
        page.evaluate(WATCH, FIGURE)
        page.keyboard.press("ArrowLeft" if number % (2 * _TURN) < _TURN else "ArrowRight")
        figure, whole = page.evaluate("() => window.watched")
        figures.append(figure)
        pages.append(whole)
    return figures[_TURN:], pages[_TURN:]


def first_texts(page: Page, server: Server, names: Sequence[str], repeats: int) -> list[float]:
    """Return the milliseconds until the title of a warm page appears."""
    taken = []
    for number in range((repeats + 1) * len(names)):
        address = server.page(names[number % len(names)])
        begin = time.perf_counter()
        page.goto(address, wait_until="commit")
        page.locator("h1").first.wait_for()
        taken.append(1000 * (time.perf_counter() - begin))
        settled(page)
    return taken[len(names) :]
