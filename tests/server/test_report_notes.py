"""Notes on reports: fields, order and comments, their authors, conflicts, archives, rights."""

import json
import shutil
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, inspect

from jarvis.core.notes import (
    MAX_COMMENTS,
    NO_NOTES,
    FindingStatus,
    NoteError,
    NoteField,
    full_order,
    moved,
)
from jarvis.pipeline import opened_at
from jarvis.reports.ranking import recommendations
from jarvis.run import Run
from jarvis.server import actions, migrations, note_actions
from jarvis.server.access import audit
from jarvis.server.access.audit import Action
from jarvis.server.access.rights import LOCAL
from jarvis.server.actions import OPERATOR, Actor
from jarvis.server.database import Visibility
from jarvis.server.errors import (
    ArchiveError,
    ForbiddenError,
    StaleNotesError,
    UnknownAnalysisError,
    UnknownNoteError,
)
from jarvis.server.storage import report_notes
from jarvis.server.storage.analysis_rows import stored_for, stored_rows
from jarvis.server.storage.archive import load_archive, save_archive
from jarvis.server.storage.catalog import analysis_root, set_visibility
from jarvis.server.storage.report_notes import EXCLUDED, NoteChange
from tests.server.conftest import ADA, ANONYMOUS, BOB, ROOT, VIC, on_both_databases

HOSTILE = "<script>alert(1)</script> ![i](http://e.example/i.png)\n# no heading\x00\u202e"


@pytest.fixture
def keys(analysis: str) -> list[str]:
    """The keys of its findings, by saving."""
    found = [item.key for item in recommendations(Run.load(analysis_root(analysis)))]
    assert len(found) >= 3
    return found


def status(key: str, value: str) -> NoteChange:
    return NoteChange(NoteField.STATUS, value, key)


@on_both_databases
def test_fields_are_saved_with_author_time_and_an_audit_entry(
    engine: Engine, analysis: str, keys: list[str]
) -> None:
    first = keys[0]
    assert note_actions.read_notes(VIC.person, analysis) == NO_NOTES
    changes = [
        status(first, "planned"),
        NoteChange(NoteField.OWNER, "  Vic\n ", first),
        NoteChange(NoteField.INCLUDED, EXCLUDED, keys[1]),
        NoteChange(NoteField.SUMMARY, "Fuse *it*."),
    ]
    note_actions.edit_report(ADA, analysis, changes)
    notes = note_actions.read_notes(VIC.person, analysis)
    assert (notes.of(first).status, notes.of(first).owner) == (FindingStatus.PLANNED, "Vic")
    assert notes.summary == "Fuse *it*."
    assert notes.left_out == {keys[1]}
    assert notes.stamps[first, NoteField.STATUS].author == "ada"
    assert notes.last_change is not None
    entries = audit.recent(engine)
    assert {entry.action for entry in entries} == {Action.EDIT_REPORT}
    assert [entry.detail["field"] for entry in entries] == [
        "summary",
        "included",
        "owner",
        "status",
    ]
    assert entries[-1].detail == {"field": "status", "value": "planned", "finding": first}


def test_an_equal_value_is_no_change(engine: Engine, analysis: str, keys: list[str]) -> None:
    note_actions.edit_report(ADA, analysis, [status(keys[0], "done")])
    again = note_actions.edit_report(
        ROOT, analysis, [status(keys[0], "done"), status(keys[1], "open")]
    )
    assert again.changes == ()
    assert (
        note_actions.read_notes(ADA.person, analysis).stamps[keys[0], NoteField.STATUS].author
        == "ada"
    )
    assert audit.count(engine) == 1


