"""The artifact root: files that several machines share, in a folder or behind a URL of fsspec.

Files have keys like ``traces/3f2a/step.json.gz``. One appears under its key whole or not at all.
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
from jarvis.core.workspace import ARTIFACT_ROOT_VARIABLE, analyses_dir
from jarvis.server.settings import settings

_LOCAL = ("file", "local")
_SFTP = ("sftp", "ssh")
_WHOLE_AT_ONCE = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory")
"""Where a file is seen when all of it has arrived; elsewhere it is written beside and moved."""

_MIB = 1 << 20
_S3_PIECES = {"chunksize": 8 * _MIB, "max_concurrency": 4}
_PIECES: Mapping[str, Mapping[str, int]] = {"s3": _S3_PIECES, "s3a": _S3_PIECES}
"""Large files go in pieces, several at a time; s3fs would hold 500 MB of them in memory."""

_NO_SECRETS = ("endpoint_url", "key_filename", "known_hosts")
"""Options of a URL that may stand in a sentence."""

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_PROBE = b"jarvis"

OnBytes = Callable[[int, int], None]
"""Called with the bytes that have come and all that will, 0 where that is not known."""


def named(key: str) -> str:
    """What a file of the root is, for a sentence."""
    kind, name, *rest = key.split("/")
    return f"the analysis {name}" if kind == analyses_dir().name else (rest or [name])[-1]


class ArtifactError(JarvisError):
    """The artifact root cannot be used."""

    def __init__(self, root: str, reason: str) -> None:
        super().__init__(
            f"The artifact root {root} cannot be used: {reason}. Check that it is there, can be "
            f"reached and may be written by this server ({ARTIFACT_ROOT_VARIABLE}), then try again."
        )


class MissingArtifactError(JarvisError):
    """A file is not in the artifact root."""

    def __init__(self, root: str, key: str) -> None:
        super().__init__(
            f"The artifact root {root} does not have {named(key)} any more: it was removed. Make "
            "it, or upload it, again."
        )


class FullDiskError(JarvisError):
    """What was fetched finds no room on this machine."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The disk of this server is full: {named(key)} cannot be fetched from the artifact "
            "root. Make room (`jarvis prune --dry-run` says what may go), or lower "
            "JARVIS_ARTIFACT_CACHE_GB, then try again."
        )


