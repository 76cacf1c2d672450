"""A real proxy that sets the user header, like an authenticating proxy."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import optional
from tests.conftest import skip_or_fail
from tests.services.ports import free_port, wait_until_open

TRUSTED = "127.0.0.2"
"""Another address of this machine, which connections of a trusted proxy come from."""

_CONFIGURATION = """
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout tunnel 60s
frontend people
  bind 127.0.0.1:{port}
  http-request set-header X-Forwarded-User {person}
  http-request set-header X-Forwarded-Groups {groups}
  default_backend web
backend web
  source {source}
  server web 127.0.0.1:{web_port}
"""


@contextmanager
def identity_proxy(
    folder: Path, web_port: int, person: str, groups: str, source: str = TRUSTED
) -> Iterator[str]:
    """The address of a proxy in front of a port, through which everybody is ``person``."""
    program = optional.program("haproxy")
    if program is None:
        skip_or_fail("there is no haproxy")
    port = free_port()
    file = folder / f"proxy-{port}.cfg"
    given = {"port": port, "person": person, "groups": groups, "source": source}
    file.write_text(_CONFIGURATION.format(web_port=web_port, **given))
    command = [str(program), "-db", "-f", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_open(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
