"""Download of the file of a job, by token or by the link of a page."""

from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from jarvis.core.workspace import exports_dir
from jarvis.server import claims, queue
from jarvis.server.access.rights import Person, Role
from jarvis.server.database import JobKind, JobState, Visibility, database
from jarvis.server.ingest import tickets
from jarvis.server.page_links import file_link
from jarvis.server.queue import JobProgress, NewJob, Outcome
from tests.server.api.conftest import bearer

CONTENT = b"bytes of an export" * 10_000


def exported(owner: str | None = None, visibility: Visibility = Visibility.TEAM) -> str:
    """The id of a job with a file."""
    engine = database()
    job = queue.submit(engine, NewJob(JobKind.EXPORT, "Export", {}), owner, visibility)
    claims.claim(engine, "w")
    file = exports_dir() / job.id / "run.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    done = Outcome(JobState.DONE, result={"file": f"{job.id}/run.json"})
    claims.finish(engine, "w", job.id, JobProgress(), done)
    return job.id


def link(job_id: str, person: Person, purpose: Callable[[str], str] = tickets.file_purpose) -> str:
    return file_link(job_id, tickets.ticket_of(person, purpose(job_id)))


def test_a_file_is_saved_and_not_shown(client: TestClient) -> None:
    answer = client.get(f"/api/jobs/{exported()}/file")
    assert answer.content == CONTENT
    assert answer.headers["content-disposition"] == 'attachment; filename="run.json"'
    assert answer.headers["content-type"] == "application/octet-stream"


def test_a_job_without_its_file_says_so(client: TestClient) -> None:
    job_id = exported()
    (exports_dir() / job_id / "run.json").unlink()
    answer = client.get(f"/api/jobs/{job_id}/file")
    assert answer.status_code == 404
    assert "the file was deleted" in answer.json()["error"]
    assert client.get("/api/jobs/nothing/file").status_code == 404


@pytest.mark.usefixtures("asked_who")
def test_the_link_of_a_page_is_for_one_file_and_one_person(client: TestClient) -> None:
    private = exported("ada", Visibility.PRIVATE)
    shared = exported("ada")
    ada, bob = Person("ada", Role.VIEWER), Person("bob", Role.VIEWER)
    assert client.get(link(private, ada)).content == CONTENT
    assert client.get(link(shared, bob)).content == CONTENT
    assert client.get(link(private, bob)).status_code == 404
    assert client.get(f"/api/jobs/{shared}/file").status_code == 401
    other = link(private, ada).replace(private, shared)
    assert client.get(other).status_code == 401, "a ticket for another file"
    assert client.get(link(shared, ada, lambda _: tickets.UPLOAD)).status_code == 401
    assert client.get(f"/api/jobs/{shared}/file", headers=bearer("bob", Role.VIEWER)).is_success
    anonymous = link(shared, Person("eve", Role.NONE))
    assert client.get(anonymous).status_code == 403
