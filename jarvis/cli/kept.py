"""``jarvis list | pin | remove``: which analyses are kept here."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jarvis.cli.completers import complete_stored, completed_by
from jarvis.cli.confirmation import add_yes, is_confirmed
from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.shared import Commands, add_json, note, print_result, warn


def add_list(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "list",
        help="list the kept analyses",
        description="List the stored analyses, newest first, with their ids.",
    )
    add_json(command)
    command.set_defaults(run=_list)


def add_pin(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "pin",
        help="keep analyses from being removed",
        description="Pin analyses: `jarvis prune` never removes them, `jarvis remove` only after "
        "`jarvis pin --off`.",
    )
    _add_ids(command)
    command.add_argument("--off", action="store_true", help="let go of the pins")
    add_json(command)
    command.set_defaults(run=_pin)


def add_remove(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "remove",
        help="remove kept analyses for good",
        description="Remove stored analyses, for everyone and for good; a terminal is "
        "asked first. Pinned ones stay, and those that a job works with.",
    )
    _add_ids(command)
    add_yes(command)
    add_json(command)
    command.set_defaults(run=_remove)


def _add_ids(command: argparse.ArgumentParser) -> None:
    ids = command.add_argument("ids", metavar="ID", nargs="+", help="id of a stored analysis")
    completed_by(ids, complete_stored)


def _list(arguments: argparse.Namespace) -> int:
    from jarvis.server.storage.catalog import read_catalog

    catalog = read_catalog()
    rows = [
        {
            "id": entry.id,
            "title": entry.title,
            "trace": entry.manifest.trace.file_name,
            "created": entry.manifest.created,
            "size_bytes": entry.size_bytes,
            "is_pinned": entry.is_pinned,
            "owner": entry.owner,
            "visibility": entry.visibility,
            "made_on": entry.made_on,
            "loaded_by": entry.loaded_by,
            "source": entry.source,
            "reference": entry.manifest.reference,
        }
        for entry in catalog.entries
    ]
    print_result(arguments, {"analyses": rows, "unreadable": catalog.broken}, _listed(rows))
    if catalog.broken:
        warn([f"{', '.join(catalog.broken)}: of another version, or damaged"])
    return ExitCode.OK


def _listed(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not rows:
        yield "No analyses are stored here."
        return
    from jarvis.text.markdown import one_line  # slow to import

    for row in rows:
        source = f"  (from {one_line(row['source'])})" if row["source"] else ""
        pin = "pinned" if row["is_pinned"] else ""
        day = str(row["created"])[:16].replace("T", " ")
        size = _size(row["size_bytes"])
        yield f"{row['id']:<14}{day:<18}{size:>9}  {pin:<7} {row['title']}{source}"


def _pin(arguments: argparse.Namespace) -> int:
    from jarvis.server.actions import OPERATOR, pin_analysis
    from jarvis.server.storage.catalog import stored_row

    for analysis_id in arguments.ids:
        stored_row(analysis_id)
    is_pinned = not arguments.off
    changed = [each for each in arguments.ids if pin_analysis(OPERATOR, each, is_pinned=is_pinned)]
    state = "not pinned" if arguments.off else "pinned"
    lines = [f"{analysis_id} is {state}" for analysis_id in arguments.ids]
    result = {"ids": arguments.ids, "is_pinned": not arguments.off, "changed": changed}
    print_result(arguments, result, lines)
    return ExitCode.OK


def _remove(arguments: argparse.Namespace) -> int:
    from jarvis.server.actions import OPERATOR, remove_analysis
    from jarvis.server.retention.removal import check_removable

    ids = list(dict.fromkeys(arguments.ids))
    rows = [check_removable(analysis_id) for analysis_id in ids]
    if not is_confirmed(arguments, [f"{row.id}  {_size(row.size_bytes)}" for row in rows]):
        return ExitCode.FAILED
    removed = [remove_analysis(OPERATOR, analysis_id) for analysis_id in ids]
    print_result(
        arguments,
        {
            "removed": [
                {
                    "id": one.id,
                    "size_bytes": one.size_bytes,
                    "referred_to_by": one.referred_to_by,
                }
                for one in removed
            ]
        },
        [f"{one.id} is removed ({_size(one.size_bytes)})" for one in removed],
    )
    note(
        f"{', '.join(one.referred_to_by)} had {one.id} as reference: what they say of it stays"
        for one in removed
        if one.referred_to_by
    )
    return ExitCode.OK


def _size(size_bytes: int) -> str:
    from jarvis.text.format import byte_size

    return byte_size(size_bytes)
