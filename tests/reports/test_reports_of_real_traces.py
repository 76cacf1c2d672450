"""The reports of recorded traces: their links, their words, and what they must find."""

import re

import pytest

from jarvis.core.workspace import RunPaths
from jarvis.reports.fair import MAX_WORDS
from jarvis.run import Run
from tests.recorded_runs import RecordedRun
from tests.reports.conftest import Analyzed
from tests.reports.markdown import LINK, anchors, section
from tests.test_language import assert_neutral
from tests.test_order_of_real_traces import FIRST

ALL = tuple(FIRST)
TRACES = ("mi300-resnet-ddp-checkpoint", "sglang-qwen3-8b-decode", "mi210-gpu-only")


@pytest.fixture(scope="module", params=TRACES)
def recorded(request: pytest.FixtureRequest, recorded_run: RecordedRun) -> Analyzed:
    root = recorded_run(request.param)
    return Analyzed(Run.load(root), root)


def test_links_lead_somewhere(recorded: Analyzed) -> None:
    fair = recorded.text("standalone_analysis_fair.md")
    assert set(LINK.findall(fair)) <= set(anchors(fair))


def test_words_are_neutral(recorded: Analyzed) -> None:
    for name, text in recorded.markdown().items():
        text = re.sub(r"### Hardware Reference.*?\n### ", "", text, flags=re.DOTALL)
        device = recorded.run.manifest.trace.device_name or ""
        assert_neutral(text.replace(device, ""), name)


@pytest.mark.parametrize("name", ALL)
def test_the_report_is_short_and_ranks_no_time_without_a_model(
    name: str, recorded_run: RecordedRun
) -> None:
    root = recorded_run(name)
    fair = RunPaths(root).standalone_report("fair").read_text(encoding="utf-8")
    assert len(fair.split()) <= MAX_WORDS
    text = section(fair, "Executive Summary").strip().splitlines()[2]
    assert len(re.split(r"(?<=[.]) (?=[A-Z])", text)) <= 5
    for path in root.rglob("*"):
        if path.suffix in {".md", ".json", ".csv"}:
            assert "No perf model: " not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("recorded", TRACES[:1], indirect=True)
def test_what_the_training_trace_shows(recorded: Analyzed) -> None:
    convolution = recorded.text("category_findings/convolution_findings.md")
    assert "41.9% of convolution time" in convolution
    assert "memory_format=torch.channels_last" in convolution
    system = recorded.text("system_findings/multi_kernel_findings.md")
    assert "| Exposed Communication | 62.4% of total | CRITICAL |" in system
    assert "| Compute/Comm Overlap | 25.2% | CRITICAL |" in system


@pytest.mark.parametrize("recorded", TRACES[1:2], indirect=True)
def test_what_a_trace_of_graph_replay_shows(recorded: Analyzed) -> None:
    fair = recorded.text("standalone_analysis_fair.md")
    assert "| 1 | `Cijk_Alik_Bljk_" in fair
    assert "`hipGraphLaunch`" not in fair
    assert "- Shapes missing: 98.8% of GPU time (9.66 ms) is replayed from GPU graphs." in fair
    assert "(SGLang: `--enable-profile-cuda-graph` at start, from 0.5.13" in fair
    assert "or record one step without GPU graphs" in fair
    assert "Not included are 463 ms in which the GPU finished work from before the" in fair
    copy = "`hipMemcpyWithStream` of `aten::copy_` in `srt/model_executor/cuda_graph_runner.py(276)"
    assert f", while the host waited in {copy}: populate_from_forward_batch`." in fair
    system = recorded.text("system_findings/cpu_idle_findings.md")
    assert "in the blocking copy `hipMemcpyWithStream` of `aten::copy_`" in system
    assert "under-recorded" not in fair
    assert "GPU seems to idle" not in fair
    assert "| Work from before the recording | 463 ms | 99.9% | 1 |" in system
    first = 'The first finding is "Shapes missing: 98.8% of the GPU time is replayed from graphs"'
    assert first in fair
    assert "uncertain" not in fair


@pytest.mark.parametrize("recorded", TRACES[2:], indirect=True)
def test_what_a_trace_without_operators_shows(recorded: Analyzed) -> None:
    fair = recorded.text("standalone_analysis_fair.md")
    cards = section(fair, "Recommendations")
    assert "Layout transposes take 0.822 ms" in cards
    assert "replay package" not in cards
    assert "- No perf model applies to 100.0% of the kernel time (5.34 ms): kernels" in fair
