"""A short run of the fuzzer; ``make fuzz`` runs the long one, with every index checked."""

from pathlib import Path

from tests.trace.fuzz import fuzz


def test_broken_traces_do_no_harm(tmp_path: Path) -> None:
    outcomes = fuzz(300, seed=20_000, folder=tmp_path)
    assert outcomes["valid JSON, read the same"] > 50
    assert outcomes["broken, mended"] > 50
