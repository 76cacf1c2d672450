"""Fixtures of the whole suite."""

import gc
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from jarvis.pipeline import assembly
from jarvis.run import Run, write_run
from jarvis.validation import Verdict, validate
from tests.layout import checks as layout
from tests.services import forking
from tests.services.migrated import migrated_once

pytest_plugins = (
    "tests.good_runs",
    "tests.optional",
    "tests.recorded_runs",
    "tests.services.postgres",
    "tests.services.s3",
    "tests.services.sshd",
)

SLOWEST = ("browser", "faults", "server", "validation")
"""Folders with the slowest files, which start in the first part of a run, so that no core idles at
its end. Browsers take more than one core and servers are waited for: so those of each folder are
spread over that part."""

FIRST_PART = 0.75

GARBAGE = 50_000
"""So many new objects are searched for garbage. A test process keeps many more alive."""

REQUIRE_ALL = os.environ.get("JARVIS_TEST_REQUIRE_ALL") == "1"

# CI tests one commit with the same examples each time; other machines try new ones.
settings.register_profile("search", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable" if REQUIRE_ALL else "search")


def skip_or_fail(reason: str) -> None:
    """Skip a test that lacks a requirement; fail in CI, where everything is installed."""
    if REQUIRE_ALL:
        pytest.fail(f"{reason} (JARVIS_TEST_REQUIRE_ALL is set)")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def reference_root() -> Path:
    """Return the folder with recorded traces and their TraceLens reports."""
    from tests import optional  # not before pytest takes it in as a plugin

    root = optional.reference_root()
    if root is None:
        skip_or_fail("JARVIS_REFERENCE does not name a folder with reference traces")
    return root


@pytest.fixture(autouse=True)
def _pages_do_not_stay_the_main_module() -> Iterator[None]:
    """A page that runs is the main module, which a process started later would run again."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture(scope="session", autouse=True)
def every_run_is_valid() -> Iterator[None]:
    """Check every run directory of a test with ``jarvis validate`` and the layout checks."""

    def write_valid_run(run: Run, root: Path) -> None:
        write_run(run, root)
        failed = [outcome for outcome in validate(root) if outcome.verdict is Verdict.FAIL]
        problems = [f"{o.check.name}: {problem}" for o in failed for problem in o.problems]
        problems += [f"{c.name}: {p}" for c, found in layout.problems(root).items() for p in found]
        assert not problems, "\n".join(problems)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "write_run", write_valid_run)
        yield


@pytest.fixture(scope="session", autouse=True)
def _processes_are_forked() -> Iterator[None]:
    """Fork the processes of Jarvis from one that has imported everything."""
    with forking.forked_processes():
        yield


@pytest.fixture(scope="session", autouse=True)
def _databases_are_migrated_once() -> Iterator[None]:
    with migrated_once():
        yield


@pytest.fixture
def usual_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the processes of a test as users do."""
    monkeypatch.setattr(subprocess, "Popen", forking.USUAL)


@pytest.fixture(scope="session")
def components_found_once() -> Iterator[None]:
    """Let Streamlit search installed packages for components once, not for every AppTest."""
    from streamlit.components.v2 import manifest_scanner

    found = manifest_scanner.scan_component_manifests()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", lambda: found)
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spread the slowest files; deselect tests that ``--listed`` does not name."""
    if (file := config.getoption("--listed")) is not None:
        listed = set(Path(file).read_text(encoding="utf-8").splitlines())
        if unknown := sorted(listed - {item.nodeid for item in items}):
            raise pytest.UsageError(f"not collected, though listed: {', '.join(unknown[:5])}")
        items[:] = [item for item in items if item.nodeid in listed]
    turns = _turns(dict.fromkeys(item.path for item in items))
    items.sort(key=lambda item: (turns[item.path], item.path))


def _turns(files: Iterable[Path]) -> dict[Path, float]:
    """Return the place of each file in a run, from 0 to 1."""
    folders: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        folder = file.relative_to(Path(__file__).parent).parts[0]
        folders[folder if folder in SLOWEST else ""].append(file)
    return {
        file: place / len(found) * (FIRST_PART if folder else 1)
        for folder, found in folders.items()
        for place, file in enumerate(found)
    }


def pytest_configure() -> None:
    """Seldom search for garbage, also while modules and tests are collected."""
    gc.set_threshold(GARBAGE)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Never search the modules and the tests for garbage, which are alive until the end."""
    gc.collect()
    gc.freeze()


def pytest_xdist_auto_num_workers() -> int:
    """Return two processes for each core: many tests wait for another process."""
    return 2 * (os.cpu_count() or 1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options that update reference data."""
    parser.addoption("--listed", metavar="FILE", help="collect all, run the tests listed in FILE")
    parser.addoption("--update-golden", action="store_true", help="re-make tests/golden")
    parser.addoption(
        "--write-links",
        nargs="?",
        const="all",
        metavar="PAGE",
        help="store the links of this version's pages, or of PAGE alone",
    )
