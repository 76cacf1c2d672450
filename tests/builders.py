"""Builder of Kineto traces for tests.

trace().op("aten::mm", [[8, 4], [4, 2]]).launches("gemm_kernel", us=12).read()

Calls follow each other in time. ``op`` starts a top-level call, ``child`` one inside the open call,
``up`` closes it; ``launches`` adds a runtime call to the open call and the GPU event it starts.
"""

import json
import math
import tempfile
from pathlib import Path
from typing import Any, Self

from jarvis.trace import Trace, read_trace

PID = 100
GPU = 0
MAIN_THREAD = 1
_START_US = 1000.0
_OVERHEAD_US = 1.0
_LAUNCH_US = 2.0


def contiguous(dims: list[int]) -> list[int]:
    """Return the strides of a dense row-major tensor."""
    return [math.prod(dims[i + 1 :]) for i in range(len(dims))]


class TraceBuilder:
    """Collects events; ``read`` returns the Trace, ``write`` a file, ``document`` the JSON."""

    def __init__(self, device: str = "NVIDIA H200") -> None:
        self.events: list[dict[str, Any]] = []
        self.header: dict[str, Any] = {"deviceProperties": [{"id": 0, "name": device}]}
        self._thread = MAIN_THREAD
        self._open: dict[int, list[dict[str, Any]]] = {}
        self._now: dict[int, float] = {}
        self._stream_end: dict[int, float] = {}
        self._correlation = 0

    def thread(self, tid: int, name: str | None = None) -> Self:
        """Continue with another host thread."""
        self._thread = tid
        if name is not None:
            self._metadata("thread_name", tid, {"name": name})
        return self

    def process(self, name: str, label: str = "CPU") -> Self:
        """Name the process."""
        self._metadata("process_name", 0, {"name": name})
        return self._metadata("process_labels", 0, {"labels": label})

    def op(self, name: str, dims: list[Any] | None = None, **options: Any) -> Self:
        """Start a top-level CPU op; without ``dims`` it has no arguments.

        Options: ``types``, ``strides``, ``concrete`` (default: dense bfloat16 tensors), ``seq``
        (sequence number), ``us`` (least duration).
        """
        self._close_all()
        return self.child(name, dims, **options)

    def child(self, name: str, dims: list[Any] | None = None, **options: Any) -> Self:
        """Start a CPU op inside the open call."""
        args = {} if dims is None else self._arguments(dims, options)
        if (seq := options.get("seq")) is not None:
            args["Sequence number"] = seq
        return self._begin("cpu_op", name, args, options.get("us", 0.0))

    def python(self, name: str, us: float = 0.0) -> Self:
        """Start a Python frame inside the open call, or at the top."""
        return self._begin("python_function", name, {}, us)

    def annotation(self, name: str, us: float = 0.0) -> Self:
        """Start an annotation inside the open call, or at the top."""
        return self._begin("user_annotation", name, {}, us)

    def up(self, levels: int = 1) -> Self:
        """Close the innermost open calls."""
        for _ in range(levels):
            self._close()
        return self

    def launches(
        self,
        kernel: str,
        us: float = 10.0,
        *,
        stream: int = 7,
        cat: str = "kernel",
        call: str = "cudaLaunchKernel",
        call_cat: str = "cuda_runtime",
        at_us: float | None = None,
        launch_us: float = _LAUNCH_US,
        **args: Any,
    ) -> Self:
        """Add a runtime call and its GPU event, after the last one of its stream.

        ``at_us`` places the GPU event at a time of its own; ``launch_us`` is the duration of the
        call; ``args`` are added to the event.
        """
        self._correlation += 1
        link = self._correlation
        start = self._call(call, call_cat, {"correlation": link}, launch_us)
        flow = {"id": link, "cat": "ac2g", "name": "ac2g"}
        self.events.append({"ph": "s", "pid": PID, "tid": self._thread, "ts": start, **flow})
        begin = self._gpu(kernel, us, stream, cat, at_us, {"correlation": link, **args})
        self.events.append({"ph": "f", "pid": GPU, "tid": stream, "ts": begin, "bp": "e", **flow})
        return self

    def graph(
        self, *kernels: tuple[str, float], stream: int = 7, call: str = "cudaGraphLaunch"
    ) -> Self:
        """Add a graph launch and its kernels, given as (name, µs)."""
        self._correlation += 1
        self._call(call, "cuda_runtime", {"correlation": self._correlation})
        for name, us in kernels:
            self._gpu(name, us, stream, "kernel", None, {"correlation": self._correlation})
        return self

    def adds(self, kernel: str | None = None, call: str = "hipLaunchKernel") -> Self:
        """Add a runtime call that adds a node to the graph that is captured; no GPU event."""
        self._call(call, "cuda_runtime", {} if kernel is None else {"kernel": kernel})
        return self

    def unlinked(self, kernel: str, us: float = 10.0, *, stream: int = 7, **args: Any) -> Self:
        """Add a GPU event whose launch was not recorded."""
        self._correlation += 1
        self._gpu(kernel, us, stream, "kernel", None, {"correlation": self._correlation, **args})
        return self

    def runtime(self, call: str, us: float = _LAUNCH_US) -> Self:
        """Add a runtime call that starts no GPU work."""
        self._call(call, "cuda_runtime", {}, us)
        return self

    def waits(self, us: float) -> Self:
        """Advance the host time."""
        self._now[self._thread] = self._time + us
        return self

    def document(self) -> dict[str, Any]:
        """Return the trace as JSON; closes every open call."""
        for tid in list(self._open):
            self.thread(tid)._close_all()
        return {**self.header, "traceEvents": self.events}

    def write(self, path: Path) -> Path:
        """Write the trace as ``.json``."""
        path.write_text(json.dumps(self.document()), encoding="utf-8")
        return path

    def read(self) -> Trace:
        """Return the trace as Jarvis reads it."""
        with tempfile.TemporaryDirectory() as folder:
            return read_trace(self.write(Path(folder) / "trace.json"))

    @property
    def _time(self) -> float:
        return self._now.setdefault(self._thread, _START_US)

    def _begin(self, cat: str, name: str, args: dict[str, Any], least_us: float) -> Self:
        event = {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": self._thread}
        event |= {"ts": self._time, "dur": least_us, "args": args}
        self.events.append(event)
        self._open.setdefault(self._thread, []).append(event)
        return self.waits(_OVERHEAD_US)

    def _close(self) -> None:
        event = self._open[self._thread].pop()
        end = max(self._time + _OVERHEAD_US, event["ts"] + event["dur"])
        event["dur"] = end - event["ts"]
        self._now[self._thread] = end

    def _close_all(self) -> None:
        while self._open.get(self._thread):
            self._close()

    def _call(self, name: str, cat: str, args: dict[str, Any], us: float = _LAUNCH_US) -> float:
        start = self._time
        event = {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": self._thread}
        self.events.append({**event, "ts": start, "dur": us, "args": args})
        self.waits(us)
        return start

    def _gpu(
        self, name: str, us: float, stream: int, cat: str, at_us: float | None, args: dict[str, Any]
    ) -> float:
        begin = max(self._time, self._stream_end.get(stream, 0.0)) if at_us is None else at_us
        self._stream_end[stream] = begin + us
        event = {"ph": "X", "cat": cat, "name": name, "pid": GPU, "tid": stream}
        event |= {"ts": begin, "dur": us, "args": {"device": GPU, "stream": stream, **args}}
        self.events.append(event)
        return begin

    def _metadata(self, name: str, tid: int, args: dict[str, Any]) -> Self:
        self.events.append({"ph": "M", "name": name, "pid": PID, "tid": tid, "args": args})
        return self

    @staticmethod
    def _arguments(dims: list[Any], options: dict[str, Any]) -> dict[str, Any]:
        return {
            "Input Dims": dims,
            "Input type": options.get("types", ["c10::BFloat16" if d else "" for d in dims]),
            "Input Strides": options["strides"]
            if "strides" in options
            else [*map(contiguous, dims)],
            "Concrete Inputs": options.get("concrete", ["" for _ in dims]),
        }


def trace(device: str = "NVIDIA H200") -> TraceBuilder:
    """Return a builder of an empty trace."""
    return TraceBuilder(device)


def all_reduce(nelems: int, size: int, **changes: Any) -> dict[str, Any]:
    """Return what the profiler records of an all-reduce of float32 with ``size`` ranks."""
    return {
        "Collective name": "allreduce",
        "In msg nelems": nelems,
        "Out msg nelems": nelems,
        "In split size": "[]",
        "Out split size": "[]",
        "Group size": size,
        "dtype": "Float",
        "Process Group Name": "0",
        "Process Group Ranks": str(list(range(size))),
        **changes,
    }
