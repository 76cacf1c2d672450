"""Measure a job of many large ranks, from its traces to the distributed run.

python -m benchmarks.large_ranks [--ranks 64] [--megabytes 100] [--page FILE]

Traces of ``--megabytes`` of JSON each are read one after the other, in one process. Then they are
uploaded, analyzed and joined by two processes at a time: by the worker of a server with two job
slots, and on a Dask cluster of two workers.

SIMULATED ranks are simulated. The others repeat them with other ranks in the text, so that several
ranks have equal times.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path

from isal import igzip

from benchmarks.page import table, write_part
from benchmarks.pipeline import RARELY, UNKEPT, machine
from benchmarks.team import Sampler, below
from jarvis.ranks.run import DistributedRun
from jarvis.sample import Job, write_job
from jarvis.server import queue
from jarvis.server.actions import OPERATOR, submit_ranks
from jarvis.server.database import JobState, database
from jarvis.server.ingest.intake import store_upload
from jarvis.server.jobs.kinds import Analyze
from jarvis.server.storage.catalog import read_catalog
from jarvis.server.submission import Submission
from tests.services.dask import Dask

RANKS, MEGABYTES, SLOTS = 64, 100, 2
SIMULATED = 4
MB_PER_STEP = 6.13
"""JSON of one step of the large sample with collectives."""

MAX_S, MAX_MB = 120.0, 1500.0
LIMIT_S = 3600.0
LOOK_S = 0.2
QUIET_DASK = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
}
"""Settings that docs/how-to/dask.md names: the profiler of Dask sees nothing of the jobs."""

READ = f"""
import json, sys, time
{RARELY}
from jarvis.trace import compiled, read_trace
begin, wall = time.process_time(), time.perf_counter()
for path in sys.argv[1:]:
    read_trace(path)
