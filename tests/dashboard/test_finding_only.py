"""A category without rows of its own shows what its findings concern."""

import json
import shutil
from pathlib import Path

import pytest

from jarvis.core.workspace import RunPaths
from jarvis.dashboard.pages.category.finding_only import members_of
from jarvis.run import Run
from jarvis.text.format import milliseconds
from tests.dashboard.conftest import Draw

UNFUSED = "only-unfused"


@pytest.fixture(scope="module")
def unfused(home: Path, sample_id: str) -> Run:
    """Return a stored analysis whose only attention is unfused."""
    root = home / "analyses" / UNFUSED
    shutil.copytree(home / "analyses" / sample_id, root)
    path = RunPaths(root).results
    stored = json.loads(path.read_text())
    result = stored["analyses"]["sdpa_fwd"]
    result |= {"status": "NO_DATA", "row_count": 0}
    result["findings"] = [f for f in result["findings"] if f["check"] == "unfused_attention"]
    path.write_text(json.dumps(stored))
    return Run.load(root)


def test_the_page_shows_figures_members_and_a_way_into_the_call_tree(
    registered: Draw, unfused: Run
) -> None:
    page = registered("sdpa_fwd", analysis=UNFUSED)
    assert not page.exception
    assert not any("has no Attention operations" in note.value for note in page.info)
    gains = [finding.impact for finding in unfused.results["sdpa_fwd"].findings]
    shown = [(metric.label, metric.value) for metric in page.metric]
    for gain in gains:
        assert gain is not None
        assert ("Kernel time", milliseconds(gain.time_ms)) in shown
        left = milliseconds(gain.time_ms - gain.saved_ms.mid)
        assert ("Fused, at 80%", left) in shown
    assert len(page.get("vega_lite_chart")) == len(gains) == 2
    links = [link.proto.label for link in page.get("page_link")]
    assert links.count("Where this is called, in the call tree") == 2


def test_members_have_the_time_of_their_group(unfused: Run) -> None:
    for finding in unfused.results["sdpa_fwd"].findings:
        members = members_of(unfused, finding)
        assert finding.impact is not None
        assert members["kernel_time_us"].sum() / 1000 == pytest.approx(finding.impact.time_ms)
