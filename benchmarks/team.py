"""Measure a server with concurrent users and jobs, and during failures.

python -m benchmarks.team [--users 50] [--megabytes 100] [--uploads 20] [--page FILE]

One server with four job slots and an analysis of 20,000 rows. Traces of ``--megabytes`` of JSON are
analyzed while users move the slider of the GEMM page, and others are uploaded concurrently. Then,
each time with four jobs and ten users, the worker is killed repeatedly, the web process is killed
and restarted, the database is locked for ten seconds, and PostgreSQL is stopped for ten seconds.
Failed jobs are retried. A job is lost if it does not succeed or its analysis cannot be opened;
*half-written* counts incomplete folders.
"""

import argparse
import gzip
import os
import random
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from threading import Event, Thread
from typing import Self

from benchmarks.arrivals import upload_all
from benchmarks.asked import Asked, ask
from benchmarks.crowd import Seen, crowd
from benchmarks.page import table, write_part
from benchmarks.servers import Server, analyzed, dashboards
from jarvis.core.workspace import HOME_VARIABLE, analyses_dir, database_file
from jarvis.sample import write_sample
from jarvis.server.database import database
from jarvis.server.storage.catalog import read_catalog
from tests import optional
from tests.services.postgres import URL_VARIABLE, Postgres

SAMPLE_S = 0.2
PAGE, THINK_S = "gemm", 5.0
FEW_USERS = 10
SLOTS = 4
MB_PER_STEP = 4.66
"""JSON of one step of the large sample."""

UPLOAD_MB = 50

LOCKED_S = GONE_S = 10
KILLS, KILL_EVERY_S = 5, 3.0

WORDS = (
    "case",
    "reruns",
    "median ms",
    "p95 ms",
    "web MB",
    "jobs MB",
    "jobs",
    "median s a job",
    "retried",
    "lost",
    "half-written",
    "stack traces",
    "remarks",
)


@dataclass
class Case:
    """Results of one case."""

    name: str
    seen: Seen
    asked: Asked | None = None
    took_s: list[float] = field(default_factory=list)
    web_mb: float = 0.0
    jobs_mb: float = 0.0
    remarks: str = ""

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        times, asked = self.seen.times_ms, self.asked
        high = quantiles(times, n=20)[-1] if len(times) > 1 else times[0]
        left = len(read_catalog().broken) + sum(
            path.name.startswith(".") for path in analyses_dir().iterdir()
        )
        return (
            self.name,
            f"{len(times):,d}",
            f"{median(times):,.0f}",
            f"{high:,.0f}",
            f"{self.web_mb:,.0f}",
            f"{self.jobs_mb:,.0f}" if asked else "",
            str(len(asked.ids)) if asked else "",
            f"{median(self.took_s):.1f}" if self.took_s else "",
            str(asked.retried) if asked else "",
            str(len(asked.lost)) if asked else "",
            str(left),
            str(self.seen.stack_traces),
            self.remarks,
        )


class Sampler:
    """Call ``sample`` every ``interval_s`` seconds within the block."""

    interval_s = SAMPLE_S

    def __init__(self) -> None:
        self._stop = Event()
        self._thread = Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self.interval_s):
            self.sample()

    def sample(self) -> None:
        """Measure once."""
        raise NotImplementedError


class Memory(Sampler):
    """Sample the peak memory of the web process, and of its descendants together."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self.web_mb = self.jobs_mb = 0.0

    def sample(self) -> None:
        try:
            self.web_mb = max(self.web_mb, self._server.memory_mb())
        except OSError:
            return  # killed, on purpose
        self.jobs_mb = max(self.jobs_mb, sum(map(own_mb, below(self._server.pid))))


def below(pid: int) -> Iterator[int]:
    """Return all descendants of a process."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            text = children.read_text()
        except OSError:
            continue
        for child in map(int, text.split()):
            yield child
            yield from below(child)


