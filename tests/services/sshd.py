"""A real ssh server on loopback, with keys of its own, for as long as a block runs.

It lets in the user who runs the tests, by one key, and serves sftp. It ends with the process that
started it, however that ends.
"""

import getpass
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import optional
from tests.conftest import skip_or_fail
from tests.services.ports import free_port, wait_until_open

SSH, SSHD, KEYGEN = "ssh", "sshd", "ssh-keygen"
NAME = "node"
"""What the client's configuration calls the server."""

_PRIVILEGE_SEPARATION = Path("/run/sshd")
"""A server that is started by root wants this folder, which the init script makes."""


@dataclass(frozen=True, slots=True)
class Sshd:
    """How to reach the server; ``config`` is for ``ssh -F``, and knows it as ``NAME``."""

    folder: Path
    port: int
    user: str
    key: Path
    host_key: Path
    known_hosts: Path
    config: Path

    @property
    def ssh(self) -> tuple[str, ...]:
        """The ssh command that knows the server."""
        return (SSH, "-F", str(self.config))


@contextmanager
def sshd(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Sshd]:
    """A server whose files are in ``folder``; its sessions have the ``environment`` as well."""
    found = {name: optional.program(name) for name in (SSH, SSHD, KEYGEN)}
    for name, program in found.items():
        if program is None:
            skip_or_fail(f"{name} is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    server = _described(folder, free_port())
    _write(server, environment or {})
    command = [
        *optional.tied(),
        str(found[SSHD]),
        "-D",
        "-e",
        "-f",
        str(folder / "sshd_config"),
    ]
    if os.geteuid() == 0:
        _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until_open(server.port)
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One server for all tests of a session."""
    with sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


def _described(folder: Path, port: int) -> Sshd:
    return Sshd(
        folder,
        port,
        getpass.getuser(),
        folder / "client_key",
        folder / "host_key",
        folder / "known_hosts",
        folder / "ssh_config",
    )


def _write(server: Sshd, environment: Mapping[str, str]) -> None:
    """The keys, and the options of server and client."""
    for key in (server.key, server.host_key):
        make_key(key)
    authorized = server.folder / "authorized_keys"
    authorized.write_text(server.key.with_suffix(".pub").read_text())
    host = server.host_key.with_suffix(".pub").read_text()
    server.known_hosts.write_text(f"[127.0.0.1]:{server.port} {host}")
    given = "".join(f' "{name}={value}"' for name, value in environment.items())
    _lines(
        server.folder / "sshd_config",
        "ListenAddress 127.0.0.1",
        f"Port {server.port}",
        f"HostKey {server.host_key}",
        f"AuthorizedKeysFile {authorized}",
        f"PidFile {server.folder / 'sshd.pid'}",
        "StrictModes no",
        "UsePAM no",
        "PermitRootLogin prohibit-password",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "MaxStartups 100",
        "Subsystem sftp internal-sftp",
        *([f"SetEnv{given}"] if given else []),
    )
    _lines(
        server.config,
        f"Host {NAME}",
        "  HostName 127.0.0.1",
        f"  Port {server.port}",
        f"  User {server.user}",
        f"  IdentityFile {server.key}",
        "  IdentitiesOnly yes",
        f"  UserKnownHostsFile {server.known_hosts}",
        "  GlobalKnownHostsFile /dev/null",
        "  StrictHostKeyChecking yes",
    )


def make_key(path: Path) -> None:
    """A new key in ``path``, its public half beside it with the ending ``.pub``."""
    command = [KEYGEN, "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _lines(path: Path, *lines: str) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))