@on_both_databases
def test_the_last_write_of_a_field_wins_and_reports_what_it_replaced(
    engine: Engine, analysis: str, keys: list[str]
) -> None:
    first = keys[0]
    seen = note_actions.edit_report(ADA, analysis, [status(first, "planned")]).revision
    note_actions.edit_report(ROOT, analysis, [status(first, "done")], seen=seen)
    note_actions.edit_report(
        ROOT, analysis, [NoteChange(NoteField.OWNER, "root", first)], seen=seen
    )
    written = note_actions.edit_report(ADA, analysis, [status(first, "won't fix")], seen=seen)
    (replaced,) = written.replaced
    assert (replaced.field, replaced.value) == (NoteField.STATUS, "done")
    assert replaced.stamp.author == "root"
    notes = note_actions.read_notes(ADA.person, analysis).of(first)
    assert (notes.status, notes.owner) == (FindingStatus.WONT_FIX, "root")
    up_to_date = note_actions.edit_report(
        ADA, analysis, [status(first, "done")], seen=written.revision
    )
    assert up_to_date.replaced == ()


def test_a_strict_writer_does_not_replace_what_it_has_not_seen(
    engine: Engine, analysis: str, keys: list[str]
) -> None:
    note_actions.edit_report(ROOT, analysis, [status(keys[0], "done")], seen=0)
    with pytest.raises(StaleNotesError, match=r"status of .* by root"):
        note_actions.edit_report(
            ADA, analysis, [status(keys[0], "planned")], seen=0, is_strict=True
        )
    assert note_actions.read_notes(ADA.person, analysis).of(keys[0]).status is FindingStatus.DONE


@on_both_databases
def test_two_people_order_findings_at_once_and_no_move_is_lost(
    engine: Engine, analysis: str, keys: list[str]
) -> None:
    note_actions.move_finding(ADA, analysis, keys[0], 1, seen=0)
    written = note_actions.move_finding(ROOT, analysis, keys[-1], -1, seen=0)
    assert [note.stamp.author for note in written.replaced] == ["ada"]
    order = note_actions.read_notes(ADA.person, analysis).order
    expected = moved(moved(keys, keys[0], 1), keys[-1], -1)
    assert list(order) == expected
    note_actions.edit_report(ADA, analysis, [NoteChange(NoteField.ORDER, None)])
    assert note_actions.read_notes(ADA.person, analysis).order == ()


