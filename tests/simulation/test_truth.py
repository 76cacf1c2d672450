"""Simulated traces whose kernels were changed before they were written: the replay has to agree."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
import pytest

from jarvis.changes import ScaleGpu, Work
from jarvis.sample import write_sample
from jarvis.sample.gpu import Gpu
from jarvis.sample.gpu import Work as GpuWork
from jarvis.schemas.names import C
from jarvis.simulation.graph import build_graph
from jarvis.simulation.simulation import Simulation
from jarvis.trace import Trace, read_trace

MAX_ERROR_PCT = 0.05

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


def write(
    path: Path, patch: pytest.MonkeyPatch, factor: float = 1.0, families: Iterable[str] = ()
) -> tuple[Trace, list[str]]:
    """Return a simulated trace with changed kernels, and the family of each kernel."""
    found: list[str] = []
    original: Callable[[Gpu, GpuWork, random.Random], int] = Gpu.kernel_ns

    def kernel_ns(gpu: Gpu, work: GpuWork, rng: random.Random) -> int:
        found.append(work.family)
        changed = factor if not families or work.family in families else 1.0
        return round(original(gpu, work, rng) * changed)

    with patch.context() as patched:
        patched.setattr(Gpu, "kernel_ns", kernel_ns)
        write_sample(path, steps=3, scale="small", world_size=1)
    return read_trace(path), found


@pytest.mark.parametrize(("factor", "families"), CHANGES)
def test_a_replay_agrees_with_a_trace_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float, families: tuple[str, ...]
) -> None:
    trace, found = write(tmp_path / "before.json", monkeypatch)
    graph = build_graph(trace)
    assert graph is not None
    kernels = trace.gpu_events.filter(~pl.col(C.name).str.contains("HtoD|DtoH"))
    assert kernels.height == len(found)
    uids = kernels[C.uid].to_list()
    changed = [uid for uid, family in zip(uids, found, strict=True) if family in families]
    work = trace.gpu_events.select(C.uid, pl.col(C.uid).alias(C.operation_uid))
    steps = pl.DataFrame(schema={C.source: pl.String})
    simulation = Simulation(graph, {"gpu_work": work, "steps": steps})
    scaled = ScaleGpu(work=Work(uids=tuple(changed or uids)), factor=factor)
    replayed = simulation.replay([scaled]).window_ns
    truth = build_graph(write(tmp_path / "after.json", monkeypatch, factor, families)[0])
    assert truth is not None
    assert replayed == pytest.approx(truth.window_ns, rel=MAX_ERROR_PCT / 100)
    assert truth.window_ns != graph.window_ns
