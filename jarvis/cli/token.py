"""``jarvis token``: API tokens of people and programs."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.prune import age_s
from jarvis.cli.shared import Commands, add_json, note, print_result

if TYPE_CHECKING:
    from jarvis.server.access.tokens import Token

_NEVER = "never"
_ROLES = ("viewer", "editor", "admin")


def add_token(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "token",
        help="make, list and revoke API tokens",
        description="API tokens of this server: a program that has one may do what its role "
        "allows, in the name of its owner. Who runs this command is an admin.",
    )
    kinds = command.add_subparsers(metavar="COMMAND", required=True)
    _add_create(kinds)
    listing = kinds.add_parser("list", help="list the tokens, the newest first")
    listing.add_argument("--owner", metavar="NAME", help="of this person only")
    add_json(listing)
    listing.set_defaults(run=_list)
    revoking = kinds.add_parser("revoke", help="end tokens at once and for good")
    revoking.add_argument("ids", metavar="ID", nargs="+", help="what `jarvis token list` calls it")
    add_json(revoking)
    revoking.set_defaults(run=_revoke)


def _add_create(kinds: "Commands[argparse.ArgumentParser]") -> None:
    creating = kinds.add_parser("create", help="make a token; it is shown once")
    creating.add_argument("label", metavar="LABEL", help="what will use it, like 'nightly push'")
    creating.add_argument(
        "--owner", metavar="NAME", help="in whose name it acts (default: nobody's)"
    )
    creating.add_argument(
        "--role", choices=_ROLES, default="editor", help="the most that it may do (default: editor)"
    )
    creating.add_argument(
        "--expires",
        metavar="AGE",
        type=_expiry_s,
        default="90d",
        help="when it ends, as 30d, 12h, or never (default: 90d)",
    )
    add_json(creating)
    creating.set_defaults(run=_create)


def _expiry_s(text: str) -> float | None:
    return None if text == _NEVER else age_s(text)


def _create(arguments: argparse.Namespace) -> int:
    from jarvis.server.access import audit, tokens
    from jarvis.server.access.audit import Action, Channel
    from jarvis.server.access.rights import LOCAL, Role
    from jarvis.server.access.roles import normal_name
    from jarvis.server.database import database

    owner = None if arguments.owner is None else normal_name(arguments.owner)
    lasts_s = arguments.expires
    expires = None if lasts_s is None else datetime.now(UTC) + timedelta(seconds=lasts_s)
    engine, role = database(), Role(arguments.role)
    made = tokens.create(engine, owner, role, arguments.label, expires)
    detail = {"label": made.token.label, "role": role, "owner": owner}
    audit.record(engine, LOCAL, Channel.COMMAND, Action.TOKEN_CREATE, made.token.id, **detail)
    print_result(arguments, _as_json(made.token) | {"token": made.text}, [made.text])
    note(["this token is not shown again; keep it like a password"])
    return ExitCode.OK


def _list(arguments: argparse.Namespace) -> int:
    from jarvis.server.access import tokens
    from jarvis.server.access.roles import normal_name
    from jarvis.server.database import database

    owners = () if arguments.owner is None else (normal_name(arguments.owner),)
    found = tokens.listed(database(), *owners)
    print_result(arguments, {"tokens": list(map(_as_json, found))}, _lines(found))
    return ExitCode.OK


def _revoke(arguments: argparse.Namespace) -> int:
    from jarvis.server.actions import OPERATOR, revoke_token
    from jarvis.server.database import database

    ended = [revoke_token(database(), OPERATOR, token_id) for token_id in arguments.ids]
    lines = (f"{token.id} ({token.label}) is revoked." for token in ended)
    print_result(arguments, {"revoked": list(map(_as_json, ended))}, lines)
    return ExitCode.OK


def _lines(found: "list[Token]") -> Iterator[str]:
    if not found:
        yield "No token yet. `jarvis token create LABEL` makes one."
    for token in found:
        ends = "never ends" if token.expires is None else f"ends {token.expires:%Y-%m-%d %H:%M}"
        used = "never used" if token.last_used is None else f"used {token.last_used:%Y-%m-%d %H:%M}"
        owner = token.owner or "nobody's"
        yield (
            f"{token.id}  {token.state:<8} {token.role:<7} {owner:<30} {ends:<21} {used:<21} "
            f"{token.label}"
        )


def _as_json(token: "Token") -> dict[str, object]:
    return {
        "id": token.id,
        "label": token.label,
        "owner": token.owner,
        "role": str(token.role),
        "state": str(token.state),
        "created": token.created.isoformat(),
        "expires": None if token.expires is None else token.expires.isoformat(),
        "last_used": None if token.last_used is None else token.last_used.isoformat(),
    }
