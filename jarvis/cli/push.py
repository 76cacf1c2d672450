"""``jarvis push``: a trace of this machine is analyzed on a server."""

import argparse
import os
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.shared import (
    TRACE_HELP,
    Commands,
    add_json,
    add_options,
    note,
    print_result,
    request_of,
)
from jarvis.cli.terminal import print_line, print_progress
from jarvis.core.protocol import API, TOKEN_VARIABLE
from jarvis.core.request import AnalysisOptions

if TYPE_CHECKING:
    from jarvis.cli.remote import ServerConnection

POLL_S = 1.0


def add_push(commands: "Commands[argparse.ArgumentParser]") -> None:
    """The command with its options."""
    command = commands.add_parser(
        "push",
        help="send a trace to a server and have it analyzed there",
        description="Send a trace to a server of `jarvis serve` and have it analyzed there. The "
        "file is sent as it is read, and goes on where a connection breaks. Prints the link to "
        "the job, or with --wait to the analysis.",
    )
    command.add_argument("trace", metavar="TRACE", type=Path, help=TRACE_HELP)
    command.add_argument(
        "--server", metavar="URL", required=True, help="address of the server, as in a browser"
    )
    command.add_argument(
        "--token",
        help=f"API token, where the server asks who people are (default: {TOKEN_VARIABLE}, which "
        "others on this machine cannot see)",
    )
    add_options(
        command,
        [field.name for field in fields(AnalysisOptions)],
        platform="GPU to judge against, as described there; by default the trace's own",
        reference="id of an analysis there to compare with",
    )
    command.add_argument("--private", action="store_true", help="let nobody else see the analysis")
    command.add_argument(
        "--wait", action="store_true", help="until the analysis is there, or has failed"
    )
    add_json(command)
    command.set_defaults(run=_push)


def _push(arguments: argparse.Namespace) -> int:
    from jarvis.cli.remote import ServerConnection

    with ServerConnection(
        arguments.server, arguments.token or os.environ.get(TOKEN_VARIABLE)
    ) as remote:
        upload = remote.upload(arguments.trace, print_progress)
        if upload["is_reused"]:
            note(["these bytes are on the server already, and are stored once"])
        job = remote.post(f"{API}/analyses", _asked(arguments, upload["id"]))
        if arguments.wait:
            job = _wait(remote, job)
        link = remote.link(job["page"])
    if job["is_reused"]:
        note(["this trace was analyzed with these options before"])
    result = {
        "link": link,
        "job": job["id"],
        "state": job["state"],
        "analysis_id": job["analysis_id"],
        "is_reused": job["is_reused"],
        "error": job["error"],
        "sha256": upload["sha256"],
    }
    print_result(arguments, result, [link])
    if job["state"] in ("failed", "cancelled"):
        reason = job["error"] or "The job was cancelled."
        print_line(f"jarvis: {reason}", sys.stderr)
        return ExitCode.FAILED
    return ExitCode.OK


def _asked(arguments: argparse.Namespace, upload_id: str) -> dict[str, Any]:
    options = request_of(arguments, AnalysisOptions).chosen()
    visibility = "private" if arguments.private else "team"
    return {"upload": upload_id, "visibility": visibility, **options}


def _wait(remote: "ServerConnection", job: dict[str, Any]) -> dict[str, Any]:
    """The job when it has ended; its steps go to stderr as they end."""
    said = 0
    while True:
        for step in job["steps"][said:]:
            said += 1
            place = f"[{said}/{job['step_count']}]"
            print_line(f"{place} {step['name']}: {step['elapsed_s']:.1f} s", sys.stderr)
        if job["state"] not in ("queued", "running"):
            return job
        time.sleep(POLL_S)
        job = remote.get(f"{API}/jobs/{job['id']}")
