"""``jarvis audit``: print the audit log."""

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
    """Add the command."""
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
        type=_positive,
        default=_LIMIT,
        help=f"maximum number of entries (default: {_LIMIT})",
    )
    add_json(command)
    command.set_defaults(run=_audit, usage_error=command.error)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a positive number")
    return int(text)


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
    print_result(arguments, {"found": found, "lines": list(map(_as_json, lines))}, _lines(lines))
    if found > len(lines):
        note([f"{found - len(lines)} older entries are not shown; use --limit to show more"])
    return ExitCode.OK


def _lines(lines: "list[AuditEntry]") -> Iterator[str]:
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


def _as_json(line: "AuditEntry") -> dict[str, object]:
    return {
        "moment": line.moment.isoformat(),
        "person": line.person,
        "via": str(line.via),
        "action": str(line.action),
        "subject": line.subject,
        "detail": dict(line.detail),
    }
