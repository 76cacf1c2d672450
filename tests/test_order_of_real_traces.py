"""The first finding of each recorded trace, and what bounds the others."""

import polars as pl
import pytest

from jarvis.findings import Priority
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.schemas.names import C
from jarvis.text.messages import to_text
from tests.recorded_runs import RecordedRun

LAUNCH_BOUND = "Launch-bound: the GPU waits for the next launch"
FIRST = {
    "h100-bert-small": LAUNCH_BOUND,
    "mi300-bert-small": LAUNCH_BOUND,
    "h100-vit-nsfw": LAUNCH_BOUND,
    "mi300-vit-nsfw": LAUNCH_BOUND,
    "h100-qwen1.5-0.5b": "Unfused chain: `Qwen2RMSNorm`, 8 kernels, 49 instances",
    "mi300-qwen1.5-0.5b": "Unfused chain: `Qwen2RMSNorm`, 8 kernels, 49 instances",
    "mi300-resnet-ddp-checkpoint": "Collective communication blocks compute",
    "torch-compile-triton": "Below target: `aten::_scaled_dot_product_flash_attention` (N from "
    "4096)",
    "sglang-qwen3-8b-decode": "Shapes missing: 98.8% of the GPU time is replayed from graphs",
    "normalization-layers": "Launch calls take milliseconds",
    "mi210-gpu-only": "The launch queue runs empty for a while",
}


@pytest.mark.parametrize("name", FIRST)
def test_the_first_finding_of_each_recorded_trace(recorded_run: RecordedRun, name: str) -> None:
    run = Run.load(recorded_run(name))
    assert to_text(recommendations(run)[0].finding.title) == FIRST[name]


@pytest.mark.parametrize("name", FIRST)
def test_no_finding_saves_more_than_bounds_the_steps(recorded_run: RecordedRun, name: str) -> None:
    run = Run.load(recorded_run(name))
    bounds = run.manifest.totals.step
    assert bounds is not None
    zero_ms = run.simulation.compute_saved_ms
    for finding in (item.finding for item in recommendations(run)):
        if finding.impact is None:
            continue
        step_ms = finding.impact.step_ms
        assert step_ms is not None
        limit_ms = zero_ms if finding.time_pool is None else bounds.step_ms
        assert limit_ms is not None
        assert step_ms.high <= limit_ms * (1 + 1e-9)
        assert 0 <= step_ms.low <= step_ms.mid <= step_ms.high


@pytest.mark.parametrize("name", [name for name in FIRST if "bert" in name or "vit" in name])
def test_kernels_of_host_bound_traces_save_less_than_half_a_percent_of_the_step(
    recorded_run: RecordedRun, name: str
) -> None:
    run = Run.load(recorded_run(name))
    kernels = [i.finding for i in recommendations(run) if i.finding.time_pool is None]
    shares = [f.impact.step_pct.high for f in kernels if f.impact and f.impact.step_pct]
    assert shares
    assert max(shares) < 0.5
    assert {f.priority for f in kernels if f.impact} == {Priority.LOW}


def test_no_finding_claims_the_work_from_before_the_recording(recorded_run: RecordedRun) -> None:
    run = Run.load(recorded_run("sglang-qwen3-8b-decode"))
    bounds = run.manifest.totals.step
    assert bounds is not None
    assert bounds.step_ms == pytest.approx(10.45, abs=0.01)
    claims = [i.finding.impact for i in recommendations(run) if i.finding.impact]
    assert max(gain.saved_ms.high for gain in claims) < 10.5


def test_the_kernel_time_of_a_replay_is_that_of_the_steps(recorded_run: RecordedRun) -> None:
    run = Run.load(recorded_run("mi300-resnet-ddp-checkpoint"))
    bounds, work = run.manifest.totals.step, run.table("gpu_work")
    assert bounds is not None
    ends = pl.col(C.ts_ns) + pl.col(C.dur_ns)
    inside = work.filter(pl.col(C.ts_ns) < bounds.end_ns, ends > bounds.start_ns)
    assert run.simulation.recorded.gpu_time_ns == inside[C.dur_ns].sum()
    assert inside.height < work.height
