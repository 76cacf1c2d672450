"""How fast the dashboard answers: through a real browser, and by many websocket sessions at once.

python -m benchmarks.dashboard [--rows 20000] [--users 50] [--views 1000] [--home DIR] [--page FILE]

An analysis with ``--rows`` operations of one category is made first (kept under ``--home``, where a
second run finds it again), then ``jarvis serve`` is started on it. Chromium moves the target slider
and opens warm pages; plain websocket clients browse with ``--think`` seconds between two moves of
the slider, and open one page after the other while the server's memory is read. The load average
stands beside the figures: server, browser and clients share the machine.
"""

import argparse
import asyncio
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles

from playwright.sync_api import Page, sync_playwright
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.builders import trace

CHROMIUM = "/usr/bin/chromium"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
VIEWPORT = {"width": 1440, "height": 900}
IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"
START_SECONDS = 60
PAGES = ("overview", "gemm", "timeline", "call_tree", "report")
SLIDER_TO_SCREEN_MS, FIRST_TEXT_MS, RERUN_MS, GROWTH_MB = 300, 1000, 100, 50
"""What is required of the medians; growth is over the views after the first fifth of them."""

WATCH = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const label = () => [...document.querySelectorAll('[data-testid=stMetricLabel]')]
    .map(node => node.innerText).find(text => text.startsWith('Saving at'));
  const before = label();
  window.watched = new Promise(done => {
    addEventListener('keydown', event => {
      const begin = event.timeStamp;
      let figure = null;
      const look = () => {
        if (figure === null && label() !== before) figure = performance.now() - begin;
        const idle = app.getAttribute('data-test-script-state') === 'notRunning';
        if (figure !== null && idle) done([figure, performance.now() - begin]);
        else requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    }, {once: true, capture: true});
  });
}"""
"""From the key press to the frame with the new figure, and to the frame with the whole page."""


@dataclass(frozen=True, slots=True)
class Server:
    """``jarvis serve`` and the analysis that it shows."""

    url: str
    pid: int
    analysis: str

    def page(self, name: str) -> str:
        """The address of a page."""
        return f"{self.url}/{name}?analysis={self.analysis}"

    def memory_mb(self) -> float:
        """Resident memory of the server process."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def analysed(home: Path, rows: int) -> str:
    """The id of an analysis with this many products of matrices, no two of the same shapes."""
    built, chance = trace(device="AMD Instinct MI300X"), random.Random(7)
    for number in range(rows):
        m, k, n = 16 * chance.randint(1, 512), 16 * chance.randint(1, 512), 16 + number
        us = max(2.0, 2 * m * k * n / (7e8 * chance.uniform(0.05, 0.95)))
        built.op("aten::mm", [[m, k], [k, n]]).launches(f"gemm_{number % 37}", us=round(us, 3))
    with tempfile.TemporaryDirectory() as folder:
        path = built.write(Path(folder) / f"products-{rows}.json")
        command = [sys.executable, "-m", "jarvis.cli", "analyze", str(path), "--id"]
        environment = os.environ | {"JARVIS_HOME": str(home)}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    (newest, *_) = sorted((home / "analyses").iterdir(), key=lambda f: -f.stat().st_mtime)
    return newest.name


@contextmanager
def served(home: Path, analysis: str) -> Iterator[Server]:
    """A server process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "jarvis.cli", "serve", "--port", str(port)],
        env=os.environ | {"JARVIS_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(f"{url}/_stcore/health")
        yield Server(url, process.pid, analysis)
    finally:
        process.terminate()
        process.wait(timeout=20)


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise TimeoutError(f"the server did not answer within {START_SECONDS} s")


def settled(page: Page) -> None:
    """Wait until the page has drawn what it will draw."""
    page.wait_for_selector(IDLE, timeout=START_SECONDS * 1000)
    page.locator("[data-testid=stSkeleton]").first.wait_for(state="detached")


def slider_to_screen(page: Page, moves: int) -> tuple[list[float], list[float]]:
    """Milliseconds from a key press to the new figure, and to the end of the page's run."""
    slider = page.get_by_role("slider", name="Target efficiency")
    slider.focus()
    figures, pages = [], []
    for number in range(moves):
        page.evaluate(WATCH)
        page.keyboard.press("ArrowLeft" if number % 20 < 10 else "ArrowRight")
        figure, whole = page.evaluate("() => window.watched")
        figures.append(figure)
        pages.append(whole)
        page.wait_for_timeout(400)
    return figures, pages


