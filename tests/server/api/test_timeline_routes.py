"""Data of the timeline page: what it holds, who gets it, and what a request may ask."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from jarvis.run import Run
from jarvis.server.access.rights import Person, Role
from jarvis.server.database import Visibility
from jarvis.server.ingest import tickets
from jarvis.server.page_links import timeline_link
from jarvis.server.storage.analysis_rows import stored_for
from jarvis.server.storage.catalog import analysis_root
from jarvis.server.submission import Submission, submit
from tests.builders import trace
from tests.server.api.conftest import bearer

HOST = {"host": "operators", "threads": 3, "depth": 4}
WHOLE = {**HOST, "start": 0, "length": 10**9}


@pytest.fixture
def made(home: Path, tmp_path: Path) -> str:
    """The id of an analysis with one kernel of 12 µs."""
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    return submit(Submission(built.write(tmp_path / "small.json"))).id


def got(client: TestClient, analysis_id: str, what: str, **asked: object) -> dict[str, Any]:
    answer = client.get(f"{timeline_link(analysis_id)}/{what}", params=asked)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ticket(person: Person, purpose: str) -> dict[str, str]:
    return {"Authorization": f"Ticket {tickets.ticket_of(person, purpose)}"}


def test_a_part_has_the_events_of_its_time(client: TestClient, made: str) -> None:
    part = got(client, made, "part", **WHOLE)
    kernel = Run.load(analysis_root(made)).table("gpu_work").row(0, named=True)
    assert kernel["uid"] in part["slices"]["uid"]
    assert [short for short, full in part["names"] if full == "gemm_kernel"] == ["gemm_kernel"]
    nothing = got(client, made, "part", **{**WHOLE, "start": 10**9})
    assert nothing["slices"]["uid"] == nothing["bins"]["start"] == []


def test_answers_are_compressed_where_the_browser_takes_that(client: TestClient, made: str) -> None:
    address = f"{timeline_link(made)}/part"
    plain = client.get(address, params=WHOLE, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    with client.stream("GET", address, params=WHOLE, headers={"Accept-Encoding": "gzip"}) as packed:
        assert packed.headers["Content-Encoding"] == "gzip"
        assert json.loads(gzip.decompress(b"".join(packed.iter_raw()))) == plain.json()


def test_search_and_statistics(client: TestClient, made: str) -> None:
    found = got(client, made, "search", **HOST, text="GEMM")
    assert found["count"] == len(found["start"]) == 1
    lines = got(client, made, "statistics", **WHOLE)["lines"]
    assert lines == [
        {"row": "", "what": "GEMM", "count": "1", "time": "12.0 µs", "share": "<0.01%"},
        {"row": "Idle", "what": "Host work", "count": "1", "time": "3.00 µs", "share": "<0.01%"},
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "everything"},
        {"threads": 33},
        {"depth": -1},
        {"length": 0},
        {"start": 2**63},
        {"start": "now"},
    ],
)
def test_a_wrong_request_is_rejected(
    client: TestClient, made: str, wrong: dict[str, object]
) -> None:
    answer = client.get(f"{timeline_link(made)}/part", params={**WHOLE, **wrong})
    assert answer.status_code == 422
    assert client.get(f"{timeline_link('none')}/part", params=WHOLE).status_code == 404


@pytest.mark.usefixtures("asked_who")
def test_a_ticket_is_for_one_analysis_and_one_person(client: TestClient, tmp_path: Path) -> None:
    built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
    submission = Submission(built.write(tmp_path / "private.json"))
    with stored_for("ada", Visibility.PRIVATE):
        made = submit(submission).id
    address = f"{timeline_link(made)}/part"
    ada, bob = Person("ada", Role.VIEWER), Person("bob", Role.VIEWER)
    mine = tickets.timeline_purpose(made)
    for headers, status in (
        (ticket(ada, mine), 200),
        (ticket(bob, mine), 404),
        (ticket(ada, tickets.timeline_purpose("other")), 401),
        (ticket(ada, tickets.UPLOAD), 401),
        ({}, 401),
        (bearer("ada", Role.VIEWER), 200),
        (bearer("bob", Role.VIEWER), 404),
    ):
        assert client.get(address, params=WHOLE, headers=headers).status_code == status
