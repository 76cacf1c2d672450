"""The report page: edits are in the link, the preview and the files."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from jarvis.core.workspace import RunPaths
from jarvis.dashboard.pages.report.edits import LINK_CHARACTERS
from jarvis.replay import select
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.server.database import database
from jarvis.server.jobs import queue
from jarvis.server.jobs.kinds import Export, job_file
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.submission import Submission, submit
from jarvis.text.messages import to_text
from tests.builders import trace
from tests.dashboard.conftest import Draw
from tests.dashboard.inline_jobs import do_jobs_at_once, outdated

PREVIEWS = ("fair", "rough", "analysis")


@pytest.fixture(scope="module")
def other_id(home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the id of an analysis with an operator name that contains markup."""
    builder = trace().child("<img src=x>|`b`", [[4096, 4096]]).launches("k<b>", us=90_000.0)
    path = builder.write(tmp_path_factory.mktemp("other") / "other.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        return submit(Submission(path, platform="MI300X")).id


def switches(page: AppTest) -> list[bool]:
    return [c.value for c in page.checkbox if "report_without" in (c.key or "")]


def fair_text(page: AppTest) -> str:
    return next(m.value for m in page.markdown if m.value.startswith("# "))


@pytest.mark.parametrize("view", PREVIEWS)
def test_each_preview_shows_its_report(filed: Draw, sample_id: str, view: str) -> None:
    page = filed("report", analysis=sample_id, report_view=view)
    assert not page.exception
    assert "Sample model" in fair_text(page)


def test_the_html_preview_is_drawn(filed: Draw, sample_id: str) -> None:
    page = filed("report", analysis=sample_id, report_view="html")
    assert not page.exception
    assert "<svg" in page.get("iframe")[0].proto.srcdoc


def test_a_link_leaves_findings_out(filed: Draw, sample_id: str, sample_run: Run) -> None:
    page = filed("report", analysis=sample_id, report_without="1,3")
    ranked = recommendations(sample_run)
    assert switches(page) == [item.number not in (1, 3) for item in ranked]
    text = fair_text(page)
    cards = text.partition("## Recommendations")[2].partition("\n## ")[0]
    assert " P1 (" not in cards
    assert " P2 (" in cards or "| P2 |" in cards
    assert "The author left out 2 findings" in text
    assert any(f"{len(ranked) - 2} of {len(ranked)} findings" in m.value for m in page.markdown)


def test_a_switch_changes_preview_summary_and_address(
    filed: Draw, sample_id: str, sample_run: Run
) -> None:
    page = filed("report", analysis=sample_id)
    assert "author" not in fair_text(page)
    first = to_text(recommendations(sample_run)[0].finding.title)
    assert first in str(page.text_area[0].value)
    next(c for c in page.checkbox if c.key.endswith(f"{sample_id}_1")).uncheck().run()
    assert page.query_params["report_without"] == "1"
    assert "The first finding, " in str(page.text_area[0].value)
    assert first not in str(page.text_area[0].value)
    assert "The author left out 1 finding" in fair_text(page)
    next(b for b in page.button if b.label == "Include all").click().run()
    assert all(switches(page))
    assert "report_without" not in page.query_params
    next(b for b in page.button if b.label == "Leave out low priority").click().run()
    low = [r.number for r in recommendations(sample_run) if r.finding.priority == "Low"]
    assert low
    assert page.query_params["report_without"] == ",".join(map(str, low))


@pytest.mark.parametrize("given", ["999", "1,,2", "<b>", "-1"])
def test_a_choice_that_is_none_is_corrected_with_a_word(
    filed: Draw, sample_id: str, given: str
) -> None:
    page = filed("report", analysis=sample_id, report_without=given)
    assert not page.exception
    assert all(switches(page))
    assert any("report_without" in w.value for w in page.warning)
    assert "report_without" not in page.query_params


def test_a_short_summary_is_in_the_link_and_can_be_taken_back(filed: Draw, sample_id: str) -> None:
    page = filed("report", analysis=sample_id)
    ours = page.text_area[0].value
    page.text_area[0].set_value("Fuse the norms first. ![i](http://e.example/i.png)").run()
    assert page.query_params["report_summary"] == page.text_area[0].value
    text = fair_text(page)
    assert "Fuse the norms first." in text
    assert "![" not in text
    assert "The author of this report wrote the summary." in text
    next(b for b in page.button if b.label == "Restore generated summary").click().run()
    assert page.text_area[0].value == ours
    assert "report_summary" not in page.query_params

    linked = filed("report", analysis=sample_id, report_summary="From a *link*.")
    assert linked.text_area[0].value == "From a *link*."
    assert "From a *link*." in fair_text(linked)


def test_a_long_summary_stays_in_the_session(filed: Draw, sample_id: str) -> None:
    page = filed("report", analysis=sample_id)
    page.text_area[0].set_value("word " * LINK_CHARACTERS).run()
    assert "report_summary" not in page.query_params
    assert any("Too long for a link" in c.value for c in page.caption)
    page.run()
    assert page.text_area[0].value.startswith("word word")


def test_every_download_is_offered_by_a_name_of_its_own(filed: Draw, sample_id: str) -> None:
    page = filed("report", analysis=sample_id)
    labels = [button.label for button in page.get("download_button")]
    assert len(set(labels)) == len(labels) == 8
    assert not [
        b.label for b in page.get("download_button") if b.proto.disabled and "Pack" not in b.label
    ]


def test_the_package_of_an_operator_or_the_reason_for_none(sample_run: Run) -> None:
    package = select(sample_run, op_names=["aten::mm"]).package()
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        assert "replay_ir.json" in archive.namelist()
    (refusal,) = select(sample_run, op_names=["aten::_foreach_sqrt"]).refusals
    assert (
        refusal.reason == "its lists of tensors are too long for the trace to record their shapes"
    )


def test_packages_of_the_analysis_are_offered(filed: Draw, sample_id: str) -> None:
    page = filed("report", analysis=sample_id)
    made = sorted(RunPaths(analysis_root(sample_id)).replay_packages.glob("*.zip"))
    (button,) = [b for b in page.get("download_button") if "Packages" in b.label]
    assert button.label == f"Packages of the analysis ({len(made)})"
    assert button.proto.disabled is not bool(made)


def test_large_files_are_made_by_jobs_and_taken_home(
    filed: Draw, sample_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_jobs_at_once(monkeypatch)
    page = filed("report", analysis=sample_id)
    files = {}
    for label in ("JSON", "Whole run (zip)"):
        page.button(key=f"report_make_{label}").click().run()
        assert not page.exception
        job = queue.find(database(), page.query_params["report_job"])
        file = job_file(job.result)
        assert file is not None
        labels = [link.proto.label for link in page.get("link_button")]
        assert any(text.startswith(file.name) for text in labels)
        files[label] = file
    document = json.loads(files["JSON"].read_bytes())
    assert set(document) == {
        "manifest",
        "results",
        "results_version",
        "tables",
        "tables_left_out",
    }
    root = analysis_root(sample_id)
    with zipfile.ZipFile(files["Whole run (zip)"]) as archive:
        names = set(archive.namelist())
    assert names == {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}
    again = filed("report", analysis=sample_id, report_job=page.query_params["report_job"])
    assert any(b.proto.label.startswith(file.name) for b in again.get("link_button"))


def test_a_job_of_another_analysis_is_let_go_of(
    filed: Draw, sample_id: str, other_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_jobs_at_once(monkeypatch)
    job = queue.submit(database(), Export(other_id, "json").new_job())
    page = filed("report", analysis=sample_id, report_job=job.id)
    assert not page.exception
    assert "report_job" not in page.query_params


def test_a_file_of_another_version_is_said_and_made_again(
    filed: Draw, sample_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_jobs_at_once(monkeypatch)
    made = queue.submit(database(), Export(sample_id, "json").new_job())
    old = outdated(database(), made)
    page = filed("report", analysis=sample_id, report_job=old.id)
    assert not page.exception
    assert any("another version of Jarvis" in warning.value for warning in page.warning)
    page.button(key="report_make_JSON").click().run()
    assert page.query_params["report_job"] != old.id
    assert not page.warning
    assert page.get("link_button")


def test_a_choice_belongs_to_its_analysis_and_waits_for_its_return(
    filed: Draw, sample_id: str, other_id: str
) -> None:
    page = filed("report", analysis=sample_id, report_without="1", report_summary="Mine.")
    page.sidebar.selectbox[0].set_value(other_id).run()
    assert all(switches(page))
    assert page.text_area[0].value != "Mine."
    assert "report_without" not in page.query_params
    page.sidebar.selectbox[0].set_value(sample_id).run()
    assert switches(page)[:2] == [False, True]
    assert page.text_area[0].value == "Mine."
    assert page.query_params["report_without"] == "1"


def test_names_that_look_like_markup_stay_in_code_spans(filed: Draw, other_id: str) -> None:
    page = filed("report", analysis=other_id)
    assert not page.exception
    assert "`<img src=x>|" in fair_text(page)
