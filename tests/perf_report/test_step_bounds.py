"""Bounds of the step time: when the host waits for the GPU, and what is left."""

import pytest

from jarvis.hardware import load_hardware
from jarvis.perf_report import PerfReport
from jarvis.perf_report.timeline.step_bounds import FULL_QUEUE, StepBounds
from tests.builders import TraceBuilder, trace


def bounds(built: TraceBuilder) -> StepBounds:
    found = PerfReport(built.read(), load_hardware().get("H200")).totals.step
    assert found is not None
    return found


def host_bound() -> TraceBuilder:
    """Ten launches, 50 µs apart, of kernels of 5 µs; the host works for 100 µs after the last."""
    built = trace().op("aten::step", us=700.0)
    for _ in range(10):
        built.launches("gemm", us=5.0).waits(50.0)
    return built


def test_kernels_of_a_host_that_never_waits_save_nothing() -> None:
    found = bounds(host_bound())
    assert found.kernels_ms == 0.0
    assert found.step_ms is not None
    assert found.idle_ms == pytest.approx(found.step_ms - 0.050)


def test_a_call_waits_until_the_work_before_it_ends() -> None:
    built = host_bound().launches("slow", us=200.0)
    waited = bounds(built.runtime("cudaStreamSynchronize", 230.0)).kernels_ms
    assert 0.19 < waited <= 0.20


def test_a_call_after_the_work_does_not_wait() -> None:
    assert bounds(host_bound().runtime("cudaStreamSynchronize", 230.0)).kernels_ms == 0.0


def test_a_short_call_that_need_not_wait_does_not() -> None:
    def with_call(us: float) -> float:
        built = host_bound().launches("slow", us=300.0).runtime("cudaFree", us)
        return bounds(
            built.runtime("cudaGetDevice", 1.0).waits(500.0).child("x", us=1.0)
        ).kernels_ms

    assert with_call(15.0) == 0.0
    assert with_call(320.0) > 0.29


def blocking_copy(built: TraceBuilder, at_us: float) -> float:
    """Return the bound with a copy at a time, whose call returns after it."""
    built.launches(
        "Memcpy DtoH",
        us=40.0,
        at_us=at_us,
        launch_us=260.0,
        call="cudaMemcpyAsync",
        cat="gpu_memcpy",
    )
    return bounds(built).kernels_ms


def test_a_blocking_copy_waits_for_the_kernels_before_it_and_not_for_itself() -> None:
    assert 0.19 < blocking_copy(host_bound().launches("slow", us=200.0), 1725.0) <= 0.20
    assert blocking_copy(host_bound(), 1540.0) == 0.0


def test_queries_in_a_row_are_a_wait_and_a_single_one_is_not() -> None:
    def polled(queries: int) -> float:
        built = host_bound().launches("slow", us=200.0)
        for _ in range(queries):
            built.runtime("cudaEventQuery", 240.0 / queries)
        return bounds(built.waits(10.0).child("x", us=1.0)).kernels_ms

    assert polled(12) > 0.19
    assert polled(2) == 0.0


def queued(count: int) -> float:
    """Return the bound with so many kernels of 100 µs in the queue and ten launches that take as
    long as a kernel; the recording ends with a call of the host."""
    built = trace().op("aten::step")
    for _ in range(count):
        built.launches("slow", us=100.0, launch_us=1.0)
    for _ in range(10):
        built.launches("slow", us=100.0, launch_us=100.0)
    return bounds(built.waits(200.0 * count).child("x", us=1.0)).kernels_ms


def test_launches_into_a_full_queue_wait() -> None:
    assert queued(FULL_QUEUE // 2) == 0.0
    assert 0.5 < queued(2 * FULL_QUEUE) <= 1.0


def test_gpu_work_after_the_last_call_of_the_host_can_be_saved() -> None:
    tail = bounds(trace().op("aten::mm").launches("slow", us=400.0))
    assert 0.39 < tail.kernels_ms <= 0.40


def test_a_host_that_is_not_recorded_bounds_nothing() -> None:
    found = bounds(trace().unlinked("a", us=30.0).unlinked("b", us=20.0))
    assert found.kernels_ms == pytest.approx(0.050)


def marked(*gpu_us: float) -> StepBounds:
    """Return the bounds of steps of 100 µs on the host, each with a kernel."""
    built = trace()
    for number, us in enumerate(gpu_us):
        built.annotation(f"ProfilerStep#{number}", us=100.0).child("aten::mm")
        built.launches("slow", us=us).up(2)
    return bounds(built)


def test_the_time_of_the_steps_is_that_of_their_account() -> None:
    on_host, on_gpu = marked(40.0, 40.0), marked(400.0, 400.0)
    assert (on_host.steps, on_host.step_ms) == (2, pytest.approx(0.2))
    assert (on_gpu.steps, on_gpu.step_ms) == (2, pytest.approx(0.8))
    assert on_host.idle_ms == pytest.approx(0.12)
    assert on_gpu.idle_ms == 0.0


def test_shorter_kernels_save_what_the_host_does_not_need_itself() -> None:
    assert marked(40.0, 40.0).kernels_ms == 0.0
    assert marked(400.0, 400.0).kernels_ms == pytest.approx(0.6)
