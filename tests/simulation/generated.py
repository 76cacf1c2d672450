"""Simulated traces with changed kernels, of one process or of several ranks."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import orjson
import polars as pl
import pytest

from jarvis.changes import ScaleGpu, Work
from jarvis.hardware import load_hardware
from jarvis.perf_report.work import COMMUNICATION, COPY, KIND
from jarvis.sample.gpu import Gpu
from jarvis.sample.gpu import Work as GpuWork
from jarvis.sample.training import Process, simulate_steps
from jarvis.schemas.names import C
from jarvis.simulation.graph import Graph, build_graph
from jarvis.trace import Trace, read_trace

GEMM = ("gemm", "gemm_misaligned", "gemm_tall_skinny", "gemm_tiny_batched")
MEMORY = ("elementwise", "norm", "batch_norm", "copy")
CHANGES: tuple[tuple[float, tuple[str, ...]], ...] = (
    (0.5, ()),
    (0.1, ()),
    (2.0, ()),
    (0.5, GEMM),
    (0.25, ("convolution", "transpose")),
    (0.3, MEMORY),
    (0.2, ("attention", "attention_backward")),
)
"""Factor and families; no family is all of them."""


@dataclass(frozen=True)
class Generated:
    """The trace of a rank, its graph, and the family of each of its kernels in their order."""

    trace: Trace
    graph: Graph
    families: list[str]

    @property
    def work(self) -> pl.DataFrame:
        """The table ``gpu_work``."""
        events = self.trace.gpu_events
        return events.select(
            C.uid, C.name, C.dur_ns, pl.col(C.uid).alias(C.operation_uid), KIND.alias(C.kind)
        )

    @property
    def collectives(self) -> pl.DataFrame:
        """The table ``collectives``."""
        own = self.trace.gpu_events.filter(KIND == COMMUNICATION)
        return own.select(
            C.uid,
            C.collective,
            pl.col(C.process_group_name).alias(C.group),
            pl.col(C.in_msg_nelems).alias(C.message_mb),
            dur_us=pl.col(C.dur_ns) / 1e3,
        )

    def scaled(self, factor: float, families: Iterable[str]) -> ScaleGpu:
        """Return the change of some families of kernels."""
        kernels = self.work.filter(~pl.col(C.kind).is_in([COPY, COMMUNICATION]))
        assert kernels.height == len(self.families)
        chosen = tuple(
            uid
            for uid, family in zip(kernels[C.uid], self.families, strict=True)
            if not families or family in families
        )
        assert chosen
        return ScaleGpu(work=Work(uids=chosen), factor=factor)


def generate(
    folder: Path,
    patch: pytest.MonkeyPatch,
    world_size: int,
    steps: int,
    factor: float = 1.0,
    families: Iterable[str] = (),
) -> list[Generated]:
    """Return the traces of all ranks, each with the same changed kernels."""
    found: dict[Gpu, list[str]] = {}
    original: Callable[[Gpu, GpuWork, random.Random], int] = Gpu.kernel_ns

    def kernel_ns(gpu: Gpu, work: GpuWork, rng: random.Random) -> int:
        found.setdefault(gpu, []).append(work.family)
        changed = factor if not families or work.family in families else 1.0
        return round(original(gpu, work, rng) * changed)

    spec = load_hardware().get("MI300X")
    ranks = [Process(spec, rank, world_size, 0, "small") for rank in range(world_size)]
    events: list[list[object]] = [[] for _ in ranks]
    with patch.context() as patched:
        patched.setattr(Gpu, "kernel_ns", kernel_ns)
        for _ in simulate_steps(ranks, steps):
            for own, rank in zip(events, ranks, strict=True):
                own += rank.session.take_events()
    generated = []
    for rank, own in zip(ranks, events, strict=True):
        path = folder / "trace.json"
        path.write_bytes(orjson.dumps({"traceEvents": own}))
        trace = read_trace(path)
        graph = build_graph(trace)
        assert graph is not None
        generated.append(Generated(trace, graph, found[rank.session.gpu]))
    return generated
