"""Garbage-collector tuning."""

import gc

NEW_OBJECTS = 100_000
"""Collection threshold of an analysis, which allocates many objects and frees few."""

SERVER_NEW_OBJECTS = 10_000
"""Collection threshold of the web server, whose sessions create garbage."""


def raise_thresholds() -> None:
    """Collect garbage less often in this process."""
    gc.set_threshold(NEW_OBJECTS)


def tune_for_server() -> None:
    """Collect garbage less often and exclude all objects that exist now (the imports).

    A full collection pauses all sessions in proportion to the number of tracked objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(SERVER_NEW_OBJECTS)
