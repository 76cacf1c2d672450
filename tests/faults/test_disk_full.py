"""Full disk: jobs and pages report it, and work again when space is freed."""

import contextlib
import errno
import io
import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sqlalchemy import Engine

from jarvis.core.workspace import HOME_VARIABLE, analyses_dir, exports_dir
from jarvis.pipeline import STEPS
from jarvis.run.store import write_parquet
from jarvis.server import queue
from jarvis.server.database import JobState
from jarvis.server.errors import DatabaseError, NoSpaceError
from jarvis.server.ingest import uploads
from jarvis.server.ingest.upload_writer import resume_upload
from jarvis.server.jobs.kinds import Export
from tests.server.working import (
    HELD_WORKER,
    ended,
    half_written,
    held_process,
    hold_at,
    is_alive,
    is_done,
    new_analysis,
    submit_held,
    wait_for,
    worker,
)

DISK_MB = 16
HELD_STEPS = (1, len(STEPS) - 1, len(STEPS))
"""Before anything is read, before reports are written, and in the midst of writing."""

PIECE_BYTES = 1 << 16
"""As a web server hands them on."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home on a disk of its own, which is small."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", disk), capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted: {mounted.stderr.decode().strip()}")
    monkeypatch.setenv(HOME_VARIABLE, str(disk))
    try:
        yield disk
    finally:
        subprocess.run(("umount", "--lazy", disk), check=True)


@contextmanager
def full(disk: Path, but_bytes: int = 0) -> Iterator[None]:
    """Limit the bytes that can be written."""
    filler = disk / f"filler-{secrets.token_hex(4)}"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    os.truncate(filler, filler.stat().st_size - but_bytes)
    try:
        yield
    finally:
        filler.unlink()


def test_jobs_fail_with_a_sentence_pages_stay_and_all_goes_on_with_room(
    engine: Engine, home: Path, trace_file: Path, pages_are_whole: Callable[..., None]
) -> None:
    with worker(HELD_WORKER, SLOTS=str(len(HELD_STEPS))):
        kept = is_done(engine, queue.submit(engine, new_analysis(trace_file, "kept")).id)
        assert kept.analysis_id is not None
        pages_are_whole(analysis=kept.analysis_id)  # the first page writes the secret of tickets
        held = [
            submit_held(engine, new_analysis(trace_file, f"Step {step}"), step)
            for step in HELD_STEPS
        ]
        held.append(submit_held(engine, Export(kept.analysis_id, "zip").new_job(), 1))
        pids = [held_process(job.id) for job in held]
        with full(home):
            for job, pid in zip(reversed(held), reversed(pids), strict=True):
                hold_at(job.id, None)  # one by one, the smallest first: what one leaves is room
                wait_for(lambda pid=pid: not is_alive(pid))
            with full(home):  # what had been half written has made room
                pages_are_whole(analysis=kept.analysis_id, job=held[0].id)
                with pytest.raises(DatabaseError, match="disk"):
                    queue.submit(engine, new_analysis(trace_file, "more"))
        for job in held:
            failed = ended(engine, job.id)
            assert failed.state is JobState.FAILED
            assert "No space left" in (failed.error or ""), (failed.step, failed.error, failed.log)
        wait_for(lambda: half_written(analyses_dir(), exports_dir()) == [])
        for job in held:
            queue.retry(engine, job.id)
        assert {is_done(engine, job.id).attempts for job in held} == {2}
    pages_are_whole(analysis=kept.analysis_id)


def test_a_table_that_finds_no_room_is_an_error_of_the_disk() -> None:
    with pytest.raises(OSError, match="No space left on device"):
        write_parquet(pl.DataFrame({"m": range(100_000)}), Path("/dev/full"))


class _FullOnce(io.BytesIO):
    """A file whose ``number``-th write finds no room; the next ones do."""

    def __init__(self, number: float = inf) -> None:
        super().__init__()
        self.number = number
        self.writes = 0

    def write(self, data: Any) -> int:
        self.writes += 1
        if self.writes == self.number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_whichever_write_of_a_table_finds_no_room_the_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polars has another sentence for a header, even if there is room again afterwards."""
    whole = pl.DataFrame({f"column {n}": [sha256(bytes(n)).hexdigest()] * 2 for n in range(400)})
    for table in (whole, whole.lazy()):
        file = _FullOnce()
        monkeypatch.setattr(Path, "open", lambda *_, file=file: file)
        write_parquet(table, tmp_path / "table.parquet")
        for number in range(1, file.writes + 1):
            file = _FullOnce(number)
            monkeypatch.setattr(Path, "open", lambda *_, file=file: file)
            with pytest.raises(OSError, match="No space left on device"):
                write_parquet(table, tmp_path / "table.parquet")


def test_an_upload_keeps_what_has_arrived_and_goes_on_with_room(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "FREE_BYTES", 0)
    content = os.urandom(3 << 20)
    begun = uploads.create("large.json.gz", len(content), None)
    with full(home, but_bytes=1 << 20), pytest.raises(NoSpaceError, match="disk was full"):
        send(begun.id, 0, content)
    arrived = uploads.find(begun.id).offset_bytes
    assert 0 < arrived < len(content)
    trace = send(begun.id, arrived, content[arrived:]).trace
    assert trace is not None
    assert trace.read_bytes() == content


def send(upload_id: str, offset: int, content: bytes) -> uploads.Upload:
    with resume_upload(upload_id, offset, None) as arrival:
        for start in range(0, len(content), PIECE_BYTES):
            arrival.write(content[start : start + PIECE_BYTES])
        return arrival.end()
