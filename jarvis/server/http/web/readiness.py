"""What a server needs to do its work; each check says how it is, or raises what is wrong."""

import os

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import home
from jarvis.server.database import database, reading
from jarvis.server.jobs import claims
from jarvis.server.migrations import HEAD, version
from jarvis.server.storage import artifacts

PROBE = ".readiness"


class NotReadyError(JarvisError):
    """Something that the server needs is not there."""


def check_database() -> str:
    """It answers, and its tables are of this version."""
    with reading(database()) as connection:
        found = version(connection)
    if found != HEAD:
        raise NotReadyError(f"The database has version {found}, this server works with {HEAD}.")
    return f"version {found}"


def check_storage() -> str:
    """Analyses and traces can be written, here and where they are shared."""
    home().mkdir(parents=True, exist_ok=True)
    probe = home() / f"{PROBE}-{os.getpid()}"
    probe.write_bytes(b"ready")
    probe.unlink()
    artifacts.check()
    return "can be written"


def check_worker() -> str:
    """A worker was heard of lately."""
    if not claims.has_worker(database()):
        raise NotReadyError(
            f"No worker was heard of in the last {claims.HEARTBEAT_TIMEOUT_S} s: jobs wait. "
            "Start one (`jarvis worker`, or `jarvis serve` with JARVIS_JOB_SLOTS above 0)."
        )
    return "at work"
