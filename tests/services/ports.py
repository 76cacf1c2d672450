"""Ports of this machine."""

import secrets
import socket
import time
from contextlib import suppress

SECONDS = 120

_OURS = range(20_000, 32_000)
"""Below the ports that connections get: none of them takes that of a server which restarts."""


def free_port() -> int:
    """Return a free port."""
    while True:
        port = secrets.choice(_OURS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until_open(port: int, seconds: float = SECONDS) -> None:
    """Wait until a port is open; raise TimeoutError otherwise."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port} after {seconds} s")
