"""A real OpenID provider on loopback, with people in groups, for as long as a block runs."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.conftest import skip_or_fail
from tests.optional import tied
from tests.services.ports import free_port, wait_until_open

PASSWORD = "correct-horse"
PEOPLE: Mapping[str, tuple[str, ...]] = {
    "ada": ("platform",),
    "eve": ("ml",),
    "vic": ("guests",),
}
"""Who can log in, and their groups; each has the email address of ``email_of``."""


@dataclass(frozen=True, slots=True)
class Provider:
    """How to reach the provider, and what it calls the server that its people log in to."""

    issuer: str
    client_id: str = "jarvis"
    client_secret: str = "only-for-tests"

    def settings(self, public_url: str) -> dict[str, str]:
        """The variables of a server that is reached at ``public_url``."""
        return {
            "JARVIS_ACCESS": "oidc",
            "JARVIS_PUBLIC_URL": public_url,
            "JARVIS_OIDC__ISSUER": self.issuer,
            "JARVIS_OIDC__CLIENT_ID": self.client_id,
            "JARVIS_OIDC__CLIENT_SECRET": self.client_secret,
            "JARVIS_OIDC__COOKIE_SECRET": "a-secret-for-tests-of-enough-length",
        }


def email_of(person: str) -> str:
    """What the provider says of a person, and the server takes for a name."""
    return f"{person}@example.org"


@contextmanager
def provider(folder: Path) -> Iterator[Provider]:
    """A provider whose files are in ``folder``; it ends with the process that started it."""
    if find_spec("nanoidp") is None:
        skip_or_fail("nanoidp is not installed")
    port = free_port()
    made = Provider(f"http://127.0.0.1:{port}")
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, made, port)
    options = ("--config", str(folder), "--host", "127.0.0.1", "--port", str(port))
    command = [*tied(), sys.executable, "-m", "nanoidp", *options]
    with (folder / "provider.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        wait_until_open(port)
        yield made
    finally:
        process.kill()
        process.wait()


def _write(folder: Path, made: Provider, port: int) -> None:
    client = {"client_id": made.client_id, "client_secret": made.client_secret}
    settings = {
        "config_version": 1,
        "server": {"host": "127.0.0.1", "port": port},
        "oauth": {"issuer": made.issuer, "clients": [client]},
    }
    users = {
        "config_version": 1,
        "users": {
            person: {"password": PASSWORD, "email": email_of(person), "groups": list(groups)}
            for person, groups in PEOPLE.items()
        },
    }
    # JSON is YAML.
    (folder / "settings.yaml").write_text(json.dumps(settings))
    (folder / "users.yaml").write_text(json.dumps(users))
