"""The parts of the GPU timeline."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

KERNEL, COLLECTIVE, COPY = "gemm", "ncclDevKernel_AllReduce", "Memcpy HtoD (Pageable -> Device)"


def at(kind: str, start_us: float, us: float, builder: TraceBuilder, stream: int = 7) -> None:
    cat = "gpu_memcpy" if kind is COPY else "kernel"
    builder.launches(kind, us=us, at_us=start_us, stream=stream, cat=cat)


def report(builder: TraceBuilder) -> TraceLensReport:
    return TraceLensReport(builder.read(), None)


def test_computation_hides_communication_and_both_hide_copies() -> None:
    builder = trace().op("aten::mm")
    at(KERNEL, 2000, 100, builder)
    at(COLLECTIVE, 2050, 100, builder, stream=8)  # 50 hidden, 50 exposed
    at(COPY, 2140, 30, builder, stream=9)  # 10 under the collective, 20 exposed
    at(KERNEL, 2200, 10, builder)
    totals = report(builder).totals
    assert totals.compute_time_ms == pytest.approx(0.110)
    assert totals.exposed_comm_time_ms == pytest.approx(0.050)
    assert totals.exposed_memcpy_time_ms == pytest.approx(0.020)
    assert totals.busy_time_ms == pytest.approx(0.180)
    assert totals.idle_time_ms == pytest.approx(0.030)
    assert totals.total_time_ms == pytest.approx(0.210)
    assert totals.total_comm_time_ms == pytest.approx(0.100)
    assert totals.total_memcpy_time_ms == pytest.approx(0.030)
    assert totals.compute_pct == pytest.approx(100 * 110 / 210)
    assert totals.exposed_comm_pct == pytest.approx(100 * 50 / 210)
    assert totals.exposed_memcpy_pct == pytest.approx(100 * 20 / 210)
    assert totals.busy_pct == pytest.approx(100 * 180 / 210)
    assert totals.idle_pct == pytest.approx(100 * 30 / 210)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from([KERNEL, COLLECTIVE, COPY]), st.integers(2000, 2100), st.integers(0, 40)
    ),
    min_size=1,
    max_size=8,
)


@given(EVENTS)
def test_the_parts_add_up(events: list[tuple[str, int, int]]) -> None:
    builder = trace().op("aten::mm")
    for kind, start_us, us in events:
        at(kind, start_us, us, builder)
    t = report(builder).totals
    parts = t.compute_time_ms + t.exposed_comm_time_ms + t.exposed_memcpy_time_ms
    assert parts == pytest.approx(t.busy_time_ms)
    assert t.busy_time_ms + t.idle_time_ms == pytest.approx(t.total_time_ms)
    assert 0 <= t.exposed_comm_time_ms <= t.total_comm_time_ms + 1e-12
    assert 0 <= t.exposed_memcpy_time_ms <= t.total_memcpy_time_ms + 1e-12


def test_work_without_a_recorded_launch_is_outside_the_window() -> None:
    builder = trace().unlinked("early", us=30).op("aten::mm").launches("gemm", us=10)
    totals = report(builder).totals
    assert totals.busy_time_ms == pytest.approx(0.010)
    assert totals.linked_pct == pytest.approx(25.0)


def test_without_any_link_all_work_counts() -> None:
    totals = report(trace().op("aten::mm").unlinked("lost", us=30)).totals
    assert totals.busy_time_ms == pytest.approx(0.030)
    assert totals.linked_pct == 0.0


def test_a_trace_without_gpu_work_has_an_empty_timeline() -> None:
    empty = report(trace().op("aten::mm", [[2, 2], [2, 2]]))
    assert empty.totals.total_time_ms == 0
    assert empty.totals.idle_pct is None
    assert empty.totals.linked_pct is None
    assert empty.gpu_timeline["time_ms"].to_list() == [0.0] * 8
    assert empty.gpu_timeline["percent"].null_count() == 8
    assert empty.operations.is_empty()
    assert list(empty.sheets()) == ["gpu_timeline", "GEMM"]
    assert empty.roofline_sheets["GEMM"]["kernel_time_us_sum"].to_list() == [0.0]


@pytest.mark.parametrize(
    ("name", "cat", "kind"),
    [
        ("Memset (Device)", "gpu_memset", "compute"),
        ("Memcpy DtoD (Device -> Device)", "gpu_memcpy", "copy"),
        ("__amd_rocclr_copyBufferRectAligned.kd", "kernel", "copy"),
        ("MEMORY_COPY_HOST_TO_DEVICE", "kernel", "copy"),
        ("__amd_rocclr_fillBufferAligned", "kernel", "compute"),
        ("void vllm::cross_device_reduce_1stage<2>", "kernel", "communication"),
        ("rcclGenericKernel", "kernel", "communication"),
        ("my__amd_rocclr_copyBuffer", "kernel", "compute"),
    ],
)
def test_kinds_of_gpu_work(name: str, cat: str, kind: str) -> None:
    work = report(trace().op("aten::mm").launches(name, cat=cat)).gpu_work
    assert work["kind"].to_list() == [kind]


def test_copies_by_direction_in_the_window_of_the_timeline() -> None:
    builder = trace().unlinked("Memcpy DtoH (Device -> Pinned)", us=99).op("aten::copy_")
    at(KERNEL, 2000, 10, builder)
    at(COPY, 2005, 10, builder, stream=8)
    at(COPY, 2030, 4, builder, stream=8)
    builder.launches("Memcpy DtoH (Device -> Pinned)", us=3, cat="gpu_memcpy", bytes=64)
    copies = report(builder).memory_copies
    by_direction = {row["direction"]: row for row in copies.iter_rows(named=True)}
    assert copies["direction"].to_list() == ["H2D", "D2H"]
    assert by_direction["H2D"] == {
        "direction": "H2D",
        "count": 2,
        "total_time_us": 14.0,
        "avg_time_us": 7.0,
        "max_time_us": 10.0,
        "exposed_time_us": 9.0,
        "total_bytes": None,
        "avg_bytes": None,
    }
    assert by_direction["D2H"]["total_bytes"] == 64


def test_memory_kinds_of_a_copy() -> None:
    builder = trace().op("aten::copy_").launches(COPY, cat="gpu_memcpy").launches("k(a -> b)")
    work = report(builder).gpu_work.select("direction", "src_kind", "dst_kind")
    assert work.rows() == [("H2D", "Pageable", "Device"), (None, None, None)]
    assert work.schema["direction"] == pl.String


def test_work_of_negative_duration_takes_no_time() -> None:
    built = trace().op("aten::mm").launches("gemm", us=30)
    (kernel,) = [event for event in built.events if event.get("cat") == "kernel"]
    kernel["dur"] = -21.0
    totals = TraceLensReport(built.read(), None).totals
    assert (totals.busy_time_ms, totals.total_time_ms, totals.idle_time_ms) == (0, 0, 0)
