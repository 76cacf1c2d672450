"""Pages of categories added by an extension, shown for the runs that have them."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from jarvis.pipeline import analyze
from jarvis.run import Run
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.submission import Submission
from tests.builders import trace
from tests.dashboard.conftest import SECONDS, stored_in

EXTENSION = '''
from jarvis.analyses.base import Analysis, Claim, Panel
from jarvis.analyses.checks import low_efficiency
from jarvis.perf_models import OpCost
from jarvis.schemas import INTEGER, Column


def register(registry):
    @registry.perf_model("mylib::scan", category="Scan_fwd")
    def scan(op):
        rows, columns = op.input_dims[0]
        return OpCost(3 * rows * columns, 4 * rows * columns, "vector_bf16", {"rows": rows})


def broken(data):
    """Never.

    Symptom: none.
    Rule: none.
    Threshold: none.
    """
    raise KeyError("no such thing")


def with_calls(rows, compute_units):
    return rows.with_columns(scan_calls=rows["operation_count"])


SCANS = Analysis(
    title="Scans",
    icon=":material/there_is_no_such_icon:",
    claim=Claim(op_categories=("Scan_fwd",)),
    checks=(low_efficiency,),
    classify=with_calls,
    details=(Column("scan_calls", "Calls of scans", INTEGER),),
    panels=(
        Panel(kind="roofline", title="Scans under the roofline"),
        Panel(kind="bars", title="Time of scans", x="kernel_time_us", y="name"),
    ),
)
BROKEN = Analysis(
    title="Broken", icon=":material/radar:", claim=Claim(op_names=("*peek",)), checks=(broken,)
)
ANALYSES = {"scans": SCANS, "broken": BROKEN, "gemm": SCANS}
'''


def _added_page(key: str) -> None:
    """Draw the page of an extension's category."""
    from functools import partial

    from jarvis.dashboard import shell
    from jarvis.dashboard.menu import menu, render
    from jarvis.dashboard.session import navigation
    from jarvis.server.storage.catalog import read_catalog

    catalog = read_catalog()
    sections = menu(catalog)
    navigation.remember(page for pages in sections.values() for page in pages)
    shell.draw(partial(render, key), key, catalog, sections)


def _menu() -> None:
    """Return the titles of the pages in the menu, by section."""
    import streamlit as st

    from jarvis.dashboard.menu import menu
    from jarvis.server.storage.catalog import read_catalog

    shown = {
        section: [page.title for page in pages if page.visibility == "visible"]
        for section, pages in menu(read_catalog()).items()
    }
    st.json(shown)


@pytest.fixture(scope="module")
def added_id(home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the id of a run with two categories of an extension, one of which fails."""
    folder = tmp_path_factory.mktemp("added")
    built = trace(device="AMD Instinct MI300X")
    built.op("mylib::scan", [[4096, 4096]]).launches("scan_kernel", us=200)
    built.op("aten::mm", [[512, 512], [512, 512]]).launches("gemm", us=50)
    built.op("mylib::peek", [[1]]).launches("peek_kernel", us=10)
    extension = folder / "mine.py"
    extension.write_text(EXTENSION, encoding="utf-8")
    source = built.write(folder / "trace.json")
    return stored_in(home, Submission(source, extension_file=extension))


def drawn(key: str, analysis: str) -> AppTest:
    page = AppTest.from_function(_added_page, args=(key,), default_timeout=SECONDS)
    page.query_params["analysis"] = analysis
    return page.run()


def shown(analysis: str) -> dict[str, list[str]]:
    import json

    page = AppTest.from_function(_menu, default_timeout=SECONDS)
    page.query_params["analysis"] = analysis
    found: dict[str, list[str]] = json.loads(page.run().json[0].value)
    return found


def test_the_page_shows_the_rows_findings_and_panels(added_id: str) -> None:
    page = drawn("scans", added_id)
    assert not page.exception
    assert "Scans" in page.title[0].value
    texts = " ".join(block.value for block in page.markdown)
    assert "Scans under the roofline" in texts
    assert "Time of scans" in texts
    (table,) = [frame.value for frame in page.dataframe if "scan_calls" in frame.value]
    assert table["scan_calls"].tolist() == [1]


def test_a_category_that_failed_says_so_and_shows_its_operations(added_id: str) -> None:
    page = drawn("broken", added_id)
    assert not page.exception
    (error,) = page.error
    line = 1 + EXTENSION.splitlines().index('    raise KeyError("no such thing")')
    assert f"mine.py, line {line}" in error.value
    assert "no such thing" in error.value
    assert page.dataframe[0].value["name"].tolist() == ["mylib::peek"]


def test_what_was_left_out_is_reported_on_every_page(added_id: str) -> None:
    page = drawn("scans", added_id)
    output = " ".join(warning.value for warning in page.warning)
    assert "an analysis named gemm is already registered" in output.replace("\\", "")


def test_the_menu_shows_the_pages_of_the_open_run_alone(added_id: str, sample_id: str) -> None:
    with_them, without = shown(added_id), shown(sample_id)
    assert with_them["Kernels"][-2:] == ["Scans", "Broken"]
    assert without["Kernels"] == with_them["Kernels"][:-2]
    assert {key: titles for key, titles in without.items() if key != "Kernels"} == {
        key: titles for key, titles in with_them.items() if key != "Kernels"
    }


def test_another_run_on_such_a_page_is_given_a_reason_it_has_none(
    added_id: str, sample_id: str
) -> None:
    page = drawn("scans", sample_id)
    assert not page.exception
    assert "without the extension" in page.info[0].value


def test_rows_of_other_pages_lead_to_the_page(added_id: str, home: Path) -> None:
    run = Run.load(home / "analyses" / added_id)
    assert list(run.analyses) == list(run.results)
    category = run.table("operations").filter(name="mylib::scan")["category"].item()
    assert run.analyses[category].title == "Scans"
    assert run.root == analysis_root(added_id)


def test_a_run_is_the_same_in_a_process_that_never_saw_the_file(
    added_id: str, sample_run: Run, tmp_path: Path
) -> None:
    """The process loaded the extension before; the analysis must not contain it."""
    source = Path(sample_run.manifest.trace.path)
    again = analyze(source, model_name="Sample model", output_dir=tmp_path / "run")
    assert again.results == sample_run.results
    assert again.manifest.added_analyses == ()
