"""A trace that has been read before: its tables as Arrow files, kept in the user's cache.

Beside the tables stands what no table has, as the reader found it: the other keys of events, the
Python stack, and the texts. A kept trace is known by the path, size and time of its file. Nothing
here may fail the reading: a damaged or missing copy means reading anew.
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
from jarvis.trace.event_store import EventStore, Group, Values
from jarvis.trace.layout import BASE_KEYS, TEXT_KEYS
from jarvis.trace.metadata import TraceInfo
from jarvis.trace.repairs import Repairs
from jarvis.trace.texts import Texts
from jarvis.trace.trace import Trace

CACHE_VARIABLE = "JARVIS_TRACE_CACHE_MB"
"""How much may be kept, in MB; 0 keeps nothing."""

DEFAULT_CACHE_MB = 4000
MIN_EVENTS = 100_000
"""Smaller traces are read as fast from their own file and are not worth keeping."""

HEARTBEAT_TIMEOUT_S = 3600
"""What a process that was killed left half written is dropped after so many seconds."""

FORMAT = 2
_TABLES = ("cpu_ops", "runtime", "gpu_events", "flows", "annotations", "threads")
_AT_ONCE = (*_TABLES, "texts")
_FAULTS = (OSError, ValueError, LookupError, TypeError, pl.exceptions.PolarsError)


def place_of(path: Path) -> Path | None:
    """The folder for the copy of a trace as its file is now; None where none may be kept."""
    if not _limit_bytes():
        return None
    try:
        stat, resolved = path.stat(), path.resolve()
        if not os.path.samestat(stat, resolved.stat()):  # a link was changed between
            return None
        known_by = f"{FORMAT}\n{resolved}\n{stat.st_size}\n{stat.st_mtime_ns}"
        name = hashlib.sha256(known_by.encode(errors="replace")).hexdigest()[:32]
        return trace_cache_dir() / name
    except (OSError, RuntimeError):  # no such file, no home
        return None


def load(folder: Path, path: Path) -> Trace | None:
    """The copy in ``folder`` of the trace at ``path``; None where none can be used."""
    try:
        header = orjson.loads((folder / "header.json").read_bytes())
        files = {name: _file(folder, name).read_bytes() for name in header["checksums"]}
        if any(_checksum(files[name]) != known for name, known in header["checksums"].items()):
            return None
        scans = [pl.scan_ipc(files[name]) for name in _AT_ONCE]
        frames = dict(zip(_AT_ONCE, pl.collect_all(scans), strict=True))
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
    except _FAULTS:
        return None
    with suppress(OSError):  # another user's
        os.utime(folder)
    return trace


def is_outdated(folder: Path) -> bool:
    """Whether no trace could be opened from the copy in ``folder`` any more: its file is gone, has
    changed, or the copy is damaged."""
    try:
        path = Path(orjson.loads((folder / "header.json").read_bytes())["info"]["path"])
    except _FAULTS:
        return True
    return path.is_absolute() and place_of(path) != folder


def _texts(frame: pl.DataFrame) -> Texts:
    from jarvis.trace.packed_texts import PackedTexts  # loads what is compiled

    return PackedTexts.of(frame["text"].to_list(), frame["kind"].to_numpy())


def save(trace: Trace, folder: Path) -> None:
    """Keep a trace that has just been read, and drop those that were not used for longest."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as name:
            made = Path(name) / "made"
            made.mkdir()
            _write(trace, made)
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
        _make_room(folder.parent)
    except _FAULTS:
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
            "kind": [texts.kind(code) for code in range(count)],
        },
        schema={"text": pl.Binary, "kind": pl.UInt8},
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


def _columns(group: Group) -> dict[str, Any]:
    """What is left of a group; a table holds the rest."""
    columns: dict[str, Any] = {"uid": group.uid()}
    if not group.is_released:
        columns |= {"ts": group.time(0), "dur": group.time(1)}
        columns |= {key: group.text(code) for code, key in enumerate(BASE_KEYS[:TEXT_KEYS])}
    for code in group.pairs:
        values = group.values(code)
        columns |= {f"values {code}": values.values, f"kinds {code}": values.kinds}
    return columns


def _group(content: bytes) -> Group:
    """What is left of a group; few ask for it, and then it need not be in its file any more."""
    frame = pl.read_ipc(content)
    arrays = {column.name: np.ascontiguousarray(column.to_numpy()) for column in frame}
    group = Group(uids=[arrays["uid"]], height=frame.height)
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


def _make_room(folder: Path) -> None:
    """Drop kept traces, the one used last in the end, until the rest is within the limit."""
    for unfinished in folder.glob(".*"):
        if time.time() - unfinished.stat().st_mtime > HEARTBEAT_TIMEOUT_S:
            shutil.rmtree(unfinished, ignore_errors=True)
    kept = sorted(
        (f for f in folder.iterdir() if f.is_dir() and not f.name.startswith(".")),
        key=lambda f: f.stat().st_mtime,
        reverse=True,
    )
    left = _limit_bytes()
    for one in kept:
        left -= sum(file.stat().st_size for file in one.iterdir())
        if left < 0:
            shutil.rmtree(one, ignore_errors=True)
