"""The reports of recorded traces: their links, their words, and what they must find."""

import re

import pytest

from jarvis.run import Run
from tests.recorded_runs import RecordedRun
from tests.reports.conftest import Analyzed
from tests.reports.test_markdown_reports import LINK, anchors, section
from tests.test_language import assert_neutral

TRACES = ("mi300-resnet-ddp-checkpoint", "sglang-qwen3-8b-decode", "mi210-gpu-only")


@pytest.fixture(scope="module", params=TRACES)
def recorded(request: pytest.FixtureRequest, recorded_run: RecordedRun) -> Analyzed:
    root = recorded_run(request.param)
    return Analyzed(Run.load(root), root)


def test_links_lead_somewhere(recorded: Analyzed) -> None:
    fair = recorded.text("standalone_analysis_fair.md")
    assert LINK.findall(fair)
    assert set(LINK.findall(fair)) <= set(anchors(fair))


def test_words_are_neutral(recorded: Analyzed) -> None:
    for name, text in recorded.markdown().items():
        text = re.sub(r"### Hardware Reference.*?\n### ", "", text, flags=re.DOTALL)
        device = recorded.run.manifest.trace.device_name or ""
        assert_neutral(text.replace(device, ""), name)


def test_the_summary_is_short(recorded: Analyzed) -> None:
    summary = section(recorded.text("standalone_analysis_fair.md"), "Executive Summary")
    assert len([line for line in summary.splitlines() if line.strip()]) - 1 <= 20


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
    assert "| 1 | `hipGraphLaunch` | GEMM and 4 more |" in fair
    assert "Record one step without GPU graphs" in fair
    assert "| The GPU finished work from before the recording | CPU / idle |" in fair
    system = recorded.text("system_findings/cpu_idle_findings.md")
    assert "in the blocking copy `hipMemcpyWithStream` of `aten::copy_`" in system
    assert "under-recorded" not in fair
    assert "GPU seems to idle" not in fair
    assert "| Work from before the recording | 463 ms | 99.9% | 1 |" in fair
    assert "(Medium): No perf model: kernels replayed from a GPU graph" in fair


@pytest.mark.parametrize("recorded", TRACES[2:], indirect=True)
def test_what_a_trace_without_operators_shows(recorded: Analyzed) -> None:
    cards = section(recorded.text("standalone_analysis_fair.md"), "Recommendations")
    assert "Layout transposes take 0.822 ms" in cards
    assert "(Medium): No perf model: kernels without operators or shapes" in cards
    assert "replay package" not in cards.replace("no shapes for a replay package", "")
