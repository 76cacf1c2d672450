"""A trace that has been read before: its events as Arrow files, kept in the user's cache.

What is kept is what the reader found, every key of every event and the dictionary of texts, so
that reading it again gives the same tables. A kept trace is known by the path, size and time of
its file. Nothing here may fail the reading: a damaged or missing copy means reading anew.
"""

import hashlib
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from jarvis.trace.event_store import EventStore, Group
from jarvis.trace.reader import RawTrace
from jarvis.trace.repairs import Repair, Repairs
from jarvis.trace.texts import Texts
from jarvis.trace.tokenizer import BASE_KEYS, TEXT_KEYS
from jarvis.workspace import kept_traces_dir

CACHE_VARIABLE = "JARVIS_TRACE_CACHE_MB"
"""How much may be kept, in MB; 0 keeps nothing."""

DEFAULT_CACHE_MB = 4000
LEAST_EVENTS = 100_000
"""Smaller traces are read as fast from their own file."""

FORMAT = 1
_FAULTS = (OSError, ValueError, LookupError, TypeError, pl.exceptions.PolarsError)


def load(path: Path) -> RawTrace | None:
    """The kept copy of a trace, or None where there is none that can be used."""
    folder = _folder(path)
    if folder is None or not folder.is_dir():
        return None
    try:
        header = orjson.loads((folder / "header.json").read_bytes())
        texts = pl.read_ipc(folder / "texts.arrow")
        repairs = Repairs(Repair(**repair) for repair in header["repairs"])
        store = EventStore(Texts.of(texts["text"].to_list(), texts["kind"].to_numpy()), repairs)
        for index, category in enumerate(header["categories"]):
            frame = pl.read_ipc(folder / f"events-{index}.arrow")
            store.put(category, _group(frame))
        os.utime(folder)
        return RawTrace(
            path=path,
            sha256=header["sha256"],
            size_bytes=header["size_bytes"],
            store=store,
            event_count=header["event_count"],
            metadata=header["metadata"],
            repairs=repairs,
        )
    except _FAULTS:
        return None


def save(raw: RawTrace) -> None:
    """Keep a trace that has just been read, and drop those that were not used for longest."""
    folder = _folder(raw.path)
    if folder is None or raw.event_count < LEAST_EVENTS:
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as name:
            made = Path(name) / "made"
            made.mkdir()
            _write(raw, made)
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


def _folder(path: Path) -> Path | None:
    if not _limit_bytes():
        return None
    try:
        stat = path.stat()
    except OSError:
        return None
    known_by = f"{FORMAT}\n{path.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}"
    return kept_traces_dir() / hashlib.sha256(known_by.encode(errors="replace")).hexdigest()[:32]


def _write(raw: RawTrace, folder: Path) -> None:
    categories = raw.store.categories()
    header = {
        "sha256": raw.sha256,
        "size_bytes": raw.size_bytes,
        "event_count": raw.event_count,
        "metadata": raw.metadata,
        "repairs": [asdict(repair) for repair in raw.repairs.all()],
        "categories": categories,
    }
    (folder / "header.json").write_bytes(orjson.dumps(header))
    texts = raw.store.texts
    count = len(texts)
    frame = pl.DataFrame(
        {"text": [texts.raw(code) for code in range(count)], "kind": texts.arrays.kinds[:count]},
        schema={"text": pl.Binary, "kind": pl.UInt8},
    )
    frame.write_ipc(folder / "texts.arrow", compression="zstd")
    for index, category in enumerate(categories):
        columns = _columns(raw.store.group(category))
        pl.DataFrame(columns).write_ipc(folder / f"events-{index}.arrow", compression="zstd")


def _columns(group: Group) -> dict[str, Any]:
    columns: dict[str, Any] = {"uid": group.uid(), "ts": group.time(0), "dur": group.time(1)}
    columns |= {key: group.text(code) for code, key in enumerate(BASE_KEYS[:TEXT_KEYS])}
    for code in group.pairs:
        values = group.values(code)
        columns |= {f"values {code}": values.values, f"kinds {code}": values.kinds}
    return columns


def _group(frame: pl.DataFrame) -> Group:
    arrays = {column.name: np.ascontiguousarray(column.to_numpy()) for column in frame}
    codes = [int(name.removeprefix("values ")) for name in arrays if name.startswith("values ")]
    return Group.of(
        arrays["uid"],
        (arrays["ts"], arrays["dur"]),
        tuple(arrays[key] for key in BASE_KEYS[:TEXT_KEYS]),
        {code: (arrays[f"values {code}"], arrays[f"kinds {code}"]) for code in codes},
    )


def _make_room(folder: Path) -> None:
    """Drop kept traces, the one used last in the end, until the rest is within the limit."""
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
