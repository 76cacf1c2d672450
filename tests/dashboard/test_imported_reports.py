"""Every page for a run imported from a performance report."""

import zipfile
from pathlib import Path

import pytest

from jarvis.analyses import load_analyses
from jarvis.reports.reading import is_report, read_report
from jarvis.reports.xlsx import write_workbook
from jarvis.server.errors import IntakeError
from jarvis.server.ingest.intake import ROOTS_VARIABLE, server_trace, store_upload
from jarvis.server.storage.catalog import analysis_root, read_catalog
from jarvis.server.submission import Submission, resubmit, submit
from tests.dashboard.conftest import Draw
from tests.dashboard.inline_jobs import do_jobs_at_once
from tests.dashboard.uploading import uploaded

FILE_PAGES = (
    "overview",
    "report",
    "timeline",
    "call_tree",
    "what_if",
    "compare",
    "hardware",
    "ingest",
)


@pytest.fixture(scope="module")
def report_id(reference_root: Path, home: Path) -> str:
    """Return the id of the analysis of a TraceLens report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        place = reference_root / "reference" / "mi300-resnet-ddp-checkpoint" / "default"
        return submit(Submission(place, platform="MI300X")).id


def test_no_page_fails_on_a_report(report_id: str, filed: Draw, registered: Draw) -> None:
    pages = [registered(key, analysis=report_id) for key in load_analyses()]
    pages += [filed(page, analysis=report_id) for page in FILE_PAGES]
    for page in pages:
        assert not page.exception, page.title[0].value
        assert not page.error, page.title[0].value


@pytest.mark.parametrize(
    ("page", "thing"), [("timeline", "single kernels"), ("call_tree", "the call tree")]
)
def test_a_page_says_what_the_report_lacks(
    report_id: str, filed: Draw, page: str, thing: str
) -> None:
    notes = [note.value for note in filed(page, analysis=report_id).info]
    assert any(n.startswith("Not in a TraceLens report: ") and thing in n for n in notes)


@pytest.mark.parametrize(
    ("key", "thing"), [("cpu_idle", "idle gaps"), ("kernel_fusion", "the order of operators")]
)
def test_an_analysis_says_what_the_report_lacks(
    report_id: str, registered: Draw, key: str, thing: str
) -> None:
    notes = [note.value for note in registered(key, analysis=report_id).info]
    assert any(n.startswith("Not in a TraceLens report: ") and thing in n for n in notes)


def test_the_overview_warns_that_a_report_was_read(report_id: str, filed: Draw) -> None:
    page = filed("overview", analysis=report_id)
    shown = " ".join(
        str(e.value) for kind in (page.warning, page.info, page.markdown) for e in kind
    )
    assert "performance report" in shown


def test_a_stored_report_is_reused_and_reprojected(report_id: str, reference_root: Path) -> None:
    place = reference_root / "reference" / "mi300-resnet-ddp-checkpoint" / "default"
    assert submit(Submission(place, platform="MI300X")).is_reused
    other = resubmit(report_id, "MI325X", None)
    assert analysis_root(other.id).is_dir()


def test_a_report_is_analyzed_from_the_ingest_page(
    reference_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filed: Draw
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    do_jobs_at_once(monkeypatch)
    folder = reference_root / "reference" / "h100-bert-small" / "default"
    workbook = write_workbook(read_report(folder), tmp_path / "perf_report.xlsx")
    upload = uploaded("perf_report.xlsx", workbook.read_bytes())
    page = filed("ingest", ingest_upload=upload)
    captions = [caption.value for caption in page.main.caption]
    assert any("performance report of 3.91 ms on the GPU" in caption for caption in captions)
    assert "The report does not name its GPU: choose it." in captions
    page.selectbox(key="ingest_platform").set_value("H100 SXM").run()
    next(button for button in page.button if button.label == "Analyze").click().run()
    assert not page.exception
    assert not page.error
    (entry,) = read_catalog().entries
    assert entry.manifest.trace.form == "report"
    assert entry.gpu == "H100 SXM"


def test_a_damaged_workbook_is_refused_on_the_ingest_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filed: Draw
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    do_jobs_at_once(monkeypatch)
    page = filed("ingest", ingest_upload=uploaded("perf_report.xlsx", b"PK damaged"))
    assert not page.exception
    assert any("is not a readable report" in error.value for error in page.error)


def test_reports_come_in_as_upload_and_by_path(
    reference_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = reference_root / "reference" / "h100-bert-small" / "default"
    packed = tmp_path / "report.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for sheet in folder.glob("*.csv"):
            archive.write(sheet, sheet.name)
    with packed.open("rb") as content:
        assert is_report(store_upload("report.zip", content))
    with packed.open("rb") as content:
        assert store_upload("perf_report.xlsx", content).name == "perf_report.xlsx"
    monkeypatch.setenv(ROOTS_VARIABLE, str(folder.parent))
    assert server_trace("default") == folder.resolve()
    with pytest.raises(IntakeError, match="There is no file nothing"):
        server_trace("nothing")
