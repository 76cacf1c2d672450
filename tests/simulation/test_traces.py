"""Recorded traces: what a replay has to reproduce, and what no change can gain."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from jarvis.changes import COMPUTE, ScaleGpu, ScaleHost, Span, Work
from jarvis.perf_report.timeline import host_spans
from jarvis.perf_report.timeline.steps import TimedBy, step_marks
from jarvis.perf_report.work import KIND
from jarvis.schemas.names import C
from jarvis.simulation.merging import merged_launches
from jarvis.simulation.path import replayed
from jarvis.simulation.quality import Grade, Quality
from jarvis.simulation.simulation import Simulation
from jarvis.simulation.stored import simulation_tables, stored_graph
from jarvis.trace import read_trace

W0, W4 = "counterfactual/kineto-resnet50-w0.json.gz", "counterfactual/kineto-resnet50-w4.json.gz"
SGLANG = "serving/sglang-qwen3-8b-decode/trace.json.gz"
RESNET = "traces/mi300-resnet-ddp-checkpoint.json.gz"
BERT, VIT = "traces/h100-bert-small.json.gz", "traces/h100-vit-nsfw.json.gz"
MI300_BERT, MI300_VIT = "traces/mi300-bert-small.json.gz", "traces/mi300-vit-nsfw.json.gz"
QWEN, NORMALIZATION = "traces/h100-qwen1.5-0.5b.json.gz", "traces/normalization-layers.json.gz"
FLUX = "serving/xdit-flux-sage/trace.json.gz"

WINDOW_MS = {
    BERT: 4.426,
    MI300_BERT: 4.007,
    VIT: 7.894,
    MI300_VIT: 7.453,
    QWEN: 49.379,
    "traces/mi300-qwen1.5-0.5b.json.gz": 46.892,
    RESNET: 86.599,
    NORMALIZATION: 1_181.1,
    "traces/torch-compile-triton.json.gz": 12.940,
    SGLANG: 473.831,
    "traces/mi210-gpu-only.json.gz": 6.025,
    FLUX: 249.2,
    W0: 928.789,
    W4: 769.780,
}
"""Traces that can be replayed, and the time from their first step mark or event to their last."""

FAIR = {RESNET, SGLANG, "traces/mi300-qwen1.5-0.5b.json.gz"}
RANKS = tuple(f"traces/multirank-4/rank{rank}_trace.json" for rank in range(4))
"""Traces in which more than 5% of the time is in no recorded event."""

MAX_ERROR_PCT = dict.fromkeys(WINDOW_MS, 1.0) | {RESNET: 2.5}
MAX_MEDIAN_ERROR_PCT = 0.1
SCALINGS = 10


@dataclass(frozen=True)
class Recorded:
    """A simulation, and how good it is."""

    simulation: Simulation
    quality: Quality


@pytest.fixture(scope="module")
def recorded(reference_root: Path) -> Iterator[Callable[[str], Recorded]]:
    """Return a function that reads a recorded trace; each is read once."""

    @cache
    def read(name: str) -> Recorded:
        trace = read_trace(reference_root / name)
        tables, info = simulation_tables(trace)
        work = trace.gpu_events.select(
            C.uid, C.name, C.dur_ns, pl.col(C.uid).alias(C.operation_uid), KIND.alias(C.kind)
        )
        steps = step_marks(trace).with_columns(pl.lit(TimedBy.MARKS.value).alias(C.timed_by))
        graph = stored_graph(tables, info)
        every = {"gpu_work": work, "steps": steps, **tables}
        return Recorded(Simulation(graph, every, info.quality.stalls), info.quality)

    yield read
    read.cache_clear()


Read = Callable[[str], Recorded]


@pytest.mark.parametrize("name", [*WINDOW_MS, *RANKS])
def test_a_replay_without_changes_is_the_recording(recorded: Read, name: str) -> None:
    graph = recorded(name).simulation.graph
    assert (replayed(graph, graph.weight)[0] == graph.time).all()


@pytest.mark.parametrize("name", WINDOW_MS)
def test_usual_times_explain_a_recording(recorded: Read, name: str) -> None:
    found = recorded(name)
    assert found.simulation.recorded.window_ns / 1e6 == pytest.approx(WINDOW_MS[name], rel=1e-3)
    assert found.quality.grade is (Grade.FAIR if name in FAIR else Grade.GOOD)
    if name == SGLANG:
        assert [stall.ns for stall in found.quality.stalls] == [463_247_754]
    else:
        assert abs(found.quality.replay_error_pct) <= MAX_ERROR_PCT[name]
        assert not found.quality.stalls


def test_usual_times_explain_most_recordings_almost_exactly(recorded: Read) -> None:
    errors = [abs(recorded(name).quality.replay_error_pct) for name in WINDOW_MS]
    assert np.median(errors) <= MAX_MEDIAN_ERROR_PCT


@pytest.mark.parametrize("name", RANKS)
def test_time_that_nothing_explains_prevents_a_simulation(recorded: Read, name: str) -> None:
    quality = recorded(name).quality
    assert quality.grade is Grade.NOT_SIMULATED
    assert quality.reason == "10% of it is in no recorded event"


@pytest.mark.parametrize("name", WINDOW_MS)
def test_no_scaling_gains_more_than_it_takes_from_kernels(recorded: Read, name: str) -> None:
    simulation, rng = recorded(name).simulation, np.random.default_rng(0)
    work = simulation.tables["gpu_work"]
    for _ in range(SCALINGS):
        own = work.filter(pl.Series(rng.random(work.height) < rng.random()))
        scaled = ScaleGpu(work=Work(uids=tuple(own[C.uid])), factor=float(rng.random()))
        taken_ns = simulation.recorded.gpu_time_ns - simulation.replay([scaled]).gpu_time_ns
        assert 0 <= simulation.saved_ns([scaled]) <= taken_ns


@pytest.mark.parametrize("name", WINDOW_MS)
def test_no_scalings_gain_more_than_kernels_at_no_time(recorded: Read, name: str) -> None:
    simulation, rng = recorded(name).simulation, np.random.default_rng(0)
    floor = simulation.saved_ns([ScaleGpu(work=Work(category=COMPUTE), factor=0)])
    graph = simulation.graph
    uids = graph.uid[graph.dst[simulation.edges(Work(category=COMPUTE))]]
    for _ in range(SCALINGS):
        scaled = [
            ScaleGpu(work=Work(uids=tuple(part.tolist())), factor=float(rng.random()))
            for part in np.array_split(rng.permutation(uids), 3)
        ]
        assert simulation.saved_ns(scaled[: rng.integers(1, 4)]) <= floor


@pytest.mark.parametrize("name", [BERT, MI300_BERT, VIT, MI300_VIT])
def test_faster_kernels_do_not_move_a_step_that_the_host_sets(recorded: Read, name: str) -> None:
    simulation = recorded(name).simulation
    every = ScaleGpu(work=Work(category=COMPUTE), factor=0)
    assert simulation.replay([every]).gpu_time_ns < simulation.recorded.gpu_time_ns
    assert simulation.saved_ns([every]) < 0.005 * simulation.recorded.window_ns


@pytest.mark.parametrize(("name", "kernels_ms"), [(QWEN, 15.900), (RESNET, 9.771), (FLUX, 113.838)])
def test_faster_kernels_move_a_step_that_the_gpu_sets(
    recorded: Read, name: str, kernels_ms: float
) -> None:
    simulation = recorded(name).simulation
    gain = simulation.saved_ns([ScaleGpu(work=Work(category=COMPUTE), factor=0)])
    assert gain / 1e6 == pytest.approx(kernels_ms, rel=0.02)


@pytest.mark.parametrize(("name", "gain_ms"), [(BERT, 3.447), (VIT, 6.256), (QWEN, 1.076)])
def test_one_graph_launch_moves_a_step_that_the_host_sets(
    recorded: Read, name: str, gain_ms: float
) -> None:
    simulation = recorded(name).simulation
    gain = simulation.saved_ns(merged_launches(simulation))
    assert gain / 1e6 == pytest.approx(gain_ms, abs=0.005)


def test_a_graph_launch_does_not_save_the_loading_of_kernels(recorded: Read) -> None:
    simulation = recorded(NORMALIZATION).simulation
    gain = simulation.saved_ns(merged_launches(simulation))
    assert 0 < gain < 0.1 * simulation.recorded.window_ns


@pytest.mark.parametrize(("name", "other", "max_error_pct"), [(W0, W4, 4), (W4, W0, 8)])
def test_a_recording_with_another_number_of_data_loaders_is_predicted(
    recorded: Read, name: str, other: str, max_error_pct: float
) -> None:
    simulation, measured = recorded(name).simulation, recorded(other).simulation
    length = pl.col(C.end_ns) - pl.col(C.start_ns)

    def loading(of: Simulation) -> pl.DataFrame:
        spans = of.tables["sim_spans"].filter(pl.col(C.cause) == host_spans.DATA_LOADING)
        return spans.select(C.thread, C.start_ns, C.end_ns, ns=length)

    usual = loading(measured)["ns"].median()
    assert isinstance(usual, float)
    changes = [
        ScaleHost(spans=(Span(thread=thread, start_ns=start, end_ns=end),), factor=usual / ns)
        for thread, start, end, ns in loading(simulation).iter_rows()
    ]
    replays = simulation.replay(changes), simulation.recorded, measured.recorded
    predicted, before, truth = (float(np.median(replay.steps_ns)) for replay in replays)
    assert 100 * abs(predicted / truth - 1) <= max_error_pct
    assert abs(predicted - truth) < abs(before - truth) / 2
