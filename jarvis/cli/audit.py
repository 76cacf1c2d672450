"""``jarvis audit``: who did what on this server."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.prune import age_s
from jarvis.cli.shared import Commands, add_json, note, print_result

if TYPE_CHECKING:
    from jarvis.server.access.audit import AuditEntry

_LIMIT = 100


def add_audit(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "audit",
        help="list who did what on this server",
        description="The audit log of this server, the newest line first. Times are UTC.",
    )
    command.add_argument("--person", metavar="PART", help="whose name has this part")
    command.add_argument("--action", metavar="ACTION", help="like analyze, export or remove")
    command.add_argument("--subject", metavar="PART", help="done to what has this in id or title")
    command.add_argument("--since", metavar="AGE", type=age_s, help="not older than 12h, 7d, 2w")
    command.add_argument(
        "--limit",
        metavar="N",
        type=_positive,
        default=_LIMIT,
        help=f"at most so many lines (default: {_LIMIT})",
    )
    add_json(command)
    command.set_defaults(run=_audit, usage_error=command.error)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number of lines, like 100")
    return int(text)


def _audit(arguments: argparse.Namespace) -> int:
    from jarvis.server.access import audit
    from jarvis.server.access.audit import Action, AuditFilter
    from jarvis.server.database import database

    if arguments.action is not None and arguments.action not in list(Action):
        arguments.usage_error(f"--action is one of: {', '.join(Action)}")
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
    print_result(arguments, {"found": found, "lines": list(map(_as_json, lines))}, _lines(lines))
    if found > len(lines):
        note([f"{found - len(lines)} older lines are left out; --limit shows more"])
    return ExitCode.OK


def _lines(lines: "list[AuditEntry]") -> Iterator[str]:
    from jarvis.text.markdown import one_line

    if not lines:
        yield "Nothing like this was done here."
    for line in lines:
        more = ", ".join(f"{name}: {value}" for name, value in line.detail.items())
        told = f"{line.subject}{f'  ({more})' if more else ''}"
        yield (
            f"{line.moment:%Y-%m-%d %H:%M:%S}  {line.person or '-':<30} {line.via:<8}"
            f"{line.action:<15} {one_line(told)}"
        )


def _as_json(line: "AuditEntry") -> dict[str, object]:
    return {
        "moment": line.moment.isoformat(),
        "person": line.person,
        "via": str(line.via),
        "action": str(line.action),
        "subject": line.subject,
        "detail": dict(line.detail),
    }
