"""Verification of sftp host keys by the ``known_hosts`` files of ssh."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paramiko

from jarvis.server.settings import settings

KNOWN_HOSTS = (Path("~/.ssh/known_hosts"), Path("/etc/ssh/ssh_known_hosts"))


class OnlyKnownHosts(paramiko.MissingHostKeyPolicy):
    """Rejects hosts whose key is not in the files."""

    def __init__(self, files: tuple[Path, ...] = KNOWN_HOSTS) -> None:
        self._known = paramiko.HostKeys()
        for file in files:
            if file.expanduser().is_file():
                self._known.load(str(file.expanduser()))

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        """Raise SSHException unless the key is known; called by paramiko for each connection."""
        if not self._known.check(hostname, key):
            known = "another key" if hostname in self._known else "no key"
            raise paramiko.SSHException(f"known_hosts has {known} of {hostname}")


def only_known_hosts(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an sftp file system with host key verification and the server's key.

    ``known_hosts`` and ``key_filename`` in the options override the settings.
    """
    result, now = dict(options), settings()
    file = result.pop("known_hosts", None) or now.sftp_known_hosts
    if now.sftp_key is not None:
        result.setdefault("key_filename", str(now.sftp_key))
    result["host_key_policy"] = OnlyKnownHosts(KNOWN_HOSTS if file is None else (Path(file),))
    return result
