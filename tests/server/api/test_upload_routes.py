"""Uploads over HTTP: protocol, rejected requests, permissions."""

import base64
import hashlib
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from jarvis.server.access import audit
from jarvis.server.access.rights import Person, Role
from jarvis.server.database import database
from jarvis.server.errors import TicketError
from jarvis.server.ingest import tickets, uploads
from jarvis.server.ingest import upload_writer as arrivals
from jarvis.server.ingest.intake import StoredTrace
from tests.server.api.conftest import PIECE, TUS, bearer, beginning, uploaded

BYTES = b'{"traceEvents": []}'


def begin(client: TestClient, **headers: str) -> str:
    begun = client.post("/api/uploads", headers={**beginning("a.json", len(BYTES)), **headers})
    assert begun.status_code == 201, begun.text
    return begun.headers["Location"]


def test_a_file_arrives_in_pieces_and_says_where_it_goes_on(client: TestClient) -> None:
    place = begin(client)
    first = client.patch(place, content=BYTES[:5], headers={**PIECE, "Upload-Offset": "0"})
    assert (first.status_code, first.headers["Upload-Offset"]) == (204, "5")
    head = client.head(place)
    assert (head.headers["Upload-Offset"], head.headers["Upload-Length"]) == ("5", "19")
    assert head.headers["Cache-Control"] == "no-store"
    assert not client.get(place).json()["is_whole"]
    rest = client.patch(place, content=BYTES[5:], headers={**PIECE, "Upload-Offset": "5"})
    assert rest.headers["Upload-Offset"] == "19"
    whole = client.get(place).json()
    assert whole["is_whole"]
    assert whole["sha256"] == hashlib.sha256(BYTES).hexdigest()
    assert not whole["is_reused"]
    assert client.get(f"/api/uploads/{uploaded(client, 'b.json', BYTES)}").json()["is_reused"]


def test_the_protocol_says_what_it_can(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_MAX_UPLOAD_GB", "2")
    message = client.options("/api/uploads").headers
    assert message["Tus-Version"] == "1.0.0"
    assert "creation" in message["Tus-Extension"]
    assert "termination" in message["Tus-Extension"]
    assert message["Tus-Max-Size"] == "2000000000"


def test_a_piece_for_another_place_says_where_to_go_on(client: TestClient) -> None:
    place = begin(client)
    wrong = client.patch(place, content=b"x", headers={**PIECE, "Upload-Offset": "7"})
    assert wrong.status_code == 409
    assert "is 0, not 7" in wrong.json()["error"]


def test_more_than_was_reported_is_refused_and_not_stored(client: TestClient) -> None:
    place = begin(client)
    wrong = client.patch(place, content=BYTES * 9, headers={**PIECE, "Upload-Offset": "0"})
    assert wrong.status_code == 400
    assert client.head(place).headers["Upload-Offset"] == "0"


def test_what_arrives_damaged_is_sent_again(client: TestClient) -> None:
    place = begin(client)
    digest = base64.b64encode(hashlib.sha1(BYTES).digest()).decode()
    headers = {**PIECE, "Upload-Offset": "0", "Upload-Checksum": f"sha1 {digest}"}
    wrong = client.patch(place, content=BYTES[:-1] + b"?", headers=headers)
    assert wrong.status_code == 460
    assert client.patch(place, content=BYTES, headers=headers).status_code == 204


def test_a_killed_server_keeps_what_was_whole_at_the_next_touch(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> StoredTrace:
        raise OSError(28, "No space left on device")

    place = begin(client)
    with monkeypatch.context() as patch:
        patch.setattr(arrivals, "adopt_upload", killed)
        failed = client.patch(place, content=BYTES, headers={**PIECE, "Upload-Offset": "0"})
    assert failed.status_code == 507
    end = client.patch(place, headers={**PIECE, "Upload-Offset": str(len(BYTES))})
    assert end.status_code == 204
    assert client.get(place).json()["is_whole"]


def test_a_forgotten_upload_is_gone(client: TestClient) -> None:
    place = begin(client)
    assert client.delete(place, headers=TUS).status_code == 204
    for answer in (client.get(place), client.delete(place, headers=TUS)):
        assert answer.status_code == 404
        assert "Upload the file again" in answer.json()["error"]


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({"Upload-Length": "-1"}, 422, "Upload-Length"),
        ({"Upload-Length": "many"}, 422, "Upload-Length"),
        ({"Upload-Length": "1" * 30}, 413, "the limit of this server"),
        ({"Upload-Length": "0"}, 400, "is empty"),
        ({"Upload-Metadata": "filename !!!"}, 400, "has no file name"),
        ({"Upload-Metadata": "filename " + "A" * 5000}, 422, "Upload-Metadata"),
        (
            {"Upload-Metadata": f"filename {base64.b64encode(b'x.exe').decode()}"},
            400,
            "not a supported trace",
        ),
        ({"Tus-Resumable": "0.2.2"}, 422, "Tus-Resumable"),
    ],
)
def test_what_cannot_begin_is_refused_at_once(
    client: TestClient, headers: dict[str, str], status: int, message: str
) -> None:
    answer = client.post("/api/uploads", headers={**beginning("a.json", 5), **headers})
    assert answer.status_code == status
    assert message in answer.json()["error"]


