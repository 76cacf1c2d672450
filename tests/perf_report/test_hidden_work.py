"""Work that a collective hides, so that making it faster shortens no step."""

from jarvis.hardware import load_hardware
from jarvis.perf_report import PerfReport
from tests.builders import TraceBuilder, trace

REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)"
Event = tuple[float, float]
"""Start and end in µs."""


def launched(kernels: list[Event], collectives: list[Event], stream: int = 9) -> TraceBuilder:
    """Return kernels and collectives at these times; one call launches each of them before."""
    built = trace().op("aten::step")
    for begin, end in kernels:
        built.launches("gemm", us=end - begin, at_us=begin)
    for begin, end in collectives:
        built.launches(REDUCE, us=end - begin, at_us=begin, stream=stream)
    return built


def hidden_us(built: TraceBuilder) -> list[Event]:
    bounds = PerfReport(built.read(), load_hardware().get("H200")).totals.step
    assert bounds is not None
    origin = min(event["ts"] for event in built.events if event["ph"] == "X")
    start_ns = bounds.start_ns

    def at_us(ns: int) -> float:
        return float(round((ns - start_ns) / 1e3 + origin, 3))

    return [(at_us(begin), at_us(end)) for begin, end in bounds.hidden]


def test_work_under_a_collective_that_ends_later_is_hidden() -> None:
    assert hidden_us(launched([(2000, 2200), (2300, 2400)], [(2100, 3000)])) == [(2100, 3000)]


def test_work_that_runs_on_when_the_collective_ends_is_not() -> None:
    assert hidden_us(launched([(2000, 2200), (2300, 3100)], [(2100, 3000)])) == []
    assert hidden_us(launched([(2000, 2995), (3001, 3100)], [(2100, 3000)])) == []


def test_work_before_the_collective_is_not() -> None:
    assert hidden_us(launched([(2000, 2100)], [(2100, 3000)])) == []


def test_a_collective_that_waits_for_one_before_it_hides_the_same_work() -> None:
    both = [(2100.0, 2500.0), (2520.0, 3000.0)]
    assert hidden_us(launched([(2000, 2600)], both)) == [(2100, 3000)]
    # The second one can have waited for a kernel that ends right before it.
    assert hidden_us(launched([(2000, 2510), (2600, 2700)], both)) == [(2520, 3000)]


def test_work_that_another_collective_can_have_waited_for_is_not() -> None:
    built = launched([(2000, 2200), (2300, 2400)], [(2100, 3000)])
    built.launches(REDUCE, us=300.0, at_us=2250.0, stream=11)
    assert hidden_us(built) == [(2250, 3000)]


def test_work_that_the_host_waits_for_is_not() -> None:
    built = launched([(2000, 2200), (2300, 2400)], [(2100, 3000)])
    built.waits(2150 - 1020).runtime("cudaStreamSynchronize", 70.0)
    ((begin, end),) = hidden_us(built)
    assert (begin, end) == (2200, 3000)


def test_without_a_recorded_host_nothing_is_known_to_be_hidden() -> None:
    built = trace().unlinked("gemm", us=100.0).unlinked(REDUCE, us=500.0, stream=9)
    assert hidden_us(built) == []
