"""``jarvis prune``: what may go to make room."""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from jarvis.cli.confirmation import add_yes, is_confirmed
from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.shared import Commands, add_flag, add_json, note, print_result, warn

if TYPE_CHECKING:
    from jarvis.server.retention.plan import Leaving, Limits, Plan

OLDER_VARIABLE = "JARVIS_PRUNE_OLDER_THAN"
UNDER_VARIABLE = "JARVIS_PRUNE_KEEP_UNDER"
HOUR_S = 3600
_AGES_S = {"h": HOUR_S, "d": 24 * HOUR_S, "w": 7 * 24 * HOUR_S}
_SIZES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}


def add_prune(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "prune",
        help="make room: old analyses, and uploads and copies that nothing needs",
        description="Remove what nothing needs: uploads that no stored analysis was made of and no "
        "job works with, copies of traces whose file is gone, what was left half made, jobs that "
        "ended long ago (JARVIS_KEEP_JOBS_DAYS) with what they exported. With a limit, also "
        "exports, copies and analyses beyond it, the oldest first. Pinned analyses always stay. No "
        "analysis is removed unless this command is run.",
    )
    add_flag(
        command,
        "older_than",
        metavar="AGE",
        type=age_s,
        help="remove what was made or loaded longer ago, as 30d, 12h, 6w "
        f"(default: {OLDER_VARIABLE}, else no limit)",
    )
    add_flag(
        command,
        "keep_under",
        metavar="SIZE",
        type=_size_bytes,
        help=f"remove the oldest until all is smaller, as 50GB, 800MB (default: {UNDER_VARIABLE}, "
        "else no limit)",
    )
    add_flag(command, "dry_run", action="store_true", help="only say what would go, and why")
    add_yes(command)
    add_json(command)
    command.set_defaults(run=_prune, usage_error=command.error)


def _prune(arguments: argparse.Namespace) -> int:
    from jarvis.server.retention.plan import plan, prune

    limits = _limits(arguments)
    planned = plan(limits)
    gone: list[Leaving] = []
    if not planned.is_empty and not arguments.dry_run:
        described = [*_described(planned.leaving), *_records(planned)]
        if not is_confirmed(arguments, described):
            return ExitCode.FAILED
        gone = prune(planned)
    print_result(arguments, _as_json(arguments, planned, gone), _lines(arguments, planned, gone))
    note(f"{one.stored.name} stays: {one.reason}" for one in planned.staying)
    if limits.keep_under_bytes is not None and planned.left_bytes > limits.keep_under_bytes:
        warn([f"{_size(planned.left_bytes)} are left, more than asked for: the rest has to stay"])
    return ExitCode.OK


def _limits(arguments: argparse.Namespace) -> "Limits":
    """The limits of the command line, else those of the settings."""
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
    given: float | None = getattr(arguments, name)
    if given is not None or not setting:
        return given
    try:
        return read(setting)
    except argparse.ArgumentTypeError as error:
        arguments.usage_error(f"{variable}: {error}")
        raise


def _lines(arguments: argparse.Namespace, planned: "Plan", gone: "list[Leaving]") -> Iterator[str]:
    if planned.is_empty:
        yield f"Nothing to remove: {_size(planned.total_bytes)} are kept."
        return
    yield from _described(planned.leaving if arguments.dry_run else gone)
    yield from _records(planned)
    freed = planned.freed_bytes if arguments.dry_run else sum(one.stored.size_bytes for one in gone)
    would = "would be removed" if arguments.dry_run else "removed"
    yield f"{_size(freed)} {would}, {_size(planned.total_bytes - freed)} kept."


def _described(leaving: "Iterable[Leaving]") -> Iterator[str]:
    from jarvis.server.retention.plan import age_words

    for one in leaving:
        stored = one.stored
        what = f"{stored.kind:<16}{stored.name:<40} {_size(stored.size_bytes):>9}"
        yield f"{what}  {age_words(stored.age_s):>10} old: {one.reason}"


def _records(planned: "Plan") -> Iterator[str]:
    """What goes and is no file."""
    from jarvis.server.retention.plan import retention_text
    from jarvis.text.format import counted

    old = planned.expired
    for count, what in ((len(old.jobs), "ended job"), (old.audit_lines, "audit log line")):
        if count:
            yield f"{'record':<16}{counted(count, what)}, older than {retention_text()}"


def _as_json(
    arguments: argparse.Namespace, planned: "Plan", gone: "list[Leaving]"
) -> dict[str, object]:
    def rows(leaving: "Iterable[Leaving]") -> list[dict[str, object]]:
        return [
            {
                "kind": str(one.stored.kind),
                "name": one.stored.name,
                "path": one.stored.path,
                "size_bytes": one.stored.size_bytes,
                "age_s": round(one.stored.age_s),
                "reason": one.reason,
            }
            for one in leaving
        ]

    return {
        "is_dry_run": arguments.dry_run,
        "planned": rows(planned.leaving),
        "removed": rows(gone),
        "staying": rows(planned.staying),
        "old_jobs": len(planned.expired.jobs),
        "old_audit_lines": planned.expired.audit_lines,
        "total_bytes": planned.total_bytes,
    }


def _size(size_bytes: int) -> str:
    from jarvis.text.format import byte_size

    return byte_size(size_bytes)


def age_s(text: str) -> float:
    """``30d`` in seconds."""
    return _measured(text, _AGES_S, "an age like 30d, 12h or 6w")


def _size_bytes(text: str) -> float:
    """``50GB`` in bytes."""
    return _measured(text, _SIZES, "a size like 50GB or 800MB")


def _measured(text: str, units: Mapping[str, float], wanted: str) -> float:
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    if parts is None or parts[2] not in units:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not {wanted}")
    return float(parts[1]) * units[parts[2]]
