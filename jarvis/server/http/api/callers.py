"""Who asks the API: by a token, or for one thing by the ticket of a page; and how often."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from time import time
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter

from jarvis.core.errors import JarvisError
from jarvis.core.protocol import BEARER
from jarvis.server.access import tokens
from jarvis.server.access.rights import LOCAL, Person, Role, require
from jarvis.server.access.tokens import TokenError
from jarvis.server.database import database
from jarvis.server.http.web.requests import name_person
from jarvis.server.ingest.tickets import (
    MAX_TICKET_LENGTH,
    UPLOAD,
    TicketError,
    file_purpose,
    ticket_holder,
)
from jarvis.server.ingest.uploads import EXPIRES_AFTER
from jarvis.server.settings import settings

MAX_ID_LENGTH = 64
"""Letters of the id of a job, an upload or an analysis."""

TICKET = "Ticket"
"""What stands before a ticket in the header ``Authorization``."""


class UnknownCallerError(JarvisError):
    """Nobody says who asks."""

    def __init__(self) -> None:
        super().__init__(
            "This server wants to know who asks. Make a token on the page Access and send it as "
            f"the header `Authorization: {BEARER} {tokens.PREFIX}_...`."
        )


@dataclass(frozen=True, slots=True)
class _Credentials:
    scheme: str
    text: str


class TooManyRequestsError(JarvisError):
    """Somebody asks too often; ``retry_s`` is when to ask again."""

    def __init__(self, retry_s: int) -> None:
        self.retry_s = retry_s
        super().__init__(
            f"These are more than {settings().api_requests_per_minute} requests in a minute. "
            f"Go on in {retry_s} s."
        )


def _caller(request: Request) -> Person:
    """Who asks by a token; UnknownCallerError, TokenError and TooManyRequestsError otherwise."""
    return _known(request, _credentials(request))


def _uploader(request: Request) -> Person:
    """Who uploads, by a token or a ticket; ForbiddenError where the role is too small."""
    person = _known(request, _credentials(request), UPLOAD)
    require(person, Role.EDITOR, "upload traces")
    return person


def _sender(request: Request) -> Person:
    """Who goes on with an upload: as ``_uploader``, with a ticket as long as an upload may rest.

    Pieces are not counted: how many a file has depends on its size and on the connection.
    """
    person = _known(
        request,
        _credentials(request),
        UPLOAD,
        EXPIRES_AFTER.total_seconds(),
        is_counted=request.method != "PATCH",
    )
    require(person, Role.EDITOR, "upload traces")
    return person


def _taker(
    request: Request,
    job_id: Annotated[str, Path(max_length=MAX_ID_LENGTH)],
    ticket: Annotated[
        str | None,
        Query(description="of a page, in place of a token", max_length=MAX_TICKET_LENGTH),
    ] = None,
) -> Person:
    """Who takes home what a job made, by a token, or by the ticket in a link of a page."""
    given = _credentials(request) if ticket is None else _Credentials(TICKET, ticket)
    return _known(request, given, file_purpose(job_id))


Caller = Annotated[Person, Depends(_caller)]
Uploader = Annotated[Person, Depends(_uploader)]
Sender = Annotated[Person, Depends(_sender)]
Taker = Annotated[Person, Depends(_taker)]


def _known(
    request: Request,
    given: _Credentials | None,
    ticket_purpose: str | None = None,
    ticket_grace_s: float = 0,
    *,
    is_counted: bool = True,
) -> Person:
    """Who asks; a ticket is taken only where it has a purpose here."""
    if settings().access == "off":
        if is_counted:
            _count(_address(request))
        return LOCAL
    try:
        if given is not None and given.scheme == TICKET and ticket_purpose is not None:
            person = ticket_holder(given.text, ticket_purpose, ticket_grace_s)
        elif given is None or given.scheme != BEARER:
            raise UnknownCallerError
        else:
            person = tokens.person_of(database(), given.text)
    except (UnknownCallerError, TicketError, TokenError):
        _count(_address(request))
        raise
    if is_counted:
        _count(f"{given.scheme} {person.name if given.scheme == TICKET else given.text}")
    name_person(request.scope, person.name)
    return person


def _credentials(request: Request) -> _Credentials | None:
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    return _Credentials(scheme.capitalize(), text.strip()) if text else None


def _address(request: Request) -> str:
    return request.client.host if request.client else "nowhere"


def _count(key: str) -> None:
    limit = RateLimitItemPerMinute(settings().api_requests_per_minute)
    if not _limiter().hit(limit, key):
        ends = _limiter().get_window_stats(limit, key).reset_time
        raise TooManyRequestsError(max(1, ceil(ends - time())))


@lru_cache(maxsize=1)
def _limiter() -> FixedWindowRateLimiter:
    return FixedWindowRateLimiter(MemoryStorage())
