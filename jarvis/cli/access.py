"""``jarvis token | audit``: API tokens and the audit log."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from jarvis.cli.options import Commands, positive
from jarvis.cli.output import ExitCode, add_json, note, print_result
from jarvis.cli.prune import age_s

if TYPE_CHECKING:
    from jarvis.server.access.audit import AuditEntry
    from jarvis.server.access.tokens import Token


_NEVER = "never"
_ROLES = ("viewer", "editor", "admin")


def add_token(commands: Commands) -> None:
    """Add the command with its actions."""
    command = commands.add_parser(
        "token",
        help="create, list and revoke API tokens",
        description="API tokens of this server, which give programs the permissions of a role on "
        "behalf of the owner. This command runs with the role admin.",
    )
    kinds = command.add_subparsers(metavar="COMMAND", required=True)
    _add_create(kinds)
    listing = kinds.add_parser("list", help="list tokens, newest first")
    listing.add_argument("--owner", metavar="NAME", help="only tokens of this person")
    add_json(listing)
    listing.set_defaults(run=_list)
    revoking = kinds.add_parser("revoke", help="revoke tokens permanently")
    revoking.add_argument("ids", metavar="ID", nargs="+", help="id in `jarvis token list`")
    add_json(revoking)
    revoking.set_defaults(run=_revoke)


def _add_create(kinds: Commands) -> None:
    creating = kinds.add_parser("create", help="create a token, which is shown only once")
    creating.add_argument("label", metavar="LABEL", help="purpose, like 'nightly push'")
    creating.add_argument("--owner", metavar="NAME", help="owner of the token (default: none)")
    creating.add_argument(
        "--role", choices=_ROLES, default="editor", help="role of the token (default: editor)"
    )
    creating.add_argument(
        "--expires",
        metavar="AGE",
        type=_expiry_s,
        default="90d",
        help="lifetime, like 30d, 12h, or never (default: 90d)",
    )
    add_json(creating)
    creating.set_defaults(run=_create)


def _expiry_s(text: str) -> float | None:
    return None if text == _NEVER else age_s(text)


def _create(arguments: argparse.Namespace) -> int:
    from jarvis.server.access import audit, tokens
    from jarvis.server.access.audit import Action, Channel
    from jarvis.server.access.rights import LOCAL, Role, normal_name
    from jarvis.server.database import database

    owner = None if arguments.owner is None else normal_name(arguments.owner)
    lasts_s = arguments.expires
    expires = None if lasts_s is None else datetime.now(UTC) + timedelta(seconds=lasts_s)
    engine, role = database(), Role(arguments.role)
    new = tokens.create(engine, owner, role, arguments.label, expires)
    detail = {"label": new.token.label, "role": role, "owner": owner}
    audit.record(engine, LOCAL, Channel.COMMAND, Action.TOKEN_CREATE, new.token.id, **detail)
    print_result(arguments, _token_as_json(new.token) | {"token": new.text}, [new.text])
    note(["this token is not shown again; store it like a password"])
    return ExitCode.OK


def _list(arguments: argparse.Namespace) -> int:
    from jarvis.server.access import tokens
    from jarvis.server.access.rights import normal_name
    from jarvis.server.database import database

    owners = () if arguments.owner is None else (normal_name(arguments.owner),)
    listed = tokens.listed(database(), *owners)
    print_result(arguments, {"tokens": list(map(_token_as_json, listed))}, _token_lines(listed))
    return ExitCode.OK


def _revoke(arguments: argparse.Namespace) -> int:
    from jarvis.server.actions import OPERATOR, revoke_token
    from jarvis.server.database import database

    revoked = [revoke_token(database(), OPERATOR, token_id) for token_id in arguments.ids]
    lines = (f"{token.id} ({token.label}) is revoked." for token in revoked)
    print_result(arguments, {"revoked": list(map(_token_as_json, revoked))}, lines)
    return ExitCode.OK


def _token_lines(listed: "list[Token]") -> Iterator[str]:
    if not listed:
        yield "No tokens. Create one with `jarvis token create LABEL`."
    for token in listed:
        ends = "no expiry" if token.expires is None else f"ends {token.expires:%Y-%m-%d %H:%M}"
        used = "never used" if token.last_used is None else f"used {token.last_used:%Y-%m-%d %H:%M}"
        owner = token.owner or "-"
        yield (
            f"{token.id}  {token.state:<8} {token.role:<7} {owner:<30} {ends:<21} {used:<21} "
            f"{token.label}"
        )


def _token_as_json(token: "Token") -> dict[str, object]:
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


_LIMIT = 100


def add_audit(commands: Commands) -> None:
    command = commands.add_parser(
        "audit",
        help="print the audit log",
        description="Print the audit log of this server, newest entry first. Times are in UTC.",
    )
    command.add_argument("--person", metavar="PART", help="only users whose name contains PART")
    command.add_argument("--action", metavar="ACTION", help="like export or remove")
    command.add_argument("--subject", metavar="PART", help="only if id or title contains PART")
    command.add_argument("--since", metavar="AGE", type=age_s, help="maximum age, like 12h, 7d, 2w")
    command.add_argument(
        "--limit",
        metavar="N",
        type=positive,
        default=_LIMIT,
        help=f"maximum number of entries (default: {_LIMIT})",
    )
    add_json(command)
    command.set_defaults(run=_audit, usage_error=command.error)


def _audit(arguments: argparse.Namespace) -> int:
    from jarvis.server.access import audit
    from jarvis.server.access.audit import Action, AuditFilter
    from jarvis.server.database import database

    if arguments.action is not None and arguments.action not in list(Action):
        arguments.usage_error(f"--action must be one of: {', '.join(Action)}")
    since = arguments.since
    wanted = AuditFilter(
        person=arguments.person,
        action=None if arguments.action is None else Action(arguments.action),
        subject=arguments.subject or "",
        since=None if since is None else datetime.now(UTC) - timedelta(seconds=since),
    )
    engine = database()
    lines = audit.recent(engine, wanted, limit=arguments.limit)
    found = audit.count(engine, wanted)
    print_result(
        arguments, {"found": found, "lines": list(map(_entry_as_json, lines))}, _entry_lines(lines)
    )
    if found > len(lines):
        note([f"{found - len(lines)} older entries are not shown; use --limit to show more"])
    return ExitCode.OK


def _entry_lines(lines: "list[AuditEntry]") -> Iterator[str]:
    from jarvis.text.markdown import one_line

    if not lines:
        yield "No matching entries."
    for line in lines:
        more = ", ".join(f"{name}: {value}" for name, value in line.detail.items())
        text = f"{line.subject}{f'  ({more})' if more else ''}"
        yield (
            f"{line.moment:%Y-%m-%d %H:%M:%S}  {line.person or '-':<30} {line.via:<8}"
            f"{line.action:<15} {one_line(text)}"
        )


def _entry_as_json(line: "AuditEntry") -> dict[str, object]:
    return {
        "moment": line.moment.isoformat(),
        "person": line.person,
        "via": str(line.via),
        "action": str(line.action),
        "subject": line.subject,
        "detail": dict(line.detail),
    }
