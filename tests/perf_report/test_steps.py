"""The steps of a recording: where they begin and end, and what their time consists of."""

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.perf_report.timeline.steps import PARTS, StepSource
from jarvis.trace import read_trace
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

ALL_REDUCE = "ncclDevKernel_AllReduce"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
COPY = "Memcpy HtoD (Pageable -> Device)"
DECODE = "execute_context_0(0)_generation_8(8)"
DETAILED = "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk400sqsq4sqsk400)"
US = 1000


def report(builder: TraceBuilder) -> TraceLensReport:
    return TraceLensReport(builder.read(), None)


def steps(builder: TraceBuilder) -> list[dict[str, Any]]:
    return report(builder).steps.to_dicts()


def parts_us(step: dict[str, Any]) -> list[float]:
    """The parts: compute, communication, copies, idle before, between and after."""
    return [step[part] / US for part in PARTS]


def two_steps() -> TraceBuilder:
    """Steps from 1000 to 2000 and to 3000 µs."""
    builder = trace().annotation("ProfilerStep#7", us=1000).child("aten::mm")
    builder.launches("gemm", us=50, at_us=1300)
    builder.launches(ALL_REDUCE, us=100, at_us=1320, stream=8)
    builder.launches(COPY, us=10, at_us=1500, stream=9, cat="gpu_memcpy").up(2)
    builder.annotation("ProfilerStep#8", us=1000).child("aten::mm")
    builder.launches("gemm", us=100, at_us=2100)
    return builder.launches(COPY, us=100, at_us=2150, stream=9, cat="gpu_memcpy").up(2)


def test_the_parts_of_profiler_steps_add_up_to_them() -> None:
    first, second = steps(two_steps())
    assert (first["step"], first["source"], first["name"]) == (0, "profiler", "ProfilerStep#7")
    assert (first["start_ns"], first["dur_ns"]) == (1000 * US, 1000 * US)
    assert parts_us(first) == [50, 70, 10, 300, 80, 490]
    assert parts_us(second) == [100, 0, 50, 100, 0, 750]
    assert (second["gpu_start_ns"], second["gpu_dur_ns"]) == (2100 * US, 150 * US)
    assert [first["gpu_event_count"], second["gpu_event_count"]] == [3, 2]


def test_the_launch_lead_is_the_median_of_the_compute_kernels() -> None:
    builder = trace().annotation("ProfilerStep#7", us=1000).child("aten::mm")
    for number, lead_us in enumerate((30, 900, 70)):
        builder.launches("gemm", us=5, launch_us=5, at_us=1002 + 5 * number + lead_us)
    builder.launches(ALL_REDUCE, us=100, at_us=3000, stream=8).up(2)
    (step,) = steps(builder)
    assert step["launch_lead_us"] == 70


def ahead(*gpu_us: float) -> list[dict[str, Any]]:
    """Steps of 100 µs on the host, each with GPU work after that of the step before."""
    builder, free_us = trace(), 1150.0
    for number, us in enumerate(gpu_us):
        builder.annotation(f"ProfilerStep#{number}", us=100).child("aten::mm")
        if us:
            builder.launches("gemm", us=us, at_us=free_us)
        builder.up(2)
        free_us += us + 10
    return steps(builder)


def test_steps_of_a_host_that_runs_ahead_last_from_end_to_end_of_their_gpu_work() -> None:
    found = ahead(200, 300, 0, 400)
    assert {step["timed_by"] for step in found} == {"gpu"}
    times = [(step["start_ns"], step["dur_ns"]) for step in found if step["dur_ns"] is not None]
    assert times == [(1150 * US, 200 * US), (1350 * US, 310 * US), (1660 * US, 420 * US)]
    assert found[2]["dur_ns"] is None
    assert parts_us(found[1]) == [300, 0, 0, 10, 0, 0]
    assert [step["host_dur_ns"] for step in found] == [100 * US] * 4


def test_steps_that_the_host_paces_last_as_long_as_their_marks() -> None:
    found = ahead(90, 80, 90)  # the GPU lags by up to half a step, and does not fall behind
    assert {step["timed_by"] for step in found} == {"marks"}
    assert [step["dur_ns"] for step in found] == [100 * US] * 3


def test_idle_time_has_its_place_in_the_step() -> None:
    gaps = report(two_steps()).step_gaps
    rows = gaps.select("step", "place", pl.col("start_ns", "dur_ns") / US).rows()
    assert rows == [
        (0, "before", 1000, 300),
        (0, "between", 1420, 80),
        (0, "after", 1510, 490),
        (1, "before", 2000, 100),
        (1, "after", 2250, 750),
    ]
    assert gaps["percent_of_step"].to_list() == [30, 8, 49, 10, 75]


