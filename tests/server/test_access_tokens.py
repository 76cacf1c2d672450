"""API tokens: shown once, stored as a digest, rejected with the reason if not valid."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, event, select, text, update

from jarvis.server.access import tokens
from jarvis.server.access.rights import Person, Role
from jarvis.server.access.tokens import TokenState
from jarvis.server.database import TOKENS, reading, writing
from jarvis.server.errors import TokenError
from tests.server.conftest import on_both_databases

pytestmark = on_both_databases


def test_a_token_represents_its_owner_with_its_own_role(engine: Engine) -> None:
    made = tokens.create(engine, "ada", Role.EDITOR, "nightly push")
    assert made.text.startswith(f"jrv_{made.token.id}_")
    assert tokens.person_of(engine, made.text) == Person("ada", Role.EDITOR)


def test_only_a_digest_of_the_secret_is_stored(engine: Engine) -> None:
    made = tokens.create(engine, "ada", Role.VIEWER, "notebook")
    secret = made.text.split("_", 2)[2]
    with reading(engine) as connection:
        row = connection.execute(select(TOKENS)).mappings().one()
    assert secret not in " ".join(str(value) for value in row.values())


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-1] + ("A" if text[-1] != "A" else "B"),
        lambda text: text.replace("jrv", "xyz", 1),
        lambda text: text + "x" * 5000,
        lambda text: "jrv",
        lambda text: "",
        lambda text: "jrv_\ud800_\ud800",
        lambda text: "jrv_' OR 1=1 --_x",
    ],
)
def test_what_is_no_token_is_unknown(engine: Engine, change) -> None:
    made = tokens.create(engine, "ada", Role.EDITOR, "x")
    with pytest.raises(TokenError, match="unknown to this server"):
        tokens.person_of(engine, change(made.text))


def test_a_revoked_token_is_refused_and_stays_revoked_at_its_first_moment(engine: Engine) -> None:
    made = tokens.create(engine, "ada", Role.EDITOR, "x")
    first = tokens.revoke(engine, made.token.id)
    assert tokens.revoke(engine, made.token.id).revoked == first.revoked
    with pytest.raises(TokenError, match="was revoked"):
        tokens.person_of(engine, made.text)
    with pytest.raises(TokenError, match="no token"):
        tokens.revoke(engine, "nothing")


def test_a_token_ends_when_it_was_to_end(engine: Engine) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    made = tokens.create(engine, "ada", Role.EDITOR, "x", soon)
    assert made.token.state is TokenState.ACTIVE
    with writing(engine) as connection:
        past = datetime.now(UTC) - timedelta(seconds=1)
        connection.execute(update(TOKENS).values(expires=past))
    with pytest.raises(TokenError, match="has expired"):
        tokens.person_of(engine, made.text)
    assert [t.state for t in tokens.listed(engine)] == [TokenState.EXPIRED]


def test_use_is_written_down_once_a_minute(engine: Engine) -> None:
    made = tokens.create(engine, "ada", Role.EDITOR, "x")
    written: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(_connection, _cursor, statement, *_rest) -> None:
        if statement.startswith("UPDATE"):
            written.append(statement)

    for _ in range(3):
        tokens.person_of(engine, made.text)
    assert len(written) == 1
    assert tokens.listed(engine)[0].last_used is not None
    long_ago = datetime.now(UTC) - timedelta(minutes=2)
    with writing(engine) as connection:
        connection.execute(update(TOKENS).values(last_used=long_ago))
    written.clear()
    tokens.person_of(engine, made.text)
    assert len(written) == 1


def test_lists_are_of_everybody_or_of_the_named(engine: Engine) -> None:
    for owner in ("ada", "bob", None):
        tokens.create(engine, owner, Role.VIEWER, f"of {owner}")
    assert {token.owner for token in tokens.listed(engine)} == {"ada", "bob", None}
    assert [token.owner for token in tokens.listed(engine, "bob")] == ["bob"]
    assert [token.owner for token in tokens.listed(engine, None)] == [None]


@pytest.mark.parametrize(
    ("label", "role", "days", "reason"),
    [
        ("  ", Role.VIEWER, None, "needs a label"),
        ("x" * 101, Role.VIEWER, None, "needs a label"),
        ("a\nb", Role.VIEWER, None, "needs a label"),
        ("x", Role.NONE, None, "needs a role"),
        ("x", Role.VIEWER, -1, "in the future"),
    ],
)
def test_a_token_that_makes_no_sense_is_not_made(
    engine: Engine, label: str, role: Role, days: int | None, reason: str
) -> None:
    expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with pytest.raises(TokenError, match=reason):
        tokens.create(engine, "ada", role, label, expires)
    with reading(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM tokens")).scalar() == 0
