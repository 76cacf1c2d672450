"""Run directories of all recorded traces and of two built ones, each made once."""

from collections.abc import Callable

import pytest

from jarvis.pipeline import analyze
from tests.arithmetic.built_traces import BUILT
from tests.arithmetic.reports import Checker
from tests.arithmetic.run_directory import RunDirectory
from tests.recorded_runs import RECORDED

RunOf = Callable[[str], RunDirectory]


@pytest.fixture(scope="session")
def run_of(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """The run directory of a trace by name, made when it is first asked for."""
    made: dict[str, RunDirectory] = {}

    def run_of(name: str) -> RunDirectory:
        if name not in made and name in BUILT:
            folder = tmp_path_factory.mktemp(name)
            trace = BUILT[name]().write(folder / f"{name}.json")
            analyze(trace, output_dir=folder / "run")
            made[name] = RunDirectory(folder / "run", trace)
        elif name not in made:
            trace = request.getfixturevalue("reference_root") / "traces" / f"{name}.json.gz"
            made[name] = RunDirectory(request.getfixturevalue("recorded_run")(name), trace)
        return made[name]

    return run_of


@pytest.fixture(params=[*RECORDED, *BUILT])
def run(request: pytest.FixtureRequest, run_of: RunOf) -> RunDirectory:
    """Each run in turn."""
    if request.param not in BUILT:
        request.getfixturevalue("reference_root")
    return run_of(request.param)


@pytest.fixture
def checker(run: RunDirectory, checkers: dict[RunDirectory, Checker]) -> Checker:
    """The checker of each run in turn."""
    return checkers.setdefault(run, Checker(run))


@pytest.fixture(scope="session")
def checkers() -> dict[RunDirectory, Checker]:
    """One checker for each run, which keeps what it has worked out."""
    return {}
