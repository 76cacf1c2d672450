"""Artifact root: shared storage of several machines, in a folder or at an fsspec URL.

Files have keys like ``traces/3f2a/step.json.gz`` and are written atomically.
"""

import errno
import posixpath
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

from fsspec import url_to_fs  # type: ignore[import-untyped]
from fsspec.callbacks import Callback, NoOpCallback  # type: ignore[import-untyped]
from fsspec.dircache import DirCache  # type: ignore[import-untyped]

from jarvis.core.errors import JarvisError
from jarvis.server.errors import ArtifactError, FullDiskError, MissingArtifactError
from jarvis.server.settings import settings

_LOCAL = ("file", "local")
_SFTP = ("sftp", "ssh")
_ATOMIC_UPLOADS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory")
"""Protocols with atomic uploads; for others, a temporary file is written and renamed."""

_MIB = 1 << 20
_S3_PIECES = {"chunksize": 8 * _MIB, "max_concurrency": 4}
_PIECES: Mapping[str, Mapping[str, int]] = {"s3": _S3_PIECES, "s3a": _S3_PIECES}
"""Options of multipart transfers; the defaults of s3fs hold 500 MB in memory."""

_NO_SECRETS = ("endpoint_url", "key_filename", "known_hosts")
"""URL options that are not secret."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_PROBE = b"jarvis"

OnBytes = Callable[[int, int], None]
"""Called with the number of transferred bytes, and the total or 0 if it is unknown."""


def raise_if_full(error: OSError, key: str) -> None:
    """Raise FullDiskError if an error means that the local disk is full."""
    if error.errno in _DISK_FULL:
        raise FullDiskError(key) from error


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file of the root; ``written`` is its modification time in seconds since 1970."""

    key: str
    size_bytes: int
    written: float | None

    @property
    def is_half(self) -> bool:
        """Return whether it is a temporary file of an unfinished upload."""
        return posixpath.basename(self.key).startswith(".")


