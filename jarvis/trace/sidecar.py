"""Cache of parsed traces as Arrow files in the user's home.

An entry has the tables, and in undecoded form what no table contains: the other keys of events, the
Python stack, and the texts. Its key is the path, size and modification time of the trace file.
Cache errors never fail reading: without a valid entry the trace is parsed again.
"""

import hashlib
import os
import shutil
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl
from isal import isal_zlib

from jarvis.core.workspace import trace_cache_dir
from jarvis.schemas.names import C
from jarvis.trace.event_store import EventGroup, EventStore, Values
from jarvis.trace.layout import BASE_KEYS, TEXT_KEYS
from jarvis.trace.metadata import TraceInfo
from jarvis.trace.repairs import Repairs
from jarvis.trace.texts import Texts
from jarvis.trace.trace import Trace

CACHE_VARIABLE = "JARVIS_TRACE_CACHE_MB"
"""Maximum size of the cache in MB; 0 disables it."""

DEFAULT_CACHE_MB = 4000
MIN_EVENTS = 100_000
"""Smaller traces are parsed as fast as they are loaded from the cache."""

STALE_PARTIAL_S = 3600
"""Age in seconds after which an incomplete entry of a killed process is deleted."""

FORMAT = 4
_TABLES = ("cpu_ops", "runtime", "gpu_events", "flows", "annotations", "threads")
_EAGER = (*_TABLES, "texts")
_ERRORS = (OSError, ValueError, LookupError, TypeError, pl.exceptions.PolarsError)


def folder_of(path: Path) -> Path | None:
    """Return the cache folder for the current version of a trace file; None without a cache."""
    if not _limit_bytes():
        return None
    try:
        stat, resolved = path.stat(), path.resolve()
        if not os.path.samestat(stat, resolved.stat()):  # a symlink was changed in between
            return None
        key = f"{FORMAT}\n{resolved}\n{stat.st_size}\n{stat.st_mtime_ns}"
        name = hashlib.sha256(key.encode(errors="replace")).hexdigest()[:32]
        return trace_cache_dir() / name
    except (OSError, RuntimeError):  # no such file, no home
        return None


def load(folder: Path, path: Path) -> Trace | None:
    """Load the trace at ``path`` from the cache entry ``folder``; None without a valid entry."""
    try:
        header = orjson.loads((folder / "header.json").read_bytes())
        files = {name: _file(folder, name).read_bytes() for name in header["checksums"]}
        checksums = header["checksums"]
        if any(_checksum(files[name]) != expected for name, expected in checksums.items()):
            return None
        scans = [pl.scan_ipc(files[name]) for name in _EAGER]
        frames = dict(zip(_EAGER, pl.collect_all(scans), strict=True))
        texts = frames["texts"]
        store = EventStore(_texts(texts), Repairs())
        for index, category in enumerate(header["categories"]):
            store.put(category, partial(_group, files[_events(index)]))
        info = TraceInfo.model_validate(header["info"])
        trace = Trace(
            info=info.model_copy(update={"path": str(path), "file_name": path.name}),
            event_count=header["event_count"],
            **{name: frames[name] for name in _TABLES},
            store=store,
        )
    except _ERRORS:
        return None
    with suppress(OSError):  # the entry belongs to another user
        os.utime(folder)
    return trace


def is_outdated(folder: Path) -> bool:
    """Return whether a cache entry is unusable: its trace file is gone or has changed, or the entry
    is damaged."""
    try:
        path = Path(orjson.loads((folder / "header.json").read_bytes())["info"]["path"])
    except _ERRORS:
        return True
    return path.is_absolute() and folder_of(path) != folder


def _texts(frame: pl.DataFrame) -> Texts:
    from jarvis.trace.packed_texts import PackedTexts  # loads compiled kernels

    return PackedTexts.of(frame["text"].to_list(), frame[C.kind].to_numpy())


def save(trace: Trace, folder: Path) -> None:
    """Add a trace to the cache and evict the least recently used entries."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as name:
            staged = Path(name) / "staged"
            staged.mkdir()
            _write(trace, staged)
            shutil.rmtree(folder, ignore_errors=True)
            staged.rename(folder)
        _evict(folder.parent)
    except _ERRORS:
        return


def _limit_bytes() -> int:
    try:
        return int(float(os.environ.get(CACHE_VARIABLE, DEFAULT_CACHE_MB)) * 1e6)
    except ValueError:
        return 0


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.arrow"


def _events(index: int) -> str:
    return f"events-{index}"


def _checksum(content: bytes) -> int:
    checksum: int = isal_zlib.crc32(content)
    return checksum


def _write(trace: Trace, folder: Path) -> None:
    categories = trace.store.categories()
    texts = trace.store.texts
    count = len(texts)
    frames = {name: getattr(trace, name) for name in _TABLES}
    frames["texts"] = pl.DataFrame(
        {
            "text": [texts.raw(code) for code in range(count)],
            C.kind: [texts.kind(code) for code in range(count)],
        },
        schema={"text": pl.Binary, C.kind: pl.UInt8},
    )
    for index, category in enumerate(categories):
        frames[_events(index)] = pl.DataFrame(_columns(trace.store.group(category)))
    for name, frame in frames.items():
        frame.write_ipc(_file(folder, name), compression="zstd")
    header = {
        "info": trace.info.model_dump(mode="json") | {"path": str(Path(trace.info.path).resolve())},
        "event_count": trace.event_count,
        "categories": categories,
        "checksums": {name: _checksum(_file(folder, name).read_bytes()) for name in frames},
    }
    (folder / "header.json").write_bytes(orjson.dumps(header))


def _columns(group: EventGroup) -> dict[str, Any]:
    """Return the columns of a group that are not in a table."""
    columns: dict[str, Any] = {C.uid: group.uid()}
    if not group.is_released:
        columns |= {"ts": group.time(0), "dur": group.time(1)}
        columns |= {key: group.text(code) for code, key in enumerate(BASE_KEYS[:TEXT_KEYS])}
    for code in group.pairs:
        values = group.values(code)
        columns |= {f"values {code}": values.values, f"kinds {code}": values.kinds}
    return columns


def _group(content: bytes) -> EventGroup:
    """Read the part of a group that is not in a table.

    It is loaded from ``content`` on demand, when the file may no longer exist.
    """
    frame = pl.read_ipc(content)
    arrays = {column.name: np.ascontiguousarray(column.to_numpy()) for column in frame}
    group = EventGroup(uids=[arrays["uid"]], height=frame.height)
    if "ts" in arrays:
        group.times = ([arrays["ts"]], [arrays["dur"]])
        group.codes = tuple([arrays[key]] for key in BASE_KEYS[:TEXT_KEYS])
    else:
        group.is_released = True
    for name in arrays:
        if name.startswith("values "):
            code = int(name.removeprefix("values "))
            group.put(code, Values(arrays[name], arrays[f"kinds {code}"]))
    return group


def _evict(folder: Path) -> None:
    """Delete stale incomplete entries, and the least recently used ones beyond the limit."""
    for unfinished in folder.glob(".*"):
        if time.time() - unfinished.stat().st_mtime > STALE_PARTIAL_S:
            shutil.rmtree(unfinished, ignore_errors=True)
    entries = sorted(
        (f for f in folder.iterdir() if f.is_dir() and not f.name.startswith(".")),
        key=lambda f: f.stat().st_mtime,
        reverse=True,
    )
    remaining = _limit_bytes()
    for entry in entries:
        remaining -= sum(file.stat().st_size for file in entry.iterdir())
        if remaining < 0:
            shutil.rmtree(entry, ignore_errors=True)
