"""Downloads and listings by s3 with the server's credentials, from buckets in the settings."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from jarvis.server.errors import FetchError, InterruptedFetchError
from jarvis.server.ingest.addresses import Address
from jarvis.server.ingest.fetch.base import CONNECT_S, SILENCE_S, Entry, OpenedDownload, error_text

_PIECE_BYTES = 1 << 20
_CHANGED = (HTTPStatus.PRECONDITION_FAILED, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)


class S3File:
    """An object at a URL; later calls of ``open`` resume only if it has not changed."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._tag: str | None = None

    @contextmanager
    def open(self, offset: int) -> Iterator[OpenedDownload]:
        """Request the object."""
        address = self._address
        with _told(address):
            start, answer = self._answer(offset)
        self._tag = answer["ETag"]
        with closing(answer["Body"]) as body:
            size = start + answer["ContentLength"]
            yield OpenedDownload(start, size, (address.file_name,), _pieces(address, body))

    def _answer(self, offset: int) -> tuple[int, Any]:
        """Return the response, and the offset of its first byte."""
        from botocore.exceptions import ClientError  # type: ignore[import-untyped]

        get = partial(_client().get_object, Bucket=self._address.host, Key=_key(self._address))
        if offset and self._tag is not None:
            try:
                return offset, get(Range=f"bytes={offset}-", IfMatch=self._tag)
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] not in _CHANGED:
                    raise
        return 0, get()


def list_s3(folder: Address) -> Iterator[Entry]:
    """Yield the objects and the common prefixes directly below a prefix."""
    prefix = _key(folder)
    with _told(folder):
        pages = _client().get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=folder.host, Prefix=prefix, Delimiter="/"):
            for found in page.get("CommonPrefixes", ()):
                yield Entry(found["Prefix"].removeprefix(prefix).rstrip("/"), is_folder=True)
            for found in page.get("Contents", ()):
                yield Entry(found["Key"].removeprefix(prefix), is_folder=False)


def _key(address: Address) -> str:
    return unquote(address.path).removeprefix("/")


def _pieces(address: Address, body: Any) -> Iterator[bytes]:
    with _told(address):
        yield from body.iter_chunks(_PIECE_BYTES)


@contextmanager
def _told(address: Address) -> Iterator[None]:
    """Convert the errors of a request."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        HTTPClientError,
    )

    try:
        yield
    except HTTPClientError as error:
        raise InterruptedFetchError(
            f"The connection for {address.shown} was lost: {error_text(error)}. Try again."
        ) from error
    except (BotoCoreError, ClientError) as error:
        raise FetchError(
            f"{address.shown} cannot be read: {error_text(error)}. Check the URL, and that the "
            "server's credentials may read this bucket."
        ) from error


@cache
def _client() -> Any:
    """Return the client, with the credentials and the endpoint of the environment."""
    try:
        from botocore.config import Config  # type: ignore[import-untyped]
        from botocore.session import get_session  # type: ignore[import-untyped]
    except ImportError as error:
        raise FetchError(
            "This server cannot download by s3. Install jarvis-perf[s3] there."
        ) from error
    limits = Config(connect_timeout=CONNECT_S, read_timeout=SILENCE_S, retries={"max_attempts": 2})
    return get_session().create_client("s3", config=limits)