@on_both_databases
def test_writers_at_the_same_time_lose_nothing(
    engine: Engine, analysis: str, keys: list[str]
) -> None:
    def write(number: int) -> None:
        owner = NoteChange(NoteField.OWNER, f"owner {number}", f"gemm.many.{number}", "t")
        report_notes.write_notes(engine, analysis, "ada", lambda _: [owner])
        report_notes.add_comment(engine, analysis, "ada", keys[0], "t", f"comment {number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(12)))
    notes = report_notes.read_notes(engine, analysis)
    owners = {notes.of(f"gemm.many.{number}").owner for number in range(12)}
    assert owners == {f"owner {number}" for number in range(12)}
    assert len(notes.of(keys[0]).comments) == 12
    assert notes.revision == 24


def test_a_move_keeps_the_places_of_findings_that_are_not_reported_at_this_target(
    engine: Engine, analysis: str, keys: list[str]
) -> None:
    first, second, third = keys[:3]
    note_actions.move_finding(ADA, analysis, first, 1)  # second, first, third
    here = dict.fromkeys([key for key in keys if key != first], "t")
    note_actions.move_finding(ADA, analysis, third, -1, titles=here)
    assert note_actions.read_notes(ADA.person, analysis).order[:3] == (third, second, first)


def test_a_move_back_to_the_order_by_saving_stores_no_order(
    engine: Engine, analysis: str, keys: list[str]
) -> None:
    note_actions.move_finding(ADA, analysis, keys[0], 1)
    note_actions.move_finding(ADA, analysis, keys[0], -1)
    assert note_actions.read_notes(ADA.person, analysis).order == ()


def test_a_finding_that_an_order_does_not_know_follows_the_one_before_it() -> None:
    assert full_order(["c", "gone", "a"], ["a", "b", "c", "d"]) == ["c", "d", "a", "b"]
    assert full_order(["b", "c"], ["a", "b", "c"]) == ["a", "b", "c"]
    assert full_order([], ["a", "b"]) == ["a", "b"]


@on_both_databases
def test_comments_are_of_their_author_and_plain_text(
    engine: Engine, analysis: str, keys: list[str]
) -> None:
    comment = note_actions.add_comment(VIC, analysis, keys[0], HOSTILE)
    (stored,) = note_actions.read_notes(ADA.person, analysis).of(keys[0]).comments
    assert stored.text == HOSTILE.replace("\x00", "")
    assert stored.stamp.name == "vic"
    with pytest.raises(ForbiddenError, match="Only vic"):
        note_actions.remove_comment(BOB, analysis, comment.id)
    note_actions.remove_comment(VIC, analysis, comment.id)
    assert note_actions.read_notes(ADA.person, analysis).of(keys[0]).comments == ()
    with pytest.raises(UnknownNoteError):
        note_actions.remove_comment(VIC, analysis, comment.id)
    last = note_actions.add_comment(VIC, analysis, keys[0], "again")
    note_actions.remove_comment(ADA, analysis, last.id)
    done = [entry.action for entry in audit.recent(engine)]
    assert done == [Action.COMMENT_REMOVE, Action.COMMENT] * 2


def test_without_access_control_the_author_is_the_local_user(
    engine: Engine, analysis: str, keys: list[str]
) -> None:
    note_actions.edit_report(OPERATOR, analysis, [status(keys[0], "done")])
    comment = note_actions.add_comment(OPERATOR, analysis, keys[0], "x")
    notes = note_actions.read_notes(LOCAL, analysis)
    assert notes.stamps[keys[0], NoteField.STATUS].name == comment.stamp.name == "local"
    note_actions.remove_comment(OPERATOR, analysis, comment.id)


Do = Callable[[Actor, str, str], Any]
EDITS: dict[str, Do] = {
    "edit": lambda actor, analysis, key: note_actions.edit_report(
        actor, analysis, [status(key, "done")]
    ),
    "move": lambda actor, analysis, key: note_actions.move_finding(actor, analysis, key, 1),
}
OF_VIEWERS: dict[str, Do] = {
    "read": lambda actor, analysis, key: note_actions.read_notes(actor.person, analysis),
    "comment": lambda actor, analysis, key: note_actions.add_comment(actor, analysis, key, "x"),
}


@pytest.mark.parametrize("do", EDITS)
def test_only_who_may_change_the_analysis_edits_its_report(
    engine: Engine, analysis: str, keys: list[str], do: str
) -> None:
    for other in (BOB, VIC):
        with pytest.raises(ForbiddenError, match="belongs to ada"):
            EDITS[do](other, analysis, keys[0])
    EDITS[do](ADA, analysis, keys[0])
    EDITS[do](ROOT, analysis, keys[0])


@pytest.mark.parametrize("do", [*EDITS, *OF_VIEWERS])
def test_notes_of_an_analysis_that_is_not_visible_are_not_found(
    engine: Engine, analysis: str, keys: list[str], do: str
) -> None:
    everything = EDITS | OF_VIEWERS
    with pytest.raises(UnknownAnalysisError):
        everything[do](ANONYMOUS, analysis, keys[0])
    if do in OF_VIEWERS:
        everything[do](VIC, analysis, keys[0])
    set_visibility(analysis, Visibility.PRIVATE)
    for other in (BOB, VIC):
        with pytest.raises(UnknownAnalysisError):
            everything[do](other, analysis, keys[0])
    everything[do](ADA, analysis, keys[0])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (NoteChange(NoteField.SUMMARY, "x" * 5001), "5,001 characters"),
        (NoteChange(NoteField.STATUS, "later", "KEY"), "no status 'later'"),
        (NoteChange(NoteField.OWNER, "x" * 101, "KEY"), "101 characters"),
        (NoteChange(NoteField.STATUS, "done"), "not a note on a report"),
        (NoteChange(NoteField.SUMMARY, "x", "KEY"), "not a note on"),
        (NoteChange(NoteField.ORDER, "{}"), "not a list"),
        (NoteChange(NoteField.STATUS, "done", "gemm.none.0"), "no finding 'gemm.none.0'"),
    ],
)
def test_a_note_that_is_not_valid_is_refused(
    engine: Engine, analysis: str, keys: list[str], change: NoteChange, reason: str
) -> None:
    finding = change.finding.replace("KEY", keys[0])
    with pytest.raises((NoteError, UnknownNoteError), match=reason):
        note_actions.edit_report(
            ADA, analysis, [NoteChange(change.field, change.value, finding, change.title)]
        )
    assert note_actions.read_notes(ADA.person, analysis) == NO_NOTES


