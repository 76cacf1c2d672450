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


def test_pages_of_replayed_kernels_do_not_read_as_if_these_were_fast(
    reference_root: Path, filed: Draw, registered: Draw
) -> None:
    trace = reference_root / "traces" / "sglang-qwen3-8b-decode.json.gz"
    analysis = submit(Submission(trace)).id
    gemm, fusion = (registered(key, analysis=analysis) for key in ("gemm", "kernel_fusion"))
    assert any("the efficiency of its kernel time is not known" in i.value for i in gemm.info)
    assert not gemm.get("vega_lite_chart")
    assert {m.label: m.value for m in gemm.metric}["Kernel saving at 80%"] == "not available"
    assert any("whose operator is not recorded" in i.value for i in fusion.info)
    overview = filed("overview", analysis=analysis)
    assert any("with a known efficiency would save" in m.value for m in overview.markdown)
