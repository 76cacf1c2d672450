"""``jarvis prune``: delete unused and old data."""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from jarvis.cli.options import Commands, add_flag
from jarvis.cli.output import ExitCode, add_json, add_yes, is_confirmed, note, print_result, warn
from jarvis.text.format import byte_size

if TYPE_CHECKING:
    from jarvis.server.retention.plan import Limits, Plan, PruneItem

OLDER_VARIABLE = "JARVIS_PRUNE_OLDER_THAN"
UNDER_VARIABLE = "JARVIS_PRUNE_KEEP_UNDER"
HOUR_S = 3600
_AGES_S = {"h": HOUR_S, "d": 24 * HOUR_S, "w": 7 * 24 * HOUR_S}
_SIZES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}


def add_prune(commands: Commands) -> None:
    command = commands.add_parser(
        "prune",
        help="delete unused uploads and caches, and old analyses",
        description="Delete unused data: uploads without an analysis or a job, cached traces whose "
        "file is gone, partial results of crashes, and expired jobs (JARVIS_KEEP_JOBS_DAYS) with "
        "their exports. With a limit, also delete exports, cached traces and analyses beyond it, "
        "oldest first. Pinned analyses are never deleted, and no analysis is deleted unless this "
        "command is run.",
    )
    add_flag(
        command,
        "older_than",
        metavar="AGE",
        type=age_s,
        help="delete what was created or loaded longer ago, like 30d, 12h, 6w "
        f"(default: {OLDER_VARIABLE}, else no limit)",
    )
    add_flag(
        command,
        "keep_under",
        metavar="SIZE",
        type=_size_bytes,
        help="delete the oldest until the total size is smaller, like 50GB, 800MB (default: "
        f"{UNDER_VARIABLE}, else no limit)",
    )
    add_flag(
        command, "dry_run", action="store_true", help="only print what would be deleted, and why"
    )
    add_yes(command)
    add_json(command)
    command.set_defaults(run=_prune, usage_error=command.error)


def _prune(arguments: argparse.Namespace) -> int:
    from jarvis.server.retention.plan import plan, prune

    limits = _limits(arguments)
    planned = plan(limits)
    deleted: list[PruneItem] = []
    if not planned.is_empty and not arguments.dry_run:
        described = [*_described(planned.to_delete), *_records(planned)]
        if not is_confirmed(arguments, described):
            return ExitCode.FAILED
        deleted = prune(planned)
    result = _as_json(arguments, planned, deleted)
    print_result(arguments, result, _lines(arguments, planned, deleted))
    note(f"{item.stored.name} is not deleted: {item.reason}" for item in planned.protected)
    if limits.keep_under_bytes is not None and planned.left_bytes > limits.keep_under_bytes:
        warn([f"{byte_size(planned.left_bytes)} remain above the limit: the rest is protected"])
    return ExitCode.OK


def _limits(arguments: argparse.Namespace) -> "Limits":
    """Return the limits of the command line, or else of the settings."""
    from jarvis.server.retention.plan import Limits
    from jarvis.server.settings import settings

    now = settings()
    older = _limit(arguments, "older_than", age_s, OLDER_VARIABLE, now.prune_older_than)
    under = _limit(arguments, "keep_under", _size_bytes, UNDER_VARIABLE, now.prune_keep_under)
    return Limits(older, under)


def _limit(
    arguments: argparse.Namespace,
    name: str,
    read: Callable[[str], float],
    variable: str,
    setting: str | None,
) -> float | None:
    value: float | None = getattr(arguments, name)
    if value is not None or not setting:
        return value
    try:
        return read(setting)
    except argparse.ArgumentTypeError as error:
        arguments.usage_error(f"{variable}: {error}")
        raise


def _lines(
    arguments: argparse.Namespace, planned: "Plan", deleted: "list[PruneItem]"
) -> Iterator[str]:
    if planned.is_empty:
        yield f"Nothing to delete: {byte_size(planned.total_bytes)} in use."
        return
    items = planned.to_delete if arguments.dry_run else deleted
    yield from _described(items)
    yield from _records(planned)
    freed = sum(item.stored.size_bytes for item in items)
    verb = "would be deleted" if arguments.dry_run else "deleted"
    yield f"{byte_size(freed)} {verb}, {byte_size(planned.total_bytes - freed)} left."


def _described(items: "Iterable[PruneItem]") -> Iterator[str]:
    from jarvis.server.retention.plan import age_words

    for item in items:
        stored = item.stored
        head = f"{stored.kind:<16}{stored.name:<40} {byte_size(stored.size_bytes):>9}"
        yield f"{head}  {age_words(stored.age_s):>10} old: {item.reason}"


def _records(planned: "Plan") -> Iterator[str]:
    """Yield lines about expired database records."""
    from jarvis.server.retention.plan import retention_text
    from jarvis.text.format import counted

    old = planned.expired
    for count, noun in ((len(old.jobs), "ended job"), (old.audit_lines, "audit log entry")):
        if count:
            yield f"{'record':<16}{counted(count, noun)}, older than {retention_text()}"


def _as_json(
    arguments: argparse.Namespace, planned: "Plan", deleted: "list[PruneItem]"
) -> dict[str, object]:
    def rows(items: "Iterable[PruneItem]") -> list[dict[str, object]]:
        return [
            {
                "kind": str(item.stored.kind),
                "name": item.stored.name,
                "path": item.stored.path,
                "size_bytes": item.stored.size_bytes,
                "age_s": round(item.stored.age_s),
                "reason": item.reason,
            }
            for item in items
        ]

    return {
        "is_dry_run": arguments.dry_run,
        "planned": rows(planned.to_delete),
        "removed": rows(deleted),
        "staying": rows(planned.protected),
        "old_jobs": len(planned.expired.jobs),
        "old_audit_lines": planned.expired.audit_lines,
        "total_bytes": planned.total_bytes,
    }


def age_s(text: str) -> float:
    """Parse an age like ``30d`` to seconds."""
    return _measured(text, _AGES_S, "an age like 30d, 12h or 6w")


def _size_bytes(text: str) -> float:
    """Parse a size like ``50GB`` to bytes."""
    return _measured(text, _SIZES, "a size like 50GB or 800MB")


def _measured(text: str, units: Mapping[str, float], expected: str) -> float:
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    if parts is None or parts[2] not in units:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not {expected}")
    return float(parts[1]) * units[parts[2]]
