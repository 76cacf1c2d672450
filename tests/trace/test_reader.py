"""Reading trace files: what is accepted, and what is refused with which words."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from jarvis.errors import EmptyTraceError, NotAProfilerTraceError, UnreadableTraceError
from jarvis.trace import read_trace
from jarvis.trace.reader import read_raw
from tests.builders import trace


@pytest.fixture
def content() -> bytes:
    return json.dumps(trace().op("aten::mm").launches("gemm").document()).encode()


def test_plain_and_gzipped_files_read_the_same(tmp_path: Path, content: bytes) -> None:
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    assert read_raw(plain).events == read_raw(packed).events
    assert read_raw(packed).sha256 == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert read_raw(packed).size_bytes == packed.stat().st_size


def test_gzip_is_known_by_its_content_not_by_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(content))
    assert read_raw(path).events


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace().op("aten::mm").document()["traceEvents"]))
    assert [event["name"] for event in read_raw(path).events] == ["aten::mm"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"{not json", "not valid JSON"),
        (gzip.compress(b'{"traceEvents": []}')[:-9], "gzip data is damaged"),
        (b"\x1f\x8b broken", "gzip data is damaged"),
        (b"PK\x03\x04", "not valid JSON"),
        (b'{"traceEvents": [\xff]}', "not valid JSON"),
    ],
)
def test_unreadable_files(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableTraceError, match=words):
        read_trace(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTraceError, match="No such file"):
        read_trace(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("<!DOCTYPE html><p>Not found</p>", "a web page"),
        ("42", "top level is a int"),
        ('{"events": []}', "no list named traceEvents"),
        ('{"traceEvents": {}}', "no list named traceEvents"),
        ('{"traceEvents": [1]}', "not objects"),
    ],
)
def test_json_of_another_kind(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(content)
    with pytest.raises(NotAProfilerTraceError, match=words):
        read_trace(path)


def test_a_trace_without_work_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {}}]}')
    with pytest.raises(EmptyTraceError, match="ProfilerActivity"):
        read_trace(path)


def test_absolute_timestamps_keep_their_nanoseconds(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,'
        '"ts": 1712195496500267.951,"dur":0.003,"args":{}}]}'
    )
    assert read_trace(path).cpu_ops.select("ts_ns", "dur_ns").rows() == [(1712195496500267951, 3)]
