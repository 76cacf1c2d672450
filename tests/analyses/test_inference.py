"""Findings of inference: on small traces made here, and on recorded ones from their raw events."""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import polars as pl
import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.runner import run_analyses, split_operations
from jarvis.capture import merge_captures
from jarvis.capture.engines import ENGINES
from jarvis.capture.tables import graph_tables
from jarvis.findings import AnalysisResult, Finding
from jarvis.schemas.serving import TABLES
from jarvis.text.messages import to_text
from jarvis.trace import Trace, read_trace
from jarvis.tracelens.report import TraceLensReport
from tests.analyses.rows import MI300X
from tests.builders import TraceBuilder, trace
from tests.capture.test_merge import captured, merge, replaying

KEY = "inference"
DECODE = "execute_context_0(0)_generation_8(8)"
NORM, GEMM, ATTENTION = ("rms_norm", 5.0), ("Cijk_gemm", 100.0), ("flash_fwd_kernel", 50.0)
LAYER = (NORM, GEMM, ATTENTION)


def results(read: Trace, *keys: str) -> dict[str, AnalysisResult]:
    """The results of all analyses of a trace, or of some, by key."""
    report, analyses = TraceLensReport(read, MI300X), load_analyses()
    inference = {name: getattr(report, name) for name in TABLES} | graph_tables(
        report.trace, report.layers.events
    )
    outcomes = run_analyses(
        report,
        {key: analyses[key] for key in keys or analyses},
        split_operations(report, analyses),
        compute_units=304,
        inference=inference if report.is_inference else {},
    )
    return {key: outcome.result for key, outcome in outcomes.items()}


def found(source: TraceBuilder | Trace) -> dict[str, Finding]:
    """The findings of inference, by check."""
    read = source.read() if isinstance(source, TraceBuilder) else source
    result = results(read, KEY)[KEY]
    assert result.error is None, result.traceback
    checks = {finding.check: finding for finding in result.findings}
    assert len(checks) == len(result.findings)
    return checks


def replays(*steps: tuple[tuple[str, float], ...]) -> TraceBuilder:
    """Decode steps that each replay a graph."""
    builder = trace("AMD Instinct MI300X")
    for kernels in steps:
        builder.annotation(DECODE, us=100).graph(*kernels, call="hipGraphLaunch").up()
    return builder


def layers(*slow: int, us: float = 300.0, count: int = 12) -> tuple[tuple[str, float], ...]:
    """The kernels of layers, of which the product of the slow ones takes this time."""
    of = [(NORM, ("Cijk_gemm", us if n in slow else 100.0), ATTENTION) for n in range(count)]
    return tuple(kernel for layer in of for kernel in layer)


def test_a_training_trace_has_no_result() -> None:
    builder = trace()
    for number in range(3):
        builder.annotation(f"ProfilerStep#{number}", us=500).child("aten::mm", [[64, 64], [64, 64]])
        builder.launches("gemm", us=400).up(2)
    assert KEY not in results(builder.read())


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_replayed_work_without_shapes_asks_for_captures_of_the_engine(engine: Any) -> None:
    builder = trace().python(f"/opt/{engine.folder}/runner.py(7): step", us=300)
    builder.annotation(DECODE).graph(("gemm", 60.0), ("other", 30.0)).up()
    builder.child("aten::add", [[8], [8]]).launches("add", us=10.0).up(2)
    finding = found(builder)["shapes_missing"]
    assert to_text(finding.title).startswith("Shapes missing: 90.0% of the GPU time is replayed")
    assert (finding.evidence["gpu_time_ms"], finding.evidence["graph_launches"]) == (0.09, 1)
    assert finding.leads
    assert finding.impact is None
    for options in (engine.name, engine.capture, engine.step):
        assert options in to_text(finding.capture)


def test_little_replayed_work_does_not_lead() -> None:
    builder = trace().annotation(DECODE, us=300).graph(("gemm", 20.0))
    finding = found(builder.child("aten::mm").launches("mm", us=80.0).up(2))["shapes_missing"]
    assert not finding.leads
    tiny = trace().annotation(DECODE, us=300).graph(("gemm", 1.0))
    assert "shapes_missing" not in found(tiny.child("aten::mm").launches("mm", us=100).up(2))


def test_replayed_rows_are_not_judged_for_lack_of_shapes_rather_than_of_a_model() -> None:
    (note,) = results(replays((("Cijk_gemm", 60.0),)).read())["gemm"].notes
    assert "GPU graphs replay these operations, and no capture has their shapes" in to_text(note)


