"""The cache of traces: the same tables, and faults of the cache are harmless."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from jarvis.core.workspace import trace_cache_dir
from jarvis.trace import Trace, read_trace, sidecar
from jarvis.trace.event_store import RawTrace
from jarvis.trace.reader import read_raw
from tests.builders import trace

FRAMES = ("cpu_ops", "runtime", "gpu_events", "flows", "annotations", "threads", "python_functions")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache that also stores small traces."""
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(sidecar.CACHE_VARIABLE, raising=False)
    monkeypatch.setattr(sidecar, "MIN_EVENTS", 1)
    return trace_cache_dir()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    built = trace().process("python").thread(1, "main").python("f.py(1): g")
    built.child("aten::mm", [[8, 4], [4, 2]], seq=3).launches('gemm<"T">', us=3, bytes="16")
    built.events[-1].setdefault("args", {})["odd"] = [1, None, {"x": 2}]
    built.events.append({"ph": "X", "cat": "cpu_op", "name": "a\x01b", "ts": 5})
    return built.write(tmp_path / "t.json")


def cached(path: Path) -> Trace | None:
    place = sidecar.folder_of(path)
    assert place is not None
    return sidecar.load(place, path)


def same(one: Trace, other: Trace) -> None:
    assert one.info == other.info
    assert one.event_count == other.event_count
    for name in FRAMES:
        assert_frame_equal(getattr(one, name), getattr(other, name))
    for category in one.store.categories():
        assert one.store.keys(category) == other.store.keys(category)


def test_a_trace_from_the_cache_is_the_same(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read_trace(path)
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr("jarvis.trace.read_raw", None)  # the file is not read again
    same(read_trace(path), first)


def test_a_recorded_trace_from_the_cache_is_the_same(reference_root: Path) -> None:
    path = reference_root / "traces" / "mi300-resnet-ddp-checkpoint.json.gz"
    first = read_trace(path)
    assert cached(path) is not None
    same(read_trace(path), first)


def test_a_changed_file_is_read_again(path: Path, cache: Path) -> None:
    read_trace(path)
    trace().op("aten::add").write(path)
    assert read_trace(path).cpu_ops["name"].to_list() == ["aten::add"]
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("damage", ["header.json", "texts.arrow", "events-0.arrow"])
@pytest.mark.parametrize("how", ["missing", "empty", "cut", "another", "zeros"])
def test_a_damaged_cache_entry_is_ignored(path: Path, cache: Path, damage: str, how: str) -> None:
    first = read_trace(path)
    (folder,) = cache.iterdir()
    file = folder / damage
    content = file.read_bytes()
    damaged = {
        "empty": b"",
        "cut": content[:-7],
        "another": b"{}",
        "zeros": content[: len(content) // 2] + bytes(len(content) - len(content) // 2),
    }
    file.unlink()
    if how in damaged:
        file.write_bytes(damaged[how])
    assert cached(path) is None
    same(read_trace(path), first)
    assert cached(path) is not None  # repaired


def test_a_single_wrong_byte_in_a_cache_entry_is_detected(path: Path, cache: Path) -> None:
    read_trace(path)
    (folder,) = cache.iterdir()
    for file in folder.glob("*.arrow"):
        content = file.read_bytes()
        for position in range(0, len(content), 97):
            changed = content[position] ^ 0x10
            file.write_bytes(content[:position] + bytes([changed]) + content[position + 1 :])
            assert cached(path) is None
        file.write_bytes(content)
    assert cached(path) is not None


def test_a_trace_has_the_name_of_the_opened_path(tmp_path: Path, path: Path) -> None:
    read_trace(path)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    opened = cached(link)
    assert opened is not None
    assert (opened.info.file_name, opened.info.path) == ("link.json", str(link))


def test_a_trace_that_grows_while_being_read_is_reread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-60])

    def read_and_grow(*arguments: Any) -> RawTrace:
        raw = read_raw(*arguments)
        path.write_bytes(whole)
        return raw

    with monkeypatch.context() as while_reading:
        while_reading.setattr("jarvis.trace.read_raw", read_and_grow)
        assert read_trace(path).info.size_bytes < len(whole)
    assert read_trace(path).info.size_bytes == len(whole)


def test_a_cache_entry_of_another_user_is_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_trace(path)

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "utime", refused)
    assert cached(path) is not None


def test_without_a_home_nothing_is_cached(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(sidecar, "trace_cache_dir", no_home)
    assert read_trace(path).event_count > 0


def test_partial_files_of_a_killed_process_are_deleted(path: Path, cache: Path) -> None:
    old, new = cache / ".old", cache / ".new"
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (1, 1))
    read_trace(path)
    assert (old.exists(), new.exists()) == (False, True)


def test_an_unwritable_cache_is_ignored(path: Path, cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where a folder should be")
    assert read_trace(path).event_count > 0


@pytest.mark.parametrize("setting", ["0", "none"])
def test_a_limit_of_zero_disables_the_cache(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv(sidecar.CACHE_VARIABLE, setting)
    read_trace(path)
    assert not cache.exists()


def test_small_traces_are_not_cached(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar, "MIN_EVENTS", 100)
    read_trace(path)
    assert not cache.exists()


def test_the_least_recently_used_entries_are_deleted(
    tmp_path: Path, path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_trace(path)
    (first,) = cache.iterdir()
    size = sum(file.stat().st_size for file in first.iterdir())
    os.utime(first, (1, 1))
    monkeypatch.setenv(sidecar.CACHE_VARIABLE, str(1.5 * size / 1e6))
    read_trace(Path(shutil.copy(path, tmp_path / "other.json")))
    assert first not in set(cache.iterdir())
    assert len(list(cache.iterdir())) == 1