@dataclass(frozen=True, slots=True)
class ArtifactRoot:
    """Location of shared files; ``label`` is the location for messages, without secrets."""

    protocol: str
    url: str
    options: tuple[tuple[str, Any], ...]
    label: str
    secrets: tuple[str, ...]

    @classmethod
    def at(cls, location: str) -> Self:
        """Parse a folder, or a URL with options in its query."""
        if "://" not in location:
            folder = str(Path(location).expanduser().absolute())
            return cls("file", folder, (), folder, ())
        parts = urlsplit(location)
        options = dict(parse_qsl(parts.query))
        host = parts.netloc.rpartition("@")[2]
        secrets = [text for name, text in options.items() if name not in _NO_SECRETS]
        return cls(
            parts.scheme,
            parts._replace(query="", fragment="").geturl().rstrip("/"),
            tuple((name, _option(text)) for name, text in options.items()),
            parts._replace(netloc=host, query="", fragment="").geturl().rstrip("/"),
            tuple(text for text in (*secrets, parts.password) if text),
        )

    def put(self, source: Path, key: str) -> None:
        """Upload a file; replace an existing one."""
        with self._connected() as (fs, root):
            target = f"{root}/{key}"
            if self.protocol in _ATOMIC_UPLOADS:
                fs.put_file(str(source), target, **_PIECES.get(self.protocol, {}))
                return
            self._check_exists(fs, root)
            folder, name = posixpath.split(target)
            fs.makedirs(folder, exist_ok=True)
            temporary = f"{folder}/.{name}.{uuid4().hex[:8]}"
            try:
                fs.put_file(str(source), temporary)
                fs.mv(temporary, target)
            except BaseException:
                with suppress(Exception):
                    fs.rm_file(temporary)
                raise

    def get(self, key: str, target: Path, on_bytes: OnBytes | None = None) -> None:
        """Download a file.

        Args:
            on_bytes: progress callback, if the file system supports it.

        Raises:
            MissingArtifactError: there is no such file.
            FullDiskError: the local disk is full.
        """
        callback = _callback(on_bytes)
        with self._connected() as (fs, root):
            try:
                pieces = _PIECES.get(self.protocol, {})
                fs.get_file(f"{root}/{key}", str(target), callback=callback, **pieces)
            except FileNotFoundError:
                self._check_exists(fs, root)
                raise MissingArtifactError(self.label, key) from None
            except OSError as error:
                raise_if_full(error, key)
                raise

    def holds(self, key: str) -> bool:
        """Return whether there is a file with this key."""
        with self._connected() as (fs, root):
            try:
                fs.info(f"{root}/{key}")
            except FileNotFoundError:
                self._check_exists(fs, root)
                return False
            return True

    def below(self, folder: str) -> list[Artifact]:
        """Return the files in ``folder``, recursively, including temporary ones."""
        with self._connected() as (fs, root):
            files = fs.find(f"{root}/{folder}", detail=True)
            start = len(fs._strip_protocol(root)) + 1
            return [
                Artifact(name[start:], info["size"] or 0, _written(info))
                for name, info in sorted(files.items())
            ]

    def remove(self, *keys: str) -> None:
        """Delete files, if they exist."""
        with self._connected() as (fs, root):
            for key in keys:
                with suppress(FileNotFoundError):
                    fs.rm_file(f"{root}/{key}")
                if self.protocol in (*_LOCAL, *_SFTP):
                    with suppress(OSError):  # not empty
                        fs.rmdir(posixpath.dirname(f"{root}/{key}"))

    def check(self) -> None:
        """Write, read and delete a small file; raise ArtifactError if that fails."""
        with self._connected() as (fs, root):
            self._check_exists(fs, root)
            probe = f"{root}/.probe-{uuid4().hex[:8]}"
            fs.pipe_file(probe, _PROBE)
            try:
                if fs.cat_file(probe) != _PROBE:
                    raise ArtifactError(self.label, "it returns other content than was written")
            finally:
                fs.rm_file(probe)

    def _check_exists(self, fs: Any, root: str) -> None:
        """Raise ArtifactError if the folder, or the bucket of an object store, does not exist.

        A missing folder is not created, since its disk may not be mounted.
        """
        base = root.split("/", 1)[0] if self.protocol in _ATOMIC_UPLOADS else root
        try:
            if base:
                fs.info(base)
        except FileNotFoundError:
            kind = "bucket" if self.protocol in _ATOMIC_UPLOADS else "folder"
            raise ArtifactError(self.label, f"there is no {kind} {base}") from None

    @contextmanager
    def _connected(self) -> Iterator[tuple[Any, str]]:
        """Yield the file system and the root's path; convert all errors to ArtifactError."""
        try:
            if self.protocol not in _SFTP:
                yield _file_system(self.protocol, self.url, self.options)
                return
            # An sftp connection is not thread-safe, and is dropped when idle.
            fs, root = _file_system.__wrapped__(self.protocol, self.url, self.options)
            try:
                yield fs, root
            finally:
                fs.client.close()
        except JarvisError:
            raise
        except Exception as error:  # each file system has its own exceptions
            raise ArtifactError(self.label, self._reason(error)) from error

    def _reason(self, error: Exception) -> str:
        """Return the error message without the secrets of the URL."""
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return " ".join(text.split()).rstrip(".")[:300]


def _callback(on_bytes: OnBytes | None) -> Any:
    """Return the fsspec callback that reports the progress of a transfer."""
    if on_bytes is None:
        return NoOpCallback()
    return Callback(hooks={"bytes": lambda size, value, **_: on_bytes(value, size or 0)})


def artifact_root() -> ArtifactRoot | None:
    """Return the artifact root of the settings; None if it is not set."""
    setting = settings().artifact_root
    return None if setting is None else _root(setting.get_secret_value())


@lru_cache(maxsize=4)
def _root(location: str) -> ArtifactRoot:
    return ArtifactRoot.at(location)


@lru_cache(maxsize=4)
def _file_system(protocol: str, url: str, options: tuple[tuple[str, Any], ...]) -> tuple[Any, str]:
    """Return the file system and the path in it.

    All threads share one instance without a cache of listings: fsspec would create one per thread,
    and cache listings that other machines change.
    """
    arguments = dict(options)
    if protocol in _SFTP:
        # optional dependency
        from jarvis.server.storage.sftp_hosts import only_known_hosts

        arguments = only_known_hosts(arguments)
    fs, path = url_to_fs(url, **arguments, skip_instance_cache=True)
    fs.dircache = DirCache(use_listings_cache=False)
    return fs, path.rstrip("/")


def _option(text: str) -> Any:
    return {"true": True, "false": False}.get(text.lower(), text)


def _written(info: dict[str, Any]) -> float | None:
    """Return the modification time, whose key depends on the file system; None if unknown."""
    for name in ("LastModified", "mtime", "last_modified", "created"):
        moment = info.get(name)
        if moment is not None:
            return float(moment.timestamp() if hasattr(moment, "timestamp") else moment)
    return None
