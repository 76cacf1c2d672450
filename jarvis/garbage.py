"""How often Python searches for garbage while an analysis runs."""

import gc

NEW_OBJECTS = 100_000
"""New objects between two searches; imports and analyses make many and drop few."""


def collect_rarely() -> None:
    """Search less often, in this process, from now on."""
    gc.set_threshold(NEW_OBJECTS)
