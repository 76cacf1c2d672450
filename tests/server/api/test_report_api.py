"""Notes on reports through the API: rights, conflicts, and files that show them."""

import shutil
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from sqlalchemy import Engine
from starlette.testclient import TestClient

from jarvis import cli
from jarvis.reports.finding_sheets import FINDINGS
from jarvis.server import actions
from jarvis.server.access import audit
from jarvis.server.access.audit import Action, Channel
from jarvis.server.access.rights import LOCAL, Person, Role
from jarvis.server.actions import Actor
from jarvis.server.database import Visibility
from jarvis.server.jobs.kinds import Export, Request, job_file
from jarvis.server.jobs.processes.job_child import assignment_of
from jarvis.server.jobs.processes.job_messages import OutputMessage
from jarvis.server.jobs.processes.job_process import outcome_of
from jarvis.server.queue import Job
from jarvis.server.storage.catalog import read_catalog, set_visibility
from tests.server.api.conftest import bearer

ADA = Actor(Person("ada", Role.EDITOR), Channel.API)


@pytest.fixture
def report(analysis: str) -> str:
    """The address of its report."""
    return f"/api/analyses/{analysis}/report"


def keys(client: TestClient, report: str, headers: dict[str, str] | None = None) -> list[str]:
    return [each["key"] for each in client.get(report, headers=headers).json()["findings"]]


def test_notes_without_login(client: TestClient, engine: Engine, report: str) -> None:
    before = client.get(report).json()
    assert (before["revision"], before["summary"], before["is_ordered"]) == (0, None, False)
    first, *others = before["findings"]
    assert (first["label"], first["status"], first["is_reported"]) == ("P1", "open", True)
    body = {"status": "won't fix", "owner": "ann", "is_included": False}
    after = client.patch(f"{report}/findings/{first['key']}", json=body).json()
    assert after["findings"][0].items() >= body.items()
    assert {each["field"] for each in after["findings"][0]["changes"]} == {
        "status",
        "owner",
        "included",
    }
    assert all(each["author"] is None for each in after["findings"][0]["changes"])
    order = [*(each["key"] for each in others), first["key"]]
    ordered = client.patch(report, json={"order": order, "summary": "Mine."}).json()
    assert [each["key"] for each in ordered["findings"]] == order
    assert (ordered["summary"], ordered["is_ordered"]) == ("Mine.", True)
    reset = client.patch(report, json={"order": None}).json()
    assert (reset["summary"], reset["is_ordered"]) == ("Mine.", False)
    assert {entry.via for entry in audit.recent(engine)} == {Channel.API}


def test_comments(client: TestClient, report: str) -> None:
    first, *_ = keys(client, report)
    made = client.post(f"{report}/findings/{first}/comments", json={"text": "<b>why?</b>"})
    assert made.status_code == 201
    (stored,) = client.get(report).json()["findings"][0]["comments"]
    assert stored == made.json()
    assert stored["text"] == "<b>why?</b>"
    assert client.delete(f"{report}/comments/{stored['id']}").status_code == 204
    assert client.delete(f"{report}/comments/{stored['id']}").status_code == 404
    assert client.get(report).json()["findings"][0]["comments"] == []


def test_a_writer_that_names_its_revision_replaces_nothing_unseen(
    client: TestClient, report: str
) -> None:
    first, *_ = keys(client, report)
    address = f"{report}/findings/{first}"
    assert client.patch(address, json={"status": "done"}).json()["revision"] == 1
    stale = client.patch(address, json={"status": "planned", "seen_revision": 0})
    assert stale.status_code == 409
    assert "Changed meanwhile: status" in stale.json()["error"]
    other = client.patch(address, json={"owner": "ann", "seen_revision": 0})
    assert other.json()["findings"][0]["status"] == "done"
    assert client.patch(address, json={"status": "planned"}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("", {"summary": "x" * 5001}, 422),
        ("", {"status": "done"}, 422),
        ("", {"order": "a"}, 422),
        ("/findings/KEY", {"status": "later"}, 422),
        ("/findings/KEY", {"owner": "x" * 101}, 422),
        ("/findings/KEY", {"seen_revision": -1}, 422),
        ("/findings/gemm.none.0", {"status": "done"}, 404),
    ],
)
def test_bad_changes_are_refused(
    client: TestClient, report: str, path: str, body: dict[str, Any], status: int
) -> None:
    first, *_ = keys(client, report)
    answer = client.patch(f"{report}{path.replace('KEY', first)}", json=body)
    assert answer.status_code == status
    assert client.get(report).json()["revision"] == 0


