"""A file by sftp, with the key of this server, from a machine whose key is known."""

import getpass
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from jarvis.server.ingest.addresses import Address, machines_of
from jarvis.server.ingest.fetch.base import (
    CONNECT_S,
    SILENCE_S,
    FetchError,
    InterruptedFetchError,
    OpenedDownload,
)
from jarvis.server.settings import PREFIX, settings
from jarvis.text.markdown import one_line, shortened

if TYPE_CHECKING:
    from paramiko import SFTPClient, SFTPFile, SSHClient

KNOWN_HOSTS_VARIABLE = f"{PREFIX}SFTP_KNOWN_HOSTS"
KEY_VARIABLE = f"{PREFIX}SFTP_KEY"

_BLOCK_BYTES = 32 << 10
"""What servers give at most at once."""

_AHEAD_BLOCKS = 256
"""So many blocks are asked for at once, so that a long way does not make it slow."""


class SftpFile:
    """The file at an address; a second ``open`` goes on only where the file is still the same."""

    def __init__(self, address: Address) -> None:
        try:
            import paramiko
        except ImportError as error:
            raise FetchError(
                "This server cannot fetch by sftp: it lacks the extra. Install jarvis-perf[sftp] "
                "there."
            ) from error
        self._lost = (paramiko.SSHException, OSError, EOFError)
        self._address = address
        self._stamp: tuple[int, int] | None = None

    @contextmanager
    def open(self, offset: int) -> Iterator[OpenedDownload]:
        """Log in and ask for the file."""
        client = _connected(self._address)
        try:
            try:
                file, size, modified = _opened(client.open_sftp(), self._address)
            except self._lost as error:
                raise self._interrupted(error) from error
            start = offset if self._stamp == (size, modified) else 0
            self._stamp = size, modified
            yield OpenedDownload(
                start, size, (self._address.file_name,), self._pieces(file, start, size)
            )
        finally:
            client.close()

    def _pieces(self, file: "SFTPFile", start: int, size: int) -> Iterator[bytes]:
        """The bytes up to the length that the file had when it was opened."""
        try:
            for window in range(start, size, _AHEAD_BLOCKS * _BLOCK_BYTES):
                end = min(size, window + _AHEAD_BLOCKS * _BLOCK_BYTES)
                blocks = [
                    (at, min(_BLOCK_BYTES, end - at)) for at in range(window, end, _BLOCK_BYTES)
                ]
                for (_, wanted), piece in zip(blocks, file.readv(blocks), strict=True):
                    if len(piece) != wanted:
                        raise EOFError("the file became shorter")
                    yield piece
        except self._lost as error:
            raise self._interrupted(error) from error

    def _interrupted(self, error: Exception) -> InterruptedFetchError:
        return InterruptedFetchError(
            f"{self._address.host_and_port} stopped sending: {_said(error)}. Try again."
        )


def _connected(address: Address) -> "SSHClient":
    """A connection to a machine of the host, which has shown that it is the known one."""
    import paramiko

    from jarvis.server.storage.sftp_hosts import KNOWN_HOSTS

    client = paramiko.SSHClient()  # refuses machines that are not known
    given, key = settings().sftp_known_hosts, settings().sftp_key
    known = [file.expanduser() for file in (KNOWN_HOSTS if given is None else (given,))]
    try:
        for file in filter(Path.is_file, known):
            client.load_system_host_keys(str(file))
        client.connect(
            address.host,
            address.port,
            address.user or getpass.getuser(),
            key_filename=None if key is None else str(key),
            look_for_keys=key is None,
            sock=_socket(address),
            timeout=CONNECT_S,
            banner_timeout=CONNECT_S,
            auth_timeout=CONNECT_S,
        )
    except (paramiko.SSHException, OSError, EOFError) as error:
        client.close()
        raise _refused(address, known, error) from error
    return client


def _socket(address: Address) -> socket.socket:
    lost: OSError | None = None
    for machine in machines_of(address):
        try:
            return socket.create_connection((str(machine), address.port), CONNECT_S)
        except OSError as error:
            lost = error
    raise InterruptedFetchError(
        f"{address.host_and_port} cannot be reached: {_said(lost)}. Check that it runs and that "
        "this server may connect to it, then try again."
    )


def _opened(sftp: "SFTPClient", address: Address) -> tuple["SFTPFile", int, int]:
    """The file, its size in bytes and when it was changed."""
    channel = sftp.get_channel()
    assert channel is not None
    channel.settimeout(SILENCE_S)
    try:
        file = sftp.open(unquote(address.path), "rb")
        found = file.stat()
    except (FileNotFoundError, PermissionError) as error:
        raise FetchError(
            f"{address.shown} was not sent: {_said(error)}. Check the path."
        ) from error
    if not stat.S_ISREG(found.st_mode or 0):
        raise FetchError(f"{address.shown} is no file. Give the path of a trace.")
    return file, found.st_size or 0, found.st_mtime or 0


def _refused(address: Address, known: Sequence[Path], error: Exception) -> FetchError:
    """Why nobody was logged in, and what to do about it."""
    import paramiko

    where, files = address.host_and_port, " or ".join(map(str, known))
    if isinstance(error, paramiko.BadHostKeyException):
        return FetchError(
            f"{where} shows another key than the one in {files}: it was set up anew, or somebody "
            "stands between. Nothing was fetched. Ask who runs it, then mend that file."
        )
    if isinstance(error, paramiko.AuthenticationException):
        user = address.user or getpass.getuser()
        return FetchError(
            f"{where} does not let {user} in with a key of this server. Have the key allowed "
            f"there, or set {KEY_VARIABLE}."
        )
    if "not found in known_hosts" in str(error):
        return FetchError(
            f"The key of {where} is not known here. Whoever runs this server adds it to {files} "
            f"({KNOWN_HOSTS_VARIABLE}), once it is sure that it is the right one."
        )
    return InterruptedFetchError(f"{where} cannot be reached: {_said(error)}. Try again.")


def _said(error: Exception | None) -> str:
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return shortened(one_line(str(words)), 200)
