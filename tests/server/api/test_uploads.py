"""Uploads on disk: resuming, rejected uploads, stored content."""

import base64
import errno
import hashlib
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jarvis.core.workspace import partial_uploads_dir
from jarvis.server.errors import (
    BusyUploadError,
    ChecksumError,
    IntakeError,
    NoSpaceError,
    OffsetError,
    TooLargeUploadError,
    TooManyUploadsError,
    TooMuchError,
    UnknownUploadError,
)
from jarvis.server.ingest import upload_writer as arrivals
from jarvis.server.ingest import uploads
from jarvis.server.ingest.upload_writer import Checksum, resume_upload
from jarvis.server.ingest.uploads import Upload, create, find, remove, sweep

SENDERS, TURNS = 8, 15
BYTES = b'{"traceEvents": []}'


@pytest.fixture(autouse=True)
def _home(home: Path) -> None:
    """Each test has a home of its own."""


def send(upload_id: str, offset: int, content: bytes, checksum: Checksum | None = None) -> Upload:
    with resume_upload(upload_id, offset, checksum) as arrival:
        arrival.write(content)
        return arrival.end()


def restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the state in memory, as after a restart."""
    monkeypatch.setattr(arrivals, "_digests", type(arrivals._digests)())


def test_an_upload_in_parts_is_stored_by_its_content() -> None:
    begun = create("../../my trace.json", len(BYTES), "ada")
    assert begun.name == "my_trace.json"
    assert (begun.offset_bytes, begun.trace, begun.owner) == (0, None, "ada")
    assert send(begun.id, 0, BYTES[:7]).offset_bytes == 7
    whole = send(begun.id, 7, BYTES[7:])
    assert whole == find(begun.id)
    assert whole.sha256 == hashlib.sha256(BYTES).hexdigest()
    assert whole.trace is not None
    assert whole.trace.read_bytes() == BYTES
    assert not whole.is_reused


def test_it_goes_on_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = create("a.json", len(BYTES), None)
    send(begun.id, 0, BYTES[:7])
    restart(monkeypatch)
    assert find(begun.id).offset_bytes == 7
    assert send(begun.id, 7, BYTES[7:]).sha256 == hashlib.sha256(BYTES).hexdigest()


def test_one_that_was_killed_between_whole_and_stored_is_stored_by_the_next_touch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    begun = create("a.json", len(BYTES), None)
    with monkeypatch.context() as patch:
        patch.setattr(arrivals, "adopt_upload", killed)
        with pytest.raises(KeyboardInterrupt):
            send(begun.id, 0, BYTES)
    restart(monkeypatch)
    assert find(begun.id).trace is None
    assert send(begun.id, len(BYTES), b"").trace is not None


def test_the_same_bytes_again_are_reported_to_be_here() -> None:
    first, second = (create("a.json", len(BYTES), None) for _ in range(2))
    stored = send(first.id, 0, BYTES)
    again = send(second.id, 0, BYTES)
    assert again.is_reused
    assert again.trace == stored.trace


def test_bytes_for_another_place_and_too_many_bytes_are_refused() -> None:
    begun = create("a.json", 10, None)
    send(begun.id, 0, b"12345")
    for offset in (0, 4, 6, 11):
        with pytest.raises(OffsetError, match="is 5, not"):
            send(begun.id, offset, b"x")
    with pytest.raises(TooMuchError, match="the declared 10"):
        send(begun.id, 5, b"678901")
    assert find(begun.id).offset_bytes == 5


def test_two_senders_cannot_mix_their_bytes() -> None:
    begun = create("a.json", 10, None)
    with resume_upload(begun.id, 0) as first:
        first.write(b"12")
        with pytest.raises(BusyUploadError, match="another connection"):
            send(begun.id, 0, b"ab")
    assert send(begun.id, 2, b"34").offset_bytes == 4


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_what_has_another_checksum_is_taken_back(algorithm: str) -> None:
    begun = create("a.json", len(BYTES), None)
    send(begun.id, 0, BYTES[:7])
    right = base64.b64encode(hashlib.new(algorithm, BYTES[7:]).digest()).decode()
    with pytest.raises(ChecksumError):
        send(begun.id, 7, BYTES[7:-1] + b"?", Checksum(algorithm, right))
    assert find(begun.id).offset_bytes == 7
    whole = send(begun.id, 7, BYTES[7:], Checksum(algorithm, right))
    assert whole.sha256 == hashlib.sha256(BYTES).hexdigest()


def test_what_breaks_off_before_its_checksum_is_taken_back() -> None:
    begun = create("a.json", len(BYTES), None)
    with resume_upload(begun.id, 0, Checksum("sha1", "any")) as arrival:
        arrival.write(BYTES[:7])
    assert find(begun.id).offset_bytes == 0
    assert send(begun.id, 0, BYTES).sha256 == hashlib.sha256(BYTES).hexdigest()


def test_an_unknown_checksum_is_refused() -> None:
    with pytest.raises(IntakeError, match="sha256"):
        Checksum("crc32", "")


@pytest.mark.parametrize("upload_id", ["", "..", "../x", "0" * 32, "0" * 31 + "/", "ÿ" * 32])
def test_an_unknown_or_hostile_id_is_no_upload(upload_id: str) -> None:
    for ask in (find, remove, lambda name: send(name, 0, b"")):
        with pytest.raises(UnknownUploadError):
            ask(upload_id)


def test_what_cannot_be_taken_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_MAX_UPLOAD_GB", "0.001")
    with pytest.raises(TooLargeUploadError, match=r"limit of this server is 1\.00 MB"):
        create("a.json", 1_010_000, None)
    with pytest.raises(IntakeError, match="empty"):
        create("a.json", 0, None)
    with pytest.raises(IntakeError, match="not a supported trace"):
        create("a.exe", 1, None)
    assert not partial_uploads_dir().exists() or not list(partial_uploads_dir().iterdir())


def test_a_disk_without_room_is_reported_before_a_byte_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = uploads.FREE_BYTES + 1000
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=room))
    begun = create("a.json", 600, None)
    with pytest.raises(NoSpaceError, match="has 400 B free"):
        create("b.json", 401, None)  # the other one will want its 600
    remove(begun.id)
    assert create("b.json", 401, None)


def test_a_disk_that_gets_full_keeps_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = create("a.json", len(BYTES), None)
    write = os.write

    def full(file: int, content: bytes) -> int:
        if write(file, content[:3]) < len(content):
            raise OSError(errno.ENOSPC, "No space left on device")
        return 3

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(NoSpaceError, match="disk was full"):
            send(begun.id, 0, BYTES)
    assert find(begun.id).offset_bytes == 3
    assert send(begun.id, 3, BYTES[3:]).sha256 == hashlib.sha256(BYTES).hexdigest()


def test_too_many_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_AT_ONCE", 2)
    first = create("a.json", 5, None)
    create("b.json", 5, None)
    with pytest.raises(TooManyUploadsError, match="Too many"):
        create("c.json", 5, None)
    send(first.id, 0, b"12345")
    create("c.json", 5, None)


def test_what_gets_no_byte_for_a_day_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    old, young = create("a.json", 5, None), create("b.json", 5, None)
    long_ago = time.time() - uploads.EXPIRES_AFTER.total_seconds() - 5
    folder = partial_uploads_dir() / old.id
    for path in (*folder.iterdir(), folder):
        os.utime(path, (long_ago, long_ago))
    sweep()
    with pytest.raises(UnknownUploadError):
        find(old.id)
    assert find(young.id).offset_bytes == 0


def test_many_begin_and_end_at_once() -> None:
    """Each looks at the files of the others, which are replaced and removed meanwhile."""

    def begin_and_end(number: int) -> None:
        for turn in range(TURNS):
            begun = create(f"{number}.json", len(BYTES), None)
            if turn % 2:
                uploads.note_content(begun.id, "a" * 64)
            else:
                remove(begun.id)

    with ThreadPoolExecutor(SENDERS) as senders:
        for ended in [senders.submit(begin_and_end, number) for number in range(SENDERS)]:
            ended.result()


def test_a_removed_upload_leaves_nothing_but_what_is_stored() -> None:
    begun = create("a.json", len(BYTES), None)
    whole = send(begun.id, 0, BYTES)
    remove(begun.id)
    assert not list(partial_uploads_dir().iterdir())
    assert whole.trace is not None
    assert whole.trace.is_file()


def test_one_person_does_not_take_the_places_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_PER_PERSON", 2)
    first = create("a.json", 5, "ada")
    create("b.json", 5, "ada")
    with pytest.raises(TooManyUploadsError, match="You have 2 incomplete uploads"):
        create("c.json", 5, "ada")
    create("c.json", 5, "bob")
    for name in "abcd":
        create(f"{name}.json", 5, None)  # no login: there is one user for all
    send(first.id, 0, b"12345")
    create("c.json", 5, "ada")


def test_old_ones_make_room_when_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_PER_PERSON", 1)
    old = create("a.json", 5, "ada")
    long_ago = time.time() - uploads.EXPIRES_AFTER.total_seconds() - 5
    folder = partial_uploads_dir() / old.id
    for path in (*folder.iterdir(), folder):
        os.utime(path, (long_ago, long_ago))
    create("b.json", 5, "ada")
    with pytest.raises(UnknownUploadError):
        find(old.id)


def test_beginning_one_reads_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: so many files are opened and folders listed, however many uploads are under way."""

    def looked_at() -> int:
        counted: list[str] = []
        with monkeypatch.context() as patch:
            for owner, name in ((Path, "read_bytes"), (Path, "glob"), (os, "scandir")):
                original = getattr(owner, name)

                def count(*given: Any, original: Any = original, name: str = name) -> Any:
                    counted.append(name)
                    return original(*given)

                patch.setattr(owner, name, count)
            create("a.json", 5, None)
        return len(counted)

    few = looked_at()
    for _ in range(40):
        create("a.json", 5, None)
    assert looked_at() == few


def test_an_upload_is_found_by_its_owner_alone() -> None:
    begun = create("a.json", 5, "ada")
    assert uploads.find_own(begun.id, "ada").id == begun.id
    for other in ("bob", None):
        with pytest.raises(UnknownUploadError):
            uploads.find_own(begun.id, other)


def test_an_upload_of_the_release_before_goes_on() -> None:
    begun = create("a.json", len(BYTES), None)
    old = begun.id.partition("-")[0]
    (partial_uploads_dir() / begun.id).rename(partial_uploads_dir() / old)
    create("b.json", 5, None)
    assert send(old, 0, BYTES).sha256 == hashlib.sha256(BYTES).hexdigest()