def first_texts(page: Page, server: Server, repeats: int) -> list[float]:
    """Milliseconds until the title of a page that was open before stands there again."""
    taken = []
    for number in range((repeats + 1) * len(PAGES)):
        address = server.page(PAGES[number % len(PAGES)])
        begin = time.perf_counter()
        page.goto(address, wait_until="commit")
        page.locator("h1").first.wait_for()
        taken.append(1000 * (time.perf_counter() - begin))
        settled(page)
    return taken[len(PAGES) :]


@dataclass
class Visitor:
    """One session over the websocket: what a browser sends, and nothing drawn."""

    connection: ClientConnection
    query: str
    page_name: str
    page_hash: str = ""
    slider: str = ""

    async def rerun(self, target_pct: int | None = None) -> float:
        """Run the page, with the target slider moved; milliseconds until it has ended.

        Raises RuntimeError where the moved slider does not change the page's figure.
        """
        message = BackMsg()
        message.rerun_script.query_string = self.query
        message.rerun_script.page_script_hash = self.page_hash
        message.rerun_script.page_name = "" if self.page_hash else self.page_name
        if target_pct is not None:
            state = message.rerun_script.widget_states.widgets.add()
            state.id = self.slider
            state.double_array_value.data.append(target_pct)
        is_followed = target_pct is None
        begin = time.perf_counter()
        await self.connection.send(message.SerializeToString())
        while True:
            answer = ForwardMsg()
            answer.ParseFromString(await self.connection.recv(decode=False))
            kind = answer.WhichOneof("type")
            if kind == "navigation":
                self.page_hash = answer.navigation.page_script_hash
            elif kind == "delta" and answer.delta.new_element.WhichOneof("type") == "slider":
                found = answer.delta.new_element.slider
                self.slider = found.id if "Target" in found.label else self.slider
            elif kind == "delta" and answer.delta.new_element.WhichOneof("type") == "metric":
                is_followed |= answer.delta.new_element.metric.label == f"Saving at {target_pct}%"
            elif kind == "script_finished":
                if not is_followed:
                    raise RuntimeError("the page did not follow its slider")
                return 1000 * (time.perf_counter() - begin)


@asynccontextmanager
async def visit(server: Server, name: str) -> AsyncIterator[Visitor]:
    """Open a page, as another browser would."""
    address = f"{server.url.replace('http', 'ws', 1)}/_stcore/stream"
    protocol = Subprotocol("streamlit")
    async with connect(address, subprotocols=[protocol], max_size=None, proxy=None) as connection:
        visitor = Visitor(connection, f"analysis={server.analysis}", name)
        await visitor.rerun()
        yield visitor


async def _browse(server: Server, think_s: float, moves: int, number: int) -> list[float]:
    """One user: opens the page at a moment of its own, then moves the slider again and again."""
    chance = random.Random(number)
    await asyncio.sleep(chance.uniform(0, 2 * think_s))
    taken = []
    async with visit(server, "gemm") as visitor:
        for _ in range(moves):
            await asyncio.sleep(chance.uniform(0.5, 1.5) * think_s)
            taken.append(await visitor.rerun(chance.randint(40, 95)))
    return taken


async def browsing(server: Server, users: int, think_s: float, moves: int) -> list[float]:
    """Milliseconds of every rerun of all users together."""
    visits = (_browse(server, think_s, moves, number) for number in range(users))
    return [ms for taken in await asyncio.gather(*visits) for ms in taken]


