"""Optional requirements of tests: programs, the reference folder, a Python with torch.

Everything optional is found here and nowhere else, so that one variable hides all of it, and a run
of the suite can list the tests that asked for any of it. `.ci/bare` then runs those without it.
"""

import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

WITHOUT = "JARVIS_TEST_WITHOUT_OPTIONAL"
"""If 1, nothing optional is found, even if installed."""

ASKED = "JARVIS_TEST_ASKED"
"""A folder for the ids of tests that use something optional, in a file for each process."""

PROGRAMS = (
    "chromium",
    "chromium-headless-shell",
    "haproxy",
    "setpriv",
    "ssh",
    "ssh-keygen",
    "sshd",
)
"""Searched on PATH and in the folders of Debian's server programs."""

_SERVERS = "/usr/sbin"
_POSTGRES = Path("/usr/lib/postgresql")
"""Folders of PostgreSQL's programs on Debian, by version; they are not on PATH."""

_REPLAY = Path(__file__).parents[1] / ".venv-replay" / "bin" / "python"

asking_tests: set[str] = set()
"""Ids of the tests of this process that use something optional."""

_current_fixtures: list[str] = []
_asking_fixtures: set[str] = set()


def program(name: str) -> str | None:
    """Return the path of one of ``PROGRAMS``, or None."""
    if name not in PROGRAMS:
        raise ValueError(f"{name} is not among the optional programs of {__name__}")
    if _is_hidden():
        return None
    return shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}{_SERVERS}")


def browser_program() -> str | None:
    """Return the path of Chromium, or None; the headless one takes two thirds of the CPU time."""
    return program("chromium-headless-shell") or program("chromium")


def tied(signal: str = "KILL") -> tuple[str, ...]:
    """Return the prefix of a command that ends with its parent process, even if that is killed.

    Skips the test where there is no setpriv.
    """
    from tests.conftest import skip_or_fail

    setpriv = program("setpriv")
    if setpriv is None:
        skip_or_fail("setpriv is not installed")
    return (str(setpriv), "--pdeathsig", signal)


def postgres_programs() -> list[Path]:
    """Return the folders with PostgreSQL's programs, the newest version last."""
    if _is_hidden():
        return []
    return sorted(_POSTGRES.glob("*/bin"), key=lambda path: int(path.parent.name))


def reference_root() -> Path | None:
    """Return the folder with recorded traces and their TraceLens reports."""
    root = "" if _is_hidden() else os.environ.get("JARVIS_REFERENCE", "")
    return Path(root).resolve() if root and (Path(root) / "traces").is_dir() else None


def trace_processor() -> str | None:
    """Return the trace_processor_shell of Perfetto that JARVIS_TRACE_PROCESSOR names."""
    path = "" if _is_hidden() else os.environ.get("JARVIS_TRACE_PROCESSOR", "")
    return path if path and Path(path).is_file() else None


def torch_python() -> str | None:
    """Return the Python that has torch; ``make setup-replay`` makes it."""
    python = os.environ.get("JARVIS_REPLAY_PYTHON", str(_REPLAY))
    return None if _is_hidden() or not Path(python).is_file() else python


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object],
) -> Generator[None, object, object]:
    """Record which shared fixtures are being set up."""
    if fixturedef.scope == "function":
        return (yield)
    _current_fixtures.append(fixturedef.argname)
    try:
        return (yield)
    finally:
        _current_fixtures.pop()


@pytest.fixture(autouse=True)
def _asking_is_noted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Record each test that uses a shared fixture with something optional."""
    yield
    if not _asking_fixtures.isdisjoint(request.fixturenames):
        _write_down()


def _is_hidden() -> bool:
    _asking_fixtures.update(_current_fixtures)
    _write_down()
    return os.environ.get(WITHOUT) == "1"


def _write_down() -> None:
    folder, current = os.environ.get(ASKED), os.environ.get("PYTEST_CURRENT_TEST")
    if current is None:
        if folder is None:
            return  # a script of docs/ or benchmarks/
        raise RuntimeError("What is optional must be looked for in a test, not on import.")
    test = current.rpartition(" (")[0]
    if test in asking_tests:
        return
    asking_tests.add(test)
    if folder is not None:
        with Path(folder, str(os.getpid())).open("a", encoding="utf-8") as file:
            file.write(f"{test}\n")