def own_mb(pid: int) -> float:
    """Return the anonymous memory of a process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


@contextmanager
def serving(home: Path, analysis: str, **settings: str) -> Iterator[Server]:
    """Start one server with its worker."""
    with dashboards(home, analysis, 1, JARVIS_JOB_SLOTS=str(SLOTS), **settings) as servers:
        yield servers[0]


def alone(server: Server, users: int, seconds: float) -> Case:
    """Measure users without jobs."""
    with Memory(server) as memory, crowd([server], PAGE, users, THINK_S) as seen:
        time.sleep(seconds)
    return Case(f"{users} users, no job", seen, web_mb=memory.web_mb)


def with_jobs(server: Server, users: int, traces: Sequence[Path]) -> Case:
    """Measure users while jobs use all slots."""
    with Memory(server) as memory, crowd([server], PAGE, users, THINK_S) as seen:
        asked = ask(traces)
        took_s = asked.settle()
    name = f"{users} users, {SLOTS} jobs at a time"
    return Case(name, seen, asked, took_s, memory.web_mb, memory.jobs_mb)


def broken(name: str, server: Server, traces: Sequence[Path], fault: Callable[[], str]) -> Case:
    """Measure a few users and four jobs while ``fault`` runs; it returns a remark."""
    with Memory(server) as memory, crowd([server], PAGE, FEW_USERS, THINK_S) as seen:
        asked = ask(traces)
        while not asked.running():
            time.sleep(0.05)
        remarks = fault()
        took_s = asked.settle()
    said = [remarks, *sorted(asked.reasons)]
    case = Case(name, seen, asked, took_s, memory.web_mb, memory.jobs_mb)
    case.remarks = "; ".join(part for part in said if part)
    return case


def many_uploads(server: Server, traces: Sequence[Path]) -> Case:
    """Measure a few users and concurrent uploads; analyze each."""
    with crowd([server], PAGE, FEW_USERS, THINK_S) as seen, Memory(server) as memory:
        before_mb = server.memory_mb()
        arrived = upload_all(server, traces)
        growth_mb = memory.web_mb - before_mb
        took_s = arrived.asked.settle()
    case = Case(
        f"{len(traces)} uploads at once",
        seen,
        arrived.asked,
        took_s,
        memory.web_mb,
        memory.jobs_mb,
    )
    case.remarks = (
        f"{arrived.megabytes:,.0f} MB in {arrived.elapsed_s:.1f} s, {arrived.mb_per_s:.0f} MB/s; "
        f"median of an upload {median(arrived.times_s):.1f} s; server grew by {growth_mb:.0f} MB"
    )
    return case


def kill_workers(server: Server) -> Callable[[], str]:
    """Kill the worker and its jobs at random times."""

    def fault() -> str:
        chance, killed = random.Random(3), 0
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.2, KILL_EVERY_S))
            for pid in worker_pids(server.pid):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        return f"{killed} kills"

    return fault


def worker_pids(web: int) -> list[int]:
    """Return the worker of a web process."""
    return [pid for pid in below(web) if "jarvis.server.jobs.worker" in command_line(pid)]


def command_line(pid: int) -> str:
    """Return the command line of a process; empty if it has exited."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def lock_database() -> str:
    """Lock the SQLite database for ten seconds."""
    with closing(sqlite3.connect(database_file(), isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(LOCKED_S)
        connection.execute("ROLLBACK")
    return f"locked {LOCKED_S} s"


def gone_database(home: Path, analysis: str, traces: Sequence[Path]) -> Case:
    """Stop PostgreSQL for ten seconds while jobs run and users browse."""
    programs = optional.postgres_programs()[-1]
    with tempfile.TemporaryDirectory(prefix="jarvis-postgres-") as folder:
        postgres = Postgres(programs, Path(folder))
        postgres.start()

        def fault() -> str:
            postgres.stop()
            time.sleep(GONE_S)
            postgres.start()
            return f"gone {GONE_S} s"

        try:
            with (
                postgres.fresh_database() as url,
                database_at(url),
                serving(home, analysis, **{URL_VARIABLE: url}) as server,
            ):
                return broken("PostgreSQL gone", server, traces, fault)
        finally:
            postgres.stop()


@contextmanager
def database_at(url: str) -> Iterator[None]:
    """Let this process use the given database within the block."""
    os.environ[URL_VARIABLE] = url
    try:
        yield
    finally:
        database().dispose()
        del os.environ[URL_VARIABLE]


def killed_web_process(home: Path, analysis: str, traces: Sequence[Path]) -> Case:
    """Kill the web process while jobs run, and start another one."""
    with serving(home, analysis) as server, crowd([server], PAGE, FEW_USERS, THINK_S) as before:
        asked = ask(traces)
        while not asked.running():
            time.sleep(0.05)
        os.kill(server.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    with serving(home, analysis) as server, Memory(server) as memory:
        answered_s = time.monotonic() - killed_at
        with crowd([server], PAGE, FEW_USERS, THINK_S) as seen:
            took_s = asked.settle()
    seen.stack_traces += before.stack_traces
    case = Case("web process killed", seen, asked, took_s, memory.web_mb, memory.jobs_mb)
    case.remarks = "; ".join([f"answers again after {answered_s:.1f} s", *sorted(asked.reasons)])
    return case


def traces_of(folder: Path, count: int, megabytes: float, ending: str = ".json.gz") -> list[Path]:
    """Write traces of about this size with the same events and different bytes."""
    steps = max(1, round(megabytes / MB_PER_STEP))
    text = write_sample(folder / "simulated.json", steps, scale="large").read_bytes()
    traces = []
    for number in range(count):
        trace = folder / f"{ending[1:]}-{number}{ending}"
        own = b'{"copy": %d, ' % number + text.removeprefix(b"{")
        trace.write_bytes(gzip.compress(own, 1) if ending.endswith(".gz") else own)
        traces.append(trace)
    return traces


def measured(home: Path, folder: Path, options: argparse.Namespace) -> Iterator[Case]:
    """Run the cases one after the other."""
    analysis = analyzed(home, options.rows)
    traces = traces_of(folder, options.jobs, options.megabytes)
    with serving(home, analysis) as server:
        yield alone(server, options.users, options.seconds)
        yield with_jobs(server, options.users, traces)
        yield many_uploads(server, traces_of(folder, options.uploads, UPLOAD_MB, ".json"))
        yield broken("worker killed", server, traces[:SLOTS], kill_workers(server))
        yield broken("database locked", server, traces[:SLOTS], lock_database)
    yield gone_database(home, analysis, traces[:SLOTS])
    yield killed_web_process(home, analysis, traces[:SLOTS])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--rows", type=int, default=20_000, help="operations of the page")
    parser.add_argument("--jobs", type=int, default=12, help="analyses while users browse")
    parser.add_argument("--megabytes", type=float, default=100, help="JSON of each trace")
    parser.add_argument("--uploads", type=int, default=20, help="files that are sent at once")
    parser.add_argument("--seconds", type=float, default=40, help="browsing without jobs")
    parser.add_argument("--page", type=Path, help="write the results into this page")
    options = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        home, folder = Path(name) / "home", Path(name) / "traces"
        os.environ[HOME_VARIABLE] = str(home)
        os.environ["JARVIS_TRACE_ROOTS"] = str(folder)
        for case in measured(home, folder, options):
            rows.append(case.row())
            print(" | ".join(rows[-1]), flush=True)
    if options.page:
        write_part(options.page, "team", table(WORDS, rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
