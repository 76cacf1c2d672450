"""A real haproxy in front of two web processes, with the configuration that the docs give."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import optional
from tests.conftest import skip_or_fail
from tests.services.ports import SECONDS, free_port, wait_until_open

CONFIGURATION = Path(__file__).parents[2] / "docs" / "deploy" / "haproxy.cfg"


@contextmanager
def haproxy(first: int, second: int) -> Iterator[str]:
    """The address of a proxy in front of the two ports of this machine."""
    program = optional.program("haproxy")
    if program is None:
        skip_or_fail("there is no haproxy")
    port = free_port()
    environment = os.environ | {
        "JARVIS_BIND": f"127.0.0.1:{port}",
        "JARVIS_HOST": "127.0.0.1",
        "JARVIS_FIRST": f"127.0.0.1:{first}",
        "JARVIS_SECOND": f"127.0.0.1:{second}",
    }
    command = [str(program), "-db", "-f", str(CONFIGURATION)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_until_open(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(SECONDS)
