"""Write the traces of all ranks of a simulated job in one pass, and what is true of it."""

import gzip
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import orjson

from jarvis.core.errors import JarvisError
from jarvis.hardware import load_hardware
from jarvis.sample.faults import NO_FAULTS, Faults
from jarvis.sample.model import SCALES
from jarvis.sample.network import Instance
from jarvis.sample.parallel import Parallel, Stage
from jarvis.sample.recorder import COMPUTE_STREAM, START_NS, Event
from jarvis.sample.training import Process, simulate_steps

_GPU = "MI300X"
_BASE_NANOSECONDS = 1_767_225_600_000_000_000
_OWN_BASE_NS = 1_000_000_007
"""Distance between the bases of two ranks that have their own."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job of ``world_size`` data-parallel processes over ``steps`` steps, or of processes that
    are divided otherwise (``parallel``).

    Raises:
        JarvisError: Unknown scale, a fault of a rank or a step that does not exist, or another
            number of processes than ``parallel`` has.
    """

    steps: int
    world_size: int
    seed: int = 0
    scale: str = "small"
    faults: Faults = NO_FAULTS
    parallel: Parallel | None = None

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise JarvisError(
                f"No sample of scale {self.scale!r}; choose one of {', '.join(SCALES)}."
            )
        for rank in sorted(self.faults.ranks()):
            self.check(rank)
        if self.parallel is not None and self.parallel.world_size != self.world_size:
            raise JarvisError(
                f"The division has {self.parallel.world_size} ranks, the job {self.world_size}."
            )
        if late := [each.step for each in self.faults.late if each.step >= self.steps]:
            raise JarvisError(f"Step {late[0]} is not one of {self.steps} steps; count from 0.")

    def check(self, rank: int) -> None:
        """Raise an error if there is no such rank."""
        if not 0 <= rank < self.world_size:
            raise JarvisError(f"Rank {rank} is not one of {self.world_size} ranks; count from 0.")

    def processes(self, faults: Faults) -> list[Process]:
        """Return a process for each rank."""
        return [self._process(rank, faults) for rank in range(self.world_size)]

    def _process(self, rank: int, faults: Faults) -> Process:
        spec = load_hardware().get(faults.gpus.get(rank, _GPU))
        if self.parallel is not None:
            return Stage(spec, rank, self.parallel, self.seed, self.scale, faults)
        return Process(spec, rank, self.world_size, self.seed, self.scale, faults)

    @property
    def simulated_steps(self) -> int:
        """Steps that run, of which each trace has ``steps`` consecutive ones."""
        return self.steps + max(self.faults.steps_shift.values(), default=0)

    def run(self, processes: list[Process], faults: Faults) -> Iterator[list[Instance]]:
        """Run the processes, and yield the collectives of each step."""
        return simulate_steps(processes, self.simulated_steps, faults.slow_links)

    def makespan_ms(self, faults: Faults) -> float:
        """Return the time of the whole job."""
        processes = self.processes(faults)
        for _ in self.run(processes, faults):
            for process in processes:
                process.session.take_events()
        return (max(process.session.now_ns for process in processes) - START_NS) / 1e6


def rank_events(job: Job, rank: int) -> Iterator[list[Event]]:
    """Yield the events of the trace of one rank, step by step."""
    processes = job.processes(job.faults)
    recorder = _RankTrace(job, processes[rank], rank)
    for step, _ in enumerate(job.run(processes, job.faults)):
        taken = [process.session.take_events() for process in processes]
        yield recorder.recorded(step, taken[rank])
    yield recorder.labels()


def rank_header(job: Job, rank: int) -> dict[str, Any]:
    """Return the header of the trace of one rank."""
    return _header(job, job.processes(job.faults)[rank])


def write_job(job: Job, paths: Mapping[int, Path]) -> dict[str, Any]:
    """Write the traces of ranks as ``.json`` or ``.json.gz`` in one pass over the steps.

    Ranks that the faults leave out are not written, and a duplicate is ``copy_`` of the file.

    Returns:
        What is true of the job: its faults; by collective the arrival, wait and transfer of each
        rank in µs on one clock; its time, also without each fault that changes it.
    """
    faults = job.faults
    processes = job.processes(faults)
    instances: list[dict[str, Any]] = []
    written = {rank: path for rank, path in paths.items() if rank not in faults.skipped}
    with ExitStack() as opened:
        files = {rank: opened.enter_context(_opened(path)) for rank, path in written.items()}
        traces = {rank: _RankTrace(job, processes[rank], rank) for rank in written}
        writers = {
            rank: _Writer(file, _header(job, processes[rank])) for rank, file in files.items()
        }
        for step, found in enumerate(job.run(processes, faults)):
            for rank, process in enumerate(processes):
                events = process.session.take_events()
                if rank in writers:
                    writers[rank].add(traces[rank].recorded(step, events))
            instances += [_truth(step, index, each) for index, each in enumerate(found)]
        for rank, writer in writers.items():
            writer.add(traces[rank].labels())
            writer.end()
    for rank, path in written.items():
        _spoil(path, is_truncated=rank in faults.truncated, is_copied=rank in faults.duplicated)
    makespan_ms = (max(process.session.now_ns for process in processes) - START_NS) / 1e6
    return {
        "world_size": job.world_size,
        "steps": job.steps,
        "seed": job.seed,
        "scale": job.scale,
        "parallel": None if job.parallel is None else asdict(job.parallel),
        "faults": faults.described(),
        "files": {str(rank): path.name for rank, path in written.items()},
        "dropped": {
            str(rank): sorted(trace.dropped) for rank, trace in traces.items() if trace.dropped
        },
        "instances": instances,
        "makespan_ms": makespan_ms,
        "makespan_ms_without": {
            name: job.makespan_ms(rest) for name, rest in faults.each_removed().items()
        },
    }


