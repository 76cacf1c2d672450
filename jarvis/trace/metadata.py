"""Extract TraceInfo from a trace: its origin and what was recorded."""

import re
from typing import Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

from jarvis.schemas.names import C
from jarvis.trace.event_store import EventStore, RawTrace
from jarvis.trace.layout import MISSING_NS, PH, STRING
from jarvis.trace.repairs import Repair
from jarvis.trace.tables import COMPLETE, CPU_OP, HOST_ANNOTATION, PYTHON_FUNCTION

SIMULATED_KEY = "jarvis_sample"
"""Key in the trace's ``metadata`` that marks a sample as simulated or recorded."""

STEP_PREFIX = "ProfilerStep#"


_HOST_NAME = re.compile(r"^(?P<host>.+)_(?P<pid>\d+)\.\d+\.pt\.trace\.json")
"""File names of PyTorch's ``tensorboard_trace_handler``."""

MAX_GROUPS, MAX_GROUP_RANKS = 1024, 4096
"""Process groups of a trace that are stored, and ranks of each; longer lists are left out."""


class ProcessGroup(BaseModel):
    """A process group of the job, as the header of a trace describes it."""

    model_config = ConfigDict(frozen=True)

    name: str | None = None
    description: str | None = None
    size: int | None = None
    ranks: tuple[int, ...] = ()


class Distributed(BaseModel):
    """What the header of a trace tells about its job, besides rank and world size."""

    model_config = ConfigDict(frozen=True)

    backend: str | None = None
    nccl_version: str | None = None
    group_count: int | None = None
    groups: tuple[ProcessGroup, ...] = ()


class TraceInfo(BaseModel):
    """Metadata of a trace, or of a performance report that replaces one (``form``).

    ``size_bytes`` is the size of the file, ``json_bytes`` that of the unpacked JSON. The fields
    from ``compute_units`` to ``compute_capability`` are of the first GPU whose compute units are
    recorded. ``base_ns`` is what a time of the trace needs to be absolute, ``visible_gpus`` the
    number of GPUs that the process saw, and ``host`` is from the file name.
    """

    model_config = ConfigDict(frozen=True)

    form: Literal["trace", "report"] = "trace"

    file_name: str
    path: str
    sha256: str
    size_bytes: int
    json_bytes: int | None = None
    origin: Literal["recorded", "simulated"]
    device_names: tuple[str, ...]
    compute_units: int | None
    memory_bytes: int | None = None
    warp_size: int | None = None
    compute_capability: tuple[int, int] | None = None
    rank: int | None
    world_size: int | None
    distributed: Distributed | None = None
    host: str | None = None
    base_ns: int | None = None
    visible_gpus: int | None = None
    span_us: float
    steps: int
    event_counts: dict[str, int]
    gpu_only: bool
    has_shapes: bool
    has_stacks: bool
    repairs: tuple[Repair, ...] = ()

    @property
    def device_name(self) -> str | None:
        """The name of the GPU, or None if it is not recorded."""
        return next((name for name in self.device_names if name), None)


def trace_info(
    raw: RawTrace, span: int, cpu_ops: pl.DataFrame, annotations: pl.DataFrame
) -> TraceInfo:
    """Return the metadata of a trace; ``span`` is its length in nanoseconds (``span_ns``)."""
    devices = [d for d in _list(raw.metadata.get("deviceProperties")) if isinstance(d, dict)]
    device = next((d for d in devices if _whole(d.get("numSms"))), {})
    major, minor = _whole(device.get("computeMajor")), _whole(device.get("computeMinor"))
    distributed = _dict(raw.metadata.get("distributedInfo"))
    sample = raw.metadata.get("metadata")
    is_simulated = isinstance(sample, dict) and sample.get(SIMULATED_KEY) == "simulated"
    heights = {c: raw.store.group(c).height for c in raw.store.categories() if c is not None}
    event_counts = {category: height for category, height in sorted(heights.items()) if height}
    steps = annotations.filter(
        (pl.col(C.cat) == HOST_ANNOTATION) & pl.col(C.name).str.starts_with(STEP_PREFIX)
    )
    return TraceInfo(
        file_name=raw.path.name,
        path=str(raw.path),
        sha256=raw.sha256,
        size_bytes=raw.size_bytes,
        json_bytes=raw.json_bytes,
        origin="simulated" if is_simulated else "recorded",
        device_names=tuple(dict.fromkeys(str(d.get("name", "")) for d in devices)),
        compute_units=_whole(device.get("numSms")),
        memory_bytes=_whole(device.get("totalGlobalMem")),
        warp_size=_whole(device.get("warpSize")),
        compute_capability=None if major is None or minor is None else (major, minor),
        rank=_whole(distributed.get("rank")),
        world_size=_whole(distributed.get("world_size")),
        distributed=_distributed(distributed) if distributed else None,
        host=_host(raw.path.name, cpu_ops),
        base_ns=_whole(raw.metadata.get("baseTimeNanoseconds")),
        visible_gpus=len(devices) or None,
        span_us=span / 1000,
        steps=steps.height,
        event_counts=event_counts,
        gpu_only=CPU_OP not in event_counts,
        has_shapes=cpu_ops[C.input_dims].drop_nulls().len() > 0,
        has_stacks=PYTHON_FUNCTION in event_counts,
        repairs=raw.repairs.all(),
    )


def _distributed(header: dict[str, Any]) -> Distributed:
    groups = [g for g in _list(header.get("pg_config")) if isinstance(g, dict)]
    return Distributed(
        backend=_text(header.get("backend")),
        nccl_version=_text(header.get("nccl_version")),
        group_count=_whole(header.get("pg_count")),
        groups=tuple(
            ProcessGroup(
                name=_text(group.get("pg_name")),
                description=_text(group.get("pg_desc")),
                size=_whole(group.get("pg_size")),
                ranks=_ranks(group.get("ranks")),
            )
            for group in groups[:MAX_GROUPS]
        ),
    )


def _ranks(value: Any) -> tuple[int, ...]:
    ranks = [_whole(rank) for rank in _list(value)[: MAX_GROUP_RANKS + 1]]
    is_whole = len(ranks) <= MAX_GROUP_RANKS and None not in ranks
    return tuple(rank for rank in ranks if rank is not None) if is_whole else ()


def _host(file_name: str, cpu_ops: pl.DataFrame) -> str | None:
    """Return the host that a file name starts with, if the trace is of the process in it."""
    match = _HOST_NAME.match(file_name)
    if match is None or not (cpu_ops[C.pid].cast(pl.String) == match["pid"]).any():
        return None
    return match["host"]


def span_ns(store: EventStore) -> int:
    """Return the time from the first start to the last end of all complete events, in ns."""
    complete = store.texts.intern(COMPLETE, STRING)
    first, last = [], []
    for category in store.categories():
        group = store.group(category)
        starts, durations = group.time(0), group.time(1)
        timed = (group.text(PH) == complete) & (starts != MISSING_NS) & (durations != MISSING_NS)
        if timed.any():
            first.append(int(starts[timed].min()))
            last.append(int((starts[timed] + durations[timed]).max()))
    return max(last) - min(first) if first else 0


def _whole(value: Any) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and abs(value) < 2**63 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
