"""The URL has the analysis and every control; invalid values are corrected with a notice."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from jarvis.analyses import load_analyses
from jarvis.core.workspace import RunPaths, analyses_dir
from jarvis.run import SCHEMA_VERSION
from tests.dashboard.conftest import Draw
from tests.dashboard.copied import copied_parameters

CATEGORIES = [key for key, analysis in load_analyses().items() if analysis.tier == "compute"]


def copied_link(page: AppTest) -> dict[str, list[str]]:
    """Return the parameters of the sidebar's link."""
    return copied_parameters(page)


@pytest.mark.parametrize("key", ["gemm", "convolution", "elementwise", "batchnorm"])
def test_every_control_of_a_category_page_comes_from_the_link(registered: Draw, key: str) -> None:
    page = registered(
        key,
        **{
            f"{key}_target": "63",
            "target": "71",
            "below": "27",
            f"{key}_bound": "memory",
            f"{key}_min": "0.5",
            f"{key}_search": "a",
        },
    )
    assert page.slider(key=f"{key}_target").value == 63
    assert page.slider(key="target").value == 71
    assert page.slider(key="below").value == 27
    assert page.session_state[f"{key}_bound"] == "memory"
    assert page.number_input(key=f"{key}_min").value == 0.5
    assert page.text_input(key=f"{key}_search").value == "a"
    assert not page.warning


def test_the_copied_link_writes_defaults_out(registered: Draw, sample_id: str) -> None:
    assert copied_link(registered("gemm")) == {
        "analysis": [sample_id],
        "target": ["80"],
        "below": ["40"],
        "gemm_bound": ["all"],
        "gemm_min": ["0.0"],
        "gemm_sort": ["kernel_time_us"],
        "gemm_order": ["descending"],
    }


def test_a_copied_link_opens_the_page_that_it_was_copied_from(registered: Draw) -> None:
    page = registered("gemm", gemm_target="63", gemm_search="mm")
    page.slider(key="below").set_value(33).run()
    link = {name: value[0] for name, value in copied_link(page).items()}
    again = registered("gemm", **link)
    assert copied_link(again) == copied_link(page)
    assert [m.value for m in again.metric] == [m.value for m in page.metric]


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("gemm_target", "500"),
        ("gemm_target", "abc"),
        ("target", "-3"),
        ("below", "-3"),
        ("gemm_bound", "network"),
        ("gemm_min", "lots"),
        ("gemm_op", "424242424242"),
        ("gemm_op", "x"),
    ],
)
def test_a_bad_parameter_is_corrected_with_a_word(
    registered: Draw, parameter: str, value: str
) -> None:
    page = registered("gemm", **{parameter: value})
    assert not page.exception
    assert any(value in warning.value for warning in page.warning)
    assert page.slider(key="gemm_target").value == 80
    page.run()
    assert not page.warning


def test_pages_of_their_own_keep_their_controls_in_the_link(filed: Draw, sample_id: str) -> None:
    page = filed("report", analysis=sample_id, report_view="findings", report_category="gemm")
    assert copied_link(page) == {
        "analysis": [sample_id],
        "target": ["80"],
        "below": ["40"],
        "report_view": ["findings"],
        "report_category": ["gemm"],
    }


def test_the_newest_analysis_opens_without_a_link(filed: Draw, sample_id: str) -> None:
    page = filed("overview")
    assert not page.error
    assert page.sidebar.selectbox[0].value is not None


def test_choosing_another_analysis_wins_over_the_link(
    filed: Draw, sample_id: str, registered: Draw
) -> None:
    page = registered("gemm", analysis="notthere")
    page.sidebar.selectbox[0].set_value(sample_id).run()
    assert not page.error
    assert copied_link(page)["analysis"] == [sample_id]


@pytest.fixture
def older(sample_id: str) -> Iterator[Path]:
    """Return a stored copy of the sample's run, to be modified."""
    root = analyses_dir() / "older"
    shutil.copytree(analyses_dir() / sample_id, root)
    yield root
    shutil.rmtree(root)


def change_manifest(root: Path, **changed: object) -> None:
    manifest = RunPaths(root).manifest
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changed))


def test_an_analysis_in_an_older_layout_asks_to_be_made_again(filed: Draw, older: Path) -> None:
    change_manifest(older, schema_version=SCHEMA_VERSION - 1)
    page = filed("overview", analysis=older.name)
    assert not page.exception
    (output,) = [error.value for error in page.error]
    assert f"layout {SCHEMA_VERSION - 1}" in output
    assert "Analyze the trace again" in output


def test_an_analysis_without_a_table_asks_to_be_made_again(filed: Draw, older: Path) -> None:
    tables = json.loads(RunPaths(older).manifest.read_text())["tables"]
    change_manifest(older, tables=[name for name in tables if name != "gpu_work"])
    page = filed("timeline", analysis=older.name)
    assert not page.exception
    (output,) = [error.value for error in page.error]
    assert "lacks the table gpu_work" in output
    assert "Analyze the trace again" in output