def test_who_may_read_and_write(
    client: TestClient, asked_who: None, analysis: str, report: str
) -> None:
    ada, bob = bearer("ada", Role.EDITOR), bearer("bob", Role.EDITOR)
    vic, eve = bearer("vic", Role.VIEWER), bearer("eve", Role.VIEWER)
    assert client.get(report).status_code == 401
    assert client.patch(report, json={"summary": "x"}).status_code == 401
    first, *_ = keys(client, report, vic)
    comments = f"{report}/findings/{first}/comments"
    for other in (bob, vic):
        assert client.patch(report, json={"summary": "x"}, headers=other).status_code == 403
        edit = client.patch(f"{report}/findings/{first}", json={"status": "done"}, headers=other)
        assert edit.status_code == 403
    assert client.patch(report, json={"summary": "x"}, headers=ada).status_code == 200
    made = client.post(comments, json={"text": "mine"}, headers=vic)
    assert made.json()["author"] == "vic"
    mine = f"{report}/comments/{made.json()['id']}"
    assert client.delete(mine, headers=eve).status_code == 403
    set_visibility(analysis, Visibility.PRIVATE)
    assert client.get(report, headers=vic).status_code == 404
    assert client.post(comments, json={"text": "x"}, headers=vic).status_code == 404
    assert client.delete(mine, headers=vic).status_code == 404
    assert client.patch(report, json={"summary": "x"}, headers=bob).status_code == 404
    assert client.delete(mine, headers=ada).status_code == 204


def test_a_token_of_a_viewer_does_not_write_as_its_owner(
    client: TestClient, asked_who: None, report: str
) -> None:
    ada = bearer("ada", Role.VIEWER)
    assert client.patch(report, json={"summary": "x"}, headers=ada).status_code == 403


def exported(engine: Engine, request: Request) -> tuple[Job, Path]:
    """The job of an export, done, and its file."""
    job = actions.submit_job(engine, ADA, request)
    outcome = outcome_of(assignment_of(job), lambda _: None)
    assert isinstance(outcome, OutputMessage), outcome
    file = job_file(outcome.result)
    assert file is not None
    return job, file


def test_files_of_jobs_show_the_notes_and_are_made_again_when_they_change(
    client: TestClient,
    engine: Engine,
    analysis: str,
    report: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JARVIS_PUBLIC_URL", "https://jarvis.example.org")
    first, *_ = keys(client, report)
    stamps = {name: Export(analysis, name).stamp for name in ("html", "json", "zip")}
    client.patch(f"{report}/findings/{first}", json={"status": "planned", "owner": "Ann"})
    again = {name: Export(analysis, name).stamp for name in stamps}
    assert again["html"] != stamps["html"]
    assert {name: again[name] for name in ("json", "zip")} == {
        name: stamps[name] for name in ("json", "zip")
    }
    text = exported(engine, Export(analysis, "html"))[1].read_text(encoding="utf-8")
    assert "<td>planned</td><td>Ann</td>" in text
    assert f'href="https://jarvis.example.org/report?analysis={analysis}"' in text
    book = openpyxl.load_workbook(exported(engine, Export(analysis, "xlsx", 60.0))[1])
    assert "Ann" in [cell for row in book[FINDINGS].iter_rows(values_only=True) for cell in row]


def test_the_command_exports_the_notes_of_a_stored_analysis(
    client: TestClient, analysis: str, report: str, tmp_path: Path
) -> None:
    first, *_ = keys(client, report)
    client.post(f"{report}/findings/{first}/comments", json={"text": "Seen by the kernel team."})
    out = tmp_path / "rough.md"
    assert cli.main(["export", analysis, "--format", "rough", "-o", str(out)]) == 0
    assert "Seen by the kernel team." in out.read_text(encoding="utf-8")
    (entry,) = read_catalog().entries
    copied = shutil.copytree(entry.root, tmp_path / "elsewhere" / analysis)
    assert cli.main(["export", str(copied), "--format", "rough", "-o", str(out)]) == 0
    assert "Team Notes" not in out.read_text(encoding="utf-8")


def test_changes_are_in_the_audit_log(client: TestClient, engine: Engine, report: str) -> None:
    first, *_ = keys(client, report)
    client.patch(f"{report}/findings/{first}", json={"status": "done"})
    client.post(f"{report}/findings/{first}/comments", json={"text": "x"})
    found = [(entry.action, entry.detail["finding"]) for entry in audit.recent(engine)]
    assert found == [(Action.COMMENT, first), (Action.EDIT_REPORT, first)]
    assert actions.read_audit(engine, LOCAL, audit.AuditFilter(), limit=1)
