"""Pages for users with different roles: shown, disabled and denied controls."""

import time
from typing import Any

import pytest
from google.protobuf.text_format import MessageToString
from streamlit.testing.v1 import AppTest

from jarvis.core.workspace import RunPaths
from jarvis.dashboard import MAIN
from jarvis.dashboard.sidebar import popover_key
from jarvis.server import queue
from jarvis.server.access import audit, tokens
from jarvis.server.access.audit import Action, Channel
from jarvis.server.access.rights import Person, Role
from jarvis.server.actions import Actor, submit_job
from jarvis.server.database import JobState, Visibility, database
from jarvis.server.errors import IntakeError
from jarvis.server.ingest.intake import ROOTS_VARIABLE, server_trace
from jarvis.server.jobs.kinds import Export
from jarvis.server.storage.analysis_rows import stored_for
from jarvis.server.storage.catalog import stored_row
from jarvis.server.submission import Submission, submit
from tests.builders import trace
from tests.dashboard.conftest import SECONDS

ADA, BOB, VIC, ROOT = (f"{name}@example.org" for name in ("ada", "bob", "vic", "root"))
HOUR_S = 3600


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return a new home with a private and a shared analysis of Ada's."""
    home = tmp_path_factory.mktemp("home")
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12.0)
    file = built.write(home / "trace.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        with stored_for(ADA, Visibility.PRIVATE):
            private = submit(Submission(file, model_name="Secret model")).id
        with stored_for(ADA):
            shared = submit(Submission(file, model_name="Shared model")).id
    return {"home": home, "private": private, "shared": shared}


@pytest.fixture(autouse=True)
def _access(ids: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "HOME": str(ids["home"]),
        "ACCESS": "oidc",
        "ADMINS": ROOT,
        "EDITORS": f"{ADA},{BOB}",
        "DEFAULT_ROLE": "viewer",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"JARVIS_{name}", value)


def claims(person: str, **more: Any) -> dict[str, Any]:
    return {"is_logged_in": True, "email": person, "iat": int(time.time()), **more}


def visit(name: str, user: dict[str, Any] | str, **parameters: str) -> AppTest:
    """Return a function that draws a page for a logged-in user, given by claims or name."""
    page = AppTest.from_file(MAIN, default_timeout=SECONDS)
    page.user = claims(user) if isinstance(user, str) else user
    for parameter, value in parameters.items():
        page.query_params[parameter] = value
    page.run()
    return _switched(page, name)


def _switched(page: AppTest, name: str) -> AppTest:
    return page.switch_page(f"../../../pages/{name}.py").run()


def words(page: AppTest) -> str:
    """Return everything that a page sends to the browser, including tables."""
    protos = (getattr(element, "proto", None) for element in page)
    sent = (MessageToString(proto, as_utf8=True) for proto in protos if proto is not None)
    return " ".join(sent).replace("\\'", "'")


def refusals(page: AppTest) -> list[str]:
    return [error.value for error in page.error]


@pytest.mark.parametrize(
    ("user", "reported"),
    [
        ({}, "Log in to see"),
        ({"is_logged_in": False}, "Log in to see"),
        (claims(ADA, iat=int(time.time()) - 13 * HOUR_S), "Log in to see"),
        ({"is_logged_in": True, "email": ADA}, "Log in to see"),
        (claims(ADA, email_verified=False), "not verified your email"),
        ({"is_logged_in": True, "sub": "7", "iat": int(time.time())}, "has no 'email' claim"),
        (claims("@root"), "cannot be used"),
    ],
)
def test_no_user_is_admitted_without_a_valid_login(
    ids: dict[str, Any], user: dict[str, Any], reported: str
) -> None:
    page = AppTest.from_file(MAIN, default_timeout=SECONDS)
    page.user = user
    page.query_params["analysis"] = ids["private"]
    page.run()
    assert reported in words(page)
    assert "Secret" not in words(page)
    assert not page.sidebar.selectbox


def test_a_user_without_a_role_sees_whom_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_DEFAULT_ROLE", "none")
    page = AppTest.from_file(MAIN, default_timeout=SECONDS)
    page.user = claims(VIC)
    page.run()
    assert "has no role on this server yet. Ask an admin" in refusals(page)[0]
    assert not page.sidebar.selectbox


@pytest.mark.parametrize("name", ["overview", "compare", "report", "timeline"])
def test_a_link_to_a_private_analysis_tells_no_more_than_one_to_none(
    ids: dict[str, Any], name: str
) -> None:
    page = visit(name, BOB, analysis=ids["private"])
    unknown = visit(name, BOB, analysis="0" * 12)
    assert "Secret" not in words(page)
    assert refusals(page) == [text.replace("0" * 12, ids["private"]) for text in refusals(unknown)]
    assert refusals(page)
    assert "Secret" not in words(visit(name, BOB))
    assert "Secret" in words(visit(name, ADA, analysis=ids["private"]))


def test_a_reference_that_is_private_is_none(ids: dict[str, Any]) -> None:
    page = visit("compare", BOB, analysis=ids["shared"], reference=ids["private"])
    assert "Secret" not in words(page)
    assert not page.exception


def test_viewers_see_why_they_cannot_do_more(ids: dict[str, Any]) -> None:
    page = visit("ingest", VIC)
    (analyze,) = [button for button in page.button if button.label == "Analyze"]
    assert analyze.disabled
    assert "This needs the role editor; yours is viewer" in words(page)
    report = visit("report", VIC, analysis=ids["shared"])
    made = [button for button in report.button if button.key.startswith("report_make_")]
    assert made
    assert all(button.disabled and "role editor" in button.help for button in made)
    hardware = visit("hardware", VIC, analysis=ids["shared"])
    judged = [button for button in hardware.button if button.label.startswith("Re-project onto")]
    assert all(button.disabled for button in judged)
    assert "do not have permission to add GPUs" in words(hardware)


def _opened(name: str, person: str, analysis: str) -> AppTest:
    """Return a page with the sidebar's popover open."""
    page = AppTest.from_file(MAIN, default_timeout=SECONDS)
    page.user = claims(person)
    page.query_params["analysis"] = analysis
    page.run()
    page = _switched(page, name)
    page.session_state[popover_key(analysis)] = True
    return page.run()


def test_what_belongs_to_another_user_is_left_alone(ids: dict[str, Any]) -> None:
    page = _opened("overview", BOB, ids["shared"])
    assert "Owner: ada@example.org" in words(page)
    assert page.button(key="keeping_pin").disabled
    assert page.button(key="keeping_remove").disabled
    mine = _opened("overview", ADA, ids["shared"])
    assert not mine.button(key="keeping_pin").disabled


def test_the_owner_says_who_sees_an_analysis(ids: dict[str, Any]) -> None:
    key = f"_keeping_visibility_{ids['shared']}"
    page = _opened("overview", ADA, ids["shared"])
    page.button_group(key=key).set_value(Visibility.PRIVATE).run()
    assert stored_row(ids["shared"]).visibility is Visibility.PRIVATE
    assert "Shared" not in words(visit("ingest", BOB))
    page.button_group(key=key).set_value(Visibility.TEAM).run()
    assert stored_row(ids["shared"]).visibility is Visibility.TEAM


def test_jobs_of_a_private_analysis_are_not_listed(ids: dict[str, Any]) -> None:
    engine, ada = database(), Actor(Person(ADA, Role.EDITOR), Channel.PAGE)
    job = submit_job(engine, ada, Export(ids["private"], "json"))
    try:
        page = visit("jobs", BOB, job=job.id)
        assert "Secret model" not in words(page)
        assert not [button for button in page.button if str(button.key).endswith(job.id)]
        shown = visit("jobs", ADA, job=job.id)
        assert "Secret model" in words(shown)
        cancel = shown.button(key=f"_cancel_{job.id}")
        assert not cancel.disabled
        cancel.click().run()
        assert queue.find(engine, job.id).state is JobState.CANCELLED
    finally:
        queue.cancel(engine, job.id)


def test_a_job_of_another_user_is_looked_at_only(ids: dict[str, Any]) -> None:
    engine, ada = database(), Actor(Person(ADA, Role.EDITOR), Channel.PAGE)
    job = submit_job(engine, ada, Export(ids["shared"], "json"))
    try:
        button = visit("jobs", BOB, job=job.id).button(key=f"_cancel_{job.id}")
        assert button.disabled
        assert "Only the owner or an admin" in button.help
    finally:
        queue.cancel(engine, job.id)


def test_a_token_is_made_shown_once_and_revoked() -> None:
    page = visit("access", VIC)
    assert "vic@example.org · viewer" in words(page)
    assert page.selectbox(key="_access_role").options == ["viewer"]
    page.text_input(key="_access_label").set_value("notebook")
    _submit(page)
    (text,) = [code.value for code in page.code if code.value.startswith(tokens.PREFIX)]
    assert tokens.person_of(database(), text) == Person(VIC, Role.VIEWER)
    page.button(key="_access_seen").click().run()
    assert text not in words(page)
    page.session_state["_access_tokens"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    page.run()
    page.button(key="_access_revoke").click().run()
    assert [token.state for token in tokens.listed(database(), VIC)] == ["revoked"]


def _submit(page: AppTest) -> None:
    (make,) = [button for button in page.button if button.label == "Create token"]
    make.click().run()


def test_a_label_that_cannot_be_is_refused_beside_the_page() -> None:
    page = visit("access", VIC)
    _submit(page)
    assert "A token needs a label" in page.toast[0].value
    assert not page.exception


def test_admins_read_the_audit_log_and_no_other_user_does() -> None:
    audit.record(database(), Person(BOB, Role.EDITOR), Channel.API, Action.REMOVE, "some analysis")
    page = visit("access", ROOT, access_action="remove", access_person="bob")
    (log,) = [frame.value for frame in page.dataframe if "moment" in frame.value]
    assert set(log["person"]) == {BOB}
    assert set(log["action"]) == {"remove"}
    none = visit("access", ROOT, access_person="nobody at all")
    assert "No entry matches the filters." in words(none)
    for person in (ADA, VIC):
        assert not [f for f in visit("access", person).dataframe if "moment" in f.value]


def test_a_login_is_written_down_once_for_all_tabs() -> None:
    user = claims(BOB, iat=int(time.time()) - 5)
    for _ in range(2):
        visit("access", user)
    asked = audit.AuditFilter(person=BOB, action=Action.LOG_IN)
    marks = [line.detail["login"] for line in audit.recent(database(), asked)]
    assert marks.count(str(user["iat"])) == 1


def test_without_access_the_page_says_so_and_everything_is_allowed(
    monkeypatch: pytest.MonkeyPatch, ids: dict[str, Any]
) -> None:
    monkeypatch.setenv("JARVIS_ACCESS", "off")
    page = visit("access", {})
    assert "Access control is off" in words(page)
    assert not page.exception
    assert "Secret" in words(visit("overview", {}, analysis=ids["private"]))


def test_what_is_stored_for_people_is_no_trace_on_the_server(
    ids: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOTS_VARIABLE, str(ids["home"]))
    stored = ids["home"] / "analyses" / ids["private"]
    for inside in (RunPaths(stored).perf_report_xlsx, ids["home"] / "trace.json"):
        assert inside.is_file()
        with pytest.raises(IntakeError, match="There is no file"):
            server_trace(str(inside))
    monkeypatch.setenv("JARVIS_ACCESS", "off")
    assert server_trace(str(ids["home"] / "trace.json")).is_file()


@pytest.mark.parametrize(("user", "results"), [(ADA, 1), (ROOT, 1), (BOB, 0), (VIC, 0)])
def test_the_search_finds_runs_that_the_user_may_see(
    ids: dict[str, Any], user: str, results: int
) -> None:
    page = visit("overview", user, analysis=ids["shared"])
    page.session_state["_keyboard_asked"] = {"query": "model", "is_findings": False}
    page.run()
    assert words(page).count("Shared model") > 0
    searches = [each.proto.json for each in page.sidebar.get("bidi_component")]
    found = next(text for text in searches if '"is_findings"' in text)
    assert ids["shared"] in found
    assert found.count(f"overview?analysis={ids['private']}") == results
