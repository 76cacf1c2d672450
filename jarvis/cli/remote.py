"""Client of the HTTP API with resumable uploads."""

import base64
import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self
from urllib.parse import urlsplit

import httpx

from jarvis.core.errors import JarvisError, UnreadableTraceError
from jarvis.core.product import BEARER, PIECE_TYPE, TOKEN_VARIABLE, TUS_HEADER, TUS_VERSION, UPLOADS
from jarvis.core.workspace import pushes_dir, sweep_pushes
from jarvis.text.format import byte_size

PIECE_BYTES = 64 << 20
"""Size of an upload request, because proxies and servers limit request bodies."""

RETRY_TIMEOUT_S = 120.0
"""How long an upload is retried without progress."""

_RETRY_DELAYS_S = (0.5, 1.0, 2.0, 4.0, 8.0)
_BLOCK_BYTES = 1 << 20
_TIMEOUT_S = 60.0
_PROGRESS_INTERVAL_S = 0.2
_JSON = "application/json"
_TUS = {TUS_HEADER: TUS_VERSION}
_RETRIED_STATUSES = (404, 408, 409, 423, 425, 429, 502, 503, 504)
"""HTTP statuses of temporary errors, after which an upload is resumed."""


class ServerError(JarvisError):
    """The server rejected a request or cannot be reached."""

    def __init__(self, message: str, status: int | None = None, retry_s: float = 0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_s = retry_s


class UploadProgress(Protocol):
    """Callback with the progress of an upload as text."""

    def __call__(self, text: str, *, is_last: bool) -> None: ...


class ServerConnection:
    """Connection to a server; use it as a context manager.

    All methods raise ServerError if the server rejects the request or cannot be reached.
    """

    def __init__(self, address: str, token: str | None) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServerError(
                f"{address} is not the URL of a server. Give one like https://jarvis.example.org."
            )
        if parts.username is not None:
            raise ServerError(f"Give the token in {TOKEN_VARIABLE}, not in the URL of the server.")
        self._address = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        headers = {"Authorization": f"{BEARER} {token}"} if token else {}
        self._client = httpx.Client(headers=headers, timeout=_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def link(self, page: str) -> str:
        """Return the URL of a page."""
        return f"{self._address}{page}"

    def get(self, path: str) -> dict[str, Any]:
        """Send a GET request and return the JSON response."""
        response: dict[str, Any] = self._request("GET", path).json()
        return response

    def post(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        """Send a POST request with JSON and return the JSON response."""
        response: dict[str, Any] = self._request("POST", path, json=content).json()
        return response

    def upload(
        self, trace: Path, progress: UploadProgress, name: str | None = None
    ) -> dict[str, Any]:
        """Upload a file, as ``name`` if given; return the complete upload as the API describes it.

        Bytes that an earlier command has sent are not sent again. After a lost connection the
        upload is resumed, until there is no progress for RETRY_TIMEOUT_S.

        Raises:
            UnreadableTraceError: the file cannot be read.
        """
        try:
            with trace.open("rb") as file:
                return _Upload(self, trace, file, progress, name or trace.name).run()
        except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
            raise UnreadableTraceError(trace, error.strerror or str(error)) from error

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._client.request(method, f"{self._address}{path}", **options)
        except httpx.TransportError as error:
            raise ServerError(_unreachable(self._address, error)) from error
        if response.is_success and _is_from_jarvis(response):
            return response
        raise ServerError(
            _error_message(self._address, response),
            response.status_code,
            float(response.headers.get("Retry-After", "0")),
        )


class _Upload:
    """An upload in progress."""

    def __init__(
        self,
        remote: ServerConnection,
        trace: Path,
        file: BinaryIO,
        progress: UploadProgress,
        name: str,
    ) -> None:
        self._name = name
        self._remote, self._trace, self._file, self._progress = remote, trace, file, progress
        stat = trace.stat()
        self._size = stat.st_size
        key = (remote.link(name), str(trace.resolve()), stat.st_size, stat.st_mtime_ns)
        self._record = pushes_dir() / hashlib.sha256(repr(key).encode()).hexdigest()
        self._path: str | None = None
        self._sent = self._received = 0
        self._begin = self._shown = time.monotonic()
        self._sent_here = 0

    def run(self) -> dict[str, Any]:
        # Without retries: fail immediately if the server cannot be reached.
        if (earlier := self._earlier()) is None:
            self._create()
        elif earlier["is_whole"]:
            return {**earlier, "is_reused": True}
        since, attempt = time.monotonic(), 0
        while True:
            before = self._received
            try:
                upload = self._resume()
            except ServerError as error:
                if self._received > before:
                    since, attempt = time.monotonic(), 0
                is_final = error.status is not None and error.status not in _RETRIED_STATUSES
                if is_final or time.monotonic() - since > RETRY_TIMEOUT_S:
                    raise
                self._show("connection lost, retrying")
                time.sleep(
                    max(_RETRY_DELAYS_S[min(attempt, len(_RETRY_DELAYS_S) - 1)], error.retry_s)
                )
                attempt += 1
            else:
                self._show(is_last=True)
                return upload

    def _create(self) -> None:
        name = base64.b64encode(self._name.encode(errors="replace")).decode()
        headers = {
            **_TUS,
            "Upload-Length": str(self._size),
            "Upload-Metadata": f"filename {name}",
        }
        location = self._remote._request("POST", UPLOADS, headers=headers).headers["Location"]
        self._path = f"{UPLOADS}/{location.rpartition('/')[2]}"
        with suppress(OSError):
            sweep_pushes()
            self._record.parent.mkdir(parents=True, exist_ok=True)
            self._record.write_text(self._path, encoding="utf-8")

    def _earlier(self) -> dict[str, Any] | None:
        """Return the upload of this file that an earlier command began, if the server has it."""
        try:
            path = self._record.read_text(encoding="utf-8")
            upload = self._remote.get(path)
        except OSError:
            return None
        except ServerError as error:
            if error.status != 404:  # expired
                raise
            self._record.unlink(missing_ok=True)
            return None
        self._path = path
        return upload

    def _resume(self) -> dict[str, Any]:
        """Send the rest of the file."""
        if self._path is None:
            self._create()
        path = str(self._path)
        try:
            upload = self._remote.get(path)
        except ServerError as error:
            if error.status == 404:  # expired
                self._path = None
            raise
        self._received = self._sent = upload["offset_bytes"]
        while not upload["is_whole"]:
            end = min(self._received + PIECE_BYTES, self._size)
            headers = {
                **_TUS,
                "Content-Type": PIECE_TYPE,
                "Content-Length": str(end - self._received),
                "Upload-Offset": str(self._received),
            }
            piece = self._blocks(self._received, end)
            response = self._remote._request("PATCH", path, headers=headers, content=piece)
            self._received = self._sent = int(response.headers["Upload-Offset"])
            if self._received == self._size:
                upload = self._remote.get(path)
        return upload

    def _blocks(self, begin: int, end: int) -> Iterator[bytes]:
        self._file.seek(begin)
        while begin < end:
            block = self._file.read(min(_BLOCK_BYTES, end - begin))
            if not block:
                raise UnreadableTraceError(self._trace, "it was truncated during the upload")
            yield block
            begin += len(block)
            self._sent = begin
            self._sent_here += len(block)
            if time.monotonic() - self._shown > _PROGRESS_INTERVAL_S:
                self._show()

    def _show(self, state: str = "", *, is_last: bool = False) -> None:
        self._shown = time.monotonic()
        speed = self._sent_here / max(self._shown - self._begin, 1e-3)
        parts = [f"{byte_size(self._sent)} of {byte_size(self._size)}"]
        parts.append(state or f"{byte_size(speed)}/s")
        if speed and not state and not is_last:
            parts.append(f"{(self._size - self._sent) / speed:.0f} s left")
        self._progress(" · ".join(parts), is_last=is_last)


def _unreachable(address: str, error: httpx.TransportError) -> str:
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError):
        if "CERTIFICATE" in reason.upper() or "SSL" in reason.upper():
            return (
                f"The certificate of {address} is not trusted ({reason}). Add its certificate "
                "authority to SSL_CERT_FILE, or ask an admin of the server."
            )
        return f"{address} cannot be reached ({reason}). Check the URL, and that it is running."
    if isinstance(error, httpx.TimeoutException):
        return f"{address} did not answer in time. Try again later."
    return f"The connection to {address} was lost ({reason}). Try again."


def _is_from_jarvis(response: httpx.Response) -> bool:
    """Return whether the response is from a Jarvis server."""
    return TUS_HEADER in response.headers or response.headers.get("Content-Type") == _JSON


def _error_message(address: str, response: httpx.Response) -> str:
    """Return the error message of the server, or that it is not a Jarvis server."""
    try:
        message = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        location = response.headers.get("Location")
        redirect = f" It redirects to {location}." if location else ""
        return (
            f"{address} answered {response.status_code} {response.reason_phrase} and is not a "
            f"Jarvis server.{redirect} Check the URL."
        )
    return str(message)
