"""Measure time and memory of the join of many ranks.

python -m benchmarks.joins [--page FILE] [--ranks N] [--events N]

The runs of the ranks have generated tables: steps of 100 collectives, half of them among all ranks
and half among groups of eight, with compute kernels before and beside them. Each join runs in a
process of its own on one thread with the settings of jobs. Its memory is that above the imports,
without pages of mapped files, as the limit of jobs counts it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time

import numpy as np
import polars as pl

from benchmarks.page import table, write_part
from benchmarks.pipeline import machine
from benchmarks.team import Sampler, own_mb
from jarvis.core.workspace import RunPaths
from jarvis.ranks.join import join
from jarvis.ranks.members import Member
from jarvis.ranks.run import ParquetTables
from jarvis.run.store import write_parquet
from jarvis.schemas import columns
from jarvis.schemas.names import C
from jarvis.server.jobs.processes.start import SETTINGS
from tests.ranks.built import info

RANKS, EVENTS = (64, 256, 1024), 2_000
PER_STEP, GROUP = 100, 8
SLOT_NS, TRANSFER_NS, JITTER_NS = 1_000_000, 100_000, 200_000
MAX_MB, MAX_S = 300.0, 20.0
DEVICE = "NVIDIA H100 80GB HBM3"
ONE_THREAD = {"POLARS_MAX_THREADS": "1", **SETTINGS}


def write_ranks(folder: Path, ranks: int, events: int) -> None:
    """Write the tables of each rank."""
    random = np.random.default_rng(0)
    slots = np.arange(events) * SLOT_NS
    arrivals = slots + random.integers(0, JITTER_NS, (ranks, events))
    is_world = np.arange(events) % 2 == 0
    groups = np.arange(ranks) // GROUP
    of_groups = np.stack([arrivals[groups == group].max(0) for group in np.unique(groups)])
    last = np.where(is_world, arrivals.max(0), of_groups[groups])
    for rank in range(ranks):
        tables = _tables(rank, ranks, arrivals[rank], last[rank] + TRANSFER_NS)
        for name, rows in tables.items():
            write_parquet(rows, RunPaths(folder / str(rank)).table(name))


def _tables(rank: int, ranks: int, starts: np.ndarray, ends: np.ndarray) -> dict[str, pl.DataFrame]:
    events = starts.size
    number = np.arange(events)
    is_world = number % 2 == 0
    first = rank // GROUP * GROUP
    members = [list(range(ranks)), list(range(first, min(first + GROUP, ranks)))]
    listed = [json.dumps(each, separators=(",", ":")) for each in members]
    collectives = pl.DataFrame(
        {
            C.uid: number * 2 + 1,
            C.name: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
            C.kind: "all_reduce",
            C.library: "nccl",
            C.dtype: "BFloat16",
            C.stream: 20,
            C.group: np.where(is_world, "0", "1"),
            C.group_size: np.where(is_world, ranks, len(members[1])),
            C.pg_desc: np.where(is_world, "default_pg", "tp"),
            C.pg_ranks: np.where(is_world, *listed),
            C.in_bytes: 1 << 20,
            C.out_bytes: 1 << 20,
            C.ts_ns: starts,
            C.end_ns: ends,
            C.dur_us: (ends - starts) / 1e3,
            C.launch_start_ns: starts - 10_000,
            C.step: number // PER_STEP,
        }
    )
    begins = np.concatenate([[-SLOT_NS // 2], ends[:-1]])
    half = (begins + starts) // 2
    work = pl.DataFrame(
        {
            C.uid: np.arange(2 * events),
            C.kind: "compute",
            C.name: np.tile(["first", "second"], events),
            C.ts_ns: np.stack([begins, half], 1).ravel(),
            C.dur_ns: np.stack([half - begins - 5_000, starts - half], 1).ravel(),
            C.operation_uid: np.arange(2 * events) % 200,
        }
    )
    states = pl.DataFrame(
        {
            C.start_ns: np.stack([begins, half - 5_000, half, starts], 1).ravel(),
            C.dur_ns: np.stack(
                [half - begins - 5_000, np.full(events, 5_000), starts - half, ends - starts], 1
            ).ravel(),
            C.state: np.tile(["compute", "idle", "compute", "communication"], events),
            C.detail: np.tile(["GEMM", "host_call", "other", ""], events),
        }
    )
    gaps = states.filter(pl.col(C.state) == "idle").select(
        pl.col(C.detail).alias(C.cause), C.start_ns, C.dur_ns, pl.lit("call").alias(C.host_call)
    )
    steps = number[: (events + PER_STEP - 1) // PER_STEP]
    marked = pl.DataFrame(
        {
            C.step: steps,
            C.number: steps,
            C.source: "marked",
            C.start_ns: starts[::PER_STEP] - JITTER_NS,
            C.dur_ns: SLOT_NS * PER_STEP,
        }
    )
    operations = pl.DataFrame(
        {
            C.uid: np.arange(200),
            C.name: [f"op {at}" for at in range(200)],
            C.input_dims: "((1, 2), (2, 3))",
            C.input_types: "float",
            C.flops: 1e9,
            C.operation_count: 10,
        }
    )
    written = {
        "collectives": collectives,
        "gpu_work": work,
        "timeline_states": states,
        "idle_gaps": gaps,
        "steps": marked,
        "operations": operations,
        "gpu_timeline": pl.DataFrame(),
    }
    return {name: _whole(name, rows) for name, rows in written.items()}


def _whole(name: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with all columns of a table."""
    return rows.select(
        (
            pl.col(column.name) if column.name in rows.columns else pl.lit(None).alias(column.name)
        ).cast(column.dtype)
        for column in columns(name)
    )


