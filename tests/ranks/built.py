"""Ranks of a job as tables: collectives with given arrivals and ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from jarvis.ranks.members import Member
from jarvis.schemas import columns
from jarvis.trace import TraceInfo

US = 1_000
UNIX_NS = 1_767_225_600_000_000_000


def table(name: str, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return a table of a run with some of its columns."""
    schema = {column.name: column.dtype for column in columns(name)}
    return pl.DataFrame([{key: row.get(key) for key in schema} for row in rows], schema=schema)


@dataclass(frozen=True)
class Kernel:
    """A communication kernel by its times in ns; ``options`` are columns of `collectives`."""

    start_ns: int
    end_ns: int
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BuiltRank:
    """A rank with its kernels, and the clock that it records them with.

    ``compute`` are times of compute kernels, ``idle`` those of gaps with their cause, ``copies``
    those of exposed copies with their direction.
    """

    rank: int
    kernels: Sequence[Kernel]
    compute: Sequence[tuple[int, int]] = ()
    idle: Sequence[tuple[int, int, str]] = ()
    offset_ns: int = 0
    drift_ppm: float = 0.0
    base_ns: int = 0
    copies: Sequence[tuple[int, int, str]] = ()

    def at(self, time_ns: int) -> int:
        """Return a time as the rank records it."""
        return time_ns + self.offset_ns + round(time_ns * self.drift_ppm / 1e6) - self.base_ns

    def member(self, ranks: int) -> Member:
        rows = []
        for uid, kernel in enumerate(self.kernels):
            start, end = self.at(kernel.start_ns), self.at(kernel.end_ns)
            described = {"kind": "all_reduce", "dtype": "Float", "in_bytes": 4096, "stream": 9}
            described |= {"pg_desc": "default_pg", "group": "0", "group_size": ranks}
            described |= {"pg_ranks": str(list(range(ranks))).replace(" ", "")}
            described |= {"name": "ncclDevKernel_AllReduce", "library": "nccl"}
            times = {"ts_ns": start, "end_ns": end, "dur_us": (end - start) / 1e3}
            rows.append({"uid": uid, **described, **times, **kernel.options})
        numbers = sorted({row["step"] for row in rows if row.get("step") is not None})
        work = [
            {"kind": "compute", "ts_ns": self.at(start), "dur_ns": end - start}
            for start, end in self.compute
        ]
        busy = [(start, end, "compute", "GEMM") for start, end in self.compute]
        others = {"idle": self.idle, "copy": self.copies}
        named = ((a, b, state, detail) for state in others for a, b, detail in others[state])
        states = sorted([*busy, *named])
        gaps = [
            {"cause": cause, "start_ns": self.at(a), "dur_ns": b - a, "host_call": f"call {cause}"}
            for a, b, cause in self.idle
        ]
        tables = {
            "idle_gaps": table("idle_gaps", gaps),
            "timeline_states": table(
                "timeline_states",
                [
                    {"start_ns": self.at(a), "dur_ns": b - a, "state": state, "detail": detail}
                    for a, b, state, detail in states
                ],
            ),
            "collectives": table("collectives", rows),
            "steps": table("steps", [{"step": n, "number": n} for n in numbers]),
            "gpu_work": table("gpu_work", work),
            "gpu_timeline": table("gpu_timeline", []),
        }
        return Member(
            self.rank,
            f"rank{self.rank}.json",
            info(self.rank, base_ns=self.base_ns or None),
            tables,
        )


def info(rank: int, device: str = "GPU", base_ns: int | None = None) -> TraceInfo:
    return TraceInfo(
        file_name=f"rank{rank}.json",
        path="",
        sha256=str(rank),
        size_bytes=0,
        origin="recorded",
        device_names=(device,),
        compute_units=None,
        rank=rank,
        world_size=None,
        base_ns=base_ns,
        span_us=0,
        steps=0,
        event_counts={},
        gpu_only=False,
        has_shapes=True,
        has_stacks=False,
    )


def job(
    arrivals: Sequence[Sequence[int]],
    transfer_ns: int = 100 * US,
    options: Sequence[Mapping[str, Any]] = (),
) -> list[BuiltRank]:
    """Return the ranks of a job by their arrivals: a row for each collective, in ns."""
    ranks = range(len(arrivals[0]))
    kernels = [
        [
            Kernel(row[rank], max(row) + transfer_ns, options[place] if options else {})
            for place, row in enumerate(arrivals)
        ]
        for rank in ranks
    ]
    return [BuiltRank(rank, kernels[rank]) for rank in ranks]


def members(ranks: Sequence[BuiltRank], size: int | None = None) -> list[Member]:
    """Return the ranks as members of a job."""
    return [rank.member(size or len(ranks)) for rank in ranks]


def changed(ranks: Sequence[BuiltRank], rank: int, **fields: Any) -> list[BuiltRank]:
    """Return the ranks with one of them changed."""
    return [replace(entry, **fields) if entry.rank == rank else entry for entry in ranks]
