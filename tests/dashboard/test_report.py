"""The report page: notes are saved for everybody, and are in the preview and the files."""

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete
from streamlit.testing.v1 import AppTest

from jarvis.core.notes import NO_NOTES, FindingStatus, NoteField, ReportNotes
from jarvis.core.workspace import RunPaths
from jarvis.dashboard.pages.report import downloads, finding_notes
from jarvis.dashboard.pages.report import saved as report_saved
from jarvis.pipeline import opened_at
from jarvis.replay import select
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.server import note_actions, queue
from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import LOCAL, Person, Role
from jarvis.server.actions import Actor
from jarvis.server.database import (
    REPORT_COMMENTS,
    REPORT_FIELDS,
    REPORTS,
    database,
    writing,
)
from jarvis.server.jobs.kinds import Export, job_file
from jarvis.server.storage import report_notes
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.storage.report_notes import EXCLUDED, NoteChange
from jarvis.server.submission import Submission
from jarvis.text.markdown import prose
from jarvis.text.messages import to_text
from tests.builders import trace
from tests.dashboard.conftest import Draw, stored_in
from tests.dashboard.copied import copied_url
from tests.dashboard.inline_jobs import do_jobs_at_once, outdated

PREVIEWS = ("fair", "rough", "analysis")


@pytest.fixture(scope="module")
def other_id(home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the id of an analysis with an operator name that contains markup."""
    builder = trace().child("<img src=x>|`b`", [[4096, 4096]]).launches("k<b>", us=90_000.0)
    path = builder.write(tmp_path_factory.mktemp("other") / "other.json")
    return stored_in(home, Submission(path, platform="MI300X"))


@pytest.fixture(autouse=True)
def _without_notes(home: Path) -> Iterator[None]:
    """Delete the notes of each test; the home is that of the session."""
    yield
    with writing(database()) as connection:
        for table in (REPORTS, REPORT_FIELDS, REPORT_COMMENTS):
            connection.execute(delete(table))


@pytest.fixture
def keys(sample_run: Run) -> list[str]:
    """Return the keys of the findings of the sample, by saving."""
    return [item.key for item in recommendations(sample_run)]


@pytest.fixture
def as_proxy_user(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Role], None]:
    """Return a function that makes the user of all pages a person."""

    def use(name: str, role: Role) -> None:
        who = Actor(Person(name, role), Channel.PAGE)
        for module in (report_saved, finding_notes):
            monkeypatch.setattr(module, "current_user", lambda: who.person)
            monkeypatch.setattr(module, "actor", lambda: who)

    return use


def switches(page: AppTest) -> list[bool]:
    return [c.value for c in page.checkbox if "report_included" in (c.key or "")]


def stored(analysis: str) -> ReportNotes:
    return note_actions.read_notes(LOCAL, analysis)


def labeled(page: AppTest, label: str) -> Any:
    return next(button for button in page.button if button.label == label)


def others_note(analysis: str, change: NoteChange) -> None:
    """Write a note as another user of the server."""
    note_actions.edit_report(Actor(Person("root", Role.ADMIN), Channel.API), analysis, [change])


def fair_text(page: AppTest) -> str:
    return next(m.value for m in page.markdown if m.value.startswith("# "))


@pytest.mark.parametrize("view", PREVIEWS)
def test_each_preview_shows_its_report(filed: Draw, sample_id: str, view: str) -> None:
    page = filed("report", analysis=sample_id, report_view=view)
    assert not page.exception
    assert "Sample model" in fair_text(page)
    if view == "fair":
        listed = fair_text(page).count("| [P")
        captions = " ".join(each.value for each in page.main.caption)
        assert f"The report has the first {listed}; the detailed report" in captions


def test_links_to_evidence_lead_to_the_page_of_the_finding(
    filed: Draw, sample_id: str, sample_run: Run
) -> None:
    text = fair_text(filed("report", analysis=sample_id, report_view="fair"))
    assert "](gemm?analysis=" in text
    assert "_findings.md)" not in text
    for result in sample_run.results.values():
        titles = [to_text(finding.title) for finding in result.findings]
        assert len(titles) == len(set(titles)), result.key


def test_the_html_preview_is_drawn(filed: Draw, sample_id: str) -> None:
    page = filed("report", analysis=sample_id, report_view="html")
    assert not page.exception
    assert "<svg" in page.get("iframe")[0].proto.srcdoc


def test_a_link_of_an_earlier_release_is_a_preview_that_can_be_saved(
    filed: Draw, sample_id: str, sample_run: Run, keys: list[str]
) -> None:
    asked = {"report_without": "1,3", "report_summary": "From a *link*."}
    page = filed("report", analysis=sample_id, **asked)
    ranked = recommendations(sample_run)
    assert switches(page) == [item.number not in (1, 3) for item in ranked]
    assert all(c.disabled for c in page.checkbox if "report_included" in c.key)
    assert page.text_area[0].value == "From a *link*."
    text = fair_text(page)
    cards = text.partition("## Recommendations")[2].partition("\n## ")[0]
    assert " P1 (" not in cards
    assert " P2 (" in cards or "| P2 |" in cards
    assert "The author left out 2 findings" in text
    assert "From a *link*." in text
    assert any(f"{len(ranked) - 2} of {len(ranked)} findings" in m.value for m in page.markdown)
    assert stored(sample_id) == NO_NOTES
    assert asked.items() <= page.query_params.items()
    link = copied_url(page)
    assert "report_without=1%2C3" in link

    labeled(page, "Save for everybody").click().run()
    assert "report_without" not in page.query_params
    assert "report_summary" not in page.query_params
    assert stored(sample_id).left_out == {keys[0], keys[2]}
    assert stored(sample_id).summary == "From a *link*."
    assert fair_text(page) == text
    assert not page.info


def test_numbers_in_a_link_of_an_earlier_release_are_those_of_the_stored_analysis(
    filed: Draw, sample_id: str, sample_run: Run
) -> None:
    ranked = recommendations(sample_run)
    elsewhere = {item.key: item.number for item in recommendations(_at(sample_id, 55.0))}
    moved = next(r for r in ranked if elsewhere.get(r.key, r.number) != r.number)
    page = filed("report", analysis=sample_id, report_without=str(moved.number), target="55")
    left_out = [c.key for c in page.checkbox if "report_included" in (c.key or "") and not c.value]
    assert left_out == [f"_report_included_{sample_id}_{elsewhere[moved.key]}"]


def test_a_link_of_an_earlier_release_can_be_discarded(filed: Draw, sample_id: str) -> None:
    page = filed("report", analysis=sample_id, report_without="1")
    labeled(page, "Discard").click().run()
    assert all(switches(page))
    assert "report_without" not in page.query_params
    assert stored(sample_id) == NO_NOTES


def test_a_switch_changes_preview_summary_and_what_is_stored(
    filed: Draw, sample_id: str, sample_run: Run, keys: list[str]
) -> None:
    page = filed("report", analysis=sample_id)
    assert "author" not in fair_text(page)
    first = to_text(recommendations(sample_run)[0].finding.title)
    assert first in str(page.text_area[0].value)
    next(c for c in page.checkbox if c.key.endswith(f"{sample_id}_1")).uncheck().run()
    assert stored(sample_id).left_out == {keys[0]}
    assert not page.query_params.keys() & {"report_without", "report_summary"}
    assert "The first finding, " in str(page.text_area[0].value)
    assert first not in str(page.text_area[0].value)
    assert "The author left out 1 finding" in fair_text(page)
    assert switches(filed("report", analysis=sample_id)) == switches(page)
    labeled(page, "Include all").click().run()
    assert all(switches(page))
    assert stored(sample_id).left_out == frozenset()
    labeled(page, "Leave out low priority").click().run()
    low = {r.key for r in recommendations(sample_run) if r.finding.priority == "Low"}
    assert low
    assert stored(sample_id).left_out == low


@pytest.mark.parametrize("given", ["999", "1,,2", "<b>", "-1"])
def test_a_choice_that_is_none_is_corrected_with_a_word(
    filed: Draw, sample_id: str, given: str
) -> None:
    page = filed("report", analysis=sample_id, report_without=given)
    assert not page.exception
    assert all(switches(page))
    assert any("report_without" in w.value for w in page.warning)
    assert "report_without" not in page.query_params


def test_a_summary_is_saved_and_can_be_taken_back(filed: Draw, sample_id: str) -> None:
    page = filed("report", analysis=sample_id)
    ours = page.text_area[0].value
    page.text_area[0].set_value("Fuse the norms first. ![i](http://e.example/i.png)").run()
    assert stored(sample_id).summary == page.text_area[0].value
    text = fair_text(page)
    assert "Fuse the norms first." in text
    assert "![" not in text
    assert "The author of this report wrote the summary." in text
    assert any("Written by `local`, 20" in caption.value for caption in page.caption)
    other = filed("report", analysis=sample_id)
    assert other.text_area[0].value == page.text_area[0].value
    labeled(page, "Restore generated summary").click().run()
    assert page.text_area[0].value == ours
    assert stored(sample_id).summary is None
    page.text_area[0].set_value("x").run()
    page.text_area[0].set_value(" ").run()
    assert page.text_area[0].value == ours


def test_status_owner_and_comments_of_a_finding(
    filed: Draw, sample_id: str, keys: list[str]
) -> None:
    page = filed("report", analysis=sample_id)
    page.button(key="report_notes_P2").click().run()
    assert page.query_params["report_finding"] == keys[1]
    assert f"report_finding={keys[1]}" in copied_url(page)
    page.selectbox(key=f"_report_status_{sample_id}_{keys[1]}").set_value("planned").run()
    page.text_input(key=f"_report_owner_{sample_id}_{keys[1]}").set_value("Ann *B*").run()
    page.text_area(key=f"_report_comment_{sample_id}_{keys[1]}").set_value("# Why <b>?")
    labeled(page, "Add comment").click().run()
    assert not page.exception
    notes = stored(sample_id).of(keys[1])
    assert (notes.status, notes.owner) == (FindingStatus.PLANNED, "Ann *B*")
    assert [comment.text for comment in notes.comments] == ["# Why <b>?"]
    (label,) = (c.label for c in page.checkbox if (c.key or "").endswith(f"{sample_id}_2"))
    assert "blue-badge[Planned]" in label
    assert "Ann \\*B\\*" in label
    assert [text.value for text in page.text] == ["# Why <b>?"]
    assert "| planned | Ann" in fair_text(page)

    rough = filed("report", analysis=sample_id, report_view="rough")
    assert "```text\n# Why <b>?\n```" in fair_text(rough)
    labeled(page, "Delete").click().run()
    assert stored(sample_id).of(keys[1]).comments == ()
    labeled(page, "Close").click().run()
    assert "report_finding" not in page.query_params
    assert page.text_area[0].label.startswith("**Executive summary")


def test_cards_show_status_and_owner_of_their_finding_alone(
    registered: Draw, sample_id: str, sample_run: Run
) -> None:
    items = [r for r in recommendations(sample_run) if r.finding.category == "gemm"]
    noted = items[1]
    assert not any(
        "Planned" in each.label for each in registered("gemm", analysis=sample_id).expander
    )
    others_note(sample_id, NoteChange(NoteField.STATUS, "planned", noted.key))
    others_note(sample_id, NoteChange(NoteField.OWNER, "Ann *B*", noted.key))
    labels = [each.label for each in registered("gemm", analysis=sample_id).expander]
    marked = [label for label in labels if "Planned" in label]
    assert len(marked) == 1
    assert prose(noted.finding.title) in marked[0]
    assert r"Ann \*B\*" in marked[0]


def test_an_order_is_saved_and_can_be_undone(filed: Draw, sample_id: str, keys: list[str]) -> None:
    page = filed("report", analysis=sample_id, report_finding=keys[0])
    labeled(page, "Down").click().run()
    assert stored(sample_id).order[:2] == (keys[1], keys[0])
    labels = [c.label.split()[0] for c in page.checkbox if "report_included" in (c.key or "")]
    assert labels[:3] == ["P2", "P1", "P3"]
    assert "Listed in the order of the author." in fair_text(page)
    labeled(page, "Order by saving").click().run()
    assert stored(sample_id).order == ()
    assert "order of the author" not in fair_text(page)


def test_an_unknown_finding_of_a_link_is_reported(filed: Draw, sample_id: str) -> None:
    page = filed("report", analysis=sample_id, report_finding="gemm.none.0")
    assert not page.exception
    assert any("report_finding" in warning.value for warning in page.warning)
    assert "report_finding" not in page.query_params


def test_a_stale_page_says_what_its_change_replaced(
    filed: Draw, sample_id: str, keys: list[str]
) -> None:
    page = filed("report", analysis=sample_id, report_finding=keys[0])
    others_note(sample_id, NoteChange(NoteField.STATUS, "done", keys[0]))
    others_note(sample_id, NoteChange(NoteField.OWNER, "root", keys[0]))
    page.selectbox(key=f"_report_status_{sample_id}_{keys[0]}").set_value("planned").run()
    assert stored(sample_id).of(keys[0]).status is FindingStatus.PLANNED
    assert page.text_input(key=f"_report_owner_{sample_id}_{keys[0]}").value == "root"
    (output,) = (w.value for w in page.warning if "replaced it" in w.value)
    assert output.startswith("`root` changed the status of ")
    assert " to done (20" in output
    labeled(page, "Restore the replaced version").click().run()
    assert stored(sample_id).of(keys[0]).status is FindingStatus.DONE
    assert not [w for w in page.warning if "replaced it" in w.value]


def test_moves_on_a_stale_page_follow_those_of_others(
    filed: Draw, sample_id: str, keys: list[str]
) -> None:
    page = filed("report", analysis=sample_id, report_finding=keys[0])
    root = Actor(Person("root", Role.ADMIN), Channel.API)
    note_actions.move_finding(root, sample_id, keys[2], -1)
    labeled(page, "Down").click().run()
    assert stored(sample_id).order[:3] == (keys[2], keys[0], keys[1])
    assert any("Your move follows theirs" in info.value for info in page.info)


def test_an_open_page_says_that_others_changed_the_report(
    filed: Draw, sample_id: str, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = partial(report_notes.read_revision, database())
    monkeypatch.setattr(report_saved, "read_revision", lambda *_: newer(sample_id) + 1)
    others_note(sample_id, NoteChange(NoteField.STATUS, "done", keys[0]))
    page = filed("report", analysis=sample_id)
    assert any("changed by `root`" in info.value for info in page.info)
    labeled(page, "Show the changes").click().run()
    assert not page.exception


def test_notes_on_a_finding_that_is_no_longer_reported_remain(filed: Draw, sample_id: str) -> None:
    change = NoteChange(NoteField.STATUS, "done", "gemm.gone.0", "An *old* finding")
    report_notes.write_notes(database(), sample_id, "ann", lambda _: [change])
    page = filed("report", analysis=sample_id)
    assert any("No longer reported" in caption.value for caption in page.caption)
    page.button(key="report_notes_gemm.gone.0").click().run()
    assert not page.exception
    assert page.selectbox(key=f"_report_status_{sample_id}_gemm.gone.0").value == "done"
    assert "Down" not in [button.label for button in page.button]
    assert "| An \\*old\\* finding | done |" in fair_text(page)


def test_notes_hold_at_every_target(filed: Draw, sample_id: str, sample_run: Run) -> None:
    page = filed("report", analysis=sample_id, target="99")
    with opened_at(analysis_root(sample_id), 99.0) as run:
        ranked = recommendations(run)
    only_here = {item.key for item in ranked} - {r.key for r in recommendations(sample_run)}
    kept = next(item for item in ranked if item.key not in only_here)
    for item in (kept, *(each for each in ranked if each.key in only_here)):
        page.button(key=f"report_notes_{item.label}").click().run()
        page.selectbox(key=f"_report_status_{sample_id}_{item.key}").set_value("done").run()
        page.text_area(key=f"_report_comment_{sample_id}_{item.key}").set_value("x")
        labeled(page, "Add comment").click().run()
        assert not page.exception
        notes = stored(sample_id).of(item.key)
        assert (notes.status, len(notes.comments)) == (FindingStatus.DONE, 1)
    assert "| done |" in fair_text(page)
    default = filed("report", analysis=sample_id)
    assert any("| done |" in line for line in fair_text(default).splitlines())
    low = filed("report", analysis=sample_id, target="5")
    shown = [caption.value for caption in low.caption]
    is_gone = kept.key not in {item.key for item in recommendations(_at(sample_id, 5.0))}
    assert any("Not reported at this target" in text for text in shown) == is_gone


def test_files_at_another_target_are_removed_with_their_cache_entry(
    filed: Draw, sample_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    filed("report", analysis=sample_id, target="61", report_view="analysis")
    (folder,) = tmp_path.glob("jarvis-targets-*")
    assert (folder / "manifest.json").is_file()
    downloads._written_again.clear()
    assert not folder.exists()


def _at(analysis: str, target_pct: float) -> Run:
    with opened_at(analysis_root(analysis), target_pct) as run:
        return run


def test_others_read_the_notes_and_comment(
    filed: Draw,
    sample_id: str,
    keys: list[str],
    as_proxy_user: Callable[[str, Role], None],
) -> None:
    as_proxy_user("vic", Role.VIEWER)
    page = filed("report", analysis=sample_id, report_finding=keys[0], report_without="1")
    assert not page.exception
    for widget in (
        *(c for c in page.checkbox if "report_included" in (c.key or "")),
        page.selectbox(key=f"_report_status_{sample_id}_{keys[0]}"),
        page.text_input(key=f"_report_owner_{sample_id}_{keys[0]}"),
        labeled(page, "Down"),
        labeled(page, "Save for everybody"),
    ):
        assert widget.disabled
    page.text_area(key=f"_report_comment_{sample_id}_{keys[0]}").set_value("As a viewer.")
    labeled(page, "Add comment").click().run()
    (comment,) = stored(sample_id).of(keys[0]).comments
    assert comment.stamp.author == "vic"
    assert "Delete" in [button.label for button in page.button]
    as_proxy_user("eve", Role.VIEWER)
    page.run()
    assert "Delete" not in [button.label for button in page.button]


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


def test_a_file_of_another_version_is_reported_and_made_again(
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


def test_notes_belong_to_their_analysis(
    filed: Draw, sample_id: str, other_id: str, keys: list[str]
) -> None:
    others_note(sample_id, NoteChange(NoteField.INCLUDED, EXCLUDED, keys[0]))
    page = filed("report", analysis=sample_id, report_without="2", report_summary="Mine.")
    assert switches(page)[:2] == [True, False]
    page.sidebar.selectbox[0].set_value(other_id).run()
    assert all(switches(page))
    assert page.text_area[0].value != "Mine."
    assert "report_without" not in page.query_params
    page.sidebar.selectbox[0].set_value(sample_id).run()
    assert switches(page)[:2] == [False, True]
    assert page.text_area[0].value != "Mine."


def test_names_that_look_like_markup_stay_in_code_spans(filed: Draw, other_id: str) -> None:
    page = filed("report", analysis=other_id)
    assert not page.exception
    assert "`<img src=x>|" in fair_text(page)
