"""`jarvis token` and `jarvis audit`, and what commands leave in the log."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from jarvis.cli import main
from jarvis.cli.output import ExitCode
from jarvis.server.access import audit, tokens
from jarvis.server.access.audit import Action, Channel
from jarvis.server.access.rights import Person, Role
from jarvis.server.errors import TokenError
from jarvis.server.submission import Submission, submit
from tests.builders import trace


def output(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    """The output of a command with ``--json``."""
    assert main([*command, "--json"]) == ExitCode.OK
    return json.loads(capsys.readouterr().out)


def test_a_token_is_made_listed_and_revoked(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    made = output(capsys, "token", "create", "nightly", "--owner", "Ada@Example.org")
    assert tokens.person_of(engine, made["token"]) == Person("ada@example.org", Role.EDITOR)
    output(capsys, "token", "create", "other", "--role", "viewer", "--expires", "never")
    listed = output(capsys, "token", "list")["tokens"]
    assert [token["label"] for token in listed] == ["other", "nightly"]
    assert "token" not in listed[0]
    assert listed[0]["expires"] is None
    mine = output(capsys, "token", "list", "--owner", "ada@example.org")["tokens"]
    assert [token["id"] for token in mine] == [made["id"]]
    output(capsys, "token", "revoke", made["id"])
    with pytest.raises(TokenError, match="revoked"):
        tokens.person_of(engine, made["token"])
    lines = output(capsys, "audit", "--action", "token create", "--limit", "1")
    assert (lines["found"], len(lines["lines"])) == (2, 1)
    assert made["token"] not in json.dumps(output(capsys, "audit"))


def test_the_token_alone_goes_to_the_output(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "create", "x"]) == ExitCode.OK
    text = capsys.readouterr().out.strip()
    assert tokens.person_of(engine, text).role is Role.EDITOR


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (("token", "create", "x", "--expires", "soon"), "an age like"),
        (("token", "create", "x", "--role", "none"), "invalid choice"),
        (("audit", "--action", "dance"), "--action must be one of"),
        (("audit", "--limit", "0"), "is not a positive number"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    home: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], word: str
) -> None:
    with pytest.raises(SystemExit):
        main(command)
    assert word in capsys.readouterr().err


def test_a_token_that_is_not_there_and_a_person_that_cannot_be_are_sentences(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["token", "revoke", "nope"], ["token", "create", "x", "--owner", "@ops"]):
        assert main(command) == ExitCode.FAILED
        assert capsys.readouterr().err.startswith("jarvis: ")


def test_commands_that_change_analyses_are_written_down(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built = trace().op("aten::mm", [[8, 8], [8, 8]]).launches("k", us=1.0)
    stored = submit(Submission(built.write(tmp_path / "t.json"))).id
    file = tmp_path / "saved.jarvis.zip"
    for command in (
        ["archive", "save", stored, "-o", str(file)],
        ["pin", stored],
        ["pin", "--off", stored],
        ["remove", stored, "--yes"],
        ["archive", "load", str(file)],
    ):
        assert main(command) == ExitCode.OK, capsys.readouterr().err
    capsys.readouterr()
    lines = audit.recent(engine)
    assert {(line.person, line.via, line.subject) for line in lines} == {
        (None, Channel.COMMAND, stored)
    }
    assert [line.action for line in reversed(lines)] == [
        Action.PIN,
        Action.UNPIN,
        Action.REMOVE,
        Action.ARCHIVE_LOAD,
    ]


def test_a_hostile_title_stays_on_its_line(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    person = Person("ada", Role.EDITOR)
    audit.record(engine, person, Channel.PAGE, Action.ANALYZE, "a\x1b[2Jb\nfake line")
    assert main(["audit"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "\x1b" not in out