def test_replayed_rows_and_others_each_have_their_reason() -> None:
    builder = replays((("gather_kernel", 60.0),)).child("mylib::op", [[8]])
    notes = results(builder.launches("own_kernel", us=20.0).read())["other"].notes
    assert sorted(map(to_text, notes)) == [
        "1 row (`gather_kernel`, 60.0 µs) has no efficiency. A GPU graph replays it, and no "
        "capture has its shapes.",
        "1 row (`op`, 20.0 µs) has no efficiency. No perf model covers this operator.",
    ]


def test_captures_that_cover_everything_leave_no_gap(tmp_path: Path) -> None:
    checks = found(merge(replaying(8), tmp_path / "c", bs_8=captured(8)))
    assert not {"shapes_missing", "coverage_gap"} & checks.keys()


def test_captures_that_fit_nothing_are_a_gap_with_its_reason(tmp_path: Path) -> None:
    other = trace().runtime("hipStreamBeginCapture").child("aten::sin", [[8]]).adds("sin_kernel")
    builder = other.up().runtime("hipStreamEndCapture")
    finding = found(merge(replaying(8), tmp_path / "c", bs_8=builder))["coverage_gap"]
    text = to_text(finding.issue)
    assert text.startswith("Of 1 graph launch: 1 launch not merged (bs_8.json")
    assert finding.evidence["gpu_time_ms"] == pytest.approx(0.075)
    assert "75.0 µs of replayed work has no captured call, so its efficiency is not known" in text


def test_a_slow_layer_with_its_kernel() -> None:
    step = layers(7)
    finding = found(replays(step, step))["slow_layers"]
    assert to_text(finding.title) == "Layer 7 of decode takes longer than the others"
    assert to_text(finding.issue) == (
        "Layer 7 of 12 takes 355 µs, the median layer 155 µs: 0.400 ms more in 2 runs. Most of it "
        "is in `Cijk_gemm` at position 1: 300 µs instead of 100 µs."
    )
    assert finding.impact.saved_ms.mid == finding.impact.saved_ms.high == pytest.approx(0.4)
    assert len(finding.events) == 2 * len(LAYER)
    assert finding.impact.time_ms == pytest.approx(2 * 0.355)
    assert not finding.capture
    assert "Record several steps" in to_text(found(replays(step))["slow_layers"].capture)


@pytest.mark.parametrize(
    ("slow", "us"),
    [
        ((7,), 115.0),  # beyond four deviations, but by 10% only
        ((1, 3, 5, 7, 9, 11), 300.0),  # every second layer is another kind
        ((8, 9, 10, 11), 300.0),  # the last ones are
    ],
)
def test_layers_that_are_hardly_slower_or_of_another_kind_are_none(
    slow: tuple[int, ...], us: float
) -> None:
    assert "slow_layers" not in found(replays(layers(*slow, us=us)))


def test_a_slow_period_of_two_layers() -> None:
    local, full = ((NORM, ATTENTION), (NORM, GEMM, ATTENTION))
    slow = ((NORM, ATTENTION), (NORM, ("Cijk_gemm", 400.0), ATTENTION))
    periods = [slow if number == 3 else (local, full) for number in range(8)]
    step = tuple(kernel for period in periods for layer in period for kernel in layer)
    finding = found(replays(step))["slow_layers"]
    title = "Group 3 of 2 layers of decode takes longer than the others"
    assert to_text(finding.title) == title
    assert to_text(finding.issue).startswith("Group 3 of 8, each of 2 layers, takes")


def test_a_slow_layer_that_costs_the_step_nothing_is_none() -> None:
    step = (*layers(3, count=8), ("other_kernel", 30_000.0))
    assert "slow_layers" not in found(replays(step))


ROPE, WRITE = ("rotary_embedding_kernel", 6.0), ("reshape_and_cache_kernel", 4.0)


def test_short_kernels_and_the_pairs_that_fuse() -> None:
    step = (NORM, ("Cijk_gemm", 20.0), ROPE, WRITE, ATTENTION) * 4
    finding = found(replays(step))["short_kernel_tail"]
    assert finding.evidence["short_kernels"] == 12
    assert finding.evidence["gpu_time_ms"] == pytest.approx(0.06)
    assert finding.evidence["floor_us"] == pytest.approx(4.0)
    assert to_text(finding.evidence["fused_pairs"]) == "4 times rotary embedding and KV cache write"
    # The shorter of each pair; at most, 8 kernels of 4 µs remain.
    assert finding.impact.saved_ms.mid == pytest.approx(4 * 0.004)
    assert finding.impact.saved_ms.high == pytest.approx(0.06 - 8 * 0.004)
    assert set(finding.kernels) == {NORM[0], ROPE[0], WRITE[0]}


def test_an_addition_before_a_normalization_fuses_and_another_kernel_does_not() -> None:
    for name, pairs in (("vectorized_elementwise_add", 4), ("vectorized_elementwise_sin", 0)):
        finding = found(replays(((name, 5.0), NORM, ("Cijk_gemm", 20.0)) * 4))["short_kernel_tail"]
        count = to_text(finding.evidence.get("fused_pairs") or ())
        assert count == (f"{pairs} times elementwise and normalization" if pairs else "")


