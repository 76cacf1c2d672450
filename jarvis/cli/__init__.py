"""Command line: ``jarvis analyze | report | tree | steps | validate | export | serve | ...``.

Results go to stdout; steps, notes and warnings to stderr. Exit codes are in ``output``. A
command imports slow modules only when it runs.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from typing import NoReturn

from jarvis.cli.access import add_audit, add_token
from jarvis.cli.analyze import add_analyze
from jarvis.cli.compare import add_compare
from jarvis.cli.completion import add_completion, answer
from jarvis.cli.export import add_export, add_replay, add_reproject
from jarvis.cli.hardware import add_hardware
from jarvis.cli.output import ExitCode, print_line, print_text
from jarvis.cli.prune import add_prune
from jarvis.cli.push import add_push
from jarvis.cli.ranks import add_collectives, add_ranks
from jarvis.cli.report import add_report
from jarvis.cli.sample import add_sample
from jarvis.cli.serve import add_config, add_serve, add_worker
from jarvis.cli.steps import add_steps
from jarvis.cli.stored import add_archive, add_list, add_pin, add_remove
from jarvis.cli.tree import add_tree
from jarvis.cli.validate import add_validate
from jarvis.cli.what_if import add_what_if
from jarvis.core.errors import JarvisError
from jarvis.core.memory_tuning import raise_thresholds
from jarvis.core.workspace import CONFIG_VARIABLE, SCHEMA_VERSION, close_home

DESCRIPTION = "Turns a PyTorch profiler trace into a performance report, findings and advice."
EPILOG = """\
quick start without a trace:
  jarvis sample --output sample.json.gz
  jarvis analyze sample.json.gz --output-dir out
  jarvis serve
"""


def run() -> NoReturn:
    """Run one command and exit without interpreter teardown.

    Teardown takes a fifth of the time of a small analysis, and all files are closed by then.
    Pydantic plugins are disabled, because searching for them is slow and none are used.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    answer(parser)
    os._exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code (``ExitCode``)."""
    raise_thresholds()
    try:
        arguments = parser().parse_args(argv)
        code = _run(arguments)
        sys.stdout.flush()  # raises BrokenPipeError here if the reader closed the pipe
    except JarvisError as error:
        print_line(f"jarvis: {error}", sys.stderr)
        return ExitCode.FAILED
    except BrokenPipeError:
        _close_pipes()
        return ExitCode.OK
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print_line(
            f"jarvis: {where}{error.strerror or error}. Check that it exists and is writable, or "
            "choose another path.",
            sys.stderr,
        )
        return ExitCode.FAILED
    except KeyboardInterrupt:
        print_line("jarvis: stopped.", sys.stderr)
        return ExitCode.INTERRUPTED
    return code


def _run(arguments: argparse.Namespace) -> int:
    """Run a command; with ``--json``, redirect other output, like that of extensions, to stderr."""
    arguments.stdout = sys.stdout
    _load_settings(arguments)
    close_home()
    with redirect_stdout(sys.stderr if getattr(arguments, "json", False) else sys.stdout):
        code: int = arguments.run(arguments)
    return code


def _load_settings(arguments: argparse.Namespace) -> None:
    """Apply the server settings file, if there is one."""
    if (config := getattr(arguments, "config", None)) is not None:
        os.environ[CONFIG_VARIABLE] = str(config.resolve())
    if CONFIG_VARIABLE in os.environ and getattr(arguments, "takes_settings", True):
        import_module("jarvis.server.settings").use_file()


def _close_pipes() -> None:
    """Redirect the remaining output to the null device after the reader closed the pipe."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if not stream.isatty():
            os.dup2(null, stream.fileno())


class _Version(argparse.Action):
    """Print the version and the layout of run directories."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from jarvis.core.product import product_version

        print_line(f"jarvis {product_version()}, layout {SCHEMA_VERSION}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser that escapes control characters in its messages."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        if message:
            print_text(message, sys.stderr)
        super().exit(status)


def parser() -> argparse.ArgumentParser:
    """Return the parser with all commands."""
    root: argparse.ArgumentParser = _Parser(
        prog="jarvis",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = root.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_analyze(commands)
    add_report(commands)
    add_collectives(commands)
    add_compare(commands)
    add_tree(commands)
    add_steps(commands)
    add_replay(commands)
    add_validate(commands)
    add_export(commands)
    add_serve(commands)
    add_worker(commands)
    add_push(commands)
    add_config(commands)
    add_sample(commands)
    add_hardware(commands)
    add_reproject(commands)
    add_what_if(commands)
    add_ranks(commands)
    add_list(commands)
    add_archive(commands)
    add_token(commands)
    add_audit(commands)
    add_pin(commands)
    add_remove(commands)
    add_prune(commands)
    add_completion(commands)
    return root
