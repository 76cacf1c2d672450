"""Readiness checks; each returns its status or raises an error."""

import os

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import home
from jarvis.server.database import database, reading
from jarvis.server.jobs import claims
from jarvis.server.migrations import HEAD, version
from jarvis.server.storage import artifacts

PROBE = ".readiness"


class NotReadyError(JarvisError):
    """A dependency of the server is not available."""


def check_database() -> str:
    """Check that the database answers and its schema has the version of this server."""
    with reading(database()) as connection:
        current = version(connection)
    if current != HEAD:
        raise NotReadyError(f"The database has version {current}, this server needs {HEAD}.")
    return f"version {current}"


def check_storage() -> str:
    """Check that the home and the artifact root are writable."""
    home().mkdir(parents=True, exist_ok=True)
    probe = home() / f"{PROBE}-{os.getpid()}"
    probe.write_bytes(b"ready")
    probe.unlink()
    artifacts.check()
    return "writable"


def check_worker() -> str:
    """Check that a worker has a recent heartbeat."""
    if not claims.has_worker(database()):
        raise NotReadyError(
            f"No worker heartbeat in the last {claims.HEARTBEAT_TIMEOUT_S} s; jobs stay queued. "
            "Start a worker (`jarvis worker`, or `jarvis serve` with JARVIS_JOB_SLOTS above 0)."
        )
    return "running"
