"""Ports of this machine."""

import socket
import time

SECONDS = 30


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_open(port: int, seconds: float = SECONDS) -> None:
    """Wait until somebody listens; TimeoutError where nobody does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"nobody listens on port {port} after {seconds} s")
