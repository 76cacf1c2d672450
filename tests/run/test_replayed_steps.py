"""Recorded and simulated steps as events on lanes."""

import numpy as np
import pytest

from jarvis.changes import ScaleGpu, Work
from jarvis.pipeline import analyze
from jarvis.run import Run
from jarvis.run.replayed_steps import LAUNCH, WAITING, ReplayedSteps
from jarvis.run.timeline import Timeline
from tests.builders import trace

STEPS_US = (100.0, 300.0, 200.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run of three steps, which wait for one kernel each."""
    folder = tmp_path_factory.mktemp("steps")
    built = trace("NVIDIA H200")
    for number, us in enumerate(STEPS_US):
        built.op("aten::mm", [[64, 64], [64, 64]])
        built.up()
        built.annotation(f"ProfilerStep#{number}").child("aten::mm", [[64, 64], [64, 64]])
        built.launches("gemm_kernel", us=us).up()
        built.runtime("cudaDeviceSynchronize", us=us + 10).up()
    return analyze(built.write(folder / "trace.json"), output_dir=folder / "run")


@pytest.fixture
def steps(run: Run) -> ReplayedSteps:
    return ReplayedSteps(Timeline(run))


def test_steps_have_names_and_a_median(steps: ReplayedSteps) -> None:
    assert steps.names == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert steps.median == 2


def test_an_unchanged_step_has_the_recorded_events(run: Run, steps: ReplayedSteps) -> None:
    step = steps.step(run.simulation.graph.time, 1)
    assert step.length_ns == run.simulation.recorded.steps_ns[1]
    kernel = step.events.filter("is_gpu").row(0, named=True)
    assert (kernel["dur_ns"], kernel["name"]) == (300_000, "gemm_kernel")
    calls = dict(step.events.filter(~step.events["is_gpu"]).select("name", "what").iter_rows())
    assert calls == {"cudaLaunchKernel": LAUNCH, "cudaDeviceSynchronize": WAITING}
    (threads, streams), hidden = steps.lanes([step])
    assert (threads.key, streams.label, hidden) == ("thread 0", "GPU 0 · stream 7", "")


def test_a_changed_step_is_that_of_the_replay(run: Run, steps: ReplayedSteps) -> None:
    changes = [ScaleGpu(work=Work(category="compute"), factor=0.5)]
    replay = run.simulation.replay(changes)
    times = run.simulation.node_times(changes)
    lengths = [steps.step(times, number).length_ns for number in range(len(STEPS_US))]
    assert lengths == list(replay.steps_ns)
    assert np.mean(lengths) == replay.step_ns
    shorter = steps.step(times, 1).events.filter("is_gpu")
    assert shorter["dur_ns"].to_list() == [150_000]
