"""Measure dashboard latency with a browser and with many websocket sessions.

python -m benchmarks.dashboard [--rows 20000] [--users 50] [--views 1000] [--home DIR] [--page FILE]

The analysis has ``--rows`` operations of one category (stored under ``--home`` for later runs).
Chromium moves the target slider and opens warm pages of ``jarvis serve``; websocket clients browse
with ``--think`` seconds between two moves, and open page after page while the server's memory is
measured. The baseline is an empty Streamlit page. Server, browser and clients share the machine, so
the load average is reported, too.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import linear_regression, median, quantiles

from benchmarks.in_browser import browser_page, first_texts, slider_to_screen
from benchmarks.page import table, write_part
from benchmarks.servers import Server, analyzed, dashboards, empty_page
from benchmarks.visitors import browsing, memory_over_views

PAGES = ("overview", "gemm", "timeline", "call_tree", "report")
CATEGORY = "gemm"
SLIDER_TO_SCREEN_MS, FIRST_TEXT_MS, RERUN_MS, GROWTH_MB = 300, 1000, 100, 50
"""Limits of the medians, and of the memory growth per 1,000 views after the first fifth."""

SAMPLES = 20
WORDS = ("case", "median ms", "p95 ms", "server CPU ms", "runs", "load", "required")


def row(
    what: str, times_ms: Sequence[float], allowed_ms: float | None = None, cpu_ms: float = 0
) -> tuple[str, ...]:
    """One case: median, 95th percentile, and the limit of the median."""
    middle, high = median(times_ms), quantiles(times_ms, n=20)[-1]
    required = ""
    if allowed_ms is not None:
        required = f"median <= {allowed_ms:,.0f} ms: {'ok' if middle <= allowed_ms else 'MISSED'}"
    return (
        what,
        f"{middle:,.0f}",
        f"{high:,.0f}",
        f"{cpu_ms:,.0f}" if cpu_ms else "",
        f"{len(times_ms):,d}",
        f"{os.getloadavg()[0]:.1f}",
        required,
    )


def measured(
    home: Path, analysis: str, options: argparse.Namespace
) -> Iterator[tuple[str, ...] | str]:
    """Yield a row for each case, and the notes below the table."""
    with empty_page() as empty:
        yield from _in_browser(empty, [], options, "empty page")
        yield _with_users([empty], "", options, "an empty page", None)
    with dashboards(home, analysis) as servers:
        yield from _in_browser(servers[0], PAGES, options, f"page of {options.rows:,d} rows")
        yield _with_users(servers, CATEGORY, options, "1 process", RERUN_MS)
        yield _memory(servers[0], options.views)
    if options.processes > 1:
        with dashboards(home, analysis, options.processes) as servers:
            what = f"{options.processes} processes"
            yield _with_users(servers, CATEGORY, options, what, None)


def _in_browser(
    server: Server, pages: Sequence[str], options: argparse.Namespace, what: str
) -> Iterator[tuple[str, ...]]:
    is_required = bool(pages)
    with browser_page() as page:
        address = server.page(CATEGORY if pages else "")
        figures, wholes = slider_to_screen(page, address, options.moves)
        yield row(f"slider to figure, {what}", figures)
        allowed = SLIDER_TO_SCREEN_MS if is_required else None
        yield row(f"slider to screen, {what}", wholes, allowed)
        if pages:
            texts = first_texts(page, server, pages, options.repeats)
            yield row("first text of a warm page", texts, FIRST_TEXT_MS)


def _with_users(
    servers: Sequence[Server],
    page: str,
    options: argparse.Namespace,
    what: str,
    allowed_ms: float | None,
) -> tuple[str, ...]:
    seen = asyncio.run(browsing(servers, page, options.users, options.think, options.user_moves))
    name = f"rerun, {options.users} users, {options.think:g} s think, {what}"
    return row(name, seen.times_ms, allowed_ms, seen.cpu_ms)


def _memory(server: Server, views: int) -> str:
    """Return a sentence with start and end memory and its growth after the first fifth."""
    sizes = asyncio.run(memory_over_views(server, PAGES, views, SAMPLES))
    settled = sizes[len(sizes) // 5 :]
    per_sample = linear_regression(range(len(settled)), settled).slope
    per_thousand = per_sample * SAMPLES * 1000 / views
    verdict = "ok" if per_thousand <= GROWTH_MB else "MISSED"
    return (
        f"Memory of the server over {views:,d} page views, each in a session of its own: "
        f"{sizes[0]:,.0f} MB before, {settled[0]:,.0f} MB after a fifth, {sizes[-1]:,.0f} MB at "
        f"the end; {per_thousand:+,.0f} MB per 1,000 views after the first fifth "
        f"(<= {GROWTH_MB} MB: {verdict})."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Create the analysis, serve it and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="operations of the category")
    parser.add_argument("--moves", type=int, default=30, help="moves of the slider in the browser")
    parser.add_argument("--repeats", type=int, default=4, help="openings of each warm page")
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--think", type=float, default=5.0, help="seconds between two moves")
    parser.add_argument("--user-moves", type=int, default=6, help="moves of each user")
    parser.add_argument("--processes", type=int, default=2, help="servers that share the users")
    parser.add_argument("--views", type=int, default=1000, help="page views for the memory")
    parser.add_argument("--home", type=Path, help="store the analysis here for later runs")
    parser.add_argument("--page", type=Path, help="write the results into this page")
    options = parser.parse_args(arguments)
    rows: list[tuple[str, ...]] = []
    sentences: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder)
        for found in measured(home, analyzed(home, options.rows), options):
            print(found if isinstance(found, str) else " | ".join(found), flush=True)
            if isinstance(found, str):
                sentences.append(found)
            else:
                rows.append(found)
    if options.page:
        write_part(
            options.page, "dashboard", "\n\n".join([table(WORDS, rows), *sentences, _machine()])
        )
    return 0


def _machine() -> str:
    names = ("streamlit", "altair", "polars", "pandas")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    return f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {versions}."


if __name__ == "__main__":
    raise SystemExit(main())
