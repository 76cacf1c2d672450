"""``jarvis serve | worker | config``: run a server and its workers, check its settings."""

import argparse
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from jarvis.cli.options import Commands, add_flag, add_settings_file, non_negative, positive
from jarvis.cli.output import ExitCode, add_json, note, print_line, print_result, print_step, warn
from jarvis.core.errors import JarvisError
from jarvis.core.memory_tuning import set_server_arenas
from jarvis.core.workspace import HOME_VARIABLE, home, resource

if TYPE_CHECKING:
    from jarvis.server.settings import Settings


MESSAGE_BYTES = 25 << 20
"""Maximum websocket message: Streamlit's limit for widget state."""


def add_serve(commands: Commands) -> None:
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
        type=non_negative,
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


DESCRIPTION = """\
Run jobs from the queue until interrupted. Start any number of workers on machines that reach the
database and the analyses of the server; `jarvis serve` starts its own unless `--job-slots` is 0.
"""


def add_worker(commands: Commands) -> None:
    command = commands.add_parser(
        "worker", help="run jobs of a server, also on another machine", description=DESCRIPTION
    )
    command.add_argument(
        "--slots",
        metavar="N",
        type=positive,
        help="concurrent jobs, each in its own process, plus one short job (default: 1, or the "
        "slots of the Dask cluster)",
    )
    command.add_argument(
        "--home",
        metavar="DIR",
        type=Path,
        help=f"folder of stored analyses (default: {HOME_VARIABLE}, else ~/.jarvis)",
    )
    add_settings_file(command)
    command.set_defaults(run=_work)


def _work(arguments: argparse.Namespace) -> int:
    from jarvis.server.jobs.worker import main

    if arguments.home is not None:
        os.environ[HOME_VARIABLE] = str(arguments.home.resolve())
    return main([] if arguments.slots is None else ["--slots", str(arguments.slots)])


def add_config(commands: Commands) -> None:
    command = commands.add_parser(
        "config",
        help="show and validate server settings",
        description="Show all server settings with their values and sources; secrets and "
        "passwords are hidden. With --check, validate the settings, the database and the storage.",
    )
    action = command.add_mutually_exclusive_group()
    action.add_argument("--show", action="store_true", help="show all settings (the default)")
    action.add_argument("--check", action="store_true", help="list problems, with exit code 3")
    add_settings_file(command)
    add_json(command)
    command.set_defaults(run=_config, takes_settings=False)


def _config(arguments: argparse.Namespace) -> int:
    from jarvis.server.settings_shown import shown_settings, unknown_variables

    if arguments.check:
        return _check(arguments)
    note(unknown_variables())
    shown = shown_settings()
    result = {"settings": [asdict(setting) for setting in shown]}
    print_result(arguments, result, (f"{s.name} = {s.value}  [{s.source}]" for s in shown))
    return ExitCode.OK


def _check(arguments: argparse.Namespace) -> int:
    from jarvis.server.settings_shown import unknown_variables, without_secrets

    warn(unknown_variables())
    problems = [without_secrets(problem) for problem in _problems()]
    lines = problems or ["The settings are valid."]
    print_result(arguments, {"ok": not problems, "problems": problems}, lines)
    return ExitCode.CHECK_FAILED if problems else ExitCode.OK


def _problems() -> list[str]:
    """Return the first problem of each kind."""
    from jarvis.server.access.login import check_login
    from jarvis.server.http.web.health import check_database, check_storage
    from jarvis.server.settings import settings, use_file

    try:
        use_file()
        check_login(settings())
    except JarvisError as error:
        return [str(error)]
    problems = []
    for check in (check_database, check_storage):
        try:
            check()
        except (JarvisError, OSError) as error:
            problems.append(str(error))
    return problems