def _truth(step: int, index: int, instance: Instance) -> dict[str, Any]:
    last_ns = max(instance.arrivals_ns)
    return {
        "step": step,
        "index": index,
        "role": instance.call.role,
        "kind": instance.call.kind,
        "ranks": list(instance.call.ranks),
        "bytes": instance.nbytes,
        "arrivals_us": [arrival / 1e3 for arrival in instance.arrivals_ns],
        "end_us": instance.end_ns / 1e3,
        "waits_us": [(last_ns - arrival) / 1e3 for arrival in instance.arrivals_ns],
        "transfer_us": (instance.end_ns - last_ns) / 1e3,
    }


@dataclass(slots=True)
class _RankTrace:
    """What the trace of a rank has of its events: the faults of its clock and of its recording."""

    job: Job
    process: Process
    rank: int
    dropped: set[int] = field(default_factory=set)
    _collectives: int = 0

    def recorded(self, step: int, events: list[Event]) -> list[Event]:
        """Return the recorded events of a step, on the clock of the rank."""
        faults, job = self.job.faults, self.job
        first = faults.steps_shift.get(self.rank, 0)
        is_end = step == job.simulated_steps
        if not (first <= step < first + job.steps or (is_end and first + job.steps == step)):
            return []
        if faults.dropped.get(self.rank):
            events = self._without_dropped(events)
        offset_ns = round(1e3 * faults.clock_offset_us.get(self.rank, 0.0))
        drift = faults.clock_drift_ppm.get(self.rank, 0.0) / 1e6
        if faults.has_own_base:
            offset_ns -= self.rank * _OWN_BASE_NS
        if offset_ns or drift:
            for event in events:
                start_ns = round(1e3 * event["ts"])
                event["ts"] = (start_ns + offset_ns + round(drift * (start_ns - START_NS))) / 1e3
                if "dur" in event:
                    event["dur"] = round(event["dur"] * (1 + drift), 3)
        return events

    def labels(self) -> list[Event]:
        """Return the names of processes, threads and streams."""
        session = self.process.session
        threads = session.main_thread, session.autograd_thread
        return _labels(session.pid, threads, self.rank, session.streams)

    def _without_dropped(self, events: list[Event]) -> list[Event]:
        """Return events without some collectives, chosen when the first step is known."""
        kernels = [
            event["args"]["correlation"]
            for event in events
            if event.get("cat") == "kernel" and event["tid"] != COMPUTE_STREAM
        ]
        if not self.dropped:
            count = len(kernels) * self.job.steps
            draw = random.Random(f"{self.job.seed} dropped {self.rank}")
            least = min(self.job.faults.dropped[self.rank], count)
            self.dropped = set(draw.sample(range(count), least))
        gone = {
            number for at, number in enumerate(kernels, self._collectives) if at in self.dropped
        }
        self._collectives += len(kernels)
        return [
            event
            for event in events
            if not (
                event.get("args", {}).get("correlation") in gone
                or (event.get("cat") == "ac2g" and event["id"] in gone)
            )
        ]


@dataclass(slots=True)
class _Writer:
    """Writes a trace piece by piece."""

    file: IO[bytes]
    header: dict[str, Any]
    _separator: bytes = b"\n"

    def __post_init__(self) -> None:
        self.file.write(orjson.dumps(self.header)[:-1] + b',"traceEvents":[')

    def add(self, events: Sequence[Event]) -> None:
        """Write events."""
        if events:
            self.file.write(self._separator + b",\n".join(map(orjson.dumps, events)))
            self._separator = b",\n"

    def end(self) -> None:
        """Close the list of events."""
        self.file.write(b"\n]}\n")


def _opened(path: Path) -> AbstractContextManager[IO[bytes]]:
    """Return a context with a file to write to; it is packed if its name ends with ``.gz``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".gz":
        return path.open("wb")
    return _packed(path)


@contextmanager
def _packed(path: Path) -> Iterator[IO[bytes]]:
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, compresslevel=6, mtime=0) as packed,
    ):
        yield cast(IO[bytes], packed)


def _spoil(path: Path, *, is_truncated: bool, is_copied: bool) -> None:
    content = path.read_bytes() if is_truncated or is_copied else b""
    if is_copied:
        path.with_name(f"copy_{path.name}").write_bytes(content)
    if is_truncated:
        path.write_bytes(content[: len(content) // 2])


def _header(job: Job, process: Process) -> dict[str, Any]:
    spec, rank = process.spec, process.rank
    base_ns = _BASE_NANOSECONDS + rank * _OWN_BASE_NS * job.faults.has_own_base
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
        "metadata": {"jarvis_sample": "simulated", "seed": job.seed, "scale": job.scale},
        "deviceProperties": [{"id": number, **device} for number in range(job.world_size)],
        "record_shapes": 1,
        "with_stack": 1,
        "displayTimeUnit": "ms",
        "traceName": f"simulated_rank{rank}.json",
        "baseTimeNanoseconds": base_ns,
    }
    if process.groups and job.faults.has_metadata:
        header["distributedInfo"] = {
            "backend": "nccl",
            "rank": rank,
            "world_size": job.world_size,
            "pg_count": len(process.groups),
            "pg_config": [group.config() for group in process.groups],
        }
    return header


def _labels(pid: int, threads: tuple[int, int], device: int, streams: Sequence[int]) -> list[Event]:
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
    for stream in streams:
        labels.append(label("thread_name", device, stream, "name", f"stream {stream} "))
    return labels