def test_comments_are_limited(
    engine: Engine, analysis: str, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoteError, match="empty"):
        note_actions.add_comment(VIC, analysis, keys[0], " \x00\n ")
    with pytest.raises(UnknownNoteError):
        note_actions.add_comment(VIC, analysis, "gemm.none.0", "x")
    monkeypatch.setattr(report_notes, "MAX_COMMENTS", 1)
    assert MAX_COMMENTS > 1
    note_actions.add_comment(VIC, analysis, keys[0], "x")
    with pytest.raises(NoteError, match="maximum"):
        note_actions.add_comment(VIC, analysis, keys[1], "y")


@on_both_databases
def test_notes_are_deleted_with_their_analysis(
    engine: Engine, analysis: str, keys: list[str]
) -> None:
    copy = shutil.copytree(analysis_root(analysis), analysis_root(analysis).parent / ".copy")
    note_actions.edit_report(ADA, analysis, [status(keys[0], "done")])
    note_actions.add_comment(ADA, analysis, keys[0], "secret")
    actions.remove_analysis(ADA, analysis)
    with pytest.raises(UnknownAnalysisError):
        report_notes.add_comment(engine, analysis, "ada", keys[0], "t", "too late")
    copy.rename(copy.parent / analysis)
    assert note_actions.read_notes(VIC.person, analysis) == NO_NOTES


