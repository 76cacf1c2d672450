"""A server of Jarvis as a command sees it: asked, and sent files that may break off on the way."""

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self
from urllib.parse import urlsplit

import httpx

from jarvis.core.errors import JarvisError, UnreadableTraceError
from jarvis.core.protocol import (
    BEARER,
    PIECE_TYPE,
    TOKEN_VARIABLE,
    TUS_HEADER,
    TUS_VERSION,
    UPLOADS,
)
from jarvis.text.format import byte_size

PIECE_BYTES = 64 << 20
"""Of one request: proxies and servers limit how much a request may carry."""

PATIENCE_S = 120.0
"""So long without a byte that arrives, a broken connection is tried again."""

_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)
_BLOCK_BYTES = 1 << 20
_TIMEOUT_S = 60.0
_SHOWN_EVERY_S = 0.2
_JSON = "application/json"
_TUS = {TUS_HEADER: TUS_VERSION}
_AGAIN = (404, 408, 409, 423, 425, 429, 502, 503, 504)
"""Statuses after which a piece is sent again, from where the server says."""


class ServerError(JarvisError):
    """A server does not do what it is asked for."""

    def __init__(self, sentence: str, status: int | None = None, retry_s: float = 0) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_s = retry_s


class UploadProgress(Protocol):
    """Is told how far an upload is."""

    def __call__(self, text: str, *, is_last: bool) -> None: ...