class Peak(Sampler):
    """Sample the memory of another process."""

    interval_s = 0.005
    mb = 0.0

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._pid = pid

    def sample(self) -> None:
        self.mb = max(self.mb, own_mb(self._pid))


def joined_apart(folder: Path) -> dict[str, float]:
    """Join the ranks of a folder in a process of its own; return what ``measure`` does, and the
    ``mb`` of its memory above the imports."""
    with (
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.joins", "--join", str(folder)],
            env=os.environ | ONE_THREAD,
            stdout=subprocess.PIPE,
        ) as process,
        Peak(process.pid) as peak,
    ):
        printed, _ = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    found: dict[str, float] = json.loads(printed)
    return found | {"mb": peak.mb - found.pop("before_mb")}


def measure(folder: Path, output: Path) -> dict[str, float]:
    """Join the ranks of a folder in this process; return its time, and the memory before."""
    names = tuple(
        path.stem for path in RunPaths(folder / "0").table("collectives").parent.iterdir()
    )
    members = [
        Member(
            rank, f"rank{rank}.json", info(rank, DEVICE), ParquetTables(folder / str(rank), names)
        )
        for rank in range(len(list(folder.iterdir())))
    ]
    before, begin = own_mb(os.getpid()), process_time()
    joined = join(members, len(members))
    for name in joined.tables:
        joined.tables.write(name, output / f"{name}.parquet")
    return {
        "ranks": len(members),
        "events": joined.tables.height("instance_ranks"),
        "instances": joined.tables.height("instances"),
        "s": process_time() - begin,
        "before_mb": before,
    }


def _rows(sizes: Sequence[int], events: int) -> Iterator[list[str]]:
    for ranks in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_ranks(folder / "ranks", ranks, events)
            found = joined_apart(folder)
        print(found, flush=True)
        is_met = found["mb"] <= MAX_MB and found["s"] <= MAX_S
        required = "ok" if is_met else "MISSED"
        yield [
            *(f"{found[key]:,}" for key in ("ranks", "events", "instances")),
            f"{found['s']:.1f}",
            f"{found['mb']:,.0f}",
            f"<= {MAX_S:g} s, <= {MAX_MB:g} MB: {required}" if ranks == max(RANKS) else "",
        ]


def main() -> None:
    """Print the figures, or write them to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--ranks", type=int, nargs="*", default=RANKS)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--join", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.join is not None:
        output = arguments.join / "joined"
        print(json.dumps(measure(arguments.join / "ranks", output)))
        return
    heads = ["ranks", "kernels", "collectives", "s", "MB above imports", "required"]
    text = table(heads, list(_rows(arguments.ranks, arguments.events)))
    if arguments.page is not None:
        write_part(arguments.page, "joins", f"{text}\n\n{machine()}")


if __name__ == "__main__":
    main()