def test_a_repeated_analysis_keeps_the_notes_also_of_findings_that_vanish(
    engine: Engine, analysis: str, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    note_actions.edit_report(ADA, analysis, [status(keys[0], "done")])
    monkeypatch.setattr(note_actions, "_finding_titles", lambda _: dict.fromkeys(keys[1:], "t"))
    note_actions.add_comment(VIC, analysis, keys[0], "it is gone")
    note_actions.edit_report(ADA, analysis, [NoteChange(NoteField.OWNER, "ada", keys[0])])
    notes = note_actions.read_notes(VIC.person, analysis).of(keys[0])
    assert notes.title
    assert (notes.status, notes.owner) == (FindingStatus.DONE, "ada")
    assert [comment.text for comment in notes.comments] == ["it is gone"]
    with pytest.raises(UnknownNoteError):
        note_actions.move_finding(ADA, analysis, keys[0], 1)


def test_a_finding_that_is_reported_at_another_target_alone_can_have_notes(
    engine: Engine, analysis: str, keys: list[str]
) -> None:
    titles = {"gemm.opportunity.0": "Only at 99%", **dict.fromkeys(keys, "t")}
    change = status("gemm.opportunity.0", "done")
    with pytest.raises(UnknownNoteError):
        note_actions.edit_report(ADA, analysis, [change])
    note_actions.edit_report(ADA, analysis, [change], titles=titles)
    note_actions.add_comment(VIC, analysis, "gemm.opportunity.0", "x", titles)
    note_actions.move_finding(ADA, analysis, "gemm.opportunity.0", 1, titles=titles)
    notes = note_actions.read_notes(VIC.person, analysis)
    assert notes.of("gemm.opportunity.0").title == "Only at 99%"
    assert notes.order[:2] == (keys[0], "gemm.opportunity.0")


def test_keys_of_findings_are_the_same_at_another_target(
    engine: Engine, analysis: str, keys: list[str]
) -> None:
    root = analysis_root(analysis)
    with opened_at(root, 99.0) as run:
        assert {item.key for item in recommendations(run)} == set(keys)
    assert len(set(keys)) == len(keys)


@on_both_databases
def test_notes_travel_with_the_archive_and_are_marked_as_imported(
    engine: Engine, analysis: str, keys: list[str], tmp_path: Path
) -> None:
    note_actions.edit_report(
        ADA, analysis, [status(keys[0], "planned"), NoteChange(NoteField.SUMMARY, "Ours.")]
    )
    note_actions.move_finding(ADA, analysis, keys[0], 1)
    note_actions.add_comment(VIC, analysis, keys[0], HOSTILE)
    before = note_actions.read_notes(ADA.person, analysis)
    save_archive(analysis_root(analysis), tmp_path / "a.zip")
    actions.remove_analysis(ADA, analysis)
    with stored_for("bob"):
        load_archive(tmp_path / "a.zip")
    after = note_actions.read_notes(VIC.person, analysis)
    assert (after.summary, after.order) == (before.summary, before.order)
    assert after.of(keys[0]).status is FindingStatus.PLANNED
    (comment,) = after.of(keys[0]).comments
    assert comment.text == before.of(keys[0]).comments[0].text
    assert comment.stamp.moment == before.of(keys[0]).comments[0].stamp.moment
    assert (comment.stamp.name, comment.stamp.imported_by) == ("vic (imported)", "bob")
    with pytest.raises(ForbiddenError):  # nothing proves that this Vic wrote it
        note_actions.remove_comment(VIC, analysis, comment.id)
    with stored_for("eve"):
        assert load_archive(tmp_path / "a.zip").is_reused
    assert note_actions.read_notes(VIC.person, analysis) == after


def test_an_archive_without_notes_can_be_read_by_the_version_before(
    engine: Engine, analysis: str, keys: list[str], tmp_path: Path
) -> None:
    def listed() -> dict[str, Any]:
        save_archive(analysis_root(analysis), tmp_path / "a.zip")
        with zipfile.ZipFile(tmp_path / "a.zip") as archive:
            content: dict[str, Any] = json.loads(archive.read("jarvis-archive.json"))
        return content

    without = listed()
    assert without["archive_version"] == 1
    assert "notes" not in without
    note_actions.add_comment(ADA, analysis, keys[0], "x")
    assert listed()["archive_version"] == 2


@pytest.mark.parametrize(
    "notes",
    [
        {"fields": [], "comments": [{"finding": "a/../b", "moment": "2026-01-01", "text": "x"}]},
        {"fields": [{"field": "status", "value": "later", "finding": "a"}], "comments": []},
        {"fields": [{"field": "root", "value": "x", "finding": "a"}], "comments": []},
        {"fields": [], "comments": [{"finding": "a", "text": "x" * 5001}]},
        "notes",
    ],
)
def test_forged_notes_are_refused_with_the_whole_archive(
    engine: Engine, analysis: str, tmp_path: Path, notes: Any
) -> None:
    for each in (*notes["fields"], *notes["comments"]) if isinstance(notes, dict) else ():
        each["moment"] = "2026-01-01T00:00:00Z"
    save_archive(analysis_root(analysis), tmp_path / "a.zip")
    actions.remove_analysis(ADA, analysis)
    with (
        zipfile.ZipFile(tmp_path / "a.zip") as archive,
        zipfile.ZipFile(tmp_path / "b.zip", "w") as forged,
    ):
        for member in archive.infolist():
            content = archive.read(member)
            if member.filename == "jarvis-archive.json":
                content = json.dumps(json.loads(content) | {"notes": notes}).encode()
            forged.writestr(member, content)
    with pytest.raises(ArchiveError):
        load_archive(tmp_path / "b.zip")
    assert analysis not in stored_rows(engine)


@on_both_databases
def test_the_schema_change_can_be_undone(engine: Engine) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    tables = {"reports", "report_fields", "report_comments"}
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        assert tables <= set(inspect(connection).get_table_names())
        command.downgrade(config, "0005")
        assert not tables & set(inspect(connection).get_table_names())
    migrations.upgrade(engine)
    with engine.connect() as connection:
        assert tables <= set(inspect(connection).get_table_names())
