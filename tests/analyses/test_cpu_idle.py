"""CPU / idle: idle share, short kernels, projected speedup."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.base import CategoryData
from jarvis.analyses.runner import run_analyses, split_operations
from jarvis.analyses.system.cpu_idle import gpu_idle, measure, short_kernels, step_edges
from jarvis.analyses.system.cpu_idle.causes import idle_causes
from jarvis.analyses.system.cpu_idle.kernels import SHORT_KERNEL_US
from jarvis.analyses.system.cpu_idle.wording import CAUSES
from jarvis.findings import AnalysisResult, Priority, Severity
from jarvis.perf_report.timeline.idle_gaps import IdleCause
from jarvis.perf_report.timeline.steps import PARTS
from jarvis.savings import disjoint_findings
from jarvis.text.messages import to_text
from jarvis.text.quantities import title_of
from jarvis.trace import Trace, read_trace
from jarvis.tracelens.report import TraceLensReport
from tests.analyses.rows import system, table, totals
from tests.builders import TraceBuilder, trace
from tests.worded import Worded, supported_in, worded

KEY = "cpu_idle"
LAUNCH_BOUND = "Launch-bound: the GPU waits for the next launch"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def kernels(*durations_us: float, linked: bool = True, cat: str = "kernel") -> pl.DataFrame:
    rows = (
        {
            "uid": uid,
            "kind": "compute",
            "cat": cat,
            "ts_ns": uid * 100_000,
            "dur_ns": int(us * 1000),
            "linked": linked,
        }
        for uid, us in enumerate(durations_us)
    )
    return table("gpu_work", *rows)


def idle(pct: float):
    return totals(100 - pct, idle_ms=pct)


@pytest.mark.parametrize(
    ("pct", "severity"),
    [
        (71.0, Severity.CRITICAL),
        (70.0, Severity.HIGH),
        (50.0, Severity.MEDIUM),
        (30.0, Severity.LOW),
        (15.0, Severity.ACCEPTABLE),
    ],
)
def test_severity(pct: float, severity: Severity) -> None:
    (finding,) = worded(gpu_idle(system(KEY, idle(pct))))
    assert finding.severity is severity
    assert f"{pct:.1f}%" in finding.issue


def test_below_fifteen_percent_there_is_nothing_to_fix() -> None:
    assert not list(gpu_idle(system(KEY, idle(14.9))))


def test_saving_is_idle_time_beyond_the_target() -> None:
    (finding,) = worded(gpu_idle(system(KEY, idle(60.0))))
    # 40 ms busy at 20 % idle take 50 ms of 100 ms
    assert finding.impact.saved_ms.mid == pytest.approx(50.0)
    assert finding.impact.saved_ms.high == pytest.approx(60.0)
    assert measure(system(KEY, idle(60.0)))["potential_speedup"] == pytest.approx(2.0)
    assert measure(system(KEY, idle(10.0)))["potential_speedup"] == 1.0


def test_kernels_are_counted_from_the_gpu_events() -> None:
    work = pl.concat([kernels(5.0, 9.9, 10.0, 50.0), kernels(1.0, cat="gpu_memcpy")])
    work = pl.concat([work, kernels(2.0, linked=False)])
    analysis = measure(system(KEY, idle(50.0), tables={"gpu_work": work}))["kernel_analysis"]
    assert analysis["total_kernel_count"] == 4
    assert analysis["short_kernel_count"] == 2
    assert analysis["avg_kernel_time_us"] == pytest.approx(74.9 / 4)


def test_short_kernels_matter_only_where_the_gpu_idles() -> None:
    tables = {"gpu_work": kernels(5.0, 6.0, 50.0)}
    (finding,) = worded(short_kernels(system(KEY, idle(50.0), tables=tables)))
    assert finding.severity is Severity.HIGH
    assert finding.priority is Priority.MEDIUM
    assert "2 of 3 kernels" in finding.issue
    assert not list(short_kernels(system(KEY, idle(10.0), tables=tables)))
    assert not list(short_kernels(system(KEY, idle(50.0))))


def test_patterns() -> None:
    tables = {"gpu_work": kernels(*[5.0] * 1001)}
    patterns = measure(system(KEY, idle(75.0), tables=tables))["patterns_detected"]
    assert {p["name"]: p["severity"] for p in patterns} == {
        "idle": "CRITICAL",
        "short_kernels": "HIGH",
        "kernel_count": "MEDIUM",
        "mean_kernel_time": "HIGH",
    }


def test_advice_on_graphs_knows_whether_there_are_any() -> None:
    def advice(launcher: str) -> str:
        work = kernels(5.0, 5.0, 5.0).with_columns(launcher_name=pl.lit(launcher))
        (finding,) = worded(gpu_idle(system(KEY, idle(60.0), tables={"gpu_work": work})))
        return finding.kernel

    assert advice("aten::mul").startswith("Replay steady parts")
    assert "100.0% of the kernels are already replayed" in advice("hipGraphLaunch")


ZEROS = dict.fromkeys((*PARTS, "host_dur_ns"), 0)


def gap(cause: str, ms: float, **values: object) -> dict[str, object]:
    known = {"launch_uid": 1, "launch_name": "cudaLaunchKernel", "launcher_name": "aten::mul"}
    return {"start_ns": 0, "dur_ns": round(ms * 1e6), "cause": cause, **known, **values}


def by_cause(
    *gaps: dict[str, object], work: pl.DataFrame | None = None, place: str = "between"
) -> CategoryData:
    """A step of 100 ms with these gaps at a place in it, without those of carried-in work."""
    own = [{**row, "place": place} for row in gaps if row["cause"] != "carried_in"]
    idle_ns, carried_ns = (
        sum(row["dur_ns"] for row in rows)
        for rows in (own, (row for row in gaps if row["cause"] == "carried_in"))
    )
    idle_ms = (idle_ns + carried_ns) / 1e6
    step_ns = 100_000_000 - carried_ns
    step = {"source": "profiler", "timed_by": "marks", "dur_ns": step_ns, "tokens": None}
    parts = {f"idle_{place}_ns": idle_ns, "compute_ns": step_ns - idle_ns}
    tables = {
        "idle_gaps": table("idle_gaps", *gaps),
        "step_gaps": table("step_gaps", *own),
        "steps": table("steps", {**ZEROS, **step, **parts, "carried_in_ns": carried_ns}),
    }
    if work is not None:
        tables["gpu_work"] = work
    return system(KEY, idle(idle_ms), tables=tables)


def test_each_cause_from_five_percent_on_has_a_finding_of_its_own() -> None:
    data = by_cause(gap("data_loading", 30), gap("data_loading", 2), gap("allocator", 4.9))
    (finding,) = worded(idle_causes(data))
    assert finding.title == CAUSES[IdleCause.DATA_LOADING].title
    assert finding.severity is Severity.MEDIUM
    assert finding.evidence["Idle (ms)"] == pytest.approx(32)
    assert finding.evidence["Gaps"] == 2
    assert finding.evidence["Longest gap (ms)"] == pytest.approx(30)
    assert finding.evidence["Share of step time (%)"] == pytest.approx(32)
    assert finding.impact.saved_ms.high == pytest.approx(32)
    assert "num_workers" in finding.algorithmic


def among_others(*gaps: dict[str, object], work: pl.DataFrame | None = None) -> CategoryData:
    """These gaps and twelve small causes, so that none has nearly all idle time."""
    return by_cause(*gaps, *(gap(other, 0.9) for other in IdleCause), work=work)


@pytest.mark.parametrize("cause", [*IdleCause])
def test_every_cause_gives_its_words_for_both_paths(cause: IdleCause) -> None:
    (finding,) = worded(idle_causes(among_others(gap(cause, 40))))
    words = CAUSES[cause]
    assert finding.algorithmic == to_text(words.texts("algorithmic"))
    assert (finding.kernel or "").startswith(to_text(words.texts("kernel", replayed_pct=0.0)))
    assert words.what in finding.issue
    assert (finding.impact is None) is not words.is_idle


@pytest.mark.parametrize("cause", [*IdleCause])
def test_every_cause_has_a_quantity_that_names_it(cause: IdleCause) -> None:
    assert title_of(CAUSES[cause].quantity) == f"{CAUSES[cause].label} (ms)"


def test_the_evidence_names_the_limit_of_short_kernels() -> None:
    assert title_of("short_kernels") == f"Kernels below {SHORT_KERNEL_US:.0f} µs"


def test_causes_add_up_to_the_idle_time_and_are_not_counted_twice() -> None:
    data = by_cause(gap("host_work", 20), gap("launch_bound", 25), gap("queued", 1))
    findings = [*gpu_idle(data), *idle_causes(data)]
    assert sum(measure(data)["idle_by_cause_ms"].values()) == pytest.approx(46)
    assert [f.check for f in findings] == ["idle_causes"] * 2
    assert sum(f.impact.saved_ms.high for f in findings) == pytest.approx(45)
    assert len(disjoint_findings(findings)) == 2


def test_causes_too_small_for_a_finding_have_one_together() -> None:
    small = [gap(cause, 4.5) for cause in ("host_work", "queued", "allocator", "launch_bound")]
    data = by_cause(gap("data_loading", 30), *small)
    (rest,) = worded(gpu_idle(data))
    assert rest.title == "The GPU idles for other causes"
    assert "another 18.0 ms, 18.0% of the step time" in rest.issue
    assert rest.evidence["Host work (ms)"] == pytest.approx(4.5)
    assert "Data loading (ms)" not in rest.evidence
    assert not list(gpu_idle(by_cause(gap("data_loading", 30), *small[1:])))


def test_time_at_the_edges_of_steps_is_in_one_finding() -> None:
    gaps = (gap("data_loading", 30), gap("launch_bound", 2))
    data = by_cause(*gaps, place="before")
    assert not [*gpu_idle(data), *idle_causes(data)]
    (edge,) = step_edges(data)
    assert edge.impact.saved_ms.high == pytest.approx(32)
    small = by_cause(gap("data_loading", 4.9), place="before")
    assert not [*step_edges(small), *idle_causes(small)]


def test_late_launches_are_the_exception_if_most_kernels_are_queued() -> None:
    def found(count: int) -> Worded:
        data = by_cause(gap("launch_bound", 40), work=kernels(*[900.0] * count))
        (finding,) = worded(idle_causes(data))
        return finding

    few = found(11)
    assert few.title == "The launch queue runs empty for a while"
    assert "while most of the 11 kernels are queued in time" in few.issue
    assert few.hypothesis.startswith("Most kernels are queued in time")
    assert "give each launch there more work" in few.algorithmic
    assert found(10).hypothesis.startswith("The kernels are too short")


def test_gaps_after_waits_name_them_and_their_callers() -> None:
    def call(uid: int, kind: str, name: str, start_ms: float, ms: float) -> dict[str, object]:
        times = {"ts_ns": round(start_ms * 1e6), "dur_ns": round(ms * 1e6)}
        return {"uid": uid, "thread": 0, "kind": kind, "name": name, **times}

    def found(*slices: dict[str, object]) -> Worded:
        gaps = [gap("launch_bound", 3.0, start_ns=round(at * 1e6)) for at in (20, 30, 40)]
        data = by_cause(*gaps, work=kernels(*[900.0] * 40))
        data.tables["host_slices"] = table("host_slices", *slices)
        (finding,) = worded(idle_causes(data))
        return finding

    step = call(1, "python", "train.py(7): step", 0, 90)
    sync = call(2, "python", "torch/cuda/__init__.py(1030): synchronize", 1, 11)
    wait = call(3, "runtime", "cudaDeviceSynchronize", 2, 9)
    item = call(4, "operator", "aten::item", 33, 2)
    read = call(5, "runtime", "cudaMemcpyAsync", 33.5, 0.06)
    both = found(step, sync, wait, item, read)
    assert both.title == "The launch queue is empty after waits for the GPU"
    first = "`cudaDeviceSynchronize` in `train.py(7): step` (9.00 ms in 1 call, then 2 gaps of 6"
    second = "`cudaMemcpyAsync` of `aten::item` in `train.py(7): step` (60.0 µs in 1 call, then 1"
    assert "; all follow waits for the GPU: " in both.issue
    assert first in both.issue
    assert second in both.issue
    assert both.algorithmic.startswith("Remove these waits from the step")
    for shorter in (
        found(step, call(3, "runtime", "cudaDeviceSynchronize", 2, 8.9)),  # not as long as the gaps
        found(step, call(3, "runtime", "cudaDeviceSynchronize", 27, 9)),  # after most of the time
        found(step, call(3, "runtime", "cudaMemcpyAsync", 19, 0.04)),
        found(step),
    ):
        assert shorter.title == "The launch queue runs empty for a while"
        assert "follow" not in shorter.issue


def test_the_severity_is_that_of_the_step() -> None:
    measured = measure(by_cause(gap("carried_in", 90), gap("host_work", 1)))
    assert measured["severity"] is Severity.ACCEPTABLE
    assert measured["patterns_detected"] == []
    (pattern,) = measure(by_cause(gap("host_work", 75)))["patterns_detected"]
    assert pattern["evidence"] == "75.0% of the step time is idle"


def test_carried_in_work_is_not_idle_time() -> None:
    data = by_cause(gap("carried_in", 90), gap("host_work", 1))
    assert not list(gpu_idle(data))
    finding, other = worded(idle_causes(data))
    assert finding.title == "The GPU finished work from before the recording"
    assert "(10.0% of the step time)" in other.issue  # of the remaining 10 ms
    assert finding.issue.startswith("For 90.0 ms (90.0% of the GPU window, 1 gap) the GPU finishes")
    assert finding.priority is Priority.LOW
    assert finding.severity is Severity.LOW
    assert finding.impact is None
    assert finding.evidence["Excluded time (ms)"] == 90
    assert "Idle (ms)" not in finding.evidence
    assert "in each step" not in finding.algorithmic  # no call is named


def test_the_call_that_waits_during_carried_in_work_waits_in_each_step_of_an_engine() -> None:
    call = {"host_call": "hipMemcpyWithStream", "host_call_us": 89000.0, "host_op": "aten::copy_"}
    data = by_cause(gap("carried_in", 90, **call), gap("host_work", 1))
    steps = data.tables["steps"]
    sentence = "If the host waits in this call in each step"
    for source, is_expected in (("engine", True), ("profiler", False)):
        marked = steps.with_columns(source=pl.lit(source))
        of_source = replace(data, tables={**data.tables, "steps": marked})
        finding, _ = worded(idle_causes(of_source))
        assert "in the blocking copy `hipMemcpyWithStream` of `aten::copy_`" in finding.issue
        assert (sentence in finding.algorithmic) is is_expected
        assert ("Nothing to fix" in finding.algorithmic) is not is_expected


def test_the_speedup_leaves_carried_in_work_out() -> None:
    assert measure(by_cause(gap("carried_in", 90), gap("host_work", 1)))["potential_speedup"] == 1.0


def test_host_calls_and_operators_are_named() -> None:
    call = {"host_call": "cudaStreamSynchronize", "host_call_us": 9000.0, "host_op": "aten::item"}
    data = among_others(
        gap("synchronization", 30, **call),
        gap("synchronization", 10, launcher_name="aten::add", **call),
    )
    (finding,) = worded(idle_causes(data))
    named = "`cudaStreamSynchronize` of `aten::item`"
    assert finding.evidence["Host in the gaps"] == f"2 gaps in {named} (a call of up to 9.00 ms)"
    assert finding.evidence["Idle time before"] == "`aten::mul` (30.9 ms), `aten::add` (10.0 ms)"
    assert f"the longest gap (30.0 ms) coincides with {named} (9.00 ms)" in finding.issue


def test_a_call_in_a_shorter_gap_is_not_that_of_the_longest() -> None:
    call = {"host_call": "cudaGraphLaunch", "host_call_us": 9000.0}
    (finding,) = worded(idle_causes(by_cause(gap("host_work", 30), gap("host_work", 10, **call))))
    assert "the longest gap" not in finding.issue
    assert "the largest part, 10.0 ms in 1 gap, mostly in `cudaGraphLaunch`" in finding.issue


def test_a_launch_bound_finding_counts_the_kernels() -> None:
    work = kernels(5.0, 6.0, 50.0)
    data = among_others(gap("launch_bound", 40), work=work)
    (finding,) = worded(idle_causes(data))
    assert finding.evidence["Kernels"] == 3
    assert finding.evidence["Kernels below 10 µs"] == 2
    assert not list(short_kernels(data))


def replayed(launcher: str) -> pl.DataFrame:
    return kernels(5.0, 5.0).with_columns(launcher_name=pl.lit(launcher))


def test_missing_work_and_warm_up_come_first_from_a_tenth_of_the_time_on() -> None:
    found = [
        next(idle_causes(by_cause(gap(cause, ms)))).leads
        for cause in ("stalled_queue", "kernel_loading", "launch_bound")
        for ms in (12, 8)
    ]
    assert found == [True, False, True, False, False, False]


def test_queued_work_that_does_not_start_is_no_certain_idle_time() -> None:
    call = {"host_call": "hipMemcpyWithStream", "host_call_us": 463e3, "host_op": "aten::copy_"}
    stalled = gap("stalled_queue", 90, **call)
    data = by_cause(stalled, gap("launch_bound", 4), work=replayed("hipGraphLaunch"))
    (cause,) = worded(idle_causes(data))
    assert "blocking copy `hipMemcpyWithStream` of `aten::copy_`" in cause.issue
    assert cause.hypothesis.startswith("Likely an under-recorded graph")
    assert "GPU graphs disabled" in cause.capture
    assert cause.priority is Priority.HIGH
    assert cause.impact is None
    assert not list(gpu_idle(data))
    (plain,) = worded(idle_causes(by_cause(stalled, work=replayed("aten::mul"))))
    assert "graph" not in plain.hypothesis


def test_without_host_calls_no_cause_is_named() -> None:
    nothing = {"launch_uid": None, "launch_name": None, "launcher_name": None}
    data = by_cause(gap("unknown", 40, **nothing), work=kernels(5.0))
    assert not list(idle_causes(data))
    (finding,) = worded(gpu_idle(data))
    assert "no host calls" in finding.hypothesis
    assert "CPU activity" in finding.capture
    assert list(short_kernels(data))


def test_idle_time_before_the_first_kernel_is_separated() -> None:
    copy = kernels(1.0, cat="gpu_memcpy")
    first = kernels(1.0).with_columns(ts_ns=pl.lit(30_000_000, pl.Int64))
    gaps = (gap("host_work", 20, start_ns=1000), gap("host_work", 10, start_ns=40_000_000))
    (finding,) = worded(idle_causes(by_cause(*gaps, work=pl.concat([copy, first]))))
    assert finding.evidence["Before the first kernel (ms)"] == pytest.approx(20)
    (finding,) = worded(idle_causes(by_cause(*gaps, work=kernels(1.0))))
    assert "Before the first kernel (ms)" not in finding.evidence


def test_recorded_python_frames_need_no_second_recording() -> None:
    data = among_others(gap("host_work", 40))
    threads = table("host_threads", {"thread": 0, "python_ns": 1})
    framed = replace(data, tables={**data.tables, "host_threads": threads})
    (named,) = supported_in(framed, idle_causes(framed))
    assert named.capture is None
    (unnamed,) = supported_in(data, idle_causes(data))
    assert "with_stack" in unnamed.capture


def analyzed(read: Trace, key: str = KEY) -> AnalysisResult:
    report = TraceLensReport(read, None)
    analyses = {key: load_analyses()[key]}
    return run_analyses(report, analyses, split_operations(report, load_analyses()))[key].result


def test_from_a_trace_to_the_finding() -> None:
    builder = trace().op("aten::mul").launches("mul_kernel", us=10).up()
    builder.op(LOADER, us=5000)
    builder.op("aten::mul").launches("mul_kernel", us=10)
    result = analyzed(builder.read())
    (loading,) = worded(result.findings)
    assert loading.title == "The GPU waits for data"
    assert LOADER in loading.issue
    assert result.metrics["idle_by_cause_ms"] == {
        "data_loading": pytest.approx(loading.evidence["Idle (ms)"])
    }
    assert loading.evidence["Idle (ms)"] == pytest.approx(5.0, rel=0.01)


@pytest.mark.parametrize(
    ("name", "title", "least_pct"),
    [
        ("h100-bert-small", LAUNCH_BOUND, 81),
        ("mi300-bert-small", LAUNCH_BOUND, 75),
        ("h100-vit-nsfw", LAUNCH_BOUND, 80),
        ("mi300-vit-nsfw", LAUNCH_BOUND, 67),
        ("sglang-qwen3-8b-decode", "The GPU finished work from before the recording", 97),
        ("normalization-layers", "Launch calls take milliseconds", 80),
    ],
)
def test_the_cause_in_real_traces(
    reference_root: Path, name: str, title: str, least_pct: float
) -> None:
    result = analyzed(read_trace(reference_root / "traces" / f"{name}.json.gz"))
    found = Worded(result.findings[0])
    assert found.title == title
    name = "Excluded time (% of the GPU window)" if "before" in title else "Share of step time (%)"
    assert found.evidence[name] > least_pct


def test_exposed_communication_is_no_idle_time(reference_root: Path) -> None:
    read = read_trace(reference_root / "traces" / "mi300-resnet-ddp-checkpoint.json.gz")
    assert not analyzed(read).findings
    assert analyzed(read, "multi_kernel").findings[0].check == "exposed_communication"


@pytest.mark.parametrize(
    ("frame", "is_model"),
    [("models/bert.py(1306): forward", True), ("train.py(30): preprocess_forward", False)],
)
def test_host_work_in_code_of_the_model_is_not_to_be_moved(frame: str, is_model: bool) -> None:
    data = among_others(gap("host_work", 30, host_frame=frame))
    (finding,) = worded(idle_causes(data))
    assert ("the host runs mostly model code" in finding.issue) is is_model
    assert ("Compile the model" in finding.algorithmic) is is_model
    assert ("Move that work" in finding.algorithmic) is not is_model
    assert ("GPU graph" in finding.kernel) is is_model


def test_launches_that_fill_gradients_with_zeros_are_not_needed() -> None:
    def advice(annotation: str) -> str:
        data = among_others(gap("launch_bound", 30, host_annotation=annotation))
        (finding,) = worded(idle_causes(data))
        return finding.algorithmic

    assert "set_to_none=True" in advice("Optimizer.zero_grad#SGD.zero_grad")
    assert "set_to_none=True" not in advice("Optimizer.step#SGD.step")


def test_no_launch_follows_host_work_after_the_last_gpu_event() -> None:
    between, after = gap("host_work", 30), gap("host_work", 3, start_ns=10**8)
    whole = by_cause(between, after)
    gaps = whole.tables["step_gaps"]
    is_last = pl.col("start_ns") == 10**8
    place = pl.when(is_last).then(pl.lit("after")).otherwise("place").alias("place")
    data = replace(whole, tables={**whole.tables, "step_gaps": gaps.with_columns(place)})
    (finding,) = worded(idle_causes(data))
    assert "30.0 ms (30.0% of the step time) in 1 gap " in finding.issue
    (both,) = worded(idle_causes(whole))
    assert "33.0 ms (33.0% of the step time) in 2 gaps " in both.issue


def test_first_uses_may_lengthen_host_work_before_the_last_of_them() -> None:
    load = gap("kernel_loading", 40, start_ns=2 * 10**8)
    for start_ns, is_expected in ((10**8, True), (3 * 10**8, False)):
        _, work = worded(idle_causes(by_cause(load, gap("host_work", 20, start_ns=start_ns))))
        assert ("which first uses of kernels may lengthen" in work.issue) is is_expected
        assert ("Warm up with the shapes" in work.algorithmic) is is_expected
    small = gap("kernel_loading", 8, start_ns=2 * 10**8)
    work, _ = worded(idle_causes(by_cause(small, gap("host_work", 20, start_ns=10**8))))
    assert "first uses" not in work.issue


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
