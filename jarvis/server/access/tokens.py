"""API tokens: a secret that stands for a person, shown once and kept as a digest only.

A token reads ``jrv_<id>_<secret>``. Its role is the most that it may do; it never says more than
it was made with, whatever its owner may do later.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Engine, Select, insert, or_, select, update
from sqlalchemy.engine import RowMapping

from jarvis.core.errors import JarvisError
from jarvis.server.access.rights import Person, Role
from jarvis.server.database import TOKENS, reading, writing

PREFIX = "jrv"
MAX_LABEL_LENGTH = 100
DEFAULT_DAYS = 90
"""A token ends after so long where nobody says otherwise."""

_ID_BYTES = 6
_SECRET_BYTES = 32
_TEXT = re.compile(rf"{PREFIX}_([0-9a-f]{{{2 * _ID_BYTES}}})_([A-Za-z0-9_-]{{43}})")
_NOTE_USE_EVERY = timedelta(minutes=1)


class TokenError(JarvisError):
    """A token cannot be made, found or used."""


class TokenState(StrEnum):
    """Whether a token can be used."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret; times are UTC, ``owner`` is None for the server's own."""

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
        """Whether it can be used now."""
        if self.revoked is not None:
            return TokenState.REVOKED
        if self.expires is not None and self.expires <= _now():
            return TokenState.EXPIRED
        return TokenState.ACTIVE


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token just made, and ``text``, the secret that nobody can be told again."""

    token: Token
    text: str


def create(
    engine: Engine, owner: str | None, role: Role, label: str, expires: datetime | None = None
) -> NewToken:
    """Make a token for somebody; TokenError where its label, role or end cannot be."""
    label = label.strip()
    if not label or len(label) > MAX_LABEL_LENGTH or not label.isprintable():
        raise TokenError(
            f"A token needs a label of 1 to {MAX_LABEL_LENGTH} printable characters, like what "
            "will use it."
        )
    if role is Role.NONE:
        raise TokenError("A token needs a role: viewer, editor or admin.")
    if expires is not None and expires <= _now():
        raise TokenError("A token must expire in the future.")
    token_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
    token = Token(token_id, owner, role, label, _now(), expires, None, None)
    row = {f.name: getattr(token, f.name) for f in fields(Token)}
    with writing(engine) as connection:
        connection.execute(insert(TOKENS).values(**row, digest=_digest(secret)))
    return NewToken(token, f"{PREFIX}_{token_id}_{secret}")


def person_of(engine: Engine, text: str) -> Person:
    """Whom a token stands for, with the token's role; TokenError where it cannot be used."""
    token = _token_of(engine, text)
    if token.state is not TokenState.ACTIVE:
        done = "was revoked" if token.state is TokenState.REVOKED else "has expired"
        raise TokenError(f"This token {done}. Make another one on the page Access.")
    _note_use(engine, token)
    return Person(token.owner, token.role)


def listed(engine: Engine, *owners: str | None) -> list[Token]:
    """The tokens of these owners, newest first; everybody's where none is named."""
    wanted = select(TOKENS).order_by(TOKENS.c.created.desc(), TOKENS.c.id)
    if owners:
        wanted = wanted.where(or_(*(TOKENS.c.owner.is_not_distinct_from(o) for o in owners)))
    with reading(engine) as connection:
        return [_of_row(row) for row in connection.execute(wanted).mappings()]


def find(engine: Engine, token_id: str) -> Token:
    """A token by its id; TokenError where there is none."""
    with reading(engine) as connection:
        row = connection.execute(_by_id(token_id)).mappings().first()
    if row is None:
        raise TokenError(f"There is no token {token_id[:40]!r}. `jarvis token list` has all.")
    return _of_row(row)


def revoke(engine: Engine, token_id: str) -> Token:
    """End a token for ever, also one that was ended before; TokenError where there is none."""
    with writing(engine) as connection:
        connection.execute(
            update(TOKENS)
            .where(TOKENS.c.id == token_id, TOKENS.c.revoked.is_(None))
            .values(revoked=_now())
        )
    return find(engine, token_id)


def _token_of(engine: Engine, text: str) -> Token:
    """The token with this secret, whether or not it can be used."""
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
    return TokenError("This server does not know this token. Make one on the page Access.")


def _note_use(engine: Engine, token: Token) -> None:
    """Remember that it was used, seldom: most requests only read."""
    now = _now()
    if token.last_used is not None and now - token.last_used < _NOTE_USE_EVERY:
        return
    with writing(engine) as connection:
        connection.execute(update(TOKENS).where(TOKENS.c.id == token.id).values(last_used=now))


def _by_id(token_id: str) -> Select[Any]:
    return select(TOKENS).where(TOKENS.c.id == token_id)


def _of_row(row: RowMapping) -> Token:
    values = {f.name: row[f.name] for f in fields(Token)}
    return Token(**{**values, "role": Role(values["role"])})


def _digest(secret: str) -> str:
    """Of a secret of 256 random bits, so that a fast digest without salt is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _now() -> datetime:
    return datetime.now(UTC)
