"""API routes of resumable uploads by tus 1.0 (https://tus.io).

An upload is visible only to the person who created it. The body is written to disk block by block
while the sender waits, so memory does not grow with the file.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import datetime
from email.utils import format_datetime
from typing import Annotated

from fastapi import APIRouter, Header, Path, Request, Response
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from jarvis.core.errors import JarvisError
from jarvis.core.product import PIECE_TYPE, TUS_HEADER, TUS_VERSION, UPLOADS
from jarvis.server.access.audit import Action, Channel, record
from jarvis.server.database import database
from jarvis.server.errors import IntakeError, UnknownUploadError
from jarvis.server.http.api.callers import MAX_ID_LENGTH, Sender, Uploader
from jarvis.server.http.api.errors import problem, status_of
from jarvis.server.ingest import uploads
from jarvis.server.ingest.upload_writer import CHECKSUMS, Checksum, resume_upload
from jarvis.server.ingest.uploads import Upload, upload_limit

SILENT_S = 30.0
"""Timeout for the next bytes of a request; received bytes are stored."""

_BLOCK_BYTES = 1 << 20
_MAX_DRAINED_BYTES = 64 << 20
"""Part of a rejected body that is read and discarded, so that the sender reads the response."""

_MAX_METADATA_LENGTH = 4096

UploadId = Annotated[str, Path(description="id of an upload", max_length=MAX_ID_LENGTH)]
TusVersion = Annotated[
    str,
    Header(
        alias=TUS_HEADER,
        description="protocol version",
        pattern=f"^{re.escape(TUS_VERSION)}$",
    ),
]

router = APIRouter(prefix="/uploads", tags=["uploads"])


class UploadView(BaseModel, title="Upload"):
    """The progress of an upload, and its content once complete."""

    id: str
    name: str = Field(description="sanitized file name")
    size_bytes: int
    offset_bytes: int = Field(description="bytes received")
    is_whole: bool = Field(description="whether it is complete")
    is_reused: bool = Field(description="whether the same content was already on the server")
    sha256: str | None = Field(description="digest of the complete file")
    expires: datetime = Field(description="when it is deleted, unless more bytes arrive")


@router.options("", summary="Show tus capabilities", status_code=204)
def describe() -> Response:
    """Return the tus version, the extensions and the maximum size in headers."""
    return Response(
        status_code=204,
        headers={
            TUS_HEADER: TUS_VERSION,
            "Tus-Version": TUS_VERSION,
            "Tus-Extension": "creation,termination,checksum,expiration",
            "Tus-Checksum-Algorithm": ",".join(CHECKSUMS),
            "Tus-Max-Size": str(upload_limit()),
        },
    )


@router.post("", summary="Create an upload", status_code=201)
def create(
    person: Uploader,
    version: TusVersion,
    length: Annotated[int, Header(alias="Upload-Length", description="file size in bytes", ge=0)],
    metadata: Annotated[
        str,
        Header(
            alias="Upload-Metadata",
            description="`filename`, a space, and the file name in base64",
            max_length=_MAX_METADATA_LENGTH,
        ),
    ],
) -> Response:
    """Return the URL of the upload in the header `Location`.

    Rejected immediately: file names that are not of a trace (400), files above the server's size
    limit (413), and files that do not fit on its disk (507).
    """
    upload = uploads.create(_file_name(metadata), length, person.name)
    record(
        database(), person, Channel.API, Action.UPLOAD, upload.name, id=upload.id, size_bytes=length
    )
    return Response(
        status_code=201, headers={**_headers(upload), "Location": f"{UPLOADS}/{upload.id}"}
    )


@router.head("/{upload_id}", summary="Show the offset of an upload")
def where(person: Sender, upload_id: UploadId) -> Response:
    """Return the number of received bytes in the header `Upload-Offset`."""
    upload = uploads.find_own(upload_id, person.name)
    return Response(headers={**_headers(upload), "Cache-Control": "no-store"})


@router.get("/{upload_id}", summary="Show an upload")
def show(person: Sender, upload_id: UploadId) -> UploadView:
    """Return its progress, and its content once complete."""
    return _view(uploads.find_own(upload_id, person.name))


@router.patch(
    "/{upload_id}",
    summary="Send a chunk",
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
        int, Header(alias="Upload-Offset", description="offset of the chunk in bytes", ge=0)
    ],
    checksum: Annotated[
        str | None,
        Header(
            alias="Upload-Checksum",
            description="`sha1` or `sha256`, a space, and the digest of the chunk in base64",
            max_length=_MAX_METADATA_LENGTH,
        ),
    ] = None,
) -> Response:
    """Append a chunk of any size at the current offset of the upload (otherwise 409).

    The received part of an interrupted chunk is stored. The last chunk completes the upload.
    """
    try:
        if request.headers.get("Content-Type", "") != PIECE_TYPE:
            return problem(415, f"The content type of a chunk must be {PIECE_TYPE}.")
        expected = None if checksum is None else _checksum(checksum)
        await asyncio.to_thread(uploads.find_own, upload_id, person.name)
        with await asyncio.to_thread(resume_upload, upload_id, offset, expected) as arrival:
            async for block in _blocks(request):
                await asyncio.to_thread(arrival.write, block)
            upload = await asyncio.to_thread(arrival.end)
    except UnknownUploadError as error:
        return problem(status_of(error), str(error))
    except JarvisError as error:
        return await _refused(request, problem(status_of(error), str(error)))
    except (ClientDisconnect, TimeoutError):
        return problem(408, "The connection was lost. Request the offset of the upload and resume.")
    return Response(status_code=204, headers=_headers(upload))


@router.delete("/{upload_id}", summary="Delete an upload", status_code=204)
def forget(person: Sender, upload_id: UploadId, version: TusVersion) -> Response:
    """Delete the upload; the trace of a complete one stays on the server for its analyses."""
    uploads.remove(uploads.find_own(upload_id, person.name).id)
    return Response(status_code=204, headers={TUS_HEADER: TUS_VERSION})


async def _blocks(request: Request) -> AsyncIterator[bytes]:
    """Yield the body in blocks of about _BLOCK_BYTES, and the rest before raising an error."""
    stream = request.stream()
    buffer = bytearray()
    while True:
        try:
            piece = await asyncio.wait_for(anext(stream, None), SILENT_S)
        except (ClientDisconnect, TimeoutError):
            if buffer:
                yield bytes(buffer)
            raise
        if piece is not None:
            buffer += piece
        if buffer and (piece is None or len(buffer) >= _BLOCK_BYTES):
            yield bytes(buffer)
            buffer.clear()
        if piece is None:
            return


async def _refused(request: Request, answer: Response) -> Response:
    """Drain the body before answering: clients do not read a response while they send."""
    drained = 0
    try:
        async with asyncio.timeout(SILENT_S):
            async for piece in request.stream():
                drained += len(piece)
                if drained > _MAX_DRAINED_BYTES:
                    break
    except (ClientDisconnect, TimeoutError, RuntimeError):
        pass  # disconnected, or already read to the end
    return answer


def _headers(upload: Upload) -> dict[str, str]:
    return {
        TUS_HEADER: TUS_VERSION,
        "Upload-Offset": str(upload.offset_bytes),
        "Upload-Length": str(upload.size_bytes),
        "Upload-Expires": format_datetime(upload.expires, usegmt=True),
    }


def _view(upload: Upload) -> UploadView:
    return UploadView.model_validate({**asdict(upload), "is_whole": upload.trace is not None})


def _file_name(metadata: str) -> str:
    """Return the file name in tus metadata, which are keys with base64 values."""
    for pair in metadata.split(","):
        key, _, value = pair.strip().partition(" ")
        if key == "filename":
            try:
                return base64.b64decode(value, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                break
    raise IntakeError(
        "The upload has no file name. Send `Upload-Metadata: filename` and the name in base64."
    )


def _checksum(text: str) -> Checksum:
    algorithm, _, digest = text.strip().partition(" ")
    return Checksum(algorithm, digest.strip())
