"""Authentication of API requests by token or single-purpose ticket, and rate limits."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from time import time
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter

from jarvis.core.product import BEARER
from jarvis.server.access import tokens
from jarvis.server.access.rights import LOCAL, Person, Role, require
from jarvis.server.database import database
from jarvis.server.errors import TicketError, TokenError, TooManyRequestsError, UnknownCallerError
from jarvis.server.http.web.requests import name_person
from jarvis.server.ingest.tickets import (
    MAX_TICKET_LENGTH,
    UPLOAD,
    file_purpose,
    ticket_holder,
    timeline_purpose,
)
from jarvis.server.ingest.uploads import EXPIRES_AFTER
from jarvis.server.settings import settings

MAX_ID_LENGTH = 64
"""Maximum length of the id of a job, an upload or an analysis."""

TICKET = "Ticket"
"""Authorization scheme of tickets."""

_EXPECTED_HEADER = f"Authorization: {BEARER} {tokens.PREFIX}_..."


@dataclass(frozen=True, slots=True)
class _Credentials:
    scheme: str
    text: str


def _caller(request: Request) -> Person:
    """Return the owner of the token of a request.

    Raises:
        UnknownCallerError: there is no token.
        TokenError: the token is not valid.
        TooManyRequestsError: the rate limit is exceeded.
    """
    return _authenticate(request, _credentials(request))


def _uploader(request: Request) -> Person:
    """Return the owner of a token or ticket; raise ForbiddenError unless they are an editor."""
    person = _authenticate(request, _credentials(request), UPLOAD)
    require(person, Role.EDITOR, "upload traces")
    return person


def _sender(request: Request) -> Person:
    """Like ``_uploader``, for an existing upload: accept a ticket until the upload expires.

    PATCH requests are not rate-limited: their number depends on the file and the connection.
    """
    person = _authenticate(
        request,
        _credentials(request),
        UPLOAD,
        EXPIRES_AFTER.total_seconds(),
        is_counted=request.method != "PATCH",
    )
    require(person, Role.EDITOR, "upload traces")
    return person


def _downloader(
    request: Request,
    job_id: Annotated[str, Path(max_length=MAX_ID_LENGTH)],
    ticket: Annotated[
        str | None,
        Query(description="ticket from a page, instead of a token", max_length=MAX_TICKET_LENGTH),
    ] = None,
) -> Person:
    """Return who downloads a job's file, by token or by the ticket in a page's link."""
    credentials = _credentials(request) if ticket is None else _Credentials(TICKET, ticket)
    return _authenticate(request, credentials, file_purpose(job_id))


def _timeline_reader(
    request: Request, analysis_id: Annotated[str, Path(max_length=MAX_ID_LENGTH)]
) -> Person:
    """Return who looks at a timeline, by token or by the ticket of the page.

    Not rate-limited: the number of requests depends on how much a user zooms.
    """
    purpose = timeline_purpose(analysis_id)
    return _authenticate(request, _credentials(request), purpose, is_counted=False)


Caller = Annotated[Person, Depends(_caller)]
Uploader = Annotated[Person, Depends(_uploader)]
Sender = Annotated[Person, Depends(_sender)]
Downloader = Annotated[Person, Depends(_downloader)]
TimelineReader = Annotated[Person, Depends(_timeline_reader)]


def _authenticate(
    request: Request,
    credentials: _Credentials | None,
    ticket_purpose: str | None = None,
    ticket_grace_s: float = 0,
    *,
    is_counted: bool = True,
) -> Person:
    """Return the person of a request; tickets are accepted only for ``ticket_purpose``.

    Args:
        ticket_grace_s: how long after its expiry a ticket is accepted.
        is_counted: whether the request counts towards the rate limit if it is authenticated.
    """
    if settings().access == "off":
        if is_counted:
            _count(_address(request))
        return LOCAL
    try:
        if credentials is None:
            raise UnknownCallerError(_EXPECTED_HEADER)
        scheme, text = credentials.scheme, credentials.text
        if scheme == TICKET and ticket_purpose is not None:
            person = ticket_holder(text, ticket_purpose, ticket_grace_s)
        elif scheme == BEARER:
            person = tokens.person_of(database(), text)
        else:
            raise UnknownCallerError(_EXPECTED_HEADER)
    except (UnknownCallerError, TicketError, TokenError):
        _count(_address(request))
        raise
    if is_counted:
        _count(f"{scheme} {person.name if scheme == TICKET else text}")
    name_person(request.scope, person.name)
    return person


def _credentials(request: Request) -> _Credentials | None:
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    return _Credentials(scheme.capitalize(), text.strip()) if text else None


def _address(request: Request) -> str:
    return request.client.host if request.client else "nowhere"


def _count(key: str) -> None:
    per_minute = settings().api_requests_per_minute
    limit = RateLimitItemPerMinute(per_minute)
    if not _limiter().hit(limit, key):
        reset = _limiter().get_window_stats(limit, key).reset_time
        raise TooManyRequestsError(per_minute, max(1, ceil(reset - time())))


@lru_cache(maxsize=1)
def _limiter() -> FixedWindowRateLimiter:
    return FixedWindowRateLimiter(MemoryStorage())
