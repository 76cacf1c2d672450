"""The overview tells how far the trace can be trusted."""

from pathlib import Path

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
    facts = fold.dataframe[0].value
    assert facts["severity"].iloc[0] == "warning"
    assert facts["title"].iloc[0] == "GPU time linked to host calls"


def test_a_sound_trace_has_no_warning(filed: Draw, sample_id: str) -> None:
    page = filed("overview", analysis=sample_id)
    fold = next(e for e in page.expander if e.label.startswith("Trace health: "))
    assert "warning" not in fold.label