async def memory_over_views(server: Server, views: int) -> list[float]:
    """MB of the server after each fifth of so many page views, each in a session of its own."""
    taken = []
    for number in range(views):
        async with visit(server, PAGES[number % len(PAGES)]):
            pass
        if (number + 1) % max(1, views // 5) == 0:
            taken.append(server.memory_mb())
    return taken


def line(what: str, times_ms: Sequence[float], allowed_ms: float | None = None) -> str:
    """Median and 95th percentile, with what is required of the median behind them."""
    middle, high = median(times_ms), quantiles(times_ms, n=20)[-1]
    mark = ""
    if allowed_ms is not None:
        mark = f"  median <= {allowed_ms:,.0f} ms {'ok' if middle <= allowed_ms else 'MISSED'}"
    load = os.getloadavg()[0]
    return f"{what:44s} {middle:8,.0f} {high:8,.0f} {len(times_ms):6,d} {load:6.1f}{mark}"


def measured(server: Server, options: argparse.Namespace) -> Iterator[str]:
    """A line for each case."""
    yield f"{'case':44s} {'median':>8s} {'p95 ms':>8s} {'runs':>6s} {'load':>6s}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page(viewport=VIEWPORT)
        page.goto(server.page("gemm"))
        settled(page)
        figures, pages = slider_to_screen(page, options.moves)
        yield line("slider to new figure on screen", figures)
        yield line("slider to whole page on screen", pages, SLIDER_TO_SCREEN_MS)
        texts = first_texts(page, server, options.repeats)
        yield line("first text of a warm page", texts, FIRST_TEXT_MS)
        browser.close()
    reruns = asyncio.run(browsing(server, options.users, options.think, options.moves))
    yield line(f"rerun, {options.users} users, {options.think:g} s think time", reruns, RERUN_MS)
    sizes = asyncio.run(memory_over_views(server, options.views))
    growth = sizes[-1] - sizes[0]
    verdict = "ok" if growth <= GROWTH_MB else "MISSED"
    yield (
        f"memory over {options.views:,d} page views: {', '.join(f'{mb:,.0f}' for mb in sizes)} MB; "
        f"after the first fifth <= {GROWTH_MB} MB more {verdict}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the analysis, serve it and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="operations of the category")
    parser.add_argument("--moves", type=int, default=30, help="moves of the slider, for each user")
    parser.add_argument("--repeats", type=int, default=4, help="openings of each warm page")
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--think", type=float, default=5.0, help="seconds between two moves")
    parser.add_argument("--views", type=int, default=1000, help="page views for the memory")
    parser.add_argument("--home", type=Path, help="keep the analysis here for another run")
    parser.add_argument("--page", type=Path, help="replace the dashboard's part of this page")
    options = parser.parse_args(arguments)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder)
        with served(home, analysed(home, options.rows)) as server:
            for text in measured(server, options):
                print(text, flush=True)
                lines.append(text)
    if options.page:
        replace_part(options.page, PART.format(rows=options.rows, table="\n".join(lines)))
    return 0


HEADING = "## The dashboard\n"
PART = (
    HEADING
    + """
`make bench-dashboard` wrote this part: an analysis with {rows:,d} operations of one category, in
milliseconds. The browser draws on the same cores as the server answers; *load* is the load average
of the machine when the case ended.

```
{table}
```
"""
    + f"\n{os.cpu_count()} cores, Python {sys.version.split()[0]}, "
    + ", ".join(f"{name} {version(name)}" for name in ("streamlit", "altair", "polars", "pandas"))
    + ".\n"
)


def replace_part(page: Path, part: str) -> None:
    """Write the dashboard's part of the page of benchmarks; the other parts stay."""
    text = page.read_text(encoding="utf-8")
    before, found, after = text.partition(HEADING)
    following = re.search(r"^## ", after, re.MULTILINE) if found else None
    rest = after[following.start() :] if following else ""
    page.write_text(
        f"{before.rstrip()}\n\n{part}" + (f"\n{rest}" if rest else ""), encoding="utf-8"
    )


if __name__ == "__main__":
    raise SystemExit(main())
