"""Idle time before the first and after the last GPU event of a step."""

import pytest

from jarvis.analyses.system.cpu_idle import step_edges
from jarvis.findings import Priority
from jarvis.tracelens.report import TraceLensReport
from tests.analyses.rows import system
from tests.builders import TraceBuilder, trace
from tests.worded import Worded, worded


def found(builder: TraceBuilder) -> list[Worded]:
    report = TraceLensReport(builder.read(), None)
    tables = {name: report.table(name) for name in ("gpu_work", "steps", "step_gaps")}
    return worded(step_edges(system("cpu_idle", report.totals, tables=tables)))


def recording(*, host_us: float = 190_000, gpu_us: float = 60_000) -> TraceBuilder:
    builder = trace().python("train.py(7): main").python("train.py(30): preprocess", us=host_us)
    return builder.up(2).op("aten::mm").launches("gemm", us=gpu_us).up()


def steps(*host_us: float, gpu_us: float = 1000) -> TraceBuilder:
    builder = trace()
    for number, us in enumerate(host_us):
        builder.annotation(f"ProfilerStep#{number}", us=us + gpu_us + 100)
        builder.python("train.py(30): preprocess", us=us).up()
        builder.child("aten::mm").launches("gemm", us=gpu_us).up(2)
    return builder


def test_host_work_before_the_first_kernel_of_the_recording() -> None:
    (late,) = found(recording())
    assert late.title == "The GPU starts late in the recording: host work"
    assert late.issue.startswith("The GPU starts 76.0% into the recording: 190 ms of 250 ms pass ")
    assert "`train.py(30): preprocess` (190 ms)" in late.issue
    assert late.priority is Priority.CRITICAL


def test_a_late_first_launch_is_host_work() -> None:
    (late,) = found(recording(host_us=700, gpu_us=300))
    assert late.title == "The GPU starts late in the recording: host work"
    assert "while the host runs Python or operators" in late.issue


def test_the_share_is_that_of_all_steps() -> None:
    (late,) = found(steps(3000, 1000))
    assert late.title == "The GPU starts late in the step: host work"
    assert "into the step on average over 2 steps" in late.issue
    values = late.evidence
    assert values["Idle time per step (ms)"] == pytest.approx(2.0, rel=0.02)
    assert values["Step time (ms)"] == pytest.approx(3.1, rel=0.02)
    assert values["Steps"] == 2
    assert late.priority is Priority.HIGH


def test_host_work_after_the_last_kernel() -> None:
    builder = trace().op("aten::mm").launches("gemm", us=1000).up()
    (early,) = found(builder.waits(1000).python("train.py(40): log", us=9000).up())
    assert early.title == "The GPU has finished long before the recording ends: host work"
    assert "`train.py(40): log` (9.00 ms)" in early.issue


@pytest.mark.parametrize(
    "builder",
    [
        recording(host_us=1900),  # 3 % of the recording
        trace().op("aten::mm").launches("gemm", us=9000, at_us=1000).up().waits(1),
        steps(20, 20, gpu_us=10_000),
    ],
    ids=["short", "busy", "short in steps"],
)
def test_a_gpu_that_starts_soon(builder: TraceBuilder) -> None:
    assert not found(builder)


def test_a_step_of_an_engine_begins_where_the_gpu_work_before_ends() -> None:
    builder = trace()
    for _ in range(2):
        builder.annotation("execute_context_0(0)_generation_8(8)", us=5000)
        builder.child("aten::mm").launches("gemm", us=100).up(2)
    assert not found(builder)


def test_a_run_without_the_table_of_steps() -> None:
    report = TraceLensReport(recording().read(), None)
    assert not worded(step_edges(system("cpu_idle", report.totals)))
    empty = {name: report.table(name).clear() for name in ("steps", "step_gaps")}
    assert not worded(step_edges(system("cpu_idle", report.totals, tables=empty)))