def raise_if_full(error: OSError, key: str) -> None:
    """FullDiskError where that is why a file was not written here."""
    if error.errno in _DISK_FULL:
        raise FullDiskError(key) from error


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file of the root: its key, bytes, and when it was written, in seconds since 1970."""

    key: str
    size_bytes: int
    written: float | None

    @property
    def is_half(self) -> bool:
        """Whether it was still being written when its writer ended."""
        return posixpath.basename(self.key).startswith(".")


@dataclass(frozen=True, slots=True)
class ArtifactRoot:
    """Where files are shared; ``label`` is what people are told, without secrets."""

    protocol: str
    url: str
    options: tuple[tuple[str, Any], ...]
    label: str
    secrets: tuple[str, ...]

    @classmethod
    def at(cls, given: str) -> Self:
        """What a folder, or a URL with options as its query, names."""
        if "://" not in given:
            folder = str(Path(given).expanduser().absolute())
            return cls("file", folder, (), folder, ())
        parts = urlsplit(given)
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
        """Write a file; one that has this key is replaced."""
        with self._connected() as (fs, root):
            target = f"{root}/{key}"
            if self.protocol in _WHOLE_AT_ONCE:
                fs.put_file(str(source), target, **_PIECES.get(self.protocol, {}))
                return
            self._check_there(fs, root)
            folder, name = posixpath.split(target)
            fs.makedirs(folder, exist_ok=True)
            half = f"{folder}/.{name}.{uuid4().hex[:8]}"
            try:
                fs.put_file(str(source), half)
                fs.mv(half, target)
            except BaseException:
                with suppress(Exception):
                    fs.rm_file(half)
                raise

    def get(self, key: str, target: Path, on_bytes: OnBytes | None = None) -> None:
        """Fetch a file; MissingArtifactError where there is none, FullDiskError.

        ``on_bytes`` hears how many of how many have come, where the file system tells.
        """
        told = _told(on_bytes)
        with self._connected() as (fs, root):
            try:
                pieces = _PIECES.get(self.protocol, {})
                fs.get_file(f"{root}/{key}", str(target), callback=told, **pieces)
            except FileNotFoundError:
                self._check_there(fs, root)
                raise MissingArtifactError(self.label, key) from None
            except OSError as error:
                raise_if_full(error, key)
                raise

    def holds(self, key: str) -> bool:
        """Whether there is a file with this key."""
        with self._connected() as (fs, root):
            try:
                fs.info(f"{root}/{key}")
            except FileNotFoundError:
                self._check_there(fs, root)
                return False
            return True

    def below(self, folder: str) -> list[Artifact]:
        """The files whose keys begin with ``folder`` and a slash; also those half written."""
        with self._connected() as (fs, root):
            found = fs.find(f"{root}/{folder}", detail=True)
            start = len(fs._strip_protocol(root)) + 1
            return [
                Artifact(name[start:], about["size"] or 0, _written(about))
                for name, about in sorted(found.items())
            ]

    def remove(self, *keys: str) -> None:
        """Remove files; those that are gone already are no error."""
        with self._connected() as (fs, root):
            for key in keys:
                with suppress(FileNotFoundError):
                    fs.rm_file(f"{root}/{key}")
                if self.protocol in (*_LOCAL, *_SFTP):
                    with suppress(OSError):  # it holds other files
                        fs.rmdir(posixpath.dirname(f"{root}/{key}"))

    def check(self) -> None:
        """Write a small file, read it, and remove it."""
        with self._connected() as (fs, root):
            self._check_there(fs, root)
            probe = f"{root}/.probe-{uuid4().hex[:8]}"
            fs.pipe_file(probe, _PROBE)
            try:
                if fs.cat_file(probe) != _PROBE:
                    raise ArtifactError(self.label, "it gives back something else than was written")
            finally:
                fs.rm_file(probe)

    def _check_there(self, fs: Any, root: str) -> None:
        """A folder that is not there may be a disk that is not mounted: it is not made here.

        Of an object store only the bucket can be asked for.
        """
        place = root.split("/", 1)[0] if self.protocol in _WHOLE_AT_ONCE else root
        try:
            if place:
                fs.info(place)
        except FileNotFoundError:
            kind = "bucket" if self.protocol in _WHOLE_AT_ONCE else "folder"
            raise ArtifactError(self.label, f"there is no {kind} {place}") from None

    @contextmanager
    def _connected(self) -> Iterator[tuple[Any, str]]:
        """The file system and the path of the root in it; whatever goes wrong is a sentence."""
        try:
            if self.protocol not in _SFTP:
                yield _file_system(self.protocol, self.url, self.options)
                return
            # A connection serves one thread, and breaks when nobody uses it for long.
            fs, root = _file_system.__wrapped__(self.protocol, self.url, self.options)
            try:
                yield fs, root
            finally:
                fs.client.close()
        except JarvisError:
            raise
        except Exception as error:  # each file system has exceptions of its own
            raise ArtifactError(self.label, self._reason(error)) from error

    def _reason(self, error: Exception) -> str:
        """What went wrong, without the secrets of the URL."""
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        for secret in self.secrets:
            said = said.replace(secret, "***")
        return " ".join(said.split()).rstrip(".")[:300]


def _told(on_bytes: OnBytes | None) -> Any:
    """What a file system tells after each block how far a transfer is."""
    if on_bytes is None:
        return NoOpCallback()
    return Callback(hooks={"bytes": lambda size, value, **_: on_bytes(value, size or 0)})


def artifact_root() -> ArtifactRoot | None:
    """The root that is set; None where everything stays in ``JARVIS_HOME``."""
    given = settings().artifact_root
    return None if given is None else _root(given.get_secret_value())


@lru_cache(maxsize=4)
def _root(given: str) -> ArtifactRoot:
    return ArtifactRoot.at(given)


@lru_cache(maxsize=4)
def _file_system(protocol: str, url: str, options: tuple[tuple[str, Any], ...]) -> tuple[Any, str]:
    """The file system and the path in it. One instance serves all threads: fsspec would keep one
    for each, and a listing that others have changed since."""
    given = dict(options)
    if protocol in _SFTP:
        # An extra: a server without sftp does without it.
        from jarvis.server.storage.sftp_hosts import only_known_hosts

        given = only_known_hosts(given)
    fs, path = url_to_fs(url, **given, skip_instance_cache=True)
    fs.dircache = DirCache(use_listings_cache=False)
    return fs, path.rstrip("/")


def _option(text: str) -> Any:
    return {"true": True, "false": False}.get(text.lower(), text)


def _written(about: dict[str, Any]) -> float | None:
    """When a file was written, as its file system calls it."""
    for name in ("LastModified", "mtime", "last_modified", "created"):
        moment = about.get(name)
        if moment is not None:
            return float(moment.timestamp() if hasattr(moment, "timestamp") else moment)
    return None
