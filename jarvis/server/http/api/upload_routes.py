"""Uploads by tus 1.0 (https://tus.io): created, sent in pieces, gone on with, and forgotten.

An upload belongs to the person who created it; for everyone else it does not exist.
Bytes go to the disk in blocks, and the sender waits meanwhile: memory does not grow with the file.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator
from datetime import datetime
from email.utils import format_datetime
from typing import Annotated

from fastapi import APIRouter, Header, Path, Request, Response
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from jarvis.core.errors import JarvisError
from jarvis.core.protocol import PIECE_TYPE, TUS_HEADER, TUS_VERSION, UPLOADS
from jarvis.server.access.audit import Action, Channel, record
from jarvis.server.database import database
from jarvis.server.http.api.callers import MAX_ID_LENGTH, Sender, Uploader
from jarvis.server.http.api.errors import problem, status_of
from jarvis.server.ingest import uploads
from jarvis.server.ingest.intake import IntakeError
from jarvis.server.ingest.upload_writer import CHECKSUMS, Checksum, arriving
from jarvis.server.ingest.uploads import UnknownUploadError, Upload, most_bytes

SILENT_S = 30.0
"""A sender who says nothing for so long is given up; what has arrived stays."""

_BLOCK_BYTES = 1 << 20
_DRAINED_BYTES = 64 << 20
"""So much of a refused piece is read and dropped, so that its sender gets to the answer."""

_LONGEST_METADATA = 4096

UploadId = Annotated[str, Path(description="id of an upload", max_length=MAX_ID_LENGTH)]
TusVersion = Annotated[
    str,
    Header(
        alias=TUS_HEADER,
        description="version of the protocol",
        pattern=f"^{re.escape(TUS_VERSION)}$",
    ),
]

router = APIRouter(prefix="/uploads", tags=["uploads"])


class UploadView(BaseModel, title="Upload"):
    """An upload: how far it is, and what it holds once it is whole."""

    id: str
    name: str = Field(description="cleaned name of the file")
    size_bytes: int
    offset_bytes: int = Field(description="how much has arrived")
    is_whole: bool
    is_reused: bool = Field(description="whether the same bytes were on the server before")
    sha256: str | None = Field(description="of the whole file")
    expires: datetime = Field(description="it is removed then, unless bytes arrive")


@router.options("", summary="What of tus this server does", status_code=204)
def describe() -> Response:
    """The version, the extensions and the largest size are in the headers."""
    return Response(
        status_code=204,
        headers={
            TUS_HEADER: TUS_VERSION,
            "Tus-Version": TUS_VERSION,
            "Tus-Extension": "creation,termination,checksum,expiration",
            "Tus-Checksum-Algorithm": ",".join(CHECKSUMS),
            "Tus-Max-Size": str(most_bytes()),
        },
    )


@router.post("", summary="Begin an upload", status_code=201)
def create(
    person: Uploader,
    version: TusVersion,
    length: Annotated[int, Header(alias="Upload-Length", description="bytes of the file", ge=0)],
    metadata: Annotated[
        str,
        Header(
            alias="Upload-Metadata",
            description="`filename`, a space, and the name of the file in base64",
            max_length=_LONGEST_METADATA,
        ),
    ],
) -> Response:
    """Its address is in the header `Location`.

    Refused at once: names of no trace, files larger than the server takes (413), and files that
    its disk has no room for (507).
    """
    upload = uploads.create(_file_name(metadata), length, person.name)
    record(
        database(), person, Channel.API, Action.UPLOAD, upload.name, id=upload.id, size_bytes=length
    )
    return Response(
        status_code=201, headers={**_headers(upload), "Location": f"{UPLOADS}/{upload.id}"}
    )


@router.head("/{upload_id}", summary="Where an upload goes on")
def where(person: Sender, upload_id: UploadId) -> Response:
    """The header `Upload-Offset` says how much has arrived."""
    upload = uploads.find_own(upload_id, person.name)
    return Response(headers={**_headers(upload), "Cache-Control": "no-store"})


@router.get("/{upload_id}", summary="An upload")
def show(person: Sender, upload_id: UploadId) -> UploadView:
    """How far it is, and what it holds once it is whole."""
    return _view(uploads.find_own(upload_id, person.name))


@router.patch(
    "/{upload_id}",
    summary="Send a piece",
    status_code=204,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {PIECE_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def send(
    request: Request,
    person: Sender,
    upload_id: UploadId,
    version: TusVersion,
    offset: Annotated[
        int, Header(alias="Upload-Offset", description="where the piece begins", ge=0)
    ],
    checksum: Annotated[
        str | None,
        Header(
            alias="Upload-Checksum",
            description="`sha1` or `sha256`, a space, and the digest of the piece in base64",
            max_length=_LONGEST_METADATA,
        ),
    ] = None,
) -> Response:
    """A piece of any size that begins where the upload is (else 409).

    A piece that breaks off is kept as far as it came. The last one makes the upload whole.
    """
    try:
        if request.headers.get("Content-Type", "") != PIECE_TYPE:
            return problem(415, f"A piece has the type {PIECE_TYPE}.")
        wanted = None if checksum is None else _checksum(checksum)
        await asyncio.to_thread(uploads.find_own, upload_id, person.name)
        with await asyncio.to_thread(arriving, upload_id, offset, wanted) as arrival:
            async for block in _blocks(request):
                await asyncio.to_thread(arrival.write, block)
            upload = await asyncio.to_thread(arrival.end)
    except UnknownUploadError as error:
        return problem(status_of(error), str(error))
    except JarvisError as error:
        return await _refused(request, problem(status_of(error), str(error)))
    except (ClientDisconnect, TimeoutError):
        return problem(408, "The connection broke off. Ask how far the upload is, and go on.")
    return Response(status_code=204, headers=_headers(upload))


@router.delete("/{upload_id}", summary="Forget an upload", status_code=204)
def forget(person: Sender, upload_id: UploadId, version: TusVersion) -> Response:
    """What is whole stays on the server, for analyses that were made of it."""
    uploads.remove(uploads.find_own(upload_id, person.name).id)
    return Response(status_code=204, headers={TUS_HEADER: TUS_VERSION})


async def _blocks(request: Request) -> AsyncIterator[bytes]:
    """The body in blocks of about _BLOCK_BYTES; what came before a break is given first."""
    stream = request.stream()
    gathered = bytearray()
    while True:
        try:
            piece = await asyncio.wait_for(anext(stream, None), SILENT_S)
        except (ClientDisconnect, TimeoutError):
            if gathered:
                yield bytes(gathered)
            raise
        if piece is not None:
            gathered += piece
        if gathered and (piece is None or len(gathered) >= _BLOCK_BYTES):
            yield bytes(gathered)
            gathered.clear()
        if piece is None:
            return


async def _refused(request: Request, answer: Response) -> Response:
    """An answer that its sender reads: one who still sends does not listen."""
    drained = 0
    try:
        async with asyncio.timeout(SILENT_S):
            async for piece in request.stream():
                drained += len(piece)
                if drained > _DRAINED_BYTES:
                    break
    except (ClientDisconnect, TimeoutError, RuntimeError):
        pass  # gone, or read to its end already
    return answer


def _headers(upload: Upload) -> dict[str, str]:
    return {
        TUS_HEADER: TUS_VERSION,
        "Upload-Offset": str(upload.offset_bytes),
        "Upload-Length": str(upload.size_bytes),
        "Upload-Expires": format_datetime(upload.expires, usegmt=True),
    }


def _view(upload: Upload) -> UploadView:
    return UploadView(
        id=upload.id,
        name=upload.name,
        size_bytes=upload.size_bytes,
        offset_bytes=upload.offset_bytes,
        is_whole=upload.trace is not None,
        is_reused=upload.is_reused,
        sha256=upload.sha256,
        expires=upload.expires,
    )


def _file_name(metadata: str) -> str:
    """The name of the file in the metadata of tus: keys, each with a value in base64."""
    for pair in metadata.split(","):
        key, _, value = pair.strip().partition(" ")
        if key == "filename":
            try:
                return base64.b64decode(value, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                break
    raise IntakeError(
        "The upload does not say the name of its file. Send `Upload-Metadata: filename` and the "
        "name in base64."
    )


def _checksum(text: str) -> Checksum:
    algorithm, _, digest = text.strip().partition(" ")
    return Checksum(algorithm, digest.strip())
