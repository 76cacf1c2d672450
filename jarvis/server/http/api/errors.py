"""What goes wrong, as a status and ``{"error": sentence}``."""

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from jarvis.core.errors import JarvisError
from jarvis.core.protocol import BEARER
from jarvis.server.access.rights import ForbiddenError
from jarvis.server.access.tokens import TokenError
from jarvis.server.database import DatabaseError
from jarvis.server.http.api.analysis_routes import UnknownArtifactError
from jarvis.server.http.api.callers import TooManyRequestsError, UnknownCallerError
from jarvis.server.http.api.job_routes import UnknownFileError
from jarvis.server.http.web.requests import ID_HEADER
from jarvis.server.ingest.tickets import TicketError
from jarvis.server.ingest.upload_writer import ChecksumError, OffsetError
from jarvis.server.ingest.uploads import (
    BusyUploadError,
    NoSpaceError,
    TooLargeUploadError,
    TooManyUploadsError,
    UnknownUploadError,
)
from jarvis.server.jobs.kinds import OutdatedJobError
from jarvis.server.jobs.queue import UnknownJobError
from jarvis.server.retention.removal import RemovalRefusedError
from jarvis.server.storage.artifact_root import ArtifactError, MissingArtifactError
from jarvis.server.storage.catalog import UnknownAnalysisError

REFUSED = 400
STATUS: Mapping[type[JarvisError], int] = {
    UnknownCallerError: 401,
    TokenError: 401,
    TicketError: 401,
    ForbiddenError: 403,
    UnknownUploadError: 404,
    UnknownAnalysisError: 404,
    MissingArtifactError: 404,
    UnknownArtifactError: 404,
    UnknownJobError: 404,
    UnknownFileError: 404,
    RemovalRefusedError: 409,
    OutdatedJobError: 409,
    OffsetError: 409,
    TooLargeUploadError: 413,
    BusyUploadError: 423,
    TooManyRequestsError: 429,
    ChecksumError: 460,
    ArtifactError: 503,
    DatabaseError: 503,
    TooManyUploadsError: 503,
    NoSpaceError: 507,
}
"""The status of an error; others are REFUSED."""

_SHOWN_FAULTS = 3

log = logging.getLogger(__name__)


class ErrorBody(BaseModel, title="Refusal"):
    """Why something was not done, and what to do about it."""

    error: str


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error with a sentence, and none with a stack trace."""
    app.add_exception_handler(JarvisError, _of_jarvis)
    app.add_exception_handler(RequestValidationError, _of_request)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(OSError, _of_disk)
    app.add_exception_handler(Exception, _of_fault)


def status_of(error: JarvisError) -> int:
    """The status that an error is answered with."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), REFUSED)


async def _of_jarvis(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, JarvisError)
    headers = {}
    status = status_of(error)
    if status == STATUS[UnknownCallerError]:
        headers["WWW-Authenticate"] = BEARER
    if isinstance(error, TooManyRequestsError):
        headers["Retry-After"] = str(error.retry_s)
    return problem(status, str(error), headers)


def _reason(fault: Mapping[str, Any]) -> str:
    is_unknown = fault["type"] == "unexpected_keyword_argument"  # as Pydantic says of a dataclass
    return "there is no such field" if is_unknown else str(fault["msg"])


async def _of_request(_: Request, error: Exception) -> JSONResponse:
    """What of a request is not as the description says."""
    assert isinstance(error, RequestValidationError)
    faults = [
        f"{'.'.join(str(part) for part in fault['loc'][1:]) or 'the body'}: {_reason(fault)}"
        for fault in error.errors()[:_SHOWN_FAULTS]
    ]
    sentence = f"The request is not understood ({'; '.join(faults)}). /api/docs describes it."
    return problem(422, sentence)


async def _of_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    said = {404: "There is nothing at this address.", 405: "This address does not take that."}
    sentence = said.get(error.status_code, f"{str(error.detail).rstrip('.')}.")
    return problem(error.status_code, f"{sentence} /api/docs lists what there is.", error.headers)


async def _of_disk(request: Request, error: Exception) -> JSONResponse:
    """A disk that fails; what a reader misses was removed since it was found."""
    assert isinstance(error, OSError)
    if isinstance(error, FileNotFoundError) and request.method in ("GET", "HEAD"):
        return problem(404, "This was removed meanwhile. Ask for the list again.")
    log.error("the disk refused what the API was asked for", exc_info=error)
    reason = error.strerror or "it failed"
    return problem(507, f"The server's disk did not do it: {reason}. Tell its admin.")


async def _of_fault(_: Request, __: Exception) -> JSONResponse:
    """A fault of ours: what wraps the application writes it down with the number."""
    return problem(
        500,
        "Something went wrong in Jarvis. Try again; if it stays, tell the one who runs this server "
        f"the number of this request, which is in the header {ID_HEADER}.",
    )


def problem(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """A sentence as an answer."""
    return JSONResponse({"error": sentence}, status, headers)
