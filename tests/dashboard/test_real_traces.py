"""Pages for traces without host events, shapes, operators or efficiencies."""

from pathlib import Path

import pytest

from jarvis.analyses import load_analyses
from jarvis.server.submission import Submission, submit
from tests.dashboard.conftest import Draw

TRACES = ["mi210-gpu-only", "torch-compile-triton", "sglang-qwen3-8b-decode"]


@pytest.mark.parametrize("name", TRACES)
def test_no_page_fails_on_an_unusual_trace(
    reference_root: Path, filed: Draw, registered: Draw, name: str
) -> None:
    analysis = submit(Submission(reference_root / "traces" / f"{name}.json.gz")).id
    pages = [registered(key, analysis=analysis) for key in load_analyses()]
    pages += [filed(page, analysis=analysis) for page in ("overview", "report")]
    for page in pages:
        assert not page.exception, page.title[0].value
        assert not page.error, page.title[0].value
