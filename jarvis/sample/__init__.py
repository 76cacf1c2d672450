"""A simulated training step as a Kineto trace, for demos, tests and benchmarks.

Host times are random, kernel times are roofline times of an MI300X divided by random efficiencies.
The trace is marked as simulated: ``metadata.jarvis_sample`` is ``"simulated"``. Equal arguments
give equal bytes.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import orjson

from jarvis.core.errors import JarvisError
from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.sample.model import SCALES
from jarvis.sample.recorder import COLLECTIVE_STREAM, COMPUTE_STREAM, Event
from jarvis.sample.training import Process, simulate_events

__all__ = ["SCALES", "simulate", "write_sample"]

_GPU = "MI300X"
_BASE_NANOSECONDS = 1_767_225_600_000_000_000


def simulate(
    steps: int = 2, rank: int = 0, world_size: int = 8, seed: int = 0, scale: str = "small"
) -> dict[str, Any]:
    """Return the trace of ``rank`` of ``world_size`` data-parallel processes over ``steps`` steps.

    A single process exchanges no gradients: its trace has no collectives. The traces of all ranks
    with one seed match: their collectives end at the same time.

    Args:
        scale: A key of ``SCALES``.

    Raises:
        JarvisError: Unknown scale, or a rank out of range.
    """
    chunks = _Simulation(steps, rank, world_size, seed, scale)
    return chunks.header | {"traceEvents": [event for chunk in chunks for event in chunk]}


def write_sample(
    path: Path,
    steps: int = 2,
    rank: int = 0,
    world_size: int = 8,
    seed: int = 0,
    scale: str = "small",
) -> Path:
    """Write the trace of ``simulate`` as ``.json`` or ``.json.gz``, step by step; return ``path``.

    Only one step is in memory at a time, so that traces of millions of events can be written.
    """
    chunks = _Simulation(steps, rank, world_size, seed, scale)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", fileobj=file, compresslevel=6, mtime=0) as packed:
                _write(cast(IO[bytes], packed), chunks)
        else:
            _write(file, chunks)
    return path


class _Simulation:
    """The header of a trace, and its events in consecutive lists."""

    def __init__(self, steps: int, rank: int, world_size: int, seed: int, scale: str) -> None:
        if not 0 <= rank < world_size:
            raise JarvisError(f"Rank {rank} is not one of {world_size} ranks; count from 0.")
        if scale not in SCALES:
            raise JarvisError(f"No sample of scale {scale!r}; choose one of {', '.join(SCALES)}.")
        spec = load_hardware().get(_GPU)
        self._processes = [Process(spec, r, world_size, seed, scale) for r in range(world_size)]
        self._rank, self._steps = rank, steps
        self.header = _header(spec, rank, world_size, {"seed": seed, "scale": scale})

    def __iter__(self) -> Iterator[list[Event]]:
        for events in simulate_events(self._processes, self._steps):
            yield events[self._rank]
        session = self._processes[self._rank].session
        yield _labels(session.pid, (session.main_thread, session.autograd_thread), self._rank)


def _write(file: IO[bytes], chunks: _Simulation) -> None:
    file.write(orjson.dumps(chunks.header)[:-1] + b',"traceEvents":[')
    separator = b"\n"
    for chunk in chunks:
        if chunk:
            file.write(separator + b",\n".join(map(orjson.dumps, chunk)))
            separator = b",\n"
    file.write(b"\n]}\n")


def _header(
    spec: HardwareSpec, rank: int, world_size: int, options: dict[str, Any]
) -> dict[str, Any]:
    device = {
        "name": spec.aliases[0],
        "totalGlobalMem": int(spec.memory_gb * 2**30),
        "computeMajor": 9,
        "computeMinor": 4,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65536,
        "warpSize": 64,
        "sharedMemPerBlock": 65536,
        "numSms": 304,
    }
    header: dict[str, Any] = {
        "schemaVersion": 1,
        "metadata": {"jarvis_sample": "simulated", **options},
        "deviceProperties": [{"id": number, **device} for number in range(world_size)],
        "record_shapes": 1,
        "with_stack": 1,
        "displayTimeUnit": "ms",
        "traceName": f"simulated_rank{rank}.json",
        "baseTimeNanoseconds": _BASE_NANOSECONDS,
    }
    if world_size > 1:
        group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl"}
        header["distributedInfo"] = {
            "backend": "nccl",
            "rank": rank,
            "world_size": world_size,
            "pg_count": 1,
            "pg_config": [group | {"pg_size": world_size, "ranks": list(range(world_size))}],
        }
    return header


def _labels(pid: int, threads: tuple[int, int], device: int) -> list[Event]:
    """Return metadata events: the names of the processes, threads and streams."""

    def label(kind: str, pid: int, tid: int, key: str, value: str | int) -> Event:
        event: Event = {"name": kind, "ph": "M", "ts": 0.0, "pid": pid, "tid": tid}
        return event | {"args": {key: value}}

    labels = []
    for process, title, order in ((pid, "CPU", pid), (device, f"GPU {device}", 5_000_000 + device)):
        labels += [
            label("process_name", process, 0, "name", "python3"),
            label("process_labels", process, 0, "labels", title),
            label("process_sort_index", process, 0, "sort_index", order),
        ]
    for thread in threads:
        labels.append(label("thread_name", pid, thread, "name", f"thread {thread} (python3)"))
    for stream in (COMPUTE_STREAM, COLLECTIVE_STREAM):
        labels.append(label("thread_name", device, stream, "name", f"stream {stream} "))
    return labels
