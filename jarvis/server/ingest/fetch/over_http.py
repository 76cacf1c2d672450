"""A file by http or https, whose every hop is checked before it is asked."""

import logging
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from functools import cache
from http import HTTPStatus
from ipaddress import IPv6Address

import httpx

from jarvis.server.ingest.addresses import HTTP, Address, Machine, address_of, machines_of
from jarvis.server.ingest.fetch.base import (
    CONNECT_S,
    SILENCE_S,
    FetchError,
    InterruptedFetchError,
    OpenedDownload,
)
from jarvis.text.markdown import one_line, shortened

MAX_REDIRECTS = 5

_WEAK = "W/"
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
_REMEDIES = {
    HTTPStatus.UNAUTHORIZED: "It wants to know who asks: give a signed address, or upload the file",
    HTTPStatus.FORBIDDEN: "The address may have run out: give a new one, or upload the file",
    HTTPStatus.NOT_FOUND: "Check the path",
}

logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log addresses with their secrets


class HttpFile:
    """The file at an address; a second ``open`` goes on only where the file is still the same."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._validator: str | None = None

    @contextmanager
    def open(self, offset: int) -> Iterator[OpenedDownload]:
        """Ask for the file, through up to ``MAX_REDIRECTS`` redirections."""
        address = self._address
        for _ in range(MAX_REDIRECTS + 1):
            with _answer(address, self._asking(offset)) as response:
                if not response.has_redirect_location:
                    yield self._opened(address, response, offset)
                    return
                address = address_of(address.joined(response.headers["location"]), HTTP)
        raise FetchError(
            f"{self._address.shown} leads on more than {MAX_REDIRECTS} times. Give the address of "
            "the file itself."
        )

    def _asking(self, offset: int) -> dict[str, str]:
        asking = {"Accept-Encoding": "identity"}
        if offset and self._validator is not None:
            asking |= {"Range": f"bytes={offset}-", "If-Range": self._validator}
        return asking

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


@contextmanager
def _answer(address: Address, asking: dict[str, str]) -> Iterator[httpx.Response]:
    """The answer of the first machine of a host that takes the connection."""
    lost: httpx.TransportError | None = None
    for machine in machines_of(address):
        with _client() as client:
            try:
                response = client.send(_request(client, address, machine, asking), stream=True)
            except httpx.TransportError as error:
                lost = error
                continue
            try:
                yield response
            finally:
                response.close()
            return
    reason = shortened(one_line(str(lost) or type(lost).__name__), 200)
    raise InterruptedFetchError(
        f"{address.host_and_port} cannot be reached: {reason}. Check that it runs and that this "
        "server may connect to it, then try again."
    )


def _client() -> httpx.Client:
    """A connection of its own, straight to the machine: no proxy looks its name up again."""
    return httpx.Client(
        verify=_trusted(),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S),
    )


@cache
def _trusted() -> ssl.SSLContext:
    """The authorities that this machine trusts; those of a company are among them."""
    return ssl.create_default_context()


def _request(
    client: httpx.Client, address: Address, machine: Machine, asking: dict[str, str]
) -> httpx.Request:
    """Goes to the machine that was checked; its certificate must still be that of the host."""
    where = f"[{machine}]" if isinstance(machine, IPv6Address) else str(machine)
    query = f"?{address.query}" if address.query else ""
    return client.build_request(
        "GET",
        f"{address.scheme}://{where}:{address.port}{address.path}{query}",
        headers={**asking, "Host": address.host_and_port},
        extensions={"sni_hostname": address.host},
    )


def _pieces(address: Address, response: httpx.Response) -> Iterator[bytes]:
    """The bytes as they are sent: what is packed stays so."""
    try:
        yield from response.iter_raw()
    except httpx.TransportError as error:
        raise InterruptedFetchError(
            f"{address.host_and_port} stopped sending: {shortened(one_line(str(error)), 200)}. "
            "Try again."
        ) from error


def _is_rest(headers: httpx.Headers, offset: int) -> bool:
    """Whether what is sent begins where it was asked to, and goes on to the end of the file."""
    sent = _RANGE.fullmatch(headers.get("content-range", ""))
    return sent is not None and int(sent[1]) == offset > 0 and int(sent[2]) + 1 == int(sent[3])


def _attached(headers: httpx.Headers) -> str:
    """The name that the machine gives to the file."""
    message = Message()
    message["content-disposition"] = headers.get("content-disposition", "")
    return (message.get_filename() or "").replace("\\", "/").rpartition("/")[2]


def _refusal(address: Address, status: int) -> str:
    known = status in HTTPStatus._value2member_map_
    phrase = f" ({HTTPStatus(status).phrase})" if known else ""
    remedy = _REMEDIES.get(HTTPStatus(status), "Try again later") if known else "Check the address"
    return f"{address.shown} was not sent: the answer was {status}{phrase}. {remedy}."
