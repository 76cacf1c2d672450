"""Warm-up in the recording, and what only looks like it."""

import pytest

from jarvis.trace_health import Fact, Severity, facts_of, trace_health
from tests.builders import TraceBuilder, trace


def warm_up(built: TraceBuilder) -> Fact:
    first, *others = facts_of(trace_health(built.read()))
    return next(fact for fact in (first, *others) if fact.key == "warm_up")


def recorded(*, kernel: str = "gemm", launch_us: float = 2.0, call: str = "cudaGetDevice") -> Fact:
    """Return the fact of two steps of 10 ms; the second has the call for 5 ms and the launch."""
    built = trace()
    for number in range(2):
        built.annotation(f"ProfilerStep#{number}", us=10_000).child("aten::mm")
        built.launches("gemm", us=10)
        if number:
            built.runtime(call, us=5000).launches(kernel, us=10, launch_us=launch_us)
        built.up(2)
    return warm_up(built)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"call": "cuLibraryLoadData"}, "1 module load"),
        ({"call": "cudaMalloc"}, "1 memory allocation"),
        ({"call": "cudnnFindConvolutionForwardAlgorithm"}, "1 autotuning call"),
        ({"kernel": "conv", "launch_us": 5000.0}, "1 slow first launch call"),
    ],
)
def test_first_uses_are_warm_up(changes: dict[str, object], words: str) -> None:
    fact = recorded(**changes)  # type: ignore[arg-type]
    assert fact.severity is Severity.WARNING
    assert fact.value == pytest.approx(25, abs=0.1)
    assert words in fact.summary
    assert "25.0% of the time of the steps" in fact.summary


@pytest.mark.parametrize(
    "changes", [{}, {"launch_us": 5000.0}], ids=["another call", "a kernel used before"]
)
def test_slow_calls_that_are_no_first_use_are_no_warm_up(changes: dict[str, float]) -> None:
    assert recorded(**changes).summary == "No warm-up found."  # type: ignore[arg-type]


def test_a_launch_that_waits_for_a_busy_gpu_loads_nothing() -> None:
    built = trace().annotation("ProfilerStep#1", us=10_000).child("aten::mm")
    built.launches("gemm", us=6000).launches("conv", us=10, launch_us=5000)
    assert warm_up(built).severity is Severity.OK


def test_allocations_of_every_step_are_no_warm_up() -> None:
    built = trace()
    for number in range(2):
        built.annotation(f"ProfilerStep#{number}", us=10_000).child("aten::mm")
        built.runtime("cudaMalloc", us=3000).launches("gemm", us=10).up(2)
    assert warm_up(built).severity is Severity.OK


@pytest.mark.parametrize(
    ("name", "is_warm_up"),
    [
        ("warmup", True),
        ("Warm-up step 3", True),
        ("model_warm_up#2", True),
        ("warmup_cosine_schedule", False),
        ("swarmup", False),
    ],
)
def test_annotations_are_read_by_word(name: str, is_warm_up: bool) -> None:
    built = trace().annotation("ProfilerStep#1", us=10_000).annotation(name, us=5000)
    fact = warm_up(built.child("aten::mm").launches("gemm", us=10))
    assert (fact.severity is Severity.WARNING) is is_warm_up


def test_warm_up_is_stated_first() -> None:
    built = trace().annotation("ProfilerStep#1", us=10_000).child("aten::mm")
    built.runtime("cuModuleLoadData", us=5000).launches("gemm", us=10)
    first, *_ = facts_of(trace_health(built.read()))
    assert first.key == "warm_up"
    assert "are not those of a steady step" in first.affects