@pytest.mark.parametrize(
    "name", ["../../etc/x.json", "a\0b.json", "-rf .json", "x" * 3000 + ".json", "\u202egpj.json"]
)
def test_a_hostile_name_stays_inside_the_home(client: TestClient, home: Path, name: str) -> None:
    kept = client.get(f"/api/uploads/{uploaded(client, name, BYTES)}").json()
    assert "/" not in kept["name"]
    assert kept["name"].isprintable()
    (stored,) = home.glob("traces/*/*")
    assert stored.read_bytes() == BYTES


@pytest.mark.parametrize("name", ["..", "%2e%2e%2fx", "0" * 32, "x" * 60, "y" * 100])
def test_a_hostile_id_is_no_upload(client: TestClient, name: str) -> None:
    for answer in (
        client.get(f"/api/uploads/{name}"),
        client.patch(f"/api/uploads/{name}", headers={**PIECE, "Upload-Offset": "0"}),
    ):
        assert answer.status_code in (404, 405, 422)
        assert answer.json()["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Upload-Offset": "-1"}, 422),
        ({"Upload-Offset": "99999999999999999999"}, 409),
        ({"Content-Type": "text/plain"}, 415),
        ({"Upload-Checksum": "crc32 AAAA"}, 400),
    ],
)
def test_a_hostile_piece_changes_nothing(
    client: TestClient, headers: dict[str, str], status: int
) -> None:
    place = begin(client)
    answer = client.patch(place, content=b"x", headers={**PIECE, "Upload-Offset": "0", **headers})
    assert answer.status_code == status
    assert client.head(place).headers["Upload-Offset"] == "0"


def test_a_full_disk_is_reported_with_its_own_status(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "FREE_BYTES", 1 << 60)
    answer = client.post("/api/uploads", headers=beginning("a.json", 5))
    assert answer.status_code == 507
    assert "free disk space" in answer.json()["error"]


@pytest.mark.usefixtures("asked_who")
def test_only_who_may_upload_can_begin(client: TestClient) -> None:
    def status(headers: dict[str, str]) -> int:
        sent = {**beginning("a.json", 5), **headers}
        return client.post("/api/uploads", headers=sent).status_code

    assert status({}) == 401
    assert status({"Authorization": "Bearer jrv_000000000000_" + "x" * 43}) == 401
    assert status(bearer("eve", Role.VIEWER)) == 403
    assert status(bearer("ada", Role.EDITOR)) == 201


