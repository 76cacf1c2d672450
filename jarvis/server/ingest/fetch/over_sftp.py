"""Downloads and listings by sftp with the server's key, from machines in known_hosts."""

import getpass
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from jarvis.server.errors import FetchError, InterruptedFetchError
from jarvis.server.ingest.addresses import Address, machines_of
from jarvis.server.ingest.fetch.base import (
    CONNECT_S,
    SILENCE_S,
    Entry,
    ListFolder,
    OpenedDownload,
    error_text,
)
from jarvis.server.settings import PREFIX, settings

if TYPE_CHECKING:
    from paramiko import SFTPClient, SFTPFile, SSHClient

KNOWN_HOSTS_VARIABLE = f"{PREFIX}SFTP_KNOWN_HOSTS"
KEY_VARIABLE = f"{PREFIX}SFTP_KEY"

_BLOCK_BYTES = 32 << 10
"""Maximum block size of sftp servers."""

_AHEAD_BLOCKS = 256
"""Number of pipelined block requests, which hides the latency."""


class SftpFile:
    """A file at a URL; later calls of ``open`` resume only if the file has not changed."""

    def __init__(self, address: Address) -> None:
        try:
            import paramiko
        except ImportError as error:
            raise FetchError(
                "This server cannot download by sftp. Install jarvis-perf[sftp] there."
            ) from error
        self._lost = (paramiko.SSHException, OSError, EOFError)
        self._address = address
        self._stamp: tuple[int, int] | None = None

    @contextmanager
    def open(self, offset: int) -> Iterator[OpenedDownload]:
        """Log in and request the file."""
        client = _connected(self._address)
        try:
            try:
                file, size, modified = _opened(_opened_sftp(client), self._address)
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
        """Yield the content up to the file size at opening."""
        try:
            for window in range(start, size, _AHEAD_BLOCKS * _BLOCK_BYTES):
                end = min(size, window + _AHEAD_BLOCKS * _BLOCK_BYTES)
                blocks = [
                    (start, min(_BLOCK_BYTES, end - start))
                    for start in range(window, end, _BLOCK_BYTES)
                ]
                for (_, length), piece in zip(blocks, file.readv(blocks), strict=True):
                    if len(piece) != length:
                        raise EOFError("the file was truncated")
                    yield piece
        except self._lost as error:
            raise self._interrupted(error) from error

    def _interrupted(self, error: Exception) -> InterruptedFetchError:
        return InterruptedFetchError(
            f"{self._address.host_and_port} stopped sending: {error_text(error)}. Try again."
        )


@contextmanager
def sftp_folders(address: Address) -> Iterator[ListFolder]:
    """Log in; yield what lists a folder of the machine, without links."""
    lost = SftpFile(address)._lost
    client = _connected(address)

    def entries(folder: Address) -> Iterator[Entry]:
        try:
            for entry in sftp.listdir_iter(unquote(folder.path)):
                mode = entry.st_mode or 0
                if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                    yield Entry(entry.filename, stat.S_ISDIR(mode))
        except lost as error:
            raise FetchError(
                f"{folder.shown} cannot be listed: {error_text(error)}. Check the path."
            ) from error

    try:
        sftp = _opened_sftp(client)
        yield entries
    except lost as error:
        raise FetchError(f"{address.shown} cannot be listed: {error_text(error)}.") from error
    finally:
        client.close()


def _opened_sftp(client: "SSHClient") -> "SFTPClient":
    sftp = client.open_sftp()
    channel = sftp.get_channel()
    assert channel is not None
    channel.settimeout(SILENCE_S)
    return sftp


def _connected(address: Address) -> "SSHClient":
    """Connect to the host and log in; its key must be in known_hosts."""
    import paramiko

    from jarvis.server.storage.sftp_hosts import KNOWN_HOSTS

    client = paramiko.SSHClient()  # its default policy rejects unknown host keys
    setting, key = settings().sftp_known_hosts, settings().sftp_key
    known = [file.expanduser() for file in (KNOWN_HOSTS if setting is None else (setting,))]
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
        f"{address.host_and_port} cannot be reached: {error_text(lost)}. Check that it is running "
        "and that this server can connect to it, then try again."
    )


def _opened(sftp: "SFTPClient", address: Address) -> tuple["SFTPFile", int, int]:
    """Open the file; return it with its size in bytes and its modification time."""
    try:
        file = sftp.open(unquote(address.path), "rb")
        status = file.stat()
    except (FileNotFoundError, PermissionError) as error:
        raise FetchError(
            f"{address.shown} cannot be downloaded: {error_text(error)}. Check the path."
        ) from error
    if not stat.S_ISREG(status.st_mode or 0):
        raise FetchError(f"{address.shown} is not a file. Give the path of a trace.")
    return file, status.st_size or 0, status.st_mtime or 0


def _refused(address: Address, known: Sequence[Path], error: Exception) -> FetchError:
    """Return the error of a failed login, with what to do."""
    import paramiko

    where, files = address.host_and_port, " or ".join(map(str, known))
    if isinstance(error, paramiko.BadHostKeyException):
        return FetchError(
            f"The host key of {where} differs from the one in {files}: the machine was "
            "reinstalled, or the connection is intercepted. Nothing was downloaded. Verify the "
            "key with the machine's admin, then update that file."
        )
    if isinstance(error, paramiko.AuthenticationException):
        user = address.user or getpass.getuser()
        return FetchError(
            f"{where} rejected the login of {user} with this server's key. Authorize the key "
            f"there, or set {KEY_VARIABLE}."
        )
    if "not found in known_hosts" in str(error):
        return FetchError(
            f"The host key of {where} is unknown. Ask an admin of this server to verify it and "
            f"add it to {files} ({KNOWN_HOSTS_VARIABLE})."
        )
    return InterruptedFetchError(f"{where} cannot be reached: {error_text(error)}. Try again.")
