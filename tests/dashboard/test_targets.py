"""One target efficiency and one threshold on all pages of an analysis."""

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from jarvis.core.request import Targets
from jarvis.core.workspace import RunPaths
from jarvis.dashboard.pages.overview.tables import shown_title
from jarvis.dashboard.session import carried, state
from jarvis.findings import Status
from jarvis.pipeline import at_targets
from jarvis.reports.ranking import nested, recommendations
from jarvis.run import Run
from jarvis.server.storage.catalog import analysis_root
from tests.dashboard.conftest import Draw
from tests.dashboard.test_links import copied_link


def titles(run: Run) -> list[str]:
    """Return the titles of all findings as the table shows them, with short names."""
    return [shown_title(each) for each, _ in nested(recommendations(run))]


def table(page: AppTest) -> list[str]:
    return list(next(d.value for d in page.dataframe if "page" in d.value.columns)["finding"])


def captions(page: AppTest) -> str:
    return " ".join(caption.value for caption in page.main.caption)


@pytest.mark.parametrize("page", ["overview", "timeline", "call_tree", "what_if", "report"])
def test_every_page_has_the_target_and_its_link(filed: Draw, sample_id: str, page: str) -> None:
    drawn = filed(page, analysis=sample_id, target="62", below="31", gemm_target="55")
    assert not drawn.exception
    assert [drawn.slider(key=name).value for name in ("target", "below")] == [62, 31]
    link = copied_link(drawn)
    assert [link[name] for name in ("target", "below", "gemm_target")] == [["62"], ["31"], ["55"]]
    assert "With a target of their own: GEMM 55%." in captions(drawn)


def test_figures_and_charts_of_a_category_wait_for_no_findings(
    registered: Draw, expects_failures: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(run: Run, targets: Targets) -> Run:
        raise ArithmeticError("no findings")

    monkeypatch.setattr(state, "at_targets", fail)
    page = registered("gemm", target="47")
    assert [each.label for each in page.metric][2] == "Kernel saving at 47%"
    assert len(page.get("vega_lite_chart")) == 3
    assert [each.value for each in page.main.subheader] == ["Findings"]
    assert "cannot be shown" in page.error[0].value


def test_an_analysis_that_fails_at_a_target_says_so(
    registered: Draw, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    def fail(run: Run, targets: Targets) -> Run:
        failed = {"status": Status.ERROR, "error": "no such target", "findings": ()}
        result = run.results["gemm"].model_copy(update=failed)
        return replace(run, results={**run.results, "gemm": result}, stored=run)

    monkeypatch.setattr(state, "at_targets", fail)
    request.addfinalizer(state._at.clear)
    page = registered("gemm", target="48")
    assert "The analysis failed and has no findings: no such target." in page.error[0].value
    assert [each.label for each in page.main.expander] == ["How these numbers are computed"]
    assert len(page.dataframe) == 1


def test_findings_and_their_order_are_those_at_the_target(
    filed: Draw, sample_id: str, sample_run: Run
) -> None:
    page = filed("overview", analysis=sample_id)
    assert table(page) == titles(sample_run)
    page.slider(key="target").set_value(45).run()
    moved = at_targets(sample_run, Targets(45.0))
    assert table(page) == titles(moved)
    assert titles(moved) != titles(sample_run)
    assert "Findings with nothing left to gain at 45%: " in captions(page)
    page.slider(key="target").set_value(80).run()
    assert table(page) == titles(sample_run)
    assert "nothing left to gain" not in captions(page)


def test_a_category_has_a_target_of_its_own_until_it_is_reset(
    registered: Draw, sample_id: str
) -> None:
    page = registered("gemm", target="70")
    page.slider(key="gemm_target").set_value(50).run()
    assert any(m.label == "Kernel saving at 50%" for m in page.metric)
    assert page.query_params["gemm_target"] == "50"
    other = registered("reduce", target="70", gemm_target="50")
    assert any(m.label == "Kernel saving at 70%" for m in other.metric)
    page.button(key="gemm_target_reset").click().run()
    assert any(m.label == "Kernel saving at 70%" for m in page.metric)
    assert "gemm_target" not in page.query_params
    assert not page.exception


def test_the_threshold_is_never_above_the_target(registered: Draw) -> None:
    page = registered("gemm", target="35", below="60")
    assert any(m.label == "Below 35%" for m in page.metric)
    assert "Highlighted are operations below the target of 35%." in captions(page)


def test_back_to_a_url_without_the_parameter_is_the_default(registered: Draw) -> None:
    page = registered("gemm")
    page.slider(key="target").set_value(60).run()
    assert page.query_params["target"] == "60"
    del page.query_params["target"]
    assert page.run().slider(key="target").value == 80


def test_links_to_other_pages_carry_the_target(filed: Draw, sample_id: str) -> None:
    page = filed("overview", analysis=sample_id, target="62", below="31")
    links = next(d.value for d in page.dataframe if "page" in d.value.columns)["page"]
    assert all("target=62" in link and "below=31" in link for link in links)


def test_the_reports_are_those_at_the_target(filed: Draw, sample_id: str, sample_run: Run) -> None:
    for view, target in (("fair", "62%"), ("rough", "62%"), ("analysis", "62")):
        page = filed("report", analysis=sample_id, target="62", report_view=view)
        assert not page.exception
        shown = max((m.value for m in page.main.markdown), key=len)
        assert target in shown
        assert "80% of the roofline" not in shown


def test_written_reports_are_removed_with_their_cache(
    filed: Draw, sample_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    filed("report", analysis=sample_id, target="63", report_view="rough")
    (written,) = tmp_path.glob("jarvis-targets-*")
    st.cache_resource.clear()  # a ResourceWarning here is an error
    assert not written.exists()


def test_a_run_of_another_release_keeps_its_findings_and_says_so(
    registered: Draw, sample_id: str, home: Path
) -> None:
    root = home / "analyses" / "other-release"
    shutil.copytree(analysis_root(sample_id), root)
    paths = RunPaths(root)
    manifest = json.loads(paths.manifest.read_bytes())
    paths.manifest.write_text(json.dumps(manifest | {"jarvis_version": "0.0.9"}))
    page = registered("gemm", analysis=root.name, target="40")
    assert not page.exception
    assert "target" not in [slider.key for slider in page.slider]
    assert "Findings are at a target of 80%: Jarvis 0.0.9 made this analysis." in captions(page)
    shutil.rmtree(root)


@pytest.mark.parametrize(
    ("text", "is_valid"), [("5", True), ("100", True), ("4", False), ("62.5", False), ("x", False)]
)
def test_values_of_the_url_are_those_of_the_slider(text: str, is_valid: bool) -> None:
    assert carried.is_percentage(text) is is_valid


def test_a_category_without_operations_has_no_sliders_and_keeps_their_values(
    registered: Draw, sample_id: str
) -> None:
    page = registered("moe_fused", analysis=sample_id, target="70", below="30")
    assert not page.exception
    assert page.info[0].value.startswith("This trace has no operations")
    assert not page.slider
    assert copied_link(page)["target"] == ["70"]
