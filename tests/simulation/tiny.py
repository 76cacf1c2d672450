"""Traces of a few events with exact times in µs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from jarvis.changes import Change, MergeLaunches, RemoveWait, ScaleGpu, ScaleHost, Span, Work
from jarvis.schemas.names import C
from jarvis.simulation.path import replayed
from jarvis.simulation.quality import Quality, quality
from jarvis.simulation.simulation import Simulation
from jarvis.simulation.stored import simulation_tables, stored_graph
from jarvis.trace import Trace, read_trace

US = 1_000
PID = 100
LAUNCH_US = 5.0

Call = tuple[str, float] | tuple[str, float, float] | tuple[str, float, float, int]
Kernel = (
    tuple[str, float, float] | tuple[str, float, float, int] | tuple[str, float, float, int, int]
)
Op = tuple[str, float, float] | tuple[str, float, float, int]

NAMES = {
    "L": "cudaLaunchKernel",
    "G": "cudaGraphLaunch",
    "Inner": "cuLaunchKernel",
    "DeviceSync": "cudaDeviceSynchronize",
    "StreamSync": "cudaStreamSynchronize",
    "Memcpy": "cudaMemcpyAsync",
    "BlockingCopy": "hipMemcpyWithStream",
    "AsyncCopy": "hipMemcpyAsync",
    "Record": "cudaEventRecord",
    "Wait": "cudaStreamWaitEvent",
    "Query": "cudaEventQuery",
    "Free": "cudaFree",
    "Load": "cuModuleLoadData",
}
"""Names of host calls, with those that launch work first."""


class Tiny:
    """Collects events: calls, and the GPU work that calls launch in the order of both.

    ``launched_by`` of a kernel: position of its call among those that launch; by default its own
    position. None: no call.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.launches: list[int] = []
        self.uids: dict[str, int] = {}
        self._correlation = 0

    def call(self, name: str, at: float, us: float = LAUNCH_US, tid: int = 1) -> "Tiny":
        """Add a host call; ``L``, ``G``, ``Inner`` and ``Memcpy`` launch work."""
        self._correlation += 1
        if name in ("L", "G", "Memcpy"):
            self.launches.append(self._correlation)
        cat = "cuda_driver" if name == "Inner" else "cuda_runtime"
        self.uids[f"{name}@{at:g}"] = len(self.events)
        return self._add(cat, NAMES[name], tid, at, us, {"correlation": self._correlation})

    def kernel(
        self,
        name: str,
        at: float,
        us: float,
        stream: int = 7,
        device: int = 0,
        by: int | None = -1,
    ) -> "Tiny":
        """Add GPU work of the call number ``by`` among those that launch; -1: the next one."""
        number = sum(e["cat"] in ("kernel", "gpu_memcpy") for e in self.events) if by == -1 else by
        args: dict[str, Any] = {"device": device, "stream": stream}
        if number is not None:
            args["correlation"] = self.launches[number]
        self.uids[name] = len(self.events)
        cat = "gpu_memcpy" if name == "copy" else "kernel"
        return self._add(cat, name, stream, at, us, args, pid=device)

    def op(self, name: str, start: float, end: float, tid: int = 1) -> "Tiny":
        """Add an operator."""
        return self._add("cpu_op", name, tid, start, end - start, {})

    def annotation(self, name: str, start: float, end: float, tid: int = 1) -> "Tiny":
        """Add an annotation."""
        return self._add("user_annotation", name, tid, start, end - start, {})

    def sync(self, **args: int) -> "Tiny":
        """Add a synchronization event of CUPTI."""
        return self._add("cuda_sync", "Stream Wait Event", 7, 0, 0, args)

    def read(self, folder: Path) -> Trace:
        """Return the trace as Jarvis reads it."""
        path = folder / "trace.json"
        path.write_text(json.dumps({"traceEvents": self.events}), encoding="utf-8")
        return read_trace(path)

    def simulation(self, folder: Path) -> Simulation:
        """Return the simulation; every launched kernel is an operation of its own."""
        trace = self.read(folder)
        tables, info = simulation_tables(trace)
        steps = {"steps": pl.DataFrame(schema={C.source: pl.String})}
        launched = trace.launches.select(
            pl.col(C.gpu_uid).alias(C.uid), pl.col(C.runtime_uid).alias(C.launch_uid)
        )
        work = trace.gpu_events.select(
            C.uid,
            C.name,
            C.ts_ns,
            C.dur_ns,
            C.device,
            C.stream,
            pl.col(C.uid).alias(C.operation_uid),
            pl.lit("compute").alias(C.kind),
        ).join(launched, on=C.uid, how="left")
        rows = work.drop_nulls(C.launch_uid).select(
            C.uid,
            pl.col(C.name).alias(C.category),
            kernel_time_us=pl.col(C.dur_ns) / 1e3,
            kernel_count=pl.lit(1, pl.Int64),
            pct_roofline=pl.lit(50.0),
            bound=pl.lit("COMPUTE_BOUND"),
        )
        every = {"gpu_work": work, "operations": rows, **tables, **steps}
        return Simulation(stored_graph(tables, info), every, info.quality.stalls)

    def _add(
        self,
        cat: str,
        name: str,
        tid: int,
        at: float,
        us: float,
        args: dict[str, Any],
        pid: int = PID,
    ) -> "Tiny":
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
        self.events.append({**event, "ts": at, "dur": us, "args": args})
        return self


def launches(*starts: float, tid: int = 1) -> Tiny:
    """Return a trace with launch calls."""
    tiny = Tiny()
    for start in starts:
        tiny.call("L", start, tid=tid)
    return tiny


def kernels(tiny: Tiny, starts: Sequence[float], us: float) -> Tiny:
    """Add kernels named k0, k1, ..., each of its own call."""
    for number, start in enumerate(starts):
        tiny.kernel(f"k{number}", start, us)
    return tiny


class Replays:
    """A simulation of a tiny trace, with changes named as in the trace."""

    def __init__(self, tiny: Tiny, folder: Path) -> None:
        self.tiny = tiny
        self.simulation = tiny.simulation(folder)
        graph = self.simulation.graph
        assert (replayed(graph, graph.weight)[0] == graph.time).all()

    @property
    def step_us(self) -> float:
        """The recorded window."""
        return self.simulation.recorded.window_ns / US

    @property
    def quality(self) -> Quality:
        """How far the simulation can be trusted."""
        return quality(self.simulation.graph)

    def gain_us(self, *changes: Change) -> float:
        """What the window gains."""
        return self.simulation.saved_ns(changes) / US

    def scaled(self, factor: float, *names: str) -> ScaleGpu:
        """Scale the named kernels, or all GPU work."""
        gpu = [n for n, uid in self.tiny.uids.items() if self.tiny.events[uid]["pid"] != 100]
        uids = tuple(self.tiny.uids[name] for name in names or gpu)
        return ScaleGpu(work=Work(uids=uids), factor=factor)

    def merged(self, first: str, last: str) -> MergeLaunches:
        """Merge the launches from one call to another."""
        return MergeLaunches(first=self.tiny.uids[first], last=self.tiny.uids[last])

    def without_wait(self, name: str) -> RemoveWait:
        """Remove the wait of a call."""
        return RemoveWait(calls=(self.tiny.uids[name],))


def host(*spans: tuple[float, float], thread: int = 0, factor: float = 0.0) -> ScaleHost:
    """Scale host time between two times in µs."""
    return ScaleHost(
        spans=tuple(
            Span(thread=thread, start_ns=int(a * US), end_ns=int(b * US)) for a, b in spans
        ),
        factor=factor,
    )


Replay = Callable[[Tiny], Replays]