class ServerConnection:
    """A server by its address; a block closes the connection.

    Every method raises ServerError with a sentence where the server refuses or cannot be reached.
    """

    def __init__(self, address: str, token: str | None) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServerError(
                f"{address} is no address of a server. Give one like https://jarvis.example.org."
            )
        if parts.username is not None:
            raise ServerError(
                f"Give the token by {TOKEN_VARIABLE}, not in the address of the server."
            )
        self._address = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        headers = {"Authorization": f"{BEARER} {token}"} if token else {}
        self._client = httpx.Client(headers=headers, timeout=_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def link(self, page: str) -> str:
        """A page of the server as a link."""
        return f"{self._address}{page}"

    def get(self, path: str) -> dict[str, Any]:
        """What the server answers in JSON."""
        answer: dict[str, Any] = self._asked("GET", path).json()
        return answer

    def post(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        """What the server answers to JSON."""
        answer: dict[str, Any] = self._asked("POST", path, json=asked).json()
        return answer

    def upload(self, trace: Path, headway: UploadProgress) -> dict[str, Any]:
        """Send a file; the upload as the server describes it when it is whole.

        Where the connection breaks it goes on, until nothing has arrived for PATIENCE_S. Raises
        UnreadableTraceError where there is no such file.
        """
        try:
            with trace.open("rb") as file:
                return _Sending(self, trace, file, headway).run()
        except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
            raise UnreadableTraceError(trace, error.strerror or str(error)) from error

    def _asked(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            answer = self._client.request(method, f"{self._address}{path}", **options)
        except httpx.TransportError as error:
            raise ServerError(_unreachable(self._address, error)) from error
        if answer.is_success and _is_ours(answer):
            return answer
        raise ServerError(
            _refusal(self._address, answer),
            answer.status_code,
            float(answer.headers.get("Retry-After", "0")),
        )


class _Sending:
    """One file on its way."""

    def __init__(
        self, remote: ServerConnection, trace: Path, file: BinaryIO, headway: UploadProgress
    ) -> None:
        self._remote, self._trace, self._file, self._headway = remote, trace, file, headway
        self._size = trace.stat().st_size
        self._place: str | None = None
        self._sent = self._arrived = 0
        self._begin = self._shown = time.monotonic()
        self._sent_here = 0

    def run(self) -> dict[str, Any]:
        self._create()  # a server that is not there is said at once
        since, attempt = time.monotonic(), 0
        while True:
            before = self._arrived
            try:
                upload = self._go_on()
            except ServerError as error:
                if self._arrived > before:
                    since, attempt = time.monotonic(), 0
                is_final = error.status is not None and error.status not in _AGAIN
                if is_final or time.monotonic() - since > PATIENCE_S:
                    raise
                self._show("the connection broke, trying again")
                time.sleep(max(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)], error.retry_s))
                attempt += 1
            else:
                self._show(is_last=True)
                return upload

    def _create(self) -> None:
        name = base64.b64encode(self._trace.name.encode(errors="replace")).decode()
        headers = {
            **_TUS,
            "Upload-Length": str(self._size),
            "Upload-Metadata": f"filename {name}",
        }
        location = self._remote._asked("POST", UPLOADS, headers=headers).headers["Location"]
        self._place = f"{UPLOADS}/{location.rpartition('/')[2]}"

    def _go_on(self) -> dict[str, Any]:
        """Send what the server does not have yet."""
        if self._place is None:
            self._create()
        place = str(self._place)
        try:
            upload = self._remote.get(place)
        except ServerError as error:
            if error.status == 404:  # it got no byte for a day
                self._place = None
            raise
        self._arrived = self._sent = upload["offset_bytes"]
        while not upload["is_whole"]:
            end = min(self._arrived + PIECE_BYTES, self._size)
            headers = {
                **_TUS,
                "Content-Type": PIECE_TYPE,
                "Content-Length": str(end - self._arrived),
                "Upload-Offset": str(self._arrived),
            }
            piece = self._blocks(self._arrived, end)
            answer = self._remote._asked("PATCH", place, headers=headers, content=piece)
            self._arrived = self._sent = int(answer.headers["Upload-Offset"])
            if self._arrived == self._size:
                upload = self._remote.get(place)
        return upload

    def _blocks(self, begin: int, end: int) -> Iterator[bytes]:
        self._file.seek(begin)
        while begin < end:
            block = self._file.read(min(_BLOCK_BYTES, end - begin))
            if not block:
                raise UnreadableTraceError(self._trace, "it became shorter while it was sent")
            yield block
            begin += len(block)
            self._sent = begin
            self._sent_here += len(block)
            if time.monotonic() - self._shown > _SHOWN_EVERY_S:
                self._show()

    def _show(self, instead: str = "", *, is_last: bool = False) -> None:
        self._shown = time.monotonic()
        speed = self._sent_here / max(self._shown - self._begin, 1e-3)
        parts = [f"{byte_size(self._sent)} of {byte_size(self._size)}"]
        parts.append(instead or f"{byte_size(speed)}/s")
        if speed and not instead and not is_last:
            parts.append(f"{(self._size - self._sent) / speed:.0f} s left")
        self._headway(" · ".join(parts), is_last=is_last)


def _unreachable(address: str, error: httpx.TransportError) -> str:
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError):
        if "CERTIFICATE" in reason.upper() or "SSL" in reason.upper():
            return (
                f"The certificate of {address} is not trusted ({reason}). Have its authority in "
                "SSL_CERT_FILE, or ask the one who runs the server."
            )
        return f"{address} cannot be reached ({reason}). Check the address, and that it runs."
    if isinstance(error, httpx.TimeoutException):
        return f"{address} did not answer in time. Try again later."
    return f"The connection to {address} broke ({reason}). Try again."


def _is_ours(answer: httpx.Response) -> bool:
    """Whether a server of Jarvis answers, and no page of something else."""
    return TUS_HEADER in answer.headers or answer.headers.get("Content-Type") == _JSON


def _refusal(address: str, answer: httpx.Response) -> str:
    """What the server says, or where something else answers in its place, that."""
    try:
        sentence = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        where = answer.headers.get("Location")
        moved = f" It points to {where}." if where else ""
        return (
            f"{address} answered {answer.status_code} {answer.reason_phrase}, not as a server of "
            f"Jarvis does.{moved} Check the address."
        )
    return str(sentence)
