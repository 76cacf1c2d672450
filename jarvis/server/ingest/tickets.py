"""Tickets: a page lets its visitor's browser do one thing, for a while, without a login of its own.

A ticket is signed with a secret of this server's home, so that every web process on the same home
believes it and nobody else can write one.
"""

import base64
import hashlib
import hmac
import os
import secrets
import time
from contextlib import suppress

from pydantic import BaseModel, ValidationError

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import secret_file
from jarvis.server.access.rights import Person, Role

VALID_S = 3600
"""A page that is drawn again gives a new one."""

UPLOAD = "upload"
"""The purpose of a ticket that uploads."""

_SECRET_BYTES = 32
MAX_TICKET_LENGTH = 2000


class TicketError(JarvisError):
    """A ticket cannot be used."""

    def __init__(self) -> None:
        super().__init__("The page has been open for too long. Load it again, then try again.")


class _Ticket(BaseModel):
    name: str | None
    role: Role
    purpose: str
    expires: float


def file_purpose(job_id: str) -> str:
    """The purpose of a ticket that takes home what a job made."""
    return f"file {job_id}"


def ticket_of(person: Person, purpose: str) -> str:
    """A ticket of a person for one purpose, valid for VALID_S."""
    expires = time.time() + VALID_S
    made = _Ticket(name=person.name, role=person.role, purpose=purpose, expires=expires)
    text = base64.urlsafe_b64encode(made.model_dump_json().encode()).decode()
    return f"{text}.{_signature(text)}"


def ticket_holder(text: str, purpose: str, grace_s: float = 0) -> Person:
    """Who a ticket was made for; TicketError where it is too old, for something else, or none of
    this server's. It counts for ``grace_s`` longer where that is given."""
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
    """The secret of this home; made once, by whoever needs it first."""
    file = secret_file()
    with suppress(FileNotFoundError):
        return file.read_bytes()
    file.parent.mkdir(parents=True, exist_ok=True)
    mine = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    handle = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, secrets.token_bytes(_SECRET_BYTES))
        with suppress(FileExistsError):  # another process was first
            os.link(mine, file)
    finally:
        os.close(handle)
        mine.unlink()
    return file.read_bytes()
