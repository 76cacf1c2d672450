"""``jarvis archive``: save an analysis as one file, and import such files."""

import argparse
from pathlib import Path

from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.shared import Commands, add_json, add_run, note, print_result, run_directory
from jarvis.cli.whole import whole
from jarvis.core.workspace import archive_name


def add_archive(commands: "Commands[argparse.ArgumentParser]") -> None:
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
    with whole(out) as place:
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
