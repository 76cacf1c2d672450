"""A small web server on loopback that sends files and records the requests."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """What is sent, and where it goes wrong.

    ``breaks`` says after how many bytes each of the next answers is cut off, ``sends_only`` how
    many bytes of the rest are sent as a part of it, and ``holds_after`` when an answer stops.
    ``files`` are sent by their paths in place of ``content``, and no others.
    """

    content: bytes
    files: dict[str, bytes] = field(default_factory=dict)
    port: int = 0
    etag: str | None = '"1"'
    takes_ranges: bool = True
    says_length: bool = True
    status: int = 200
    location: str | None = None
    disposition: str | None = None
    sends_only: int | None = None
    holds_after: int | None = None
    breaks: list[int] = field(default_factory=list)
    let_go: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)


@contextmanager
def file_server(content: bytes, tls: ssl.SSLContext | None = None) -> Iterator[FileServer]:
    """A server while the block runs."""
    described = FileServer(content)

    class Handler(_Handler):
        given = described

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    described.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield described
    finally:
        described.let_go.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    given: FileServer

    def do_GET(self) -> None:
        given = self.given
        given.asked.append((self.path, {name.lower(): text for name, text in self.headers.items()}))
        if given.location is not None and self.path.startswith("/from"):
            self._answer(302, {"Location": given.location, "Content-Length": "0"})
            return
        content, start = self._content(), self._start()
        body = content[start:]
        headers = {"Content-Length": str(len(body))} if given.says_length else {}
        if given.etag is not None:
            headers["ETag"] = given.etag
        if given.disposition is not None:
            headers["Content-Disposition"] = given.disposition
        if start:
            body = body[: given.sends_only]
            end = start + len(body)
            headers["Content-Length"] = str(len(body))
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        is_missing = given.files and not content
        self._answer(404 if is_missing else 206 if start else given.status, headers)
        cut = given.breaks.pop(0) if given.breaks else None
        self.wfile.write(body[: given.holds_after if cut is None else cut])
        if given.holds_after is not None:
            given.let_go.wait()
        self.close_connection = True

    def _content(self) -> bytes:
        given = self.given
        return given.files.get(self.path.partition("?")[0], b"") if given.files else given.content

    def _start(self) -> int:
        given, wanted = self.given, self.headers.get("Range")
        is_same = self.headers.get("If-Range") == given.etag
        if wanted is None or not given.takes_ranges or not is_same:
            return 0
        return int(wanted.removeprefix("bytes=").partition("-")[0])

    def _answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""
