"""The API as the web server mounts it, without a network."""

import base64
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from jarvis.core.product import API
from jarvis.server.access.rights import Role
from jarvis.server.access.tokens import create
from jarvis.server.database import database
from jarvis.server.http.api import api, callers

TUS = {"Tus-Resumable": "1.0.0"}
PIECE = {**TUS, "Content-Type": "application/offset+octet-stream"}


@pytest.fixture
def client(home: object) -> Iterator[TestClient]:
    callers._limiter.cache_clear()
    with TestClient(Starlette(routes=[Mount(API, app=api())])) as client:
        yield client


@pytest.fixture
def asked_who(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns access control on."""
    monkeypatch.setenv("JARVIS_ACCESS", "header")


def bearer(owner: str, role: Role) -> dict[str, str]:
    """The header with a token of a user."""
    return {"Authorization": f"Bearer {create(database(), owner, role, 'test').text}"}


def beginning(name: str, size_bytes: int) -> dict[str, str]:
    """The headers that begin an upload."""
    named = base64.b64encode(name.encode()).decode()
    return {**TUS, "Upload-Length": str(size_bytes), "Upload-Metadata": f"filename {named}"}


def uploaded(
    client: TestClient, name: str, content: bytes, headers: dict[str, str] | None = None
) -> str:
    """The id of a whole upload."""
    begun = client.post(
        "/api/uploads", headers={**beginning(name, len(content)), **(headers or {})}
    )
    assert begun.status_code == 201, begun.text
    sent = client.patch(
        begun.headers["Location"],
        content=content,
        headers={**PIECE, "Upload-Offset": "0", **(headers or {})},
    )
    assert sent.status_code == 204, sent.text
    return begun.headers["Location"].rpartition("/")[2]
