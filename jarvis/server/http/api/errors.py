"""Error responses of the API: an HTTP status and ``{"error": message}``."""

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from jarvis.core.errors import JarvisError
from jarvis.core.product import BEARER
from jarvis.server.errors import (
    ArtifactError,
    BusyUploadError,
    ChecksumError,
    DatabaseError,
    ForbiddenError,
    MissingArtifactError,
    NoSpaceError,
    OffsetError,
    OutdatedJobError,
    RemovalRefusedError,
    StaleNotesError,
    TicketError,
    TokenError,
    TooLargeUploadError,
    TooManyRequestsError,
    TooManyUploadsError,
    UnknownAnalysisError,
    UnknownArtifactError,
    UnknownCallerError,
    UnknownFileError,
    UnknownInstanceError,
    UnknownJobError,
    UnknownNoteError,
    UnknownUploadError,
)
from jarvis.server.http.web.requests import ID_HEADER

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
    UnknownInstanceError: 404,
    UnknownJobError: 404,
    UnknownFileError: 404,
    UnknownNoteError: 404,
    RemovalRefusedError: 409,
    OutdatedJobError: 409,
    StaleNotesError: 409,
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
"""HTTP status of each error; REFUSED for others."""

_MAX_SHOWN_ERRORS = 3

log = logging.getLogger(__name__)


class ErrorBody(BaseModel, title="Error"):
    """The reason for the error, and what to do."""

    error: str


def add_error_handlers(app: FastAPI) -> None:
    """Answer each error with a message, without a stack trace."""
    app.add_exception_handler(JarvisError, _of_jarvis)
    app.add_exception_handler(RequestValidationError, _of_request)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(OSError, _of_disk)
    app.add_exception_handler(Exception, _of_fault)


def status_of(error: JarvisError) -> int:
    """Return the HTTP status of an error."""
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


def _reason(detail: Mapping[str, Any]) -> str:
    is_unknown = detail["type"] == "unexpected_keyword_argument"  # Pydantic's type for dataclasses
    return "unknown field" if is_unknown else str(detail["msg"])


async def _of_request(_: Request, error: Exception) -> JSONResponse:
    """Answer a request that does not match the schema."""
    assert isinstance(error, RequestValidationError)
    details = [
        f"{'.'.join(str(part) for part in detail['loc'][1:]) or 'the body'}: {_reason(detail)}"
        for detail in error.errors()[:_MAX_SHOWN_ERRORS]
    ]
    message = f"The request is not valid ({'; '.join(details)}). See /api/docs."
    return problem(422, message)


async def _of_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    messages = {404: "Not found.", 405: "This method is not allowed at this address."}
    message = messages.get(error.status_code, f"{str(error.detail).rstrip('.')}.")
    return problem(error.status_code, f"{message} /api/docs lists all operations.", error.headers)


async def _of_disk(request: Request, error: Exception) -> JSONResponse:
    """Answer a disk error; a file missing on GET was deleted after the lookup."""
    assert isinstance(error, OSError)
    if isinstance(error, FileNotFoundError) and request.method in ("GET", "HEAD"):
        return problem(404, "This was deleted meanwhile. Request the list again.")
    log.error("disk error in an API request", exc_info=error)
    reason = error.strerror or "it failed"
    return problem(507, f"Disk error on the server: {reason}. Tell an admin of this server.")


async def _of_fault(_: Request, __: Exception) -> JSONResponse:
    """Answer an unexpected error; the middleware logs it with the request id."""
    return problem(
        500,
        "Internal error. Try again; if it persists, give an admin of this server the request id "
        f"from the header {ID_HEADER}.",
    )


def problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the response of an error."""
    return JSONResponse({"error": message}, status, headers)
