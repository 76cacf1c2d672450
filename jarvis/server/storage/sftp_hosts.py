"""Which machines are trusted by sftp: those that the ``known_hosts`` files of ssh name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paramiko

from jarvis.server.settings import settings

KNOWN_HOSTS = (Path("~/.ssh/known_hosts"), Path("/etc/ssh/ssh_known_hosts"))


class OnlyKnownHosts(paramiko.MissingHostKeyPolicy):
    """Refuses a machine whose key is not the one that a file names."""

    def __init__(self, files: tuple[Path, ...] = KNOWN_HOSTS) -> None:
        self._known = paramiko.HostKeys()
        for file in files:
            if file.expanduser().is_file():
                self._known.load(str(file.expanduser()))

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        """Called by paramiko for each connection, which knows no machine itself."""
        if not self._known.check(hostname, key):
            known = "another key" if hostname in self._known else "no key"
            raise paramiko.SSHException(f"known_hosts has {known} of the machine {hostname}")


def only_known_hosts(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of an sftp file system with the check, and with the key that is set.

    ``known_hosts`` and ``key_filename`` among them win over the settings.
    """
    given, now = dict(options), settings()
    file = given.pop("known_hosts", None) or now.sftp_known_hosts
    if now.sftp_key is not None:
        given.setdefault("key_filename", str(now.sftp_key))
    given["host_key_policy"] = OnlyKnownHosts(KNOWN_HOSTS if file is None else (Path(file),))
    return given
