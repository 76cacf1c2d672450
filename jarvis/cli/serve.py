"""``jarvis serve``: serve the dashboard."""

import argparse
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.shared import Commands, add_flag, add_settings_file, print_step
from jarvis.cli.terminal import print_line
from jarvis.core.memory_tuning import set_server_arenas
from jarvis.core.workspace import HOME_VARIABLE, home, resource

if TYPE_CHECKING:
    from jarvis.server.settings import Settings

MESSAGE_BYTES = 25 << 20
"""Maximum websocket message: Streamlit's limit for widget state."""


def add_serve(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command."""
    command = commands.add_parser(
        "serve", help="serve the dashboard", description="Serve the dashboard until interrupted."
    )
    command.add_argument("--port", type=int, default=8501, help="port (default: 8501)")
    command.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
    command.add_argument(
        "--home",
        metavar="DIR",
        type=Path,
        help=f"folder of stored analyses (default: {HOME_VARIABLE}, else ~/.jarvis)",
    )
    add_flag(command, "with_sample", action="store_true", help="analyze the simulated sample first")
    add_flag(
        command,
        "job_slots",
        metavar="N",
        type=_slots,
        help="concurrent jobs, each in its own process; 0 to leave jobs to other workers "
        "(default: 1)",
    )
    command.add_argument(
        "--open",
        action="store_true",
        help="listen on other addresses than loopback without access control: anyone who reaches "
        "the address can see, add and delete everything",
    )
    add_settings_file(command)
    command.set_defaults(run=_serve)


def _slots(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of jobs, like 2")
    return int(text)


def _serve(arguments: argparse.Namespace) -> int:
    set_server_arenas()
    from jarvis.server.access.login import check_login, check_reach
    from jarvis.server.http.web.hosts import ADDRESS_VARIABLE
    from jarvis.server.settings import PREFIX, settings

    if arguments.home is not None:
        os.environ[HOME_VARIABLE] = str(arguments.home.resolve())
    if arguments.job_slots is not None:
        os.environ[f"{PREFIX}JOB_SLOTS"] = str(arguments.job_slots)
    now = settings()
    check_login(now)
    check_reach(now, arguments.host, is_open=arguments.open)
    _check_names(now, arguments.host)
    from jarvis.server.database import database

    database()  # report errors here instead of on a page
    if arguments.with_sample:
        from jarvis.server.ingest.intake import sample_trace
        from jarvis.server.submission import Submission, submit

        stored = submit(Submission(sample_trace()), print_step)
        print_line(f"http://{arguments.host}:{arguments.port}/overview?analysis={stored.id}")
        sys.stdout.flush()
    # The server runs in the app's folder; paths are relative to the user's folder.
    if now.trace_roots is None:
        os.environ[f"{PREFIX}TRACE_ROOTS"] = os.pathsep.join((str(Path.cwd()), str(home())))
    os.environ[HOME_VARIABLE] = str(home().resolve())
    app = resource("app.py")
    os.chdir(app.parent)
    os.environ[ADDRESS_VARIABLE] = arguments.host
    command = [sys.executable, "-m", "uvicorn", f"{app.stem}:app", *_options(arguments)]
    os.execv(sys.executable, command)  # signals reach the server directly


def _check_names(now: "Settings", host: str) -> None:
    """Raise SettingsError if the server listens on all addresses without an allowed host name."""
    from jarvis.server.errors import SettingsError
    from jarvis.server.http.web.hosts import is_every_address

    if is_every_address(host) and not now.public_url and not now.allowed_hosts:
        raise SettingsError(
            f"A server on {host} needs an allowed host name: set its URL "
            "(JARVIS_PUBLIC_URL=https://jarvis.example.org), or list names (JARVIS_ALLOWED_HOSTS; "
            "* for any)."
        )


def _options(arguments: argparse.Namespace) -> list[str]:
    """Return uvicorn options as Streamlit sets them, with a bounded graceful shutdown."""
    from jarvis.server.http.web.bodies import MAX_HEADER_BYTES, TimedH11Protocol
    from jarvis.server.settings import settings

    now = settings()
    options = {
        "host": arguments.host,
        "port": arguments.port,
        "timeout-graceful-shutdown": math.ceil(now.stop_seconds),
        "log-level": now.log_level,
        "http": f"{TimedH11Protocol.__module__}:{TimedH11Protocol.__name__}",
        "h11-max-incomplete-event-size": MAX_HEADER_BYTES,
        "ws": "websockets-sansio",
        "ws-per-message-deflate": "false",  # as in Streamlit; compression delays pages
        "ws-max-size": MESSAGE_BYTES,
    }
    flags = ("--no-access-log", "--no-server-header", "--no-use-colors", "--no-proxy-headers")
    return [*flags, *(text for k, v in options.items() for text in (f"--{k}", str(v)))]
