"""Downloads and indexes by http and https; each redirect is validated before it is followed."""

import logging
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from functools import cache
from html.parser import HTMLParser
from http import HTTPStatus
from ipaddress import IPv6Address
from urllib.parse import unquote, urlsplit

import httpx

from jarvis.server.errors import FetchError, InterruptedFetchError
from jarvis.server.ingest.addresses import HTTP, Address, Machine, address_of, machines_of
from jarvis.server.ingest.fetch.base import CONNECT_S, SILENCE_S, Entry, OpenedDownload, error_text

MAX_REDIRECTS = 5
MAX_INDEX_BYTES = 8 << 20
"""Maximum size of the page that lists a folder."""

_WEAK = "W/"
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
_REMEDIES = {
    HTTPStatus.UNAUTHORIZED: "It requires authentication: give a signed URL, or upload the file",
    HTTPStatus.FORBIDDEN: "The URL may have expired: give a new one, or upload the file",
    HTTPStatus.NOT_FOUND: "Check the path",
}

logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs URLs with their secrets


class HttpFile:
    """A file at a URL; later calls of ``open`` resume only if the file has not changed."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._validator: str | None = None

    @contextmanager
    def open(self, offset: int) -> Iterator[OpenedDownload]:
        """Request the file, following up to ``MAX_REDIRECTS`` redirects."""
        address = self._address
        for _ in range(MAX_REDIRECTS + 1):
            with _answer(address, self._headers(offset)) as response:
                if not response.has_redirect_location:
                    yield self._opened(address, response, offset)
                    return
                address = address_of(address.joined(response.headers["location"]), HTTP)
        raise FetchError(
            f"{self._address.shown} has more than {MAX_REDIRECTS} redirects. Give the URL of the "
            "file itself."
        )

    def _headers(self, offset: int) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity"}
        if offset and self._validator is not None:
            headers |= {"Range": f"bytes={offset}-", "If-Range": self._validator}
        return headers

    def _opened(self, address: Address, response: httpx.Response, offset: int) -> OpenedDownload:
        status, headers = response.status_code, response.headers
        is_rest = status == HTTPStatus.PARTIAL_CONTENT and _is_rest(headers, offset)
        if not is_rest and status != HTTPStatus.OK:
            raise FetchError(_refusal(self._address, status))
        tag = headers.get("etag", _WEAK)
        self._validator = headers.get("last-modified") if tag.startswith(_WEAK) else tag
        start = offset if is_rest else 0
        length = headers.get("content-length", "")
        names = (self._address.file_name, address.file_name, _attached(headers))
        return OpenedDownload(
            start,
            start + int(length) if length.isdecimal() else None,
            tuple(filter(None, names)),
            _pieces(self._address, response),
        )


def list_http(folder: Address) -> Iterator[Entry]:
    """Yield the files and folders that the index of a folder links to directly below it."""
    index = bytearray()
    with HttpFile(folder).open(0) as opened:
        for piece in opened.pieces:
            index += piece
            if len(index) > MAX_INDEX_BYTES:
                raise FetchError(
                    f"The index of {folder.shown} exceeds {MAX_INDEX_BYTES >> 20} MB. Give the URL "
                    "of a folder with fewer files."
                )
    links = _Links()
    links.feed(index.decode(errors="replace"))
    above = urlsplit(folder.joined(folder.path))
    for link in links.found:
        try:
            place = urlsplit(folder.joined(link))
        except ValueError:
            continue
        if place[:2] == above[:2] and place.path.startswith(folder.path):
            name, slash, below = place.path.removeprefix(folder.path).partition("/")
            if name and not below:
                yield Entry(unquote(name), is_folder=bool(slash))


class _Links(HTMLParser):
    """The targets of the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [text for name, text in attrs if name == "href" and text]


@contextmanager
def _answer(address: Address, headers: dict[str, str]) -> Iterator[httpx.Response]:
    """Yield the response of the first IP address of a host that accepts the connection."""
    lost: httpx.TransportError | None = None
    for machine in machines_of(address):
        with _client() as client:
            try:
                response = client.send(_request(client, address, machine, headers), stream=True)
            except httpx.TransportError as error:
                lost = error
                continue
            try:
                yield response
            finally:
                response.close()
            return
    raise InterruptedFetchError(
        f"{address.host_and_port} cannot be reached: {error_text(lost)}. Check that it is running "
        "and that this server can connect to it, then try again."
    )


def _client() -> httpx.Client:
    """Return a client without proxies, which would resolve the host again."""
    return httpx.Client(
        verify=_trusted(),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S),
    )


@cache
def _trusted() -> ssl.SSLContext:
    """Return the certificate authorities of this machine, including a company's own."""
    return ssl.create_default_context()


def _request(
    client: httpx.Client, address: Address, machine: Machine, headers: dict[str, str]
) -> httpx.Request:
    """Return a request to the checked IP address, whose certificate must be that of the host."""
    host = f"[{machine}]" if isinstance(machine, IPv6Address) else str(machine)
    query = f"?{address.query}" if address.query else ""
    return client.build_request(
        "GET",
        f"{address.scheme}://{host}:{address.port}{address.path}{query}",
        headers={**headers, "Host": address.host_and_port},
        extensions={"sni_hostname": address.host},
    )


def _pieces(address: Address, response: httpx.Response) -> Iterator[bytes]:
    """Yield the body without decompressing it."""
    try:
        yield from response.iter_raw()
    except httpx.TransportError as error:
        raise InterruptedFetchError(
            f"{address.host_and_port} stopped sending: {error_text(error)}. Try again."
        ) from error


def _is_rest(headers: httpx.Headers, offset: int) -> bool:
    """Return whether the response is the range from ``offset`` to the end of the file."""
    span = _RANGE.fullmatch(headers.get("content-range", ""))
    return span is not None and int(span[1]) == offset > 0 and int(span[2]) + 1 == int(span[3])


def _attached(headers: httpx.Headers) -> str:
    """Return the file name in Content-Disposition, or ""."""
    message = Message()
    message["content-disposition"] = headers.get("content-disposition", "")
    return (message.get_filename() or "").replace("\\", "/").rpartition("/")[2]


def _refusal(address: Address, status: int) -> str:
    known = status in HTTPStatus._value2member_map_
    phrase = f" ({HTTPStatus(status).phrase})" if known else ""
    remedy = _REMEDIES.get(HTTPStatus(status), "Try again later") if known else "Check the URL"
    return f"{address.shown} cannot be downloaded: HTTP status {status}{phrase}. {remedy}."
