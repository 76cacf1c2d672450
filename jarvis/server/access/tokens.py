"""API tokens: secrets that authenticate a person; shown once, stored as a digest only.

The format is ``jrv_<id>_<secret>``. A token has the role it was created with, also if its owner is
promoted later.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Engine, Select, insert, or_, select, update
from sqlalchemy.engine import RowMapping

from jarvis.server.access.rights import Person, Role
from jarvis.server.database import TOKENS, reading, utc_now, writing
from jarvis.server.errors import TokenError

PREFIX = "jrv"
MAX_LABEL_LENGTH = 100
DEFAULT_DAYS = 90
"""Default lifetime of a token."""

_ID_BYTES = 6
_SECRET_BYTES = 32
_TEXT = re.compile(rf"{PREFIX}_([0-9a-f]{{{2 * _ID_BYTES}}})_([A-Za-z0-9_-]{{43}})")
_LAST_USED_RESOLUTION = timedelta(minutes=1)


class TokenState(StrEnum):
    """State of a token."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret; times are in UTC, ``owner`` is None for the operator's."""

    id: str
    owner: str | None
    role: Role
    label: str
    created: datetime
    expires: datetime | None
    last_used: datetime | None
    revoked: datetime | None

    @property
    def state(self) -> TokenState:
        """Return whether the token can be used now."""
        if self.revoked is not None:
            return TokenState.REVOKED
        if self.expires is not None and self.expires <= utc_now():
            return TokenState.EXPIRED
        return TokenState.ACTIVE


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token; ``text`` contains the secret and cannot be shown again."""

    token: Token
    text: str


def create(
    engine: Engine, owner: str | None, role: Role, label: str, expires: datetime | None = None
) -> NewToken:
    """Create a token; raise TokenError if its label, role or expiry is invalid."""
    label = label.strip()
    if not label or len(label) > MAX_LABEL_LENGTH or not label.isprintable():
        raise TokenError(
            f"A token needs a label of 1 to {MAX_LABEL_LENGTH} printable characters, like the "
            "name of the program that will use it."
        )
    if role is Role.NONE:
        raise TokenError("A token needs a role: viewer, editor or admin.")
    if expires is not None and expires <= utc_now():
        raise TokenError("A token must expire in the future.")
    token_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
    token = Token(token_id, owner, role, label, utc_now(), expires, None, None)
    row = {f.name: getattr(token, f.name) for f in fields(Token)}
    with writing(engine) as connection:
        connection.execute(insert(TOKENS).values(**row, digest=_digest(secret)))
    return NewToken(token, f"{PREFIX}_{token_id}_{secret}")


def person_of(engine: Engine, text: str) -> Person:
    """Return the owner of a token, with the token's role; raise TokenError if it is not valid."""
    token = _token_of(engine, text)
    if token.state is not TokenState.ACTIVE:
        reason = "was revoked" if token.state is TokenState.REVOKED else "has expired"
        raise TokenError(f"This token {reason}. Create another one on the Access page.")
    _update_last_used(engine, token)
    return Person(token.owner, token.role)


def listed(engine: Engine, *owners: str | None) -> list[Token]:
    """Return the tokens of the given owners, or of all if none is given, newest first."""
    query = select(TOKENS).order_by(TOKENS.c.created.desc(), TOKENS.c.id)
    if owners:
        query = query.where(or_(*(TOKENS.c.owner.is_not_distinct_from(o) for o in owners)))
    with reading(engine) as connection:
        return [_of_row(row) for row in connection.execute(query).mappings()]


def find(engine: Engine, token_id: str) -> Token:
    """Return a token by its id; raise TokenError if it does not exist."""
    with reading(engine) as connection:
        row = connection.execute(_by_id(token_id)).mappings().first()
    if row is None:
        raise TokenError(
            f"There is no token {token_id[:40]!r}. `jarvis token list` lists all tokens."
        )
    return _of_row(row)


def revoke(engine: Engine, token_id: str) -> Token:
    """Revoke a token, if it is not revoked already; raise TokenError if it does not exist."""
    with writing(engine) as connection:
        connection.execute(
            update(TOKENS)
            .where(TOKENS.c.id == token_id, TOKENS.c.revoked.is_(None))
            .values(revoked=utc_now())
        )
    return find(engine, token_id)


def _token_of(engine: Engine, text: str) -> Token:
    """Return the token with this secret, valid or not; raise TokenError if it is unknown."""
    parts = _TEXT.fullmatch(text)
    if parts is None:
        raise _unknown()
    token_id, secret = parts.groups()
    with reading(engine) as connection:
        row = connection.execute(_by_id(token_id)).mappings().first()
    if row is None or not hmac.compare_digest(row["digest"], _digest(secret)):
        raise _unknown()
    return _of_row(row)


def _unknown() -> TokenError:
    return TokenError("This token is unknown to this server. Create one on the Access page.")


def _update_last_used(engine: Engine, token: Token) -> None:
    """Update ``last_used`` at most once a minute, so that most requests do not write."""
    now = utc_now()
    if token.last_used is not None and now - token.last_used < _LAST_USED_RESOLUTION:
        return
    with writing(engine) as connection:
        connection.execute(update(TOKENS).where(TOKENS.c.id == token.id).values(last_used=now))


def _by_id(token_id: str) -> Select[Any]:
    return select(TOKENS).where(TOKENS.c.id == token_id)


def _of_row(row: RowMapping) -> Token:
    values = {f.name: row[f.name] for f in fields(Token)}
    return Token(**{**values, "role": Role(values["role"])})


def _digest(secret: str) -> str:
    """Return the digest; the secret has 256 random bits, so SHA-256 without salt is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()
