"""Measure the speed of a large upload and the memory growth of the web server.

python -m benchmarks.uploads [--megabytes 1000] [--page FILE]

A trace that repeats two simulated steps is uploaded to a new server by Chromium and by ``jarvis
push``. The server runs no jobs, so only the upload is measured: from the choice of the file until
it is stored under its digest. *Peak* is the peak resident memory of the server, reset when the
upload starts.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.in_browser import browser_page, settled
from benchmarks.page import table, write_part
from benchmarks.servers import Server, dashboards
from jarvis.sample import write_sample

MAX_GROWTH_MB = 200
EVENTS = b'"traceEvents":[\n'
"""Start of a trace, before its events."""

MAX_MS_LENGTH = 600_000
RESET_PEAK = "5"

WORDS = ("case", "MB sent", "s", "MB/s", "before MB", "peak MB", "growth MB", "required")


@dataclass(frozen=True, slots=True)
class Case:
    """Measurements of one upload."""

    name: str
    sent_mb: float
    took_s: float
    before_mb: float
    peak_mb: float

    def cells(self) -> list[str]:
        """Return the row of the table."""
        growth = self.peak_mb - self.before_mb
        verdict = "ok" if growth < MAX_GROWTH_MB else "too much"
        figures = (self.sent_mb, self.took_s, self.sent_mb / self.took_s)
        memory = (self.before_mb, self.peak_mb, growth)
        numbers = [f"{figure:,.1f}" for figure in figures] + [f"{mb:.0f}" for mb in memory]
        return [self.name, *numbers, f"growth < {MAX_GROWTH_MB} MB: {verdict}"]


def main() -> int:
    """Measure and write the table; return 1 if memory grows above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=1000, help="JSON of the trace")
    parser.add_argument("--page", type=Path, help="page to write the table into")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = _simulated(Path(folder), arguments.megabytes)
        cases = [
            _measured(name, send, trace, Path(folder) / name)
            for name, send in (("browser", _by_browser), ("jarvis push", _by_push))
        ]
    page = table(WORDS, [case.cells() for case in cases])
    print(page)
    if arguments.page:
        write_part(arguments.page, "uploads", page)
    return int(any(case.peak_mb - case.before_mb >= MAX_GROWTH_MB for case in cases))


def _simulated(folder: Path, megabytes: int) -> Path:
    """Write a trace of at least this size that repeats the events of a small one."""
    text = write_sample(folder / "small.json", scale="large").read_bytes()
    head, mark, rest = text.partition(EVENTS)
    events, end, tail = rest.rpartition(b"\n]")
    trace = folder / "large.json"
    with trace.open("wb") as file:
        file.write(head + mark + events)
        while file.tell() < megabytes * 1e6:
            file.write(b",\n" + events)
        file.write(end + tail)
    return trace


def _measured(
    name: str, send: Callable[[Server, Path, Callable[[], None]], None], trace: Path, home: Path
) -> Case:
    """Measure one client with a new server that has rendered its page before."""
    begin = before_mb = 0.0
    with dashboards(home, "", JARVIS_JOB_SLOTS="0") as (server,):

        def begins() -> None:
            nonlocal begin, before_mb
            Path(f"/proc/{server.pid}/clear_refs").write_text(RESET_PEAK, encoding="ascii")
            before_mb, begin = server.memory_mb(), time.perf_counter()

        send(server, trace, begins)
        took_s = time.perf_counter() - begin
        (stored,) = home.glob(f"traces/*/{trace.name}")
        assert stored.stat().st_size == trace.stat().st_size
        return Case(name, trace.stat().st_size / 1e6, took_s, before_mb, server.peak_memory_mb())


def _by_browser(server: Server, trace: Path, begins: Callable[[], None]) -> None:
    with browser_page() as page:
        page.goto(server.url)
        settled(page)
        begins()
        page.locator("input[type=file]").first.set_input_files(trace)
        page.wait_for_url("**ingest_upload=*", timeout=MAX_MS_LENGTH)


def _by_push(server: Server, trace: Path, begins: Callable[[], None]) -> None:
    with browser_page() as page:  # so that the server has loaded what pages need
        page.goto(server.url)
        settled(page)
    begins()
    command = [sys.executable, "-m", "jarvis.cli", "push", str(trace), "--server", server.url]
    subprocess.run(command, check=True, env=dict(os.environ), stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    raise SystemExit(main())