def test_few_short_kernels_are_none() -> None:
    assert "short_kernel_tail" not in found(replays(LAYER * 4))


def test_padding_of_a_capture_is_a_share_of_the_modeled_time(tmp_path: Path) -> None:
    finding = found(merge(replaying(6), tmp_path / "c", bs_8=captured(8)))["padding_waste"]
    assert finding.evidence["padding_pct"] == pytest.approx(25)
    assert "1 step computes 8 rows for 6 tokens: 25.0% of the rows" in to_text(finding.issue)
    # Product and activation of 3 layers, all limited by memory: the weights are read anyway.
    assert finding.impact.time_ms == pytest.approx(0.075)
    assert finding.impact.saved_ms.mid == 0
    assert finding.impact.saved_ms.high == pytest.approx(0.25 * 0.075)
    assert "padding_waste" not in found(merge(replaying(8), tmp_path / "d", bs_8=captured(8)))


def test_routing_beside_experts() -> None:
    experts = ("fused_moe_kernel", 80.0)
    for us, is_found in ((20.0, True), (10.0, False)):
        checks = found(replays((("moe_align_block_size_kernel", us), experts, ATTENTION) * 4))
        assert ("routing_share" in checks) == is_found
    finding = found(replays((("moe_align_block_size_kernel", 20.0), experts) * 4))["routing_share"]
    assert finding.evidence["share_pct"] == pytest.approx(20)
    assert finding.impact.saved_ms.high == pytest.approx(0.08 - 0.15 * 0.4)


def test_reductions_of_split_attention() -> None:
    step = (GEMM, ATTENTION, ("paged_attention_reduce_kernel", 10.0)) * 4
    finding = found(replays(step))["attention_reduction"]
    assert finding.evidence["share_pct"] == pytest.approx(100 / 6)
    assert finding.impact.saved_ms.high == pytest.approx(0.04 - 0.1 * 0.24)
    assert "attention_reduction" not in found(replays(LAYER * 4))


def test_what_runs_behind_the_layers() -> None:
    step = (*layers(count=8), ("Cijk_lm_head", 200.0), ("argmax_kernel", 100.0))
    finding = found(replays(step))["head_share"]
    assert finding.evidence["gpu_time_ms"] == pytest.approx(0.3)
    assert finding.evidence["share_pct"] == pytest.approx(100 * 300 / 1540)
    assert to_text(finding.issue).startswith("2 kernels behind the last layer (`Cijk_lm_head`")
    assert "head_share" not in found(replays(layers(count=8)))
    unrecognized = (*step, ("paged_attention", 40.0))
    assert "head_share" not in found(replays(unrecognized))


def test_gaps_between_the_graphs_of_a_step() -> None:
    builder = trace().annotation(DECODE).graph(("a", 100.0), ("b", 100.0)).waits(400.0)
    builder.child("aten::mm").launches("flash_fwd_kernel", us=20.0).up().waits(300.0)
    builder.graph(("a", 100.0), ("b", 100.0)).up()
    finding = found(builder)["piecewise_breaks"]
    assert "1 step replays 2 graphs in all" in to_text(finding.issue)
    assert to_text(finding.issue).endswith("in 2 gaps between them. Between them runs attention.")
    assert finding.impact is None
    assert finding.time_pool == "idle"
    whole = trace().annotation(DECODE).graph(("a", 100.0)).waits(400.0).graph(("a", 100.0)).up()
    assert "steps_without_graph" not in found(whole)


def test_compiled_steps_that_no_graph_replays() -> None:
    builder = trace()
    for _ in range(2):
        builder.annotation(DECODE, us=900)
        for _ in range(3):
            builder.child("aten::mm").launches("triton_poi_fused_add_0", us=20.0).up().waits(150.0)
        builder.up()
    finding = found(builder)["steps_without_graph"]
    assert to_text(finding.issue).startswith("2 steps with compiled kernels replay no graph")
    assert finding.evidence["gaps"] == 4
    assert "piecewise_breaks" not in found(builder)


def test_kernels_of_a_graph_under_an_operator_need_no_graph() -> None:
    kernels = [(f"triton_poi_fused_mul_{n % 9}", 5.0) for n in range(400)]
    builder = trace().annotation(DECODE, us=100).graph(("Cijk_gemm", 50_000.0))
    builder.child("Torch-Compiled Region: 0/0")
    replayed = results(builder.graph(*kernels, call="hipGraphLaunch").up(2).read())["triton"]
    assert {finding.check for finding in replayed.findings} == set()
    eager = trace().annotation(DECODE, us=100).graph(("Cijk_gemm", 50_000.0))
    for name, us in kernels:
        eager.child(name).launches(name, us=us).up()
    checks = {finding.check for finding in results(eager.up().read())["triton"].findings}
    assert checks == {"many_short_kernels"}


