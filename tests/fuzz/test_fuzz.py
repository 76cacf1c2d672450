"""A short run of every fuzzer; ``make fuzz`` runs the long one, with every index checked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import KINDS

SEED = 20_000
"""A different seed than the long run."""


@pytest.mark.parametrize("kind", KINDS)
def test_broken_input_does_no_harm(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    outcomes = KINDS[kind].fuzz(KINDS[kind].in_tests, SEED, tmp_path)
    assert outcomes.total() >= KINDS[kind].in_tests
    if kind == "reading":
        assert outcomes["valid JSON, read the same"] > 50
        assert outcomes["broken, mended"] > 50
    if kind == "archives":
        assert outcomes["loaded"] > 2
        assert outcomes["refused"] > 2


REGRESSIONS = {
    "traces": [14, 22, 1007, 1050, 1098, 1259, 1293, 1296],
    "csvs": [7, 3016, 3062],
    "workbooks": [0, 1, 5],
    "hardware": [2],
}
"""Seeds of inputs that failed before."""


@pytest.mark.parametrize(
    ("kind", "seed"), [(kind, seed) for kind, seeds in REGRESSIONS.items() for seed in seeds]
)
def test_inputs_that_failed_before_do_not_fail(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    assert KINDS[kind].fuzz(1, seed, tmp_path).total() >= 1


def test_the_runner_prints_how_to_reproduce_a_failure(tmp_path: Path) -> None:
    """Uses a fuzzer that always fails, in a separate process."""
    program = (
        "import sys\nfrom tests import fuzz\nfrom tests.fuzz import __main__ as runner\n"
        "def fails(count, seed, folder):\n    raise AssertionError(f'broken by {seed}')\n"
        "fuzz.KINDS['hardware'] = fuzz.Kind(fails, 1, 1)\n"
        "sys.exit(runner.main(['--kind', 'hardware', '--count', '2', '--seed', '7']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "broken by 8\n^ python -m tests.fuzz --kind hardware --count 1 --seed 8" in done.stdout
    assert "2 shares failed" in done.stdout
