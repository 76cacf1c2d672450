"""Tickets: short-lived, signed, single-purpose credentials for the browser of a page's user.

A ticket is signed with a secret in the server's home, so all web processes with the same home
accept it.
"""

import base64
import hashlib
import hmac
import os
import secrets
import time
from contextlib import suppress

from pydantic import BaseModel, ValidationError

from jarvis.core.workspace import secret_file
from jarvis.server.access.rights import Person, Role
from jarvis.server.errors import TicketError

VALID_S = 3600
"""Lifetime of a ticket; each rerun of a page creates new ones."""

UPLOAD = "upload"
"""Purpose of tickets for uploads."""

_SECRET_BYTES = 32
MAX_TICKET_LENGTH = 2000


class _Ticket(BaseModel):
    name: str | None
    role: Role
    purpose: str
    expires: float


def file_purpose(job_id: str) -> str:
    """Return the purpose of tickets that download the file of a job."""
    return f"file {job_id}"


def timeline_purpose(analysis_id: str) -> str:
    """Return the purpose of tickets that read the timeline of an analysis."""
    return f"timeline {analysis_id}"


def ticket_of(person: Person, purpose: str) -> str:
    """Create a ticket of a person for one purpose, valid for VALID_S."""
    expires = time.time() + VALID_S
    ticket = _Ticket(name=person.name, role=person.role, purpose=purpose, expires=expires)
    text = base64.urlsafe_b64encode(ticket.model_dump_json().encode()).decode()
    return f"{text}.{_signature(text)}"


def ticket_holder(text: str, purpose: str, grace_s: float = 0) -> Person:
    """Return the person of a ticket; accept it for ``grace_s`` seconds after its expiry.

    Raises:
        TicketError: it expired, has another purpose, or was not signed by this server.
    """
    content, _, signature = text.partition(".")
    if len(text) > MAX_TICKET_LENGTH or not text.isascii():
        raise TicketError
    if not hmac.compare_digest(signature, _signature(content)):
        raise TicketError
    try:
        ticket = _Ticket.model_validate_json(base64.urlsafe_b64decode(content))
    except (ValueError, ValidationError):
        raise TicketError from None
    if ticket.expires + grace_s < time.time() or ticket.purpose != purpose:
        raise TicketError
    return Person(ticket.name, ticket.role)


def _signature(text: str) -> str:
    return hmac.new(_secret(), text.encode(), hashlib.sha256).hexdigest()


def _secret() -> bytes:
    """Return the secret of this home; created on first use."""
    file = secret_file()
    with suppress(FileNotFoundError):
        return file.read_bytes()
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, secrets.token_bytes(_SECRET_BYTES))
        with suppress(FileExistsError):  # another process was first
            os.link(temporary, file)
    finally:
        os.close(handle)
        temporary.unlink()
    return file.read_bytes()
