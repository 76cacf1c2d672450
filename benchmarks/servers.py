"""Servers under test: the dashboard with an analysis of many rows, and an empty page."""

import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from jarvis.core.workspace import resource
from jarvis.dashboard.pages.category.cards import SAVING
from jarvis.dashboard.widgets.targets import EFFICIENCY
from tests.builders import trace

START_SECONDS = 60
SLIDER, FIGURE = EFFICIENCY, SAVING
"""The label of the slider that is moved, and how that of the metric that follows it begins."""

EMPTY_PAGE = f"""
import streamlit as st

st.title("Empty")
target = st.slider("{SLIDER}", 5, 100, 80, format="%d%%", key="target", bind="query-params")
st.metric(f"{FIGURE} {{target}}%", target)
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A server process; ``analysis`` is the id of the open analysis, or empty."""

    url: str
    pid: int
    analysis: str = ""

    @property
    def query(self) -> str:
        """Return the query string of its pages."""
        return f"analysis={self.analysis}" if self.analysis else ""

    def page(self, name: str) -> str:
        """Return the URL of a page."""
        return f"{self.url}/{name}?{self.query}"

    def memory_mb(self) -> float:
        """Return the resident memory of the process."""
        return self._status_mb("VmRSS:")

    def peak_memory_mb(self) -> float:
        """Return the peak resident memory of the process."""
        return self._status_mb("VmHWM:")

    def cpu_s(self) -> float:
        """Return the CPU time of the process."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def _status_mb(self, name: str) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith(name))
        return int(kilobytes) / 1024


def analyzed(home: Path, rows: int) -> str:
    """Create an analysis with this many matrix products of different shapes; return its id."""
    built, chance = trace(device="AMD Instinct MI300X"), random.Random(7)
    for number in range(rows):
        m, k, n = 16 * chance.randint(1, 512), 16 * chance.randint(1, 512), 16 + number
        us = max(2.0, 2 * m * k * n / (7e8 * chance.uniform(0.05, 0.95)))
        built.op("aten::mm", [[m, k], [k, n]]).launches(f"gemm_{number % 37}", us=round(us, 3))
    with tempfile.TemporaryDirectory() as folder:
        path = built.write(Path(folder) / f"products-{rows}.json")
        command = [sys.executable, "-m", "jarvis.cli", "analyze", str(path), "--id"]
        environment = os.environ | {"JARVIS_HOME": str(home)}
        done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE)
    *_, a_report = done.stdout.decode().split()
    return Path(a_report).parent.name


@contextmanager
def dashboards(
    home: Path, analysis: str, count: int = 1, **settings: str
) -> Iterator[list[Server]]:
    """Start processes that serve the dashboard from one home; ``settings`` are variables."""
    command = (sys.executable, "-m", "jarvis.cli", "serve")
    environment = os.environ | {"JARVIS_HOME": str(home)} | settings
    with ExitStack() as stack:
        starts = (_started(command, ("--port",), environment) for _ in range(count))
        found = [stack.enter_context(start) for start in starts]
        yield [Server(url, pid, analysis) for url, pid in found]


@contextmanager
def empty_page() -> Iterator[Server]:
    """Serve the baseline: a page with a slider and a metric, with the dashboard's settings."""
    with tempfile.TemporaryDirectory() as folder:
        script, settings = Path(folder) / "empty.py", Path(folder) / ".streamlit"
        script.write_text(EMPTY_PAGE, encoding="utf-8")
        settings.mkdir()
        ours = resource("app.py").parent / ".streamlit" / "config.toml"
        (settings / ours.name).write_bytes(ours.read_bytes())
        command = (sys.executable, "-m", "streamlit", "run", str(script))
        with _started(command, ("--server.port",), dict(os.environ), folder) as (url, pid):
            yield Server(url, pid)


@contextmanager
def _started(
    command: Sequence[str],
    port_option: Sequence[str],
    environment: dict[str, str],
    folder: str | None = None,
) -> Iterator[tuple[str, int]]:
    """Start a server on a free port; yield its URL and process id once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [*command, *port_option, str(port)],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(f"{url}/_stcore/health")
        yield url, process.pid
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    raise TimeoutError(f"the server did not answer within {START_SECONDS} s")
