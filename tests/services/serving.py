"""``jarvis serve`` as a process with its own settings."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import httpx

from tests.services.ports import free_port

# Nothing here may fail because the machine is busy.
START_S = TIMEOUT_S = 120


@dataclass
class Serving:
    """A running server."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    @cached_property
    def client(self) -> httpx.Client:
        """A client of it."""
        return httpx.Client(base_url=self.url, trust_env=False, verify=False, timeout=TIMEOUT_S)

    def lines(self) -> list[str]:
        """Its log."""
        return self.log.read_text(encoding="utf-8").splitlines()

    def told_to_stop(self, seconds: float) -> float:
        """How long it takes to end after SIGTERM; TimeoutExpired where that is longer."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(seconds)
        return time.monotonic() - begin


@contextmanager
def serving(
    home: Path, settings: Mapping[str, str] | None = None, *options: str
) -> Iterator[Serving]:
    """A server at work within the block; it goes with it, and so do its worker and jobs."""
    port, log = free_port(), home / "server.log"
    home.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as lines:
        process = subprocess.Popen(
            [sys.executable, "-m", "jarvis.cli", "serve", "--port", str(port), *options],
            env=os.environ | {"JARVIS_HOME": str(home)} | dict(settings or {}),
            stdout=lines,
            stderr=lines,
        )
    server = Serving(port, process, log)
    try:
        _wait_until_alive(server)
        yield server
    finally:
        server.client.close()
        process.kill()
        process.wait()


def _wait_until_alive(server: Serving) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            server.client.get("/healthz")
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise TimeoutError(f"the server did not answer: {server.log.read_text(encoding='utf-8')}")
