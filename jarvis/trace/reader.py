"""File -> the parsed JSON of a Kineto trace."""

import gzip
import hashlib
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from jarvis.errors import NotAProfilerTraceError, UnreadableTraceError

SUFFIXES = (".json", ".json.gz")
GZIP_MAGIC = b"\x1f\x8b"

# Absolute timestamps have up to 19 significant digits, more than a double holds; as text they
# keep their nanoseconds. A quote inside a JSON string is escaped, so the key matches keys only.
_LONG_TIMESTAMP = re.compile(rb'"ts":\s*(\d{13,}(?:\.\d+)?)')


@dataclass(frozen=True, slots=True)
class RawTrace:
    """A trace as it stands in its file: the events, and every other top-level key."""

    path: Path
    sha256: str
    size_bytes: int
    events: list[dict[str, Any]]
    metadata: dict[str, Any]


def read_raw(path: Path) -> RawTrace:
    """Read a ``.json`` or ``.json.gz`` trace; ``sha256`` is that of the file as it is.

    Raises UnreadableTraceError where the file cannot be read, decompressed or parsed, and
    NotAProfilerTraceError where it is JSON of another kind.
    """
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise UnreadableTraceError(path, error.strerror or str(error)) from error
    document = _parse(path, _LONG_TIMESTAMP.sub(rb'"ts":"\1"', _decompress(path, stored)))
    events = document.pop("traceEvents")
    return RawTrace(path, hashlib.sha256(stored).hexdigest(), len(stored), events, document)


def _decompress(path: Path, stored: bytes) -> bytes:
    if not stored:
        raise UnreadableTraceError(path, "the file is empty")
    if not stored.startswith(GZIP_MAGIC):
        return stored
    try:
        return gzip.decompress(stored)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableTraceError(path, f"the gzip data is damaged ({error})") from error


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if text.lstrip().startswith(b"<"):
            raise NotAProfilerTraceError(path, "it is a web page (HTML or XML)") from error
        raise UnreadableTraceError(path, f"it is not valid JSON ({error})") from error
    if isinstance(document, list):
        document = {"traceEvents": document}
    if not isinstance(document, dict):
        raise NotAProfilerTraceError(path, f"its top level is a {type(document).__name__}")
    events = document.get("traceEvents")
    if not isinstance(events, list):
        raise NotAProfilerTraceError(path, "it has no list named traceEvents")
    if not all(isinstance(event, dict) for event in events):
        raise NotAProfilerTraceError(path, "traceEvents holds entries that are not objects")
    return document
