"""``jarvis config``: show and validate server settings."""

import argparse
from dataclasses import asdict

from jarvis.cli.exit_codes import ExitCode
from jarvis.cli.shared import Commands, add_json, add_settings_file, note, print_result, warn
from jarvis.core.errors import JarvisError


def add_config(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command."""
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
