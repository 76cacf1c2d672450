"""How often Python searches for garbage, and where."""

import gc

NEW_OBJECTS = 100_000
"""New objects between two searches of an analysis; it and its imports make many and drop few."""

SERVER_NEW_OBJECTS = 10_000
"""The same for the web server, whose sessions leave garbage behind."""


def raise_thresholds() -> None:
    """Search less often, in this process, from now on."""
    gc.set_threshold(NEW_OBJECTS)


def tune_for_server() -> None:
    """Search less often, and never again among what has been imported by now.

    A search of everything stops all sessions for as long as there are objects to look at.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(SERVER_NEW_OBJECTS)
