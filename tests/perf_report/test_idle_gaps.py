"""The gaps of the GPU timeline: they add up to idle time, and each has its cause."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.tracelens.options import ReportOptions
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
COPY_TO_HOST = "Memcpy DtoH (Device -> Pageable)"
COPY_TO_DEVICE = "Memcpy HtoD (Pageable -> Device)"
ALL_REDUCE = "ncclDevKernel_AllReduce"


def gaps(builder: TraceBuilder, **options: Any) -> pl.DataFrame:
    return TraceLensReport(builder.read(), None, options=ReportOptions(**options)).idle_gaps


def only(builder: TraceBuilder) -> dict[str, Any]:
    (gap,) = gaps(builder).to_dicts()
    return gap


def kernel(builder: TraceBuilder, us: float = 10.0, **options: Any) -> TraceBuilder:
    return builder.op("aten::mul").launches("mul_kernel", us=us, **options).up()


def one_kernel(us: float = 10.0) -> TraceBuilder:
    return kernel(trace(), us)


WORK = st.lists(
    st.tuples(st.integers(2000, 2300), st.integers(0, 40), st.integers(7, 9), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(WORK)
def test_the_gaps_are_the_idle_time_to_the_nanosecond(events: list[Any]) -> None:
    builder = trace().op("aten::mm")
    for start_us, us, stream, is_linked in events:
        if is_linked:
            builder.launches("gemm", us=us + 0.007, at_us=start_us, stream=stream)
        else:
            builder.unlinked("other", us=us, stream=stream)
    report = TraceLensReport(builder.read(), None)
    assert report.idle_gaps["dur_ns"].sum() == round(1e6 * report.totals.idle_time_ms)
    assert (report.idle_gaps["dur_ns"] > 0).all()
    assert report.idle_gaps["cause"].is_in([*IdleCause]).all()


def test_a_gap_has_the_work_on_both_sides_and_the_launch_that_ends_it() -> None:
    builder = trace().op("aten::mm").launches("gemm", us=10)
    builder.op("aten::relu").launches("relu_kernel", at_us=1100)
    gap = only(builder)
    assert (gap["prev_name"], gap["next_name"]) == ("gemm", "relu_kernel")
    assert (gap["launch_name"], gap["launcher_name"]) == ("cudaLaunchKernel", "aten::relu")
    assert gap["start_ns"] == 1_013_000
    assert gap["dur_ns"] == 87_000
    assert gap["launch_lead_us"] == pytest.approx(1100 - 1005)


@pytest.mark.parametrize(("wait_us", "cause"), [(300, "launch_bound"), (3000, "unknown")])
def test_a_host_that_works_through_operators_is_launch_bound(wait_us: float, cause: str) -> None:
    assert only(kernel(one_kernel().waits(wait_us)))["cause"] == cause


def test_a_gap_of_queued_work_is_caused_by_the_gpu() -> None:
    builder = one_kernel(100)
    kernel(builder, at_us=1143)  # launched while the first one ran, starts 40 µs after its end
    assert only(builder)["cause"] == IdleCause.QUEUED


@pytest.mark.parametrize(
    ("loading_us", "rest_us", "cause"), [(5000, 1000, "data_loading"), (1000, 5000, "host_work")]
)
def test_data_loading_counts_where_it_fills_most_of_the_gap(
    loading_us: float, rest_us: float, cause: str
) -> None:
    builder = one_kernel().op(LOADER, us=loading_us)
    builder.op("aten::randperm", us=rest_us)
    assert only(kernel(builder))["cause"] == cause


def test_data_loading_beside_gpu_work_is_no_cause() -> None:
    builder = one_kernel(8000).op(LOADER, us=5000)
    kernel(builder, at_us=9040)  # 37 µs after the long kernel, launched long before its end
    assert only(builder)["cause"] == IdleCause.QUEUED


def test_python_before_the_first_kernel_is_named() -> None:
    builder = trace().op("aten::to").launches(COPY_TO_DEVICE, cat="gpu_memcpy", us=5).up()
    builder.python("train.py(7): main").python("train.py(30): tokenize", us=20_000).up(2)
    gap = only(kernel(builder))
    assert gap["cause"] == IdleCause.HOST_WORK
    assert gap["host_call"] == "train.py(30): tokenize"
    assert gap["host_call_us"] == pytest.approx(20_000)


def test_without_python_frames_a_long_wait_is_unknown() -> None:
    gap = only(kernel(one_kernel().waits(20_000)))
    assert gap["cause"] == IdleCause.UNKNOWN
    assert gap["host_call"] is None


def read_on_host(builder: TraceBuilder, wait_us: float) -> TraceBuilder:
    """A value read back: the copy is asynchronous, then the host waits for the stream."""
    builder.op("aten::item").child("aten::_local_scalar_dense")
    builder.launches(COPY_TO_HOST, us=2, cat="gpu_memcpy", call="cudaMemcpyAsync")
    return builder.runtime("cudaStreamSynchronize", us=wait_us)


def test_a_wait_for_the_gpu_empties_its_queue() -> None:
    builder = read_on_host(one_kernel(9000), 9050).waits(200)
    gap = only(kernel(builder))
    assert gap["cause"] == IdleCause.SYNCHRONIZATION
    assert gap["host_call"] == "cudaStreamSynchronize"
    assert gap["host_op"] == "aten::_local_scalar_dense"
    assert gap["host_call_us"] == pytest.approx(9050)


def test_a_short_wait_explains_no_long_gap() -> None:
    builder = read_on_host(one_kernel(), 20).python("train.py(9): augment", us=6000).up()
    causes = gaps(kernel(builder))["cause"].to_list()
    assert causes == [IdleCause.HOST_WORK]
    frequent = kernel(read_on_host(one_kernel(), 20).waits(300))
    assert only(frequent)["cause"] == IdleCause.LAUNCH_BOUND


def test_a_blocking_copy_counts_for_the_gap_that_follows_it() -> None:
    builder = one_kernel(9000).op("aten::item")
    builder.launches(COPY_TO_HOST, us=2, cat="gpu_memcpy", call="hipMemcpyWithStream")
    builder.events[-4]["dur"] = 9000  # the call lasts until the copy is done
    gap = only(kernel(builder.waits(9100)))
    assert gap["cause"] == IdleCause.SYNCHRONIZATION
    assert gap["host_call"] == "hipMemcpyWithStream"


def test_the_wait_of_one_thread_counts_for_the_launch_of_the_next() -> None:
    builder = read_on_host(one_kernel(9000), 9050)
    builder.thread(2).waits(9300).op("autograd::engine::evaluate_function: MulBackward0")
    builder.launches("mul_backward_kernel")
    assert only(builder)["cause"] == IdleCause.SYNCHRONIZATION


@pytest.mark.parametrize(("late_us", "cause"), [(400_000, "stalled_queue"), (40, "queued")])
def test_queued_work_that_does_not_start_is_no_fault_of_the_host(late_us: int, cause: str) -> None:
    builder = one_kernel(100)
    kernel(builder, at_us=1103 + late_us)
    builder.op("aten::item").runtime("hipMemcpyWithStream", us=late_us)
    gap = only(builder)
    assert gap["cause"] == cause
    assert gap["host_call"] == ("hipMemcpyWithStream" if late_us > 40 else None)


@pytest.mark.parametrize(("us", "cause"), [(4000, "allocator"), (40, "launch_bound")])
def test_allocator_calls(us: float, cause: str) -> None:
    assert only(kernel(one_kernel().runtime("cudaMalloc", us=us).waits(100)))["cause"] == cause


@pytest.mark.parametrize("call", ["hipModuleLoadData", "cuLibraryLoadData"])
def test_loading_of_kernels(call: str) -> None:
    assert only(kernel(one_kernel().runtime(call, us=4000)))["cause"] == IdleCause.KERNEL_LOADING


@pytest.mark.parametrize(("us", "cause"), [(4000, "kernel_loading"), (400, "launch_bound")])
def test_a_launch_that_lasts_milliseconds_loads_its_kernel(us: float, cause: str) -> None:
    builder = one_kernel().waits(us)
    kernel(builder)
    call = builder.events[-4]
    call["ts"], call["dur"] = call["ts"] - us, us
    assert (call["name"], only(builder)["cause"]) == ("cudaLaunchKernel", cause)


def test_waiting_for_other_ranks_on_the_host() -> None:
    builder = one_kernel().op("c10d::barrier", us=5000)
    assert only(kernel(builder))["cause"] == IdleCause.COMMUNICATION


@pytest.mark.parametrize(("stream", "cause"), [(8, "communication"), (7, "stalled_queue")])
def test_queued_work_beside_communication_of_another_stream(stream: int, cause: str) -> None:
    builder = one_kernel(100)
    builder.op("c10d::allreduce_").launches(ALL_REDUCE, stream=stream, at_us=1400)
    builder.waits(400)
    assert only(builder)["cause"] == cause


@pytest.mark.parametrize(("us", "cause"), [(4000, "unlinked_work"), (400, "host_work")])
def test_work_without_a_recorded_launch_is_no_idle_time(us: float, cause: str) -> None:
    builder = one_kernel().waits(100).unlinked("compiled_kernel", us=us)
    builder.op("aten::topk", us=5000)
    gap = only(kernel(builder))
    assert gap["cause"] == cause
    assert gap["unlinked_us"] == pytest.approx(us)


def unlinked_pair(builder: TraceBuilder) -> TraceBuilder:
    return builder.unlinked("early").waits(5000).unlinked("late")


def test_before_the_host_recording_the_cause_is_unknown() -> None:
    after = unlinked_pair(trace()).op("aten::mul")
    assert only(after)["cause"] == IdleCause.WINDOW_EDGE
    around = unlinked_pair(trace().op("aten::mul")).op("aten::add")
    assert only(around)["cause"] == IdleCause.UNKNOWN


def test_a_trace_without_host_events_has_no_evidence() -> None:
    gap = only(unlinked_pair(trace()))
    assert gap["cause"] == IdleCause.UNKNOWN
    assert gap["launch_name"] is None


def test_launching_a_graph_is_launch_bound() -> None:
    builder = one_kernel().waits(3000).graph(("a", 10), ("b", 10))
    launch = next(e for e in builder.events if e["name"] == "cudaGraphLaunch")
    launch["ts"], launch["dur"] = launch["ts"] - 2900, 2902
    gap = gaps(builder).row(0, named=True)
    assert gap["cause"] == IdleCause.LAUNCH_BOUND
    assert gap["host_call"] == "cudaGraphLaunch"


def test_a_report_without_gaps() -> None:
    assert gaps(one_kernel()).is_empty()
    assert gaps(trace().op("aten::mul")).is_empty()
