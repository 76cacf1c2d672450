"""Fixtures of simulations."""

from pathlib import Path

import pytest

from tests.simulation.tiny import Replay, Replays


@pytest.fixture
def replay(tmp_path: Path) -> Replay:
    """Return a function that builds the simulation of a small trace."""
    return lambda tiny: Replays(tiny, tmp_path)
