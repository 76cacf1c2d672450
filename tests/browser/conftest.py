"""The dashboard as the README starts it, and a headless Chromium in front of it."""

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests import optional
from tests.conftest import skip_or_fail
from tests.services.ports import free_port

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A test runs a small part of the scripts of a page, and ends before garbage is a problem.
    "--js-flags=--max-lazy --single-threaded --min-semi-space-size=64 --max-semi-space-size=64",
)
START_SECONDS = 120
IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"
STABLE_FRAMES = 10
HAS_STABLE_HEIGHT = """(frames) => {
    const height = document.querySelector("[data-testid=stMain]").scrollHeight;
    const last = window.lastHeight ?? {};
    window.lastHeight = {height, frames: height === last.height ? last.frames + 1 : 0};
    return window.lastHeight.frames >= frames;
}"""
"""Whether the page had the same height in that many frames: charts that are drawn late move what is
below them, and a click is lost if its target moves between press and release."""


class Server:
    """``jarvis serve`` on a port of its own; it can be stopped and started again."""

    def __init__(self, home: Path, **settings: str) -> None:
        self.home = home
        self.settings = settings
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = home / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as lines:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jarvis.cli", "serve", "--port", str(self.port)],
                env={**os.environ, "JARVIS_HOME": str(self.home), **self.settings},
                stdout=lines,
                stderr=lines,
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=2):
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        raise TimeoutError(f"the server ended or did not answer within {START_SECONDS} s")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=START_SECONDS)
            self._process = None

    def kill(self) -> None:
        """End it as a crash of the machine would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    chromium = optional.browser_program()
    if chromium is None:
        skip_or_fail("there is no chromium")
    return {**browser_type_launch_args, "executable_path": chromium, "args": list(FLAGS)}


@contextmanager
def started(server: Server) -> Iterator[Server]:
    """A server at work within the block."""
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all files whose tests mind neither each other's analyses nor a restart before."""
    with started(Server(tmp_path_factory.mktemp("home"))) as server:
        yield server


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for the tests of a file alone, with nothing in it yet."""
    with started(Server(tmp_path_factory.mktemp("home"))) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def _a_busy_machine_may_take_longer(browser: Browser) -> None:
    """No test depends on time; a page that never shows what it should fails later."""
    browser.on("context", lambda context: context.set_default_timeout(START_SECONDS * 1000))
    expect.set_options(timeout=START_SECONDS * 1000)


@pytest.fixture(scope="session", autouse=True)
def _nothing_moves(browser: Browser) -> None:
    """Animations take a quarter of the CPU time of a page, and no test looks at them."""
    for name in ("new_context", "new_page"):
        setattr(browser, name, partial(getattr(browser, name), reduced_motion="reduce"))


@pytest.fixture(scope="module", autouse=True)
def _pages_are_closed(browser: Browser) -> Iterator[None]:
    """What a file leaves open would ask servers for ever."""
    yield
    for context in browser.contexts:
        context.close()


def settled(page: Page) -> None:
    """Wait until the page has drawn what it will draw."""
    page.wait_for_selector(IDLE, timeout=START_SECONDS * 1000)
    page.locator("[data-testid=stStatusWidget]").wait_for(state="detached")
    page.locator("[data-testid=stSkeleton]").first.wait_for(state="detached")
    page.wait_for_function(HAS_STABLE_HEIGHT, arg=STABLE_FRAMES)


def page_links(page: Page) -> Locator:
    """The links of the sidebar to all pages."""
    return page.locator(".st-key-page_links").get_by_role("link")


def copied_link(page: Page) -> str:
    """The link that *Copy link* copies; ``test_dashboard.py`` reads the clipboard."""
    button = page.get_by_role("button", name=re.compile("Copy link|Link copied"))
    return str(button.get_attribute("data-link"))


def saved_from_link(page: Page, link: Locator) -> tuple[str, bytes]:
    """The name and the content of a file behind a link, when that is there."""
    with page.expect_download(timeout=START_SECONDS * 1000) as waiting:
        link.click(timeout=START_SECONDS * 1000)
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()
