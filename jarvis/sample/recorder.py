"""The clock of one simulated process, and the events that a profiler would record of it.

Host time advances with every event; one thread runs at a time (while autograd works, the main
thread waits). GPU streams have their own clocks: a kernel starts when it has been launched and its
stream is free. All times are integer nanoseconds and become microseconds in the events.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jarvis.sample.gpu import Gpu, Work
from jarvis.sample.tensors import recorded

Event = dict[str, Any]

COMPUTE_STREAM = 0
START_NS = 1_000_000_000_000
_LAUNCH_LATENCY_NS = 3_500


@dataclass(frozen=True, slots=True)
class Call:
    """What a collective is on all its ranks; ``role`` is what its process group is for."""

    role: str
    kind: str
    ranks: tuple[int, ...]


@dataclass(slots=True)
class Collective:
    """A collective kernel that waits for the other ranks, and for the one before it on its stream;
    ``finish`` sets its times. ``sizes`` are the bytes that the rank sends and receives."""

    call: Call
    events: tuple[Event, Event]
    arrow: Event
    ready_ns: int
    sizes: tuple[int, int]
    previous: "Collective | None"
    end_ns: int | None = None

    @property
    def arrival_ns(self) -> int | None:
        """When the kernel starts; None before the end of the one before it is known."""
        if self.previous is None:
            return self.ready_ns
        before_ns = self.previous.end_ns
        return None if before_ns is None else max(self.ready_ns, before_ns + 1)

    def finish(self, end_ns: int) -> None:
        """Set the times of the kernel."""
        start_ns = self.arrival_ns
        assert start_ns is not None
        self.end_ns, self.previous = end_ns, None
        self.ready_ns = start_ns
        for event in self.events:
            _set_times(event, start_ns, end_ns)
        self.arrow["ts"] = self.events[0]["ts"]


@dataclass(slots=True)
class _Span:
    """From the first to the last kernel launched under a user annotation."""

    first_ns: int | None = None
    last_ns: int = 0


@dataclass(slots=True)
class _Events:
    """Events by kind, in the order of the file."""

    cpu: list[Event] = field(default_factory=list)
    python: list[Event] = field(default_factory=list)
    runtime: list[Event] = field(default_factory=list)
    gpu: list[Event] = field(default_factory=list)


class Recorder:
    """Records the events of one process with one GPU (device number = rank).

    With ``is_even`` all ranks take the same pauses on the host.
    """

    def __init__(self, gpu: Gpu, rank: int, seed: int, *, is_even: bool = False) -> None:
        self.gpu = gpu
        self.device = rank
        self.pid = 4_000 + rank
        self.main_thread, self.autograd_thread = self.pid, self.pid + 100
        self.now_ns = START_NS
        self.collectives: list[Collective] = []
        self._last_on: dict[int, Collective] = {}
        self._rng = random.Random(f"{seed} rank {rank}")
        self._host_rng = random.Random(f"{seed} host") if is_even else self._rng
        self._tid = self.main_thread
        self._free_ns = {COMPUTE_STREAM: 0}
        self._events = _Events()
        self._ops: list[Event] = []
        self._frames: list[int | None] = [None]
        self._spans: list[_Span] = []
        self._next = {"External id": 0, "Ev Idx": 0, "correlation": 0, "Python id": 0}

    # ------------------------------------------------------------------------------- host

    def pause(self, low_us: float, high_us: float) -> None:
        """Let the host work or wait without an event."""
        self.now_ns += int(1_000 * (low_us + (high_us - low_us) * self._host_rng.random()))

    def lose(self, ms: float) -> None:
        """Let the host lose a given time without an event."""
        self.now_ns += round(1e6 * ms)

    @contextmanager
    def op(self, name: str, *inputs: Any, **more: Any) -> Iterator[Event]:
        """Record an operator with its arguments around the nested calls; ``more`` adds args."""
        args = {"External id": self._count("External id"), "Record function id": 0}
        args |= {key.replace("_", " "): value for key, value in more.items()}
        if inputs:
            args |= recorded(*inputs)
        with self._host_event("cpu_op", name, args, self._events.cpu) as event:
            self._ops.append(event)
            yield event
            self._ops.pop()

    @contextmanager
    def frame(self, name: str, **more: Any) -> Iterator[None]:
        """Record a Python function call, such as ``"train.py(7): main"``."""
        number = self._count("Python id")
        args = {"Python parent id": self._frames[-1], "Python id": number, **more}
        with self._host_event("python_function", name, args, self._events.python):
            self._frames.append(number)
            yield
            self._frames.pop()

    @contextmanager
    def annotation(self, name: str) -> Iterator[None]:
        """Record a user annotation, and its GPU counterpart if it launched anything."""
        args = {"External id": self._count("External id"), "Record function id": 0}
        span = _Span()
        with self._host_event("user_annotation", name, args, self._events.cpu):
            self._spans.append(span)
            yield
            self._spans.pop()
        if span.first_ns is not None:
            shadow = self._gpu_event("gpu_user_annotation", name, COMPUTE_STREAM)
            shadow["args"] = {"External id": args["External id"]}
            _set_times(shadow, span.first_ns, span.last_ns)

    @contextmanager
    def on_autograd_thread(self) -> Iterator[None]:
        """Run on the autograd thread while the main thread waits."""
        frames, self._frames = self._frames, [None]
        self._tid = self.autograd_thread
        self.pause(15, 40)
        yield
        self.pause(5, 15)
        self._tid, self._frames = self.main_thread, frames

    def flow(self, phase: str, flow_id: int, event: Event) -> None:
        """Record one end (``"s"`` or ``"f"``) of the arrow from a forward op to its backward."""
        arrow = {"ph": phase, "id": flow_id, "pid": self.pid, "tid": self._tid, "ts": event["ts"]}
        arrow |= {"cat": "fwdbwd", "name": "fwdbwd"}
        self._events.cpu.append(arrow | {"bp": "e"} if phase == "f" else arrow)

    # -------------------------------------------------------------------------------- GPU

    def launch(self, kernel: str, work: Work, grid: int, block: int = 256) -> None:
        """Launch a kernel on the compute stream."""
        size = {"grid": [max(grid, 1), 1, 1], "block": [block, 1, 1]}
        vendor_library = "at::" not in kernel
        call = "hipExtModuleLaunchKernel" if vendor_library else "hipLaunchKernel"
        correlation = self._runtime(call, {"kernel": kernel, **size, "shared memory": 0})
        event = self._gpu_event("kernel", kernel, COMPUTE_STREAM, correlation)
        event["args"] |= {"kind": "Dispatch Kernel", **size}
        self._run(event, self.gpu.kernel_ns(work, self._rng))

    def copy(self, kind: str, nbytes: int, *, wait: bool = False) -> None:
        """Copy between host and device (kind ``"HtoD"`` or ``"DtoH"``), waiting for it or not."""
        sides = {"H": "Host", "D": "Device"}
        name = f"Memcpy {kind} ({sides[kind[0]]} -> {sides[kind[-1]]})"
        call = "hipMemcpyWithStream" if wait else "hipMemcpyAsync"
        arguments = {"bytes": str(nbytes), "kind": "1" if kind == "HtoD" else "2"}
        with self._runtime_call(call, arguments) as correlation:
            event = self._gpu_event("gpu_memcpy", name, COMPUTE_STREAM, correlation)
            duration_ns = self.gpu.copy_ns(nbytes, self._rng)
            event["args"] |= {"kind": kind, "bytes": nbytes}
            event["args"]["memory bandwidth (GB/s)"] = nbytes / duration_ns
            self._run(event, duration_ns)
            if wait:
                self.now_ns = max(self.now_ns, self._free_ns[COMPUTE_STREAM]) + 4_000

    def fill(self, nbytes: int) -> None:
        """Set memory on the device to zero."""
        correlation = self._runtime("hipMemsetAsync", {})
        event = self._gpu_event("gpu_memset", "Memset (Device)", COMPUTE_STREAM, correlation)
        event["args"] |= {"kind": "Device", "bytes": nbytes}
        self._run(event, self.gpu.kernel_ns(Work("copy", 0, nbytes), self._rng))

    def launch_collective(
        self, call: Call, names: tuple[str, str], stream: int, args: Event, sizes: tuple[int, int]
    ) -> Collective:
        """Launch a collective on its own stream, after the compute launched so far, and add it to
        ``collectives``; ``names`` are those of its kernel and of its annotation."""
        kernel, annotation = names
        self._runtime("hipStreamWaitEvent", {}, on_gpu=False)
        size = {"grid": [56, 1, 1], "block": [256, 1, 1]}
        correlation = self._runtime("hipExtLaunchKernel", {"kernel": kernel, **size})
        event = self._gpu_event("kernel", kernel, stream, correlation)
        event["args"] |= {"kind": "Dispatch Kernel", **size, **args}
        shadow = self._gpu_event("gpu_user_annotation", annotation, stream)
        shadow["args"] = {"External id": event["args"].get("External id", 0)}
        ready_ns = max(self.now_ns + _LAUNCH_LATENCY_NS, self._free_ns[COMPUTE_STREAM])
        launched = Collective(
            call,
            (event, shadow),
            self._arrow_to(event),
            ready_ns,
            sizes,
            self._last_on.get(stream),
        )
        self._last_on[stream] = launched
        self.collectives.append(launched)
        return launched

    def wait_for(self, collectives: list[Collective]) -> None:
        """Let the compute stream wait for the last of collectives whose times are known."""
        if collectives:
            self._runtime("hipStreamWaitEvent", {}, on_gpu=False)
            ends_ns = [each.end_ns for each in collectives if each.end_ns is not None]
            self._free_ns[COMPUTE_STREAM] = max(self._free_ns[COMPUTE_STREAM], *ends_ns)

    def synchronize(self) -> None:
        """Let the host wait for the GPU."""
        ends_ns = [last.end_ns or 0 for last in self._last_on.values()]
        with self._runtime_call("hipDeviceSynchronize", {}, on_gpu=False):
            self.now_ns = max(self.now_ns, *self._free_ns.values(), *ends_ns) + 2_000

    @property
    def streams(self) -> list[int]:
        """The streams that were used."""
        return [COMPUTE_STREAM, *sorted(self._last_on)]

    # ------------------------------------------------------------------------------ events

    def take_events(self) -> list[Event]:
        """Return the events that have ended since the last call; open ones remain."""
        taken: list[Event] = []
        for kind in (self._events.cpu, self._events.python, self._events.runtime, self._events.gpu):
            taken += [event for event in kind if not _is_open(event)]
            kind[:] = [event for event in kind if _is_open(event)]
        return taken

    @contextmanager
    def _host_event(
        self, category: str, name: str, args: Event, target: list[Event]
    ) -> Iterator[Event]:
        self.pause(0.3, 1.2)
        start_ns = self.now_ns
        args["Ev Idx"] = self._count("Ev Idx")
        event = {"ph": "X", "cat": category, "name": name, "pid": self.pid, "tid": self._tid}
        event |= {"ts": _us(start_ns), "dur": None, "args": args}
        target.append(event)
        yield event
        self.pause(0.2, 0.9)
        event["dur"] = _us(self.now_ns - start_ns)

    def _runtime(self, name: str, args: Event, *, on_gpu: bool = True) -> int:
        with self._runtime_call(name, args, on_gpu=on_gpu) as correlation:
            pass
        return correlation

    @contextmanager
    def _runtime_call(self, name: str, args: Event, *, on_gpu: bool = True) -> Iterator[int]:
        self.pause(0.3, 1.0)
        start_ns = self.now_ns
        correlation = self._count("correlation")
        event = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": self.pid, "tid": self._tid}
        event |= {"ts": _us(start_ns), "dur": None}
        event["args"] = self._op_id() | {"correlation": correlation} | args
        self._events.runtime.append(event)
        # A call without GPU work gets only the end of an arrow, at itself, as in ROCm.
        arrow: Event = {"ph": "s" if on_gpu else "f", "id": correlation, "pid": self.pid}
        arrow |= {"tid": self._tid, "ts": event["ts"], "cat": "ac2g", "name": "ac2g"}
        self._events.runtime.append(arrow if on_gpu else arrow | {"bp": "e"})
        self.pause(2.5, 5.0)
        yield correlation
        event["dur"] = _us(self.now_ns - start_ns)

    def _gpu_event(
        self, category: str, name: str, stream: int, correlation: int | None = None
    ) -> Event:
        event: Event = {"ph": "X", "cat": category, "name": name, "pid": self.device, "tid": stream}
        event |= {"ts": None, "dur": None, "args": {}}
        if correlation is not None:
            place = {"device": self.device, "stream": stream, "correlation": correlation}
            event["args"] = self._op_id() | place
        self._events.gpu.append(event)
        return event

    def _run(self, event: Event, duration_ns: int) -> None:
        stream = event["tid"]
        gap_ns = 1 + int(2_500 * self._rng.random() ** 6)
        start_ns = max(self.now_ns + _LAUNCH_LATENCY_NS, self._free_ns[stream] + gap_ns)
        end_ns = self._free_ns[stream] = start_ns + duration_ns
        _set_times(event, start_ns, end_ns)
        self._arrow_to(event)
        for span in self._spans:
            span.first_ns = start_ns if span.first_ns is None else span.first_ns
            span.last_ns = end_ns

    def _arrow_to(self, event: Event) -> Event:
        arrow = {"ph": "f", "id": event["args"]["correlation"], "pid": event["pid"]}
        arrow |= {"tid": event["tid"], "ts": event["ts"], "cat": "ac2g", "name": "ac2g", "bp": "e"}
        self._events.gpu.append(arrow)
        return arrow

    def _op_id(self) -> Event:
        return {"External id": self._ops[-1]["args"]["External id"]} if self._ops else {}

    def _count(self, kind: str) -> int:
        self._next[kind] += 1
        return self._next[kind]


def _us(nanoseconds: int) -> float:
    return nanoseconds / 1_000


def _set_times(event: Event, start_ns: int, end_ns: int) -> None:
    event["ts"], event["dur"] = _us(start_ns), _us(end_ns - start_ns)


def _is_open(event: Event) -> bool:
    return event["ts"] is None or event.get("dur", 0) is None