print(json.dumps([time.perf_counter() - wall, time.process_time() - begin]))
"""


@dataclass(frozen=True)
class Cost:
    """Costs of one case; ``cpu_s`` is that of all processes, ``peak_mb`` that of the largest."""

    case: str
    wall_s: float
    cpu_s: float
    join_s: float | None = None
    peak_mb: float | None = None

    def row(self, read: "Cost") -> list[str]:
        """Return the row of the table; ``read`` is the case that the others are compared with."""
        required = ""
        if self.peak_mb is not None:
            marks = ("ok" if self.wall_s <= MAX_S else "MISSED",)
            marks += ("ok" if self.peak_mb <= MAX_MB else "MISSED",)
            required = f"<= {MAX_S:g} s: {marks[0]}, <= {MAX_MB:,.0f} MB: {marks[1]}"
        return [
            self.case,
            f"{self.wall_s:.1f}",
            f"{self.cpu_s:.1f}",
            f"{self.wall_s / read.wall_s:.2f}",
            f"{self.cpu_s / read.cpu_s:.2f}",
            "" if self.join_s is None else f"{self.join_s:.1f}",
            "" if self.peak_mb is None else f"{self.peak_mb:,.0f}",
            required,
        ]


def write_traces(folder: Path, ranks: int, megabytes: int) -> list[Path]:
    """Write the traces of all ranks; return their files."""
    job = Job(max(1, round(megabytes / MB_PER_STEP)), SIMULATED, scale="large")
    write_job(job, {rank: folder / f"simulated{rank}.json" for rank in range(SIMULATED)})
    with Pool(SLOTS) as pool:
        paths = pool.starmap(_written, [(folder, rank, ranks) for rank in range(ranks)])
    for path in folder.glob("simulated*.json"):
        path.unlink()
    return paths


def _written(folder: Path, rank: int, ranks: int) -> Path:
    """Write the trace of a rank: that of a simulated one with another rank and number of ranks."""
    own = rank % SIMULATED
    text = (folder / f"simulated{own}.json").read_bytes()
    few, many = list(range(SIMULATED)), list(range(ranks))
    for old, new in (
        (f'"rank":{own},"world_size":{SIMULATED}', f'"rank":{rank},"world_size":{ranks}'),
        (f'"pg_size":{SIMULATED}', f'"pg_size":{ranks}'),
        (json.dumps(few, separators=(",", ":")), json.dumps(many, separators=(",", ":"))),
        (f'"Group size":{SIMULATED}', f'"Group size":{ranks}'),
        (f'"{few}"', f'"{many}"'),
    ):
        text = text.replace(old.encode(), new.encode())
    path = folder / f"rank{rank}.json.gz"
    path.write_bytes(igzip.compress(text))
    return path


def read_one_by_one(traces: Sequence[Path]) -> Cost:
    """Measure reading of the traces in one process."""
    command = [sys.executable, "-c", READ, *map(str, traces)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=UNKEPT)
    return Cost("read one after the other", *json.loads(done.stdout))


class Peaks(Sampler):
    """Sample the peak memory of each process below this one."""

    peak_mb = 0.0

    def sample(self) -> None:
        self.peak_mb = max([self.peak_mb, *map(_peak_mb, below(os.getpid()))])


def _peak_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of all below it, also of those that have ended."""
    ticks = 0
    for each in (pid, *below(pid)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def _worker(*options: str, **settings: str) -> Iterator[int]:
    """Run a worker; yield its process id."""
    command = [sys.executable, "-m", "jarvis.server.jobs.worker", *options]
    process = subprocess.Popen(command, env=os.environ | settings)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def analyze(case: str, traces: Sequence[Path], folder: Path, *, on_dask: bool) -> Cost:
    """Measure the analyses of the traces and their join, from a home of their own."""
    shared = {
        "JARVIS_DATABASE_URL": f"sqlite:///{folder}/jarvis.db",
        "JARVIS_ARTIFACT_ROOT": str(folder / "root"),
        "JARVIS_TRACE_CACHE_MB": "0",
    }
    (folder / "root").mkdir(parents=True)
    os.environ |= {"JARVIS_HOME": str(folder / "server"), **shared}
    uploads = []
    for path in traces:
        with path.open("rb") as content:
            uploads.append(store_upload(path.name, content))
    engine = database()
    begin = time.perf_counter()
    job = submit_ranks(engine, OPERATOR, [Analyze(Submission(upload)) for upload in uploads])
    with ExitStack() as stack:
        pids, options, settings = [], ["--slots", str(SLOTS)], {}
        if on_dask:
            dask = Dask(folder, JARVIS_HOME=str(folder / "node"), **shared, **QUIET_DASK)
            stack.callback(dask.stop)
            dask.start()
            pids = [dask.start_worker().pid for _ in range(SLOTS)]
            options, settings = [], {"JARVIS_DASK_SCHEDULER": dask.address}
        peaks = stack.enter_context(Peaks())
        pids.append(stack.enter_context(_worker(*options, **settings)))
        while job.is_active and time.perf_counter() - begin < LIMIT_S:
            time.sleep(LOOK_S)
            job = queue.find(engine, job.id)
        wall_s = time.perf_counter() - begin
        cpu_s = sum(map(_cpu_s, pids))
    if job.state is not JobState.DONE:
        raise SystemExit(f"{case}: {job.state}, {job.error}")
    run = DistributedRun.load(read_catalog().find_distributed(str(job.analysis_id)).root)
    if len(run.manifest.usable) < len(traces):
        raise SystemExit(f"{case}: {len(run.manifest.usable)} of {len(traces)} ranks are joined")
    return Cost(case, wall_s, cpu_s, job.elapsed_s, peaks.peak_mb)


def main() -> None:
    """Print the figures, or write them to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        traces = write_traces(folder, arguments.ranks, arguments.megabytes)
        json_mb = len(gzip.decompress(traces[0].read_bytes())) / 1e6
        stored_mb = sum(path.stat().st_size for path in traces) / 1e6
        print(f"{len(traces)} traces, {json_mb:.0f} MB of JSON each, {stored_mb:.0f} MB stored")
        costs = []
        for cost in _costs(traces, folder):
            print(cost, flush=True)
            costs.append(cost)
    heads = ["case", "wall s", "CPU s", "x wall", "x CPU", "join s", "peak MB", "required"]
    text = table(heads, [cost.row(costs[0]) for cost in costs])
    sizes = f"{len(traces)} traces, {json_mb:.0f} MB of JSON each, {stored_mb:.0f} MB stored."
    if arguments.page is not None:
        write_part(arguments.page, "large_ranks", f"{text}\n\n{sizes} {machine()}")


def _costs(traces: Sequence[Path], folder: Path) -> Iterator[Cost]:
    yield read_one_by_one(traces)
    yield analyze(f"{SLOTS} job slots", traces, folder / "local", on_dask=False)
    yield analyze(f"Dask, {SLOTS} workers", traces, folder / "dask", on_dask=True)


if __name__ == "__main__":
    main()