Events = list[dict[str, Any]]


def raw(root: Path, name: str) -> Events:
    """The GPU events of a recorded trace by time, from its JSON."""
    with gzip.open(root / "serving" / name / "trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    gpu = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    return sorted(gpu, key=lambda event: event["ts"])


def of_graphs(root: Path, name: str) -> Events:
    """Those that graph launches replay: they share its correlation with many others."""
    events = raw(root, name)
    links = [event["args"]["correlation"] for event in events]
    many = {link for link in set(links) if links.count(link) > 100}
    return [event for event in events if event["args"]["correlation"] in many]


def analyzed(root: Path, name: str, *, with_capture: bool = False) -> dict[str, AnalysisResult]:
    folder = root / "serving" / name
    read = read_trace(folder / "trace.json.gz")
    return results(merge_captures(read, [folder / "capture"]) if with_capture else read)


@pytest.mark.parametrize("with_capture", [False, True])
def test_a_recorded_decode_step(reference_root: Path, with_capture: bool) -> None:
    name = "sglang-qwen3-8b-decode"
    result = analyzed(reference_root, name, with_capture=with_capture)[KEY]
    checks = {finding.check: finding for finding in result.findings}
    events, replayed = raw(reference_root, name), of_graphs(reference_root, name)
    own = ["slow_layers", "short_kernel_tail"]
    assert set(checks) == {*own, *(() if with_capture else ("shapes_missing",))}
    durations = [event["dur"] for event in replayed]
    assert len(durations) == 544
    if not with_capture:
        share = 100 * sum(durations) / sum(event["dur"] for event in events)
        assert checks["shapes_missing"].evidence["gpu_time_pct"] == pytest.approx(share)
        assert "--enable-profile-cuda-graph" in to_text(checks["shapes_missing"].capture)

    layers_us = [sum(durations[2 + 15 * n : 17 + 15 * n]) for n in range(36)]
    slow, usual = max(layers_us), median(layers_us)
    assert layers_us.index(slow) == 7
    finding = checks["slow_layers"]
    assert to_text(finding.title) == "Layer 7 of decode takes longer than the others"
    assert finding.impact.saved_ms.mid == pytest.approx((slow - usual) / 1e3)
    products = durations[2:542:15]
    assert max(products) == products[7]
    texts = f"{max(products):.0f} µs instead of {median(products):.1f} µs"
    assert texts in to_text(finding.issue)

    short = [e["dur"] for e in events if e["cat"] == "kernel" and e["dur"] < 10]
    tail = checks["short_kernel_tail"]
    assert tail.evidence["short_kernels"] == len(short)
    assert tail.evidence["gpu_time_ms"] == pytest.approx(sum(short) / 1e3)
    assert tail.evidence["floor_us"] == pytest.approx(quantiles(short, n=10)[0], abs=0.05)
    fused = [
        min(a["dur"], b["dur"])
        for a, b in pairwise(replayed)
        if "rotary" in a["name"] and "store_kvcache" in b["name"]
    ]
    assert len(fused) == 36
    assert tail.impact.saved_ms.mid == pytest.approx(sum(fused) / 1e3)


@pytest.mark.parametrize("with_capture", [False, True])
def test_a_recorded_picture(reference_root: Path, with_capture: bool) -> None:
    name = "xdit-flux-sage"
    found = analyzed(reference_root, name, with_capture=with_capture)
    checks = {finding.check: finding for finding in found[KEY].findings}
    assert set(checks) == {"short_kernel_tail", *(() if with_capture else ("shapes_missing",))}
    replayed = of_graphs(reference_root, name)
    assert len(replayed) == 6264
    if not with_capture:
        time_ms = sum(event["dur"] for event in replayed) / 1e3
        assert checks["shapes_missing"].evidence["gpu_time_ms"] == pytest.approx(time_ms)
        assert "--profile_capture_phase" in to_text(checks["shapes_missing"].capture)
    # All of them hang on graph launches, so none is launched for itself.
    texts = "".join(to_text(f.kernel) for result in found.values() for f in result.findings)
    assert "launches from a GPU graph" not in texts
    assert not {"many_short_kernels", "many_small_calls"} & {
        f.check for f in found["triton"].findings
    }
    (idle,) = (f for f in found["cpu_idle"].findings if f.check == "idle_causes")
    kernels = pl.Series(
        [e["args"]["correlation"] for e in raw(reference_root, name) if e["cat"] == "kernel"]
    )
    share = 100 * len(replayed) / len(kernels)
    assert f"{share:.1f}% of the kernels are already replayed" in to_text(idle.kernel)