def test_a_gpu_that_is_busy_at_both_ends_of_a_step_does_not_idle_there() -> None:
    builder = trace().annotation("ProfilerStep#1", us=100).child("aten::mm")
    builder.launches("gemm", us=200, at_us=1090).up(2)  # from 1090 to 1290 µs
    builder.annotation("ProfilerStep#2", us=100).up()
    first, second = steps(builder)
    assert parts_us(first) == [10, 0, 0, 90, 0, 0]
    assert parts_us(second) == [100, 0, 0, 0, 0, 0]
    assert second["gpu_event_count"] == 0


def test_a_step_without_gpu_work_is_idle_before_it() -> None:
    builder = trace().op("aten::mm").launches("gemm").up()
    builder.waits(50).annotation("ProfilerStep#1", us=100).up()
    (step,) = steps(builder)
    assert parts_us(step) == [0, 0, 0, 100, 0, 0]


WORK = st.lists(
    st.tuples(
        st.sampled_from(["gemm", "softmax", ALL_REDUCE, COPY]),
        st.integers(900, 2600),
        st.integers(0, 300),
        st.integers(7, 10),
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


@given(WORK, st.sampled_from(["ProfilerStep#1", DECODE, "other"]))
def test_parts_add_up_to_the_nanosecond(events: list[Any], name: str) -> None:
    builder = trace()
    for number in range(3):
        builder.annotation(f"{name}{number}" if name == "other" else name, us=400.003)
        builder.child("aten::mm")
        for kernel, start_us, us, stream, is_linked in events[number::3]:
            cat = "gpu_memcpy" if kernel == COPY else "kernel"
            if is_linked:
                builder.launches(kernel, us=us + 0.007, at_us=start_us, stream=stream, cat=cat)
            else:
                builder.unlinked(kernel, us=us, stream=stream)
        builder.up(2)
    tables = report(builder)
    rows = tables.steps.drop_nulls("dur_ns")
    assert rows.select(pl.sum_horizontal(PARTS)).to_series().equals(rows["dur_ns"])
    assert all((rows[part] >= 0).all() for part in PARTS)
    gaps = tables.step_gaps
    for place in ("before", "between", "after"):
        of_place = gaps.filter(pl.col("place") == place)
        by_step = dict(of_place.group_by("step").agg(pl.col("dur_ns").sum()).iter_rows())
        assert [by_step.get(step, 0) for step in rows["step"]] == rows[f"idle_{place}_ns"].to_list()
    assert gaps["cause"].is_in([*IdleCause]).all()


@given(WORK)
def test_states_are_the_gpu_timeline_to_the_nanosecond(events: list[Any]) -> None:
    builder = trace().op("aten::mm")
    for kernel, start_us, us, stream, _ in events:
        cat = "gpu_memcpy" if kernel == COPY else "kernel"
        builder.launches(kernel, us=us + 0.007, at_us=start_us, stream=stream, cat=cat)
    tables = report(builder)
    states, totals = tables.timeline_states, tables.totals
    ends = states["start_ns"] + states["dur_ns"]
    assert (states["dur_ns"] > 0).all()
    assert ends[:-1].equals(states["start_ns"][1:])
    sums = dict(states.group_by("state").agg(pl.col("dur_ns").sum()).iter_rows())
    assert sums.get("compute", 0) == round(1e6 * totals.compute_time_ms)
    assert sums.get("communication", 0) == round(1e6 * totals.exposed_comm_time_ms)
    assert sums.get("copy", 0) == round(1e6 * totals.exposed_memcpy_time_ms)
    assert sums.get("idle", 0) == round(1e6 * totals.idle_time_ms)
    assert sum(sums.values()) == round(1e6 * totals.total_time_ms)


def test_of_kernels_at_once_the_longest_gives_the_detail() -> None:
    builder = trace().op("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=100, at_us=2000).up()
    builder.op("aten::mul", [[8, 4], [8, 4]]).launches("mul", us=30, at_us=1990, stream=8).up()
    builder.op("c10d::allreduce_").launches(ALL_REDUCE, us=150, at_us=2000, stream=9).up()
    builder.op("aten::to").launches(COPY, us=10, at_us=2200, stream=9, cat="gpu_memcpy").up()
    rows = report(builder).timeline_states.to_dicts()
    assert [(row["state"], row["start_ns"] / US, row["dur_ns"] / US) for row in rows] == [
        ("compute", 1990, 10),
        ("compute", 2000, 100),
        ("communication", 2100, 50),
        ("idle", 2150, 50),
        ("copy", 2200, 10),
    ]
    assert [row["detail"] for row in rows[:2]] == ["elementwise", "GEMM"]
    assert rows[3]["detail"] in [*IdleCause]
    assert rows[4]["detail"] == "H2D"


def test_engine_steps_last_from_the_end_of_the_gpu_work_before() -> None:
    builder = trace().annotation(DECODE, us=100).child("aten::mm")
    builder.launches("gemm", us=450, at_us=1050).up(2)
    builder.annotation(DECODE, us=100).child("aten::mm")
    builder.launches("gemm", us=190, at_us=1510).up(2)
    first, second = steps(builder)
    assert (first["source"], first["tokens"]) == ("engine", 8)
    assert (first["start_ns"], first["dur_ns"]) == (1050 * US, 450 * US)
    assert parts_us(first) == [450, 0, 0, 0, 0, 0]
    assert (second["start_ns"], second["dur_ns"]) == (1500 * US, 200 * US)
    assert parts_us(second) == [190, 0, 0, 10, 0, 0]
    assert (second["host_start_ns"], second["host_dur_ns"]) == (1100 * US, 100 * US)


def test_the_time_of_an_engine_step_without_gpu_work_is_not_known() -> None:
    builder = trace().annotation(DECODE, us=100).child("aten::mm").launches("gemm").up(2)
    first, second = steps(builder.annotation(DECODE, us=100).up())
    assert first["dur_ns"] == 10 * US
    assert second["dur_ns"] is None
    assert second["compute_ns"] is None
    assert second["gpu_event_count"] == 0


@pytest.mark.parametrize(
    ("outer", "inner", "tokens"),
    [(DETAILED, "step[DECODE bs=4]", 4), ("step[EXTEND bs=4]", "step[EXTEND bs=4 toks=70]", 70)],
)
def test_nested_annotations_are_one_step(outer: str, inner: str, tokens: int) -> None:
    builder = trace().annotation(outer).annotation(inner).child("aten::mm").launches("gemm").up(3)
    (step,) = steps(builder)
    assert (step["name"], step["tokens"]) == (outer, tokens)


def test_an_annotation_of_the_same_name_on_another_thread_is_part_of_the_step() -> None:
    builder = trace().annotation(DECODE, us=200).child("aten::mm").launches("gemm").up(2)
    builder.thread(2).waits(20).annotation(DECODE, us=50).child("aten::mm").launches("gemm").up(2)
    (step,) = steps(builder)
    assert step["gpu_event_count"] == 2
    builder.thread(3).waits(20).annotation(DETAILED, us=50).up()
    assert len(steps(builder)) == 2


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ProfilerStep#4", StepSource.PROFILER),
        ("decode[bs=5/8 tok=5 d=5]", StepSource.ENGINE),
        ("execute_diffusion_2_512x768", StepSource.ENGINE),
        ("step[TRAIN 4]", StepSource.RECORDING),
        ("capture_16_decode", StepSource.RECORDING),
        ("Optimizer.step#SGD.step", StepSource.RECORDING),
    ],
)
def test_what_marks_a_step(name: str, source: StepSource) -> None:
    (step,) = steps(trace().annotation(name).child("aten::mm").launches("gemm").up(2))
    assert step["source"] == source
    assert step["name"] == (None if source is StepSource.RECORDING else name)


def test_steps_of_an_engine_come_before_those_of_the_profiler() -> None:
    builder = trace().annotation("ProfilerStep#1").annotation(DECODE).child("aten::mm")
    (step,) = steps(builder.launches("gemm").up(3))
    assert (step["source"], step["name"]) == ("engine", DECODE)


def with_lead_in(frame: str | None = "train.py(30): preprocess") -> TraceBuilder:
    """7 ms of the host, then 3 ms of the GPU."""
    builder = trace()
    if frame is not None:
        builder.python("train.py(7): main").python(frame, us=6990).up(2)
    return builder.op("aten::mm").launches("gemm", us=3000, at_us=8000).up()


def test_without_marks_the_recording_is_the_step_host_included() -> None:
    (step,) = steps(with_lead_in())
    assert (step["source"], step["start_ns"]) == ("recording", 1000 * US)
    assert step["dur_ns"] == 10_000 * US
    assert parts_us(step) == [3000, 0, 0, 7000, 0, 0]


def test_host_work_before_the_first_gpu_event_is_a_cause_of_its_own() -> None:
    (gap,) = report(with_lead_in()).step_gaps.to_dicts()
    assert (gap["place"], gap["cause"]) == ("before", IdleCause.HOST_WORK)
    assert gap["percent_of_step"] == pytest.approx(70)
    assert gap["host_call"] == "train.py(30): preprocess"
    assert (gap["next_name"], gap["launcher_name"]) == ("gemm", "aten::mm")


def test_a_lead_in_that_the_gpu_works_through_is_none() -> None:
    builder = trace().op("aten::mm").launches("gemm", us=8000, at_us=1000).up()
    builder.python("train.py(30): preprocess", us=6990).up()
    assert report(builder).step_gaps.is_empty()


def test_host_work_after_the_last_gpu_event_is_a_cause_too() -> None:
    builder = trace().op("aten::mm").launches("gemm", us=100).up()
    builder.python("train.py(40): write_metrics", us=6000).up()
    before, after = report(builder).step_gaps.to_dicts()
    assert before["place"] == "before"
    assert (after["place"], after["cause"]) == ("after", IdleCause.HOST_WORK)
    assert after["host_call"] == "train.py(40): write_metrics"
    assert after["next_name"] is None


def test_after_the_last_gpu_event_the_thread_of_the_mark_counts() -> None:
    builder = trace().annotation("ProfilerStep#1").child("aten::mm").launches("gemm", us=10).up()
    builder.python("train.py(40): write_metrics", us=6000).up(2)
    builder.thread(2).op("autograd::engine").launches("gemm", us=10).launches("gemm", us=10).up()
    (after,) = report(builder).step_gaps.filter(pl.col("place") == "after").to_dicts()
    assert after["host_call"] == "train.py(40): write_metrics"


def test_work_without_a_recorded_launch_is_no_idle_time_of_the_step() -> None:
    builder = with_lead_in()
    builder.unlinked("old", us=6000, stream=9)
    builder.events[-1]["ts"] = 1500.0
    tables = report(builder)
    (step,) = tables.steps.to_dicts()
    assert parts_us(step) == [9000, 0, 0, 500, 500, 0]
    assert tables.step_gaps["place"].to_list() == ["before", "between"]
    assert tables.totals.compute_time_ms == 3  # the timeline excludes it


def test_a_loader_on_another_place_of_the_step_boundary_is_split() -> None:
    builder = trace()
    for number in range(2):
        builder.annotation(f"ProfilerStep#{number}").child(LOADER, us=5000).up().child("aten::mm")
        builder.launches("gemm", us=100).up().python("train.py(9): log", us=2000).up(2)
    gaps = report(builder).step_gaps
    causes = gaps.select("step", "place", "cause").rows()
    assert causes == [
        (number, place, cause)
        for number in range(2)
        for place, cause in (("before", "data_loading"), ("after", "host_work"))
    ]


def queued(late_us: int, first_us: int = 4, launch_us: int = 2) -> TraceBuilder:
    """A kernel, then one that starts late though it was launched at once, and 20 short gaps."""
    builder = trace().annotation(DECODE, us=late_us).child("aten::mm")
    builder.launches("gemm", us=first_us, at_us=1004)
    start_us = 1004 + first_us + late_us
    builder.launches("gemm", us=100, at_us=start_us, launch_us=launch_us)
    for number in range(1, 21):
        builder.launches("gemm", us=100, at_us=start_us + 101 * number)
    return builder.runtime("hipMemcpyWithStream", us=late_us).up(2)


def test_carried_in_work_is_not_in_the_step() -> None:
    tables = report(queued(400_000))
    gap = tables.idle_gaps.row(0, named=True)
    assert (gap["cause"], gap["host_call"]) == ("carried_in", "hipMemcpyWithStream")
    (step,) = tables.steps.to_dicts()
    assert step["carried_in_ns"] == 400_000 * US
    assert step["dur_ns"] == (21 * 100 + 20) * US
    assert parts_us(step) == [2100, 0, 0, 0, 20, 0]


@pytest.mark.parametrize(
    ("late_us", "first_us"), [(900, 4), (400_000, 40)], ids=["short", "work before it"]
)
def test_what_is_not_carried_in(late_us: int, first_us: int) -> None:
    tables = report(queued(late_us, first_us))
    assert tables.idle_gaps["cause"][0] == IdleCause.STALLED_QUEUE
    (step,) = tables.steps.to_dicts()
    assert step["carried_in_ns"] == 0
    assert step["idle_between_ns"] == (late_us + 20) * US


def test_a_launch_that_takes_the_gap_is_not_carried_in() -> None:
    """It loads the kernel: nothing is queued meanwhile."""
    tables = report(queued(400_000, launch_us=399_900))
    assert tables.idle_gaps["cause"][0] == IdleCause.KERNEL_LOADING
    assert tables.steps["carried_in_ns"].to_list() == [0]


def test_a_gap_in_which_recorded_work_runs_is_not_carried_in() -> None:
    builder = queued(400_000).unlinked("old", us=100_000, stream=9)
    builder.events[-1]["ts"] = 50_000.0
    assert report(builder).idle_gaps["cause"][0] == IdleCause.STALLED_QUEUE


def loading(*us: float) -> TraceBuilder:
    builder = trace()
    for number, load_us in enumerate(us):
        builder.annotation(f"ProfilerStep#{number}").child(LOADER, us=load_us).up()
        builder.child("aten::mm").launches("gemm", us=1000, at_us=None).up()
        builder.runtime("cudaDeviceSynchronize", us=1000).up()
    return builder


def test_a_slow_step_is_named_with_its_cause() -> None:
    rows = steps(loading(5000, 9000, 5000, 5000))
    assert [row["is_slow"] for row in rows] == [False, True, False, False]
    slow = rows[1]
    assert slow["excess_ns"] == 4000 * US
    assert (slow["slow_part"], slow["slow_cause"]) == ("idle_before", "data_loading")
    assert slow["slow_call"] == LOADER
    assert rows[0]["slow_part"] is None


def prepared(*us: float) -> list[dict[str, Any]]:
    """Steps that load a batch for 5 ms between two launches, and prepare it for so long."""
    builder = trace()
    for number, prepare_us in enumerate(us):
        builder.annotation(f"ProfilerStep#{number}")
        builder.child("aten::mm").launches("gemm", us=10).up()
        builder.child(LOADER, us=5000).up()
        builder.child("aten::mm").launches("gemm", us=10).up()
        builder.child("aten::stack", us=prepare_us).up()
        builder.child("aten::mm").launches("gemm", us=10).up()
        builder.runtime("cudaDeviceSynchronize", us=50).up()
    return steps(builder)


def test_the_cause_of_a_slow_step_exceeds_its_own_median() -> None:
    slow = prepared(2000, 4000, 2000)[1]
    assert (slow["slow_part"], slow["slow_cause"]) == ("idle_between", "host_work")


@pytest.mark.parametrize("us", [(5000, 5200, 5000), (5000, 9000)], ids=["alike", "two steps"])
def test_no_step_is_slow(us: tuple[float, ...]) -> None:
    rows = steps(loading(*us))
    assert not any(row["is_slow"] for row in rows)
    assert (rows[0]["excess_ns"] is None) == (len(us) < 3)


def test_a_trace_of_the_host_alone_has_its_step() -> None:
    tables = report(trace().op("aten::mm", us=50))
    (step,) = tables.steps.to_dicts()
    assert parts_us(step) == [0, 0, 0, 50, 0, 0]
    assert tables.timeline_states.is_empty()


def test_the_step_of_a_serving_trace(reference_root: Path) -> None:
    read = read_trace(reference_root / "traces" / "sglang-qwen3-8b-decode.json.gz")
    tables = TraceLensReport(read, None)
    (step,) = tables.steps.to_dicts()
    assert (step["source"], step["tokens"], step["gpu_event_count"]) == ("engine", 32, 558)
    assert step["carried_in_ns"] / 1e6 == pytest.approx(463.295, abs=0.001)
    assert step["dur_ns"] / 1e6 == pytest.approx(10.450, abs=0.001)
    busy_ns = step["compute_ns"] + step["exposed_comm_ns"] + step["exposed_copy_ns"]
    assert busy_ns == round(1e6 * tables.totals.busy_time_ms) - 4246  # a kernel before the gap


def test_the_steps_of_a_trace_with_old_category_names(reference_root: Path) -> None:
    path = reference_root / "counterfactual" / "kineto-resnet50-w0.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    marks = [e for e in events if str(e.get("name")).startswith("ProfilerStep#")]
    rows = TraceLensReport(read_trace(path), None).steps.to_dicts()
    assert len(marks) == 6
    assert [(row["name"], row["dur_ns"]) for row in rows] == [
        (mark["name"], mark["dur"] * US) for mark in marks
    ]
    assert all(sum(row[part] for part in PARTS) == row["dur_ns"] for row in rows)
    (slow,) = (row for row in rows if row["is_slow"])
    assert (slow["name"], slow["slow_part"]) == ("ProfilerStep#10", "idle_between")
    # Its batch loads as fast as the others; no cause takes half of what it idles over the median.
    assert (slow["slow_cause"], slow["slow_call"]) == (None, None)
