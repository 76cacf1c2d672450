"""A short run of ``fuzz_archives``; `make fuzz` has the long one."""

from pathlib import Path

from tests.security.fuzz_archives import fuzz

COUNT = 24


def test_forged_archives_are_refused_or_can_be_used(tmp_path: Path) -> None:
    outcomes = fuzz(COUNT, 3, tmp_path)
    assert outcomes.total() == COUNT
    assert outcomes["loaded"] > 2
    assert outcomes["refused"] > 2
