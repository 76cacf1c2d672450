"""Trace health on the overview."""

from pathlib import Path

import pytest

from jarvis.server.submission import Submission, submit
from tests.builders import trace
from tests.dashboard.conftest import Draw


def test_warnings_stand_above_and_all_facts_in_a_fold(filed: Draw, tmp_path: Path) -> None:
    built = trace().op("aten::mm", [[8, 8], [8, 8]]).launches("gemm", us=60)
    path = built.unlinked("early", us=40).write(tmp_path / "t.json")
    page = filed("overview", analysis=submit(Submission(path)).id)
    assert not page.exception
    assert any("40.0% (40.0 µs) is not" in warning.value for warning in page.warning)
    fold = next(e for e in page.expander if e.label.startswith("Trace health: 1 warning, "))
    open_facts, *_ = (text.value for text in fold.markdown)
    first, *_ = [line for line in open_facts.splitlines() if line.startswith("| ⚠")]
    assert "GPU time linked to host calls" in first
    assert "Synchronize the GPU before the recording begins." in first


@pytest.mark.parametrize("key", ["gemm", "cpu_idle", "kernel_fusion"])
def test_every_analysis_says_in_a_line_what_is_wrong_and_where_to_read_on(
    registered: Draw, tmp_path: Path, key: str
) -> None:
    built = trace().op("aten::mm", [[8, 8], [8, 8]]).launches("gemm", us=60)
    path = built.unlinked("early", us=40).write(tmp_path / "t.json")
    page = registered(key, analysis=submit(Submission(path)).id)
    (warning,) = page.warning
    assert warning.value.endswith("40.0% (40.0 µs) is not: it has no recorded launch.")
    assert "What this affects" in [link.proto.label for link in page.get("page_link")]


def test_what_is_wrong_with_operations_does_not_concern_the_timeline(
    registered: Draw, tmp_path: Path
) -> None:
    path = trace().op("aten::mm").launches("gemm", us=60).write(tmp_path / "t.json")
    analysis = submit(Submission(path)).id
    assert any("no input shapes" in w.value for w in registered("gemm", analysis=analysis).warning)
    assert not registered("cpu_idle", analysis=analysis).warning


def test_a_sound_trace_has_no_warning(filed: Draw, sample_id: str) -> None:
    page = filed("overview", analysis=sample_id)
    fold = next(e for e in page.expander if e.label.startswith("Trace health: "))
    assert "warning" not in fold.label
