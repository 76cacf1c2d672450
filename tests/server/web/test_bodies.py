"""Limits of bodies without a declared length."""

from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Message, Receive, Scope, Send

from jarvis.server.http.web.bodies import BodyLimits
from tests.server.web.awaiting import awaited

PIECES = [{"type": "http.request", "body": b"x" * 60, "more_body": True}] * 3


async def _reads(_: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await _answers(send)


async def _answers_whatever_happens(_: Scope, receive: Receive, send: Send) -> None:
    try:
        while (await receive()).get("more_body"):
            pass
    except Exception:  # noqa: BLE001 - as web frameworks do
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b"cannot be read"})


async def _answers(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"read"})


def _status(app: Callable[..., Awaitable[None]], path: str) -> int:
    pieces = iter([*PIECES, {"type": "http.request", "body": b"x", "more_body": False}])
    sent: list[Message] = []

    async def receive() -> Message:
        return next(pieces)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "method": "POST", "headers": []}
    awaited(BodyLimits(app, max_bytes=150)(scope, receive, send))
    statuses = [message["status"] for message in sent if message["type"] == "http.response.start"]
    assert len(statuses) == 1
    return int(statuses[0])


@pytest.mark.parametrize("app", [_reads, _answers_whatever_happens])
def test_more_than_is_allowed_is_refused_whoever_reads_it(
    app: Callable[..., Awaitable[None]],
) -> None:
    assert _status(app, "/api/analyses") == 413


def test_uploads_are_counted_elsewhere() -> None:
    assert _status(_reads, "/api/uploads/1") == 200
