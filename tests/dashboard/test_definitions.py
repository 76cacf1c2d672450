"""Help texts of all numbers, and definitions of other tools."""

import json

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from jarvis.analyses import load_analyses
from jarvis.core.workspace import resource
from jarvis.dashboard.widgets.table import configured
from jarvis.perf_report.timeline.other_definitions import Quantity, Tool
from jarvis.run import Run
from jarvis.schemas import TABLES
from jarvis.text.format import milliseconds
from tests.dashboard.conftest import Draw
from tests.dashboard.inline_jobs import do_jobs_at_once

FILED = sorted(path.stem for path in resource("pages").glob("*.py"))


def without_meaning(page: AppTest) -> list[str]:
    """Return metrics and shown table columns without a help text."""
    metrics = [f"metric {metric.label}" for metric in page.metric if not metric.help]
    columns = []
    for table in page.dataframe:
        config = json.loads(table.proto.columns or "{}")
        shown = list(table.proto.column_order) or list(table.value.columns)
        columns += [f"column {name}" for name in shown if not config.get(name, {}).get("help")]
    return metrics + columns


@pytest.mark.parametrize("name", FILED)
def test_every_number_of_a_file_page_has_a_meaning(
    filed: Draw, sample_id: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_jobs_at_once(monkeypatch)
    filed("ingest", ingest_source="sample")  # so that the lists of jobs and of acts have a line
    page = filed(name, analysis=sample_id, reference=sample_id)
    assert not page.exception
    assert name != "compare" or page.metric
    assert without_meaning(page) == []


@pytest.mark.parametrize("key", [key for key, a in load_analyses().items() if not a.only_with])
def test_every_number_of_an_analysis_has_a_meaning(
    registered: Draw, sample_run: Run, key: str
) -> None:
    rows = sample_run.results[key].row_count
    selected = {f"{key}_op": str(sample_run.category_operations(key)["uid"][0])} if rows else {}
    page = registered(key, **selected)
    assert page.metric or not rows
    assert without_meaning(page) == []


@pytest.mark.parametrize("table", list(TABLES))
def test_every_column_of_every_table_has_a_meaning(table: str) -> None:
    for column in TABLES[table]:
        assert configured(column, pl.Series(dtype=column.dtype))["help"], column.name


def test_the_panel_sets_the_other_tools_beside_ours(
    filed: Draw, sample_id: str, sample_run: Run
) -> None:
    page = filed("overview", analysis=sample_id, overview_definition=Quantity.COMPUTE)
    fold = next(e for e in page.expander if e.label == "Why other tools report different values")
    assert fold.proto.expanded
    (table,) = [m.value for m in fold.markdown if m.value.startswith("| Tool")]
    ours = milliseconds(sample_run.manifest.totals.compute_time_ms).replace(
        " ", "\N{NO-BREAK SPACE}"
    )
    for tool in (Tool.TRACELENS, Tool.HTA, Tool.TENSORBOARD, Tool.GPU_IDLE):
        (row,) = [line for line in table.splitlines() if line.startswith(f"| {tool} |")]
        assert f"| {ours} |" in row


def test_a_figure_that_no_tool_has_is_corrected(filed: Draw, sample_id: str) -> None:
    page = filed("overview", analysis=sample_id, overview_definition="Happiness")
    assert any("'Happiness', which is not valid here" in w.value for w in page.warning)


@pytest.mark.parametrize(
    ("key", "figure"), [("cpu_idle", "GPU idle"), ("multi_kernel", "Exposed communication")]
)
def test_system_pages_have_the_figures_that_concern_them(
    registered: Draw, key: str, figure: str
) -> None:
    page = registered(key)
    assert page.segmented_control(key=f"{key}_definition").value == figure
