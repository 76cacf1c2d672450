"""``jarvis list | pin | remove | archive``: manage stored analyses."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis.cli.atomic_output import atomic_output
from jarvis.cli.options import Commands, add_run, complete_stored, completed_by, run_directory
from jarvis.cli.output import ExitCode, add_json, add_yes, is_confirmed, note, print_result, warn
from jarvis.core.labels import RunLabels
from jarvis.core.workspace import archive_name
from jarvis.text.format import byte_size

if TYPE_CHECKING:
    from jarvis.server.storage.catalog import DistributedEntry, Entry


def add_list(commands: Commands) -> None:
    command = commands.add_parser(
        "list",
        help="list stored analyses",
        description="List the stored analyses and distributed runs with their ids, newest first.",
    )
    add_json(command)
    command.set_defaults(run=_list)


def add_pin(commands: Commands) -> None:
    command = commands.add_parser(
        "pin",
        help="protect analyses from deletion",
        description="Pin analyses, which protects them from `jarvis prune` and `jarvis remove` "
        "until `jarvis pin --off`.",
    )
    _add_ids(command)
    command.add_argument("--off", action="store_true", help="unpin")
    add_json(command)
    command.set_defaults(run=_pin)


def add_remove(commands: Commands) -> None:
    command = commands.add_parser(
        "remove",
        help="delete stored analyses",
        description="Delete stored analyses permanently for all users, after confirmation. "
        "Analyses that are pinned or used by a job cannot be deleted.",
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
            **_stored(entry),
            "title": entry.title,
            "trace": entry.manifest.trace.file_name,
            "reference": entry.manifest.reference,
        }
        for entry in catalog.entries
    ]
    jobs = [
        {
            **_stored(job),
            "title": job.manifest.title,
            "ranks": {str(each.rank): each.analysis_id for each in job.manifest.usable},
        }
        for job in catalog.distributed
    ]
    result = {"analyses": rows, "distributed": jobs, "unreadable": catalog.broken}
    print_result(arguments, result, _listed([*jobs, *rows]))
    if catalog.broken:
        warn([f"{', '.join(catalog.broken)}: damaged, or of another version"])
    return ExitCode.OK


def _stored(entry: "Entry | DistributedEntry") -> dict[str, Any]:
    return {
        "id": entry.id,
        "created": entry.manifest.created,
        "size_bytes": entry.size_bytes,
        "is_pinned": entry.is_pinned,
        "owner": entry.owner,
        "visibility": entry.visibility,
        "made_on": entry.made_on,
        "loaded_by": entry.loaded_by,
        "source": entry.source,
        **asdict(entry.labels),
    }


def _listed(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each row, newest first; of equal times, those of distributed runs first."""
    if not rows:
        yield "No analyses are stored."
        return
    from jarvis.text.markdown import one_line  # slow to import

    for row in sorted(rows, key=itemgetter("created"), reverse=True):
        labels = RunLabels(row["project"], row["branch"], row["commit"], tuple(row["tags"]))
        named = f"  [{', '.join(labels.words())}]" if labels else ""
        source = f"  (from {one_line(row['source'])})" if row["source"] else ""
        pin = "pinned" if row["is_pinned"] else ""
        day = str(row["created"])[:16].replace("T", " ")
        size = byte_size(row["size_bytes"])
        yield f"{row['id']:<14}{day:<18}{size:>9}  {pin:<7} {row['title']}{named}{source}"


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
    if not is_confirmed(arguments, [f"{row.id}  {byte_size(row.size_bytes)}" for row in rows]):
        return ExitCode.FAILED
    removed = [remove_analysis(OPERATOR, analysis_id) for analysis_id in ids]
    print_result(
        arguments,
        {
            "removed": [
                {
                    "id": analysis.id,
                    "size_bytes": analysis.size_bytes,
                    "referred_to_by": analysis.referred_to_by,
                }
                for analysis in removed
            ]
        },
        [f"{analysis.id} was deleted ({byte_size(analysis.size_bytes)})" for analysis in removed],
    )
    note(
        f"{analysis.id} was the reference of {', '.join(analysis.referred_to_by)}; their stored "
        "comparison remains"
        for analysis in removed
        if analysis.referred_to_by
    )
    return ExitCode.OK


def add_archive(commands: Commands) -> None:
    """Add the command with its actions."""
    command = commands.add_parser(
        "archive",
        help="copy an analysis to another server as one file",
        description="Save an analysis as one file, and load the file on another server. The "
        "analysis has the same id there, so links to it open the same pages.",
    )
    add_json(command)
    actions = command.add_subparsers(title="actions", required=True, metavar="ACTION")
    save = actions.add_parser(
        "save",
        help="save an analysis as one file",
        description="Save an analysis as one file with checksums.",
    )
    add_run(save)
    save.add_argument(
        "--output", "-o", metavar="FILE", type=Path, help="file to write (default: ID.jarvis.zip)"
    )
    add_json(save, default=argparse.SUPPRESS)
    save.set_defaults(run=_save)
    load = actions.add_parser(
        "load",
        help="load the analysis from such a file",
        description="Validate a file of `jarvis archive save` and store its analysis under its "
        "id, marked as loaded. An identical stored analysis is reused. Loading does not pin.",
    )
    load.add_argument("file", metavar="FILE", type=Path, help="file of `jarvis archive save`")
    add_json(load, default=argparse.SUPPRESS)
    load.set_defaults(run=_load)


def _save(arguments: argparse.Namespace) -> int:
    from jarvis.run import read_manifest
    from jarvis.server.storage.archive import save_archive

    root = run_directory(arguments.directory)
    out = arguments.output or Path(archive_name(read_manifest(root).analysis_id))
    with atomic_output(out) as place:
        contents = save_archive(root, place)
        size_bytes = place.stat().st_size
    result = {
        "analysis_id": contents.analysis_id,
        "output": out,
        "files": len(contents.files),
        "size_bytes": size_bytes,
        "is_pinned": contents.is_pinned,
    }
    print_result(arguments, result, [out])
    return ExitCode.OK


def _load(arguments: argparse.Namespace) -> int:
    from jarvis.core.workspace import analyses_dir
    from jarvis.server.actions import OPERATOR, load_analysis

    made = load_analysis(OPERATOR, arguments.file)
    loaded = str(made.analysis_id)
    if made.result["is_reused"]:
        note([f"{loaded} is already stored with the same content"])
    elif made.result["was_pinned"]:
        note([f"{loaded} was pinned on the source server; `jarvis pin {loaded}` pins it here"])
    result = {"analysis_id": loaded, **made.result, "root": analyses_dir() / loaded}
    print_result(arguments, result, [loaded])
    return ExitCode.OK