@pytest.mark.usefixtures("asked_who")
def test_a_ticket_of_a_page_uploads_and_does_nothing_else(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = tickets.ticket_of(Person("ada", Role.EDITOR), tickets.UPLOAD)
    headers = {"Authorization": f"Ticket {ticket}"}
    place = begin(client, **headers)
    assert uploads.find(place.rpartition("/")[2]).owner == "ada"
    (entry,) = audit.recent(database())
    assert (entry.person, entry.action, entry.subject) == ("ada", audit.Action.UPLOAD, "a.json")
    assert client.get("/api/analyses", headers=headers).status_code == 401
    monkeypatch.setattr(tickets, "VALID_S", -1)
    ticket = tickets.ticket_of(Person("ada", Role.ADMIN), tickets.UPLOAD)
    late = {"Authorization": f"Ticket {ticket}"}
    answer = client.post("/api/uploads", headers={**beginning("a.json", 5), **late})
    assert answer.status_code == 401
    assert "Reload it" in answer.json()["error"]


@pytest.mark.parametrize("change", ["x", ".", "=", "é"])
def test_a_changed_ticket_is_worth_nothing(home: Path, change: str) -> None:
    ticket = tickets.ticket_of(Person("ada", Role.VIEWER), tickets.UPLOAD)
    assert tickets.ticket_holder(ticket, tickets.UPLOAD) == Person("ada", Role.VIEWER)
    for forged in (change + ticket, ticket + change, ticket.partition(".")[0], change):
        with pytest.raises(TicketError):
            tickets.ticket_holder(forged, tickets.UPLOAD)
    other = base64.urlsafe_b64encode(b'{"name": "ada", "role": "admin", "expires": 9e9}').decode()
    with pytest.raises(TicketError):
        tickets.ticket_holder(f"{other}.{ticket.partition('.')[2]}", tickets.UPLOAD)


def test_the_secret_is_for_this_user_alone_and_stays(home: Path) -> None:
    ticket = tickets.ticket_of(Person(None, Role.ADMIN), tickets.UPLOAD)
    (secret,) = home.glob("secret*")
    assert secret.stat().st_mode & 0o077 == 0
    assert tickets.ticket_holder(ticket, tickets.UPLOAD).role is Role.ADMIN
    assert [path for path in home.iterdir() if path.name.startswith(".secret")] == []


@pytest.mark.usefixtures("asked_who")
def test_the_id_of_an_upload_is_no_key_to_it(client: TestClient) -> None:
    mine, other = bearer("ada", Role.EDITOR), bearer("eve", Role.EDITOR)
    place = begin(client, **mine)

    def statuses(headers: dict[str, str]) -> list[int]:
        piece = {**PIECE, "Upload-Offset": "0", **headers}
        return [
            client.get(place, headers=headers).status_code,
            client.head(place, headers=headers).status_code,
            client.patch(place, content=b"x", headers=piece).status_code,
            client.delete(place, headers={**TUS, **headers}).status_code,
        ]

    assert statuses({}) == [401] * 4
    assert statuses(other) == [404] * 4
    assert client.head(place, headers=mine).headers["Upload-Offset"] == "0"
    assert statuses(mine) == [200, 200, 204, 204]


@pytest.mark.usefixtures("asked_who")
def test_a_ticket_goes_on_with_an_upload_for_a_day(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = Person("ada", Role.EDITOR)
    place = begin(client, Authorization=f"Ticket {tickets.ticket_of(ada, tickets.UPLOAD)}")
    day_s = uploads.EXPIRES_AFTER.total_seconds()
    for age_s, status in ((60, 200), (day_s - 60, 200), (day_s + 60, 401)):
        monkeypatch.setattr(tickets, "VALID_S", -age_s)
        late = {"Authorization": f"Ticket {tickets.ticket_of(ada, tickets.UPLOAD)}"}
        assert client.get(place, headers=late).status_code == status
        begun = client.post("/api/uploads", headers={**beginning("a.json", 5), **late})
        assert begun.status_code == 401


@pytest.mark.usefixtures("asked_who")
def test_pieces_are_not_counted_and_questions_are(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_API_REQUESTS_PER_MINUTE", "3")
    headers = bearer("ada", Role.EDITOR)
    place = begin(client, **headers)
    for offset in range(10):
        piece = {**PIECE, "Upload-Offset": str(offset), **headers}
        assert client.patch(place, content=BYTES[offset : offset + 1], headers=piece).is_success
    message = [client.get(place, headers=headers).status_code for _ in range(3)]
    assert message == [200, 200, 429]
