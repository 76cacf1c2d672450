"""``jarvis push``: upload traces to a server and analyze them there."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis.cli.analyze_ranks import add_rank_facts, given_ranks, named_files
from jarvis.cli.options import (
    MODEL_OPTIONS,
    TRACE_HELP,
    Commands,
    add_labels,
    add_option,
    add_options,
    labels_of,
    request_of,
)
from jarvis.cli.output import (
    ExitCode,
    add_json,
    note,
    print_line,
    print_progress,
    print_result,
    warn,
)
from jarvis.core.output import write_archive
from jarvis.core.product import API, TOKEN_VARIABLE
from jarvis.core.request import AnalysisOptions, public_name

if TYPE_CHECKING:
    from jarvis.cli.remote import ServerConnection
    from jarvis.ranks.inputs import InputFile

POLL_S = 1.0


def add_push(commands: Commands) -> None:
    command = commands.add_parser(
        "push",
        help="upload a trace to a server and analyze it there",
        description="Upload a trace, or those of several ranks of a job, to a server "
        "(`jarvis serve`) and analyze them there. Uploads resume after a lost connection. Prints "
        "the link to the job, or with --wait to the analysis or the ranks.",
    )
    command.add_argument(
        "traces",
        metavar="TRACE",
        nargs="+",
        help=f"{TRACE_HELP}; or several ranks: a folder, files, or a .zip or .tar.gz of them; or "
        "URLs that the server downloads from, also of a folder (ends with /) or a range "
        "(rank{0..63}.json)",
    )
    add_rank_facts(command)
    command.add_argument(
        "--server", metavar="URL", required=True, help="URL of the server, as in a browser"
    )
    command.add_argument(
        "--token",
        help=f"API token, if the server requires login (default: {TOKEN_VARIABLE}, which other "
        "users of this machine cannot see)",
    )
    add_options(
        command,
        [field.name for field in fields(AnalysisOptions)],
        platform="GPU to compare against, as known to the server; by default the trace's own",
        reference="id of an analysis on the server to compare with",
    )
    for name in ("capture_folder", *MODEL_OPTIONS):
        add_option(command, name)
    add_labels(command)
    command.add_argument("--private", action="store_true", help="make the analysis private")
    command.add_argument(
        "--wait", action="store_true", help="wait until the analysis is done or has failed"
    )
    add_json(command)
    command.set_defaults(run=_push, usage_error=command.error)


def _push(arguments: argparse.Namespace) -> int:
    from jarvis.cli.remote import ServerConnection
    from jarvis.ranks.archives import unpacked_archives

    labels_of(arguments)  # rejected before the upload
    token = arguments.token or os.environ.get(TOKEN_VARIABLE)
    urls = [text for text in arguments.traces if "://" in text]
    if urls and len(urls) < len(arguments.traces):
        arguments.usage_error("name traces or URLs, not both")
    with ServerConnection(arguments.server, token) as remote:
        if urls:
            return _push_urls(arguments, remote, urls)
        with unpacked_archives(list(map(Path, arguments.traces))) as paths:
            files = named_files(paths)
            if len(files) > 1:
                return _push_ranks(arguments, remote, files)
            return _push_trace(arguments, remote, files[0].path)


def _push_urls(
    arguments: argparse.Namespace, remote: "ServerConnection", urls: Sequence[str]
) -> int:
    if arguments.capture_folder or arguments.served_model:
        arguments.usage_error("--capture-folder and --model-config need a file, not a URL")
    is_one = len(urls) == 1 and not urls[0].partition("?")[0].endswith("/") and "{" not in urls[0]
    if is_one:
        job = remote.post(f"{API}/analyses", {"url": urls[0], **_choices(arguments)})
        if arguments.wait:
            job = _wait(remote, job)
        return _print_job(arguments, remote, job)
    asked = {"urls": urls, "ranks": given_ranks(arguments), **_rank_facts(arguments)}
    return _join(arguments, remote, asked)


def _rank_facts(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "world_size": arguments.world_size,
        "rank_by_order": arguments.rank_by_order,
        "gpus_per_node": arguments.gpus_per_node,
        "network_gbps": arguments.network_gbps,
        **_choices(arguments),
    }


def _join(
    arguments: argparse.Namespace,
    remote: "ServerConnection",
    asked: dict[str, Any],
    **more: Any,
) -> int:
    """Ask for a distributed run; print its job, and which files are not joined."""
    from jarvis.server.page_links import ranks_page

    job = remote.post(f"{API}/distributed", asked)
    if arguments.wait:
        job = _wait(remote, job)
    for other in job.get("others", ()):  # servers of earlier releases have none
        note([f"traces of another job: {remote.link(ranks_page(other))}"])
    failed = _failed_ranks(remote, job)
    warn(failed)
    code = _print_job(arguments, remote, job, **more, warnings=failed)
    return ExitCode.CHECK_FAILED if failed else code


def _push_ranks(
    arguments: argparse.Namespace, remote: "ServerConnection", files: "Sequence[InputFile]"
) -> int:
    if arguments.capture_folder or arguments.served_model:
        arguments.usage_error("--capture-folder and --model-config need a single trace")
    given, uploads = given_ranks(arguments), []
    for number, file in enumerate(files, start=1):
        note([f"[{number}/{len(files)}] {file.name}"])
        name = file.name.replace("/", "_")  # folders may tell the rank
        uploads.append(remote.upload(file.path, print_progress, name))
    asked = {
        "uploads": [upload["id"] for upload in uploads],
        "ranks": {
            upload["name"]: given[file.name]
            for file, upload in zip(files, uploads, strict=True)
            if file.name in given
        },
        **_rank_facts(arguments),
    }
    sha256s = {file.name: each["sha256"] for file, each in zip(files, uploads, strict=True)}
    return _join(arguments, remote, asked, sha256=sha256s)


def _failed_ranks(remote: "ServerConnection", job: dict[str, Any]) -> list[str]:
    """Return which files are not joined, and why, if the join is done."""
    if job["state"] != "done":
        return []
    members = remote.get(f"{API}/distributed/{job['analysis_id']}")["manifest"]["members"]
    return [f"{each['file_name']}: {each['error']}" for each in members if each["error"]]


def _push_trace(arguments: argparse.Namespace, remote: "ServerConnection", trace: Path) -> int:
    upload = remote.upload(trace, print_progress)
    if upload["is_reused"]:
        note(["the server already has this file"])
    asked = _new_analysis(arguments, upload["id"])
    if arguments.capture_folder is not None:
        with _one_file(arguments.capture_folder) as captures:
            asked["captures"] = remote.upload(captures, print_progress)["id"]
    if arguments.served_model is not None:
        model = remote.upload(arguments.served_model, print_progress)
        asked |= {
            public_name("served_model"): model["id"],
            "tensor_parallel": arguments.tensor_parallel,
            "expert_parallel": arguments.expert_parallel,
        }
    job = remote.post(f"{API}/analyses", asked)
    if arguments.wait:
        job = _wait(remote, job)
    if job["is_reused"]:
        note(["already analyzed with these options: this is the existing result"])
    return _print_job(arguments, remote, job, sha256=upload["sha256"])


def _print_job(
    arguments: argparse.Namespace, remote: "ServerConnection", job: dict[str, Any], **more: Any
) -> ExitCode:
    """Print a job with its link, and why it failed; return the exit code."""
    link = remote.link(job["page"])
    result = {
        "link": link,
        "job": job["id"],
        "state": job["state"],
        "analysis_id": job["analysis_id"],
        "is_reused": job["is_reused"],
        "error": job["error"],
        **more,
    }
    print_result(arguments, result, [link])
    if job["state"] in ("failed", "cancelled"):
        reason = job["error"] or "The job was cancelled."
        print_line(f"jarvis: {reason}", sys.stderr)
        return ExitCode.FAILED
    return ExitCode.OK


@contextmanager
def _one_file(place: Path) -> Iterator[Path]:
    """Yield a file of captures, or a temporary archive of a folder of them.

    Equal folders make equal archives, so that the server recognizes an earlier upload.
    """
    if not place.is_dir():
        yield place
        return
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"{place.resolve().name}.zip"
        write_archive(sorted(path for path in place.iterdir() if path.is_file()), target)
        yield target


def _new_analysis(arguments: argparse.Namespace, upload_id: str) -> dict[str, Any]:
    return {"upload": upload_id, **_choices(arguments)}


def _choices(arguments: argparse.Namespace) -> dict[str, Any]:
    options = request_of(arguments, AnalysisOptions).chosen()
    visibility = "private" if arguments.private else "team"
    return {
        "visibility": visibility,
        **options,
        **labels_of(arguments).chosen(),
    }


def _wait(remote: "ServerConnection", job: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end of a job and return it; print finished steps to stderr, and how many jobs
    that it waits for have ended."""
    from jarvis.server.queue import members_text

    printed, shown = 0, ""
    while True:
        by_state = job.get("members")  # servers of earlier releases have none
        if by_state and (text := members_text(by_state)) != shown:
            shown = text
            print_line(text, sys.stderr)
        for step in job["steps"][printed:]:
            printed += 1
            position = f"[{printed}/{job['step_count']}]"
            print_line(f"{position} {step['name']}: {step['elapsed_s']:.1f} s", sys.stderr)
        if job["state"] not in ("queued", "running"):
            return job
        time.sleep(POLL_S)
        job = remote.get(f"{API}/jobs/{job['id']}")
