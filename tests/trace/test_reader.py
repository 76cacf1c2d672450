"""Reading trace files: accepted, repaired and rejected input."""

import gzip
import hashlib
import json
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jarvis.core.errors import EmptyTraceError, NotAProfilerTraceError, UnreadableTraceError
from jarvis.trace import ReadProgress, Trace, read_trace, tables
from jarvis.trace.event_store import RawTrace
from jarvis.trace.reader import read_raw
from jarvis.trace.repairs import Repair, RepairKind
from tests.builders import trace

OPS = 5


@pytest.fixture
def content() -> bytes:
    built = trace()
    for index in range(OPS):
        built.op(f"aten::op{index}").launches("gemm")
    return json.dumps(built.document()).encode()


def names(raw: RawTrace) -> list[str]:
    return tables.table(raw.store, [tables.CPU_OP], tables.BASE)["name"].to_list()


def write(tmp_path: Path, content: bytes, name: str = "t.json") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


ALL_OPS = [f"aten::op{index}" for index in range(OPS)]


def test_plain_and_gzipped_files_read_the_same(tmp_path: Path, content: bytes) -> None:
    plain = write(tmp_path, content)
    packed = write(tmp_path, gzip.compress(content), "t.json.gz")
    assert names(read_raw(plain)) == names(read_raw(packed)) == ALL_OPS
    assert read_raw(packed).sha256 == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert read_raw(packed).size_bytes == packed.stat().st_size


def test_gzip_is_known_by_its_content_not_by_its_name(tmp_path: Path, content: bytes) -> None:
    assert names(read_raw(write(tmp_path, gzip.compress(content)))) == ALL_OPS


def test_a_file_of_several_gzip_members_is_one_text(tmp_path: Path, content: bytes) -> None:
    halves = gzip.compress(content[:900]) + gzip.compress(content[900:])
    assert names(read_raw(write(tmp_path, halves))) == ALL_OPS


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_zip_archive_with_one_trace(tmp_path: Path, content: bytes, name: str) -> None:
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README.txt", "see the trace")
        archive.writestr(name, gzip.compress(content) if name.endswith("gz") else content)
    raw = read_raw(path)
    assert names(raw) == ALL_OPS
    assert raw.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("members", "words"), [([], "no .json"), (["a.json", "b.json"], "contains 2 traces")]
)
def test_a_zip_archive_without_exactly_one_trace(
    tmp_path: Path, content: bytes, members: list[str], words: str
) -> None:
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("README.txt", "")
        for member in members:
            archive.writestr(member, content)
    with pytest.raises(UnreadableTraceError, match=words):
        read_trace(path)


def test_macos_metadata_in_an_archive_is_ignored(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("trace.json", content)
        archive.writestr("__MACOSX/._trace.json", b"\x00\x05\x16\x07")
    assert names(read_raw(path)) == ALL_OPS


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_archive_is_rejected_or_read_in_part(
    tmp_path: Path, content: bytes, packing: int
) -> None:
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.writestr("trace.json", content)
    whole = path.read_bytes()
    path.write_bytes(whole[:60] + bytes(100) + whole[160:])
    with suppress(UnreadableTraceError):
        repairs = read_raw(path).repairs.all()
        assert RepairKind.DAMAGED_GZIP in [repair.kind for repair in repairs]


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    events = trace().op("aten::mm").document()["traceEvents"]
    assert names(read_raw(write(tmp_path, json.dumps(events).encode()))) == ["aten::mm"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"  \n ", "it is empty"),
        (b"not json", "it is not JSON"),
        (b"42", "it is not JSON"),
        (gzip.compress(b"", mtime=0), "it is empty"),
        (b"\x1f\x8b broken", "it cannot be decompressed"),
        (b"PK\x03\x04", "the zip archive is damaged"),
        (b"PK\x05\x06" + bytes(18), "contains no .json"),
    ],
)
def test_unreadable_files(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(UnreadableTraceError, match=words):
        read_trace(write(tmp_path, content))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTraceError, match="No such file"):
        read_trace(tmp_path / "nowhere.json")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTraceError, match="Is a directory"):
        read_trace(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<!DOCTYPE html><p>Not found</p>", "a web page"),
        (b'{"nodes": [], "samples": []}', "no list named traceEvents; its keys are nodes, samples"),
        (b"{not json", "no list named traceEvents"),
        (b'{"traceEvents": {}}', "its traceEvents is not a list"),
        (b"SQLite format 3\x00...", "an SQLite database"),
        (b"\x80\x04\x95", "a Python pickle"),
        (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
        (gzip.compress(b"SQLite format 3\x00...", mtime=0), "an SQLite database"),
        (gzip.compress(gzip.compress(b"[]", mtime=0), mtime=0), "compressed twice"),
        (gzip.compress(b"trace.json".ljust(257, b"\x00") + b"ustar", mtime=0), "a tar archive"),
        ('{"traceEvents": []}'.encode("utf-16"), "UTF-16 text; save it as UTF-8"),
        (b'{"' + b"k" * 50 + b'": 1, "a\\nb": 2}', "traceEvents; its keys are k{40}, ab. Export"),
    ],
)
def test_files_of_another_kind(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(NotAProfilerTraceError, match=words):
        read_trace(write(tmp_path, content))


@pytest.mark.parametrize(
    "content",
    [
        b'{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {}}]}',
        b'{"traceEvents": [1]}',
        b'{"traceEvents": [\xff]}',
    ],
)
def test_a_trace_without_events_is_rejected(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(EmptyTraceError, match="ProfilerActivity"):
        read_trace(write(tmp_path, content))


def test_a_trace_cut_before_the_first_event_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(EmptyTraceError, match="ends before the first event"):
        read_trace(write(tmp_path, b'{"traceEvents": ['))


def test_absolute_timestamps_keep_their_nanoseconds(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        b'{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,'
        b'"ts": 1712195496500267.951,"dur":0.003,"args":{}}]}',
    )
    assert read_trace(path).cpu_ops.select("ts_ns", "dur_ns").rows() == [(1712195496500267951, 3)]


# Broken traces are read as far as they make sense.


def event(name: str = '"aten::a"', more: str = "") -> str:
    return f'{{"ph": "X", "cat": "cpu_op", "name": {name}, "ts": 1, "dur": 1{more}}}'


def read_with_repairs(tmp_path: Path, text: str | bytes) -> tuple[Trace, tuple[Repair, ...]]:
    read = read_trace(write(tmp_path, text.encode() if isinstance(text, str) else text))
    return read, read.info.repairs


def listed(*events: str) -> str:
    return f"[{', '.join(events)}]"


A = event()
B = event('"aten::b"')


@pytest.mark.parametrize(
    ("text", "found", "repairs"),
    [
        (f"[{A}, {B}", ["aten::a", "aten::b"], (RepairKind.TRUNCATED, 1, 0)),
        (f"[{A}, {B},", ["aten::a", "aten::b"], (RepairKind.TRUNCATED, 1, 0)),
        (f"[{A}, {B[:-9]}", ["aten::a"], (RepairKind.TRUNCATED, 1, 1)),
        (
            listed(event('"std::less<"int">"'), B),
            ['std::less<"int">', "aten::b"],
            (RepairKind.TEXT_IN_NAME, 1, 0),
        ),
        (
            listed(event('"a","b" c"'), B),
            ['a","b" c', "aten::b"],
            (RepairKind.TEXT_IN_NAME, 1, 0),
        ),
        (listed(event('"a\tb"')), ["a\tb"], (RepairKind.CONTROL_CHARACTER, 1, 0)),
        (listed(event('"a\nb"'), B), ["a\nb", "aten::b"], (RepairKind.CONTROL_CHARACTER, 1, 0)),
        (listed(event('"a\\q"')), ["a\\q"], (RepairKind.TEXT_IN_NAME, 1, 0)),
        (f"[{A}, {B},]", ["aten::a", "aten::b"], (RepairKind.TRAILING_COMMA, 1, 0)),
        (listed(event(more=', "args": {"x": 1,}')), ["aten::a"], (RepairKind.TRAILING_COMMA, 1, 0)),
        (f"[{A} {B}]", ["aten::a", "aten::b"], (RepairKind.MISSING_COMMA, 1, 0)),
        (
            listed(event(more=', "args": {"x": NaN, "y": -Infinity}')),
            ["aten::a"],
            (RepairKind.NOT_A_NUMBER, 2, 0),
        ),
        (f"[{A}, null, 7, {B}]", ["aten::a", "aten::b"], (RepairKind.NOT_AN_EVENT, 2, 0)),
        (f"[{A}, {{]: }}, {B}]", ["aten::a", "aten::b"], (RepairKind.LOST_TEXT, 1, 1)),
        (f"[{A}, {{]: }}", ["aten::a"], (RepairKind.TRUNCATED, 1, 1)),
        (f"[{A}], 3", ["aten::a"], (RepairKind.LOST_TEXT, 1, 0)),
        (
            f'{{"bad": {{"x" "y", "traceEvents": [{A}]}}',
            ["aten::a"],
            (RepairKind.LOST_TEXT, 1, 0),
        ),
        (f'{{"traceEvents": [{A}]}} {{"more"', ["aten::a"], (RepairKind.LOST_TEXT, 1, 0)),
    ],
)
def test_broken_events_are_repaired_or_skipped(
    tmp_path: Path, text: str, found: list[str], repairs: tuple[RepairKind, int, int]
) -> None:
    read, made = read_with_repairs(tmp_path, text)
    assert read.cpu_ops["name"].to_list() == found
    assert [(r.kind, r.count, r.lost_events) for r in made] == [repairs]


def test_a_name_with_broken_utf8(tmp_path: Path) -> None:
    read, made = read_with_repairs(
        tmp_path, A.replace("aten::a", "caf\xe9").encode("latin-1").join([b"[", b"]"])
    )
    assert read.cpu_ops["name"].to_list() == ["caf\ufffd"]
    assert [r.kind for r in made] == [RepairKind.INVALID_UTF8]


def test_an_unpaired_surrogate_becomes_a_question_mark(tmp_path: Path) -> None:
    more = ', "args": {"Input type": ["\\ud83d", "\\ud83d\\ude00"]}'
    read, _ = read_with_repairs(tmp_path, listed(event('"a\\ud800b"', more)))
    assert read.cpu_ops["name"].to_list() == ["a?b"]
    assert read.cpu_ops["input_types"].to_list() == ['["?","\U0001f600"]']


def test_a_repair_reports_its_position(tmp_path: Path) -> None:
    _, made = read_with_repairs(tmp_path, f"[{A}, {{]: oh dear}}, {B}]")
    assert made[0].example.startswith("{]: oh dear}")


def test_many_broken_names_are_counted(tmp_path: Path) -> None:
    broken = event('"a "quoted" word"')
    _, made = read_with_repairs(tmp_path, listed(*[broken, A] * 20))
    assert [(r.kind, r.count) for r in made] == [(RepairKind.TEXT_IN_NAME, 20)]


def test_a_truncated_gzip_file_is_read_up_to_its_end(tmp_path: Path, content: bytes) -> None:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"op{i}", "ts": i, "dur": 1} for i in range(20_000)
    ]
    packed = gzip.compress(json.dumps({"traceEvents": events}).encode())
    read, made = read_with_repairs(tmp_path, packed[: len(packed) // 2])
    assert 5_000 < read.cpu_ops.height < 15_000
    assert {r.kind for r in made} == {RepairKind.TRUNCATED, RepairKind.DAMAGED_GZIP}


def test_an_event_longer_than_a_block(tmp_path: Path) -> None:
    long = "x" * 3_000_000
    raw = read_raw(write(tmp_path, listed(event('"' + long + '"'), B).encode()), block_bytes=1000)
    assert [len(name) for name in names(raw)] == [3_000_000, 7]


def test_an_unterminated_string_loses_one_event(tmp_path: Path) -> None:
    broken = event().replace('"aten::a"', '"aten::a')
    read, _ = read_with_repairs(tmp_path, f"[{broken}, {B}]")
    assert read.cpu_ops["name"].to_list()[-1] == "aten::b"


def test_many_distinct_texts_and_keys(tmp_path: Path) -> None:
    events = [
        {
            "ph": "X",
            "cat": f"c{i % 300}",
            "name": f"name {i}",
            "args": {f"key {i}": i, "x": f"v{i}"},
        }
        for i in range(9_000)
    ]
    events.append(
        {"ph": "X", "cat": "cpu_op", "name": "wide", "args": {str(i): i for i in range(50)}}
    )
    raw = read_raw(write(tmp_path, json.dumps(events).encode()))
    assert len(raw.store.categories()) == 301
    store = raw.store
    group = store.group("c7")
    assert group.height == 30
    assert store.values(group, "key 307", in_arguments=True).values[1] == 307
    assert len(store.keys("cpu_op")) == 50


def test_progress_increases_and_can_cancel_reading(tmp_path: Path) -> None:
    path = write(tmp_path, listed(*[A] * 2000).encode())
    seen: list[ReadProgress] = []
    read_raw(path, seen.append, block_bytes=10_000)
    assert [p.events for p in seen] == sorted(p.events for p in seen)
    assert seen[-1].bytes_done == seen[-1].bytes_total == path.stat().st_size

    packed = tmp_path / "t.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(path, path.name)
    read_raw(packed, seen.append, block_bytes=10_000)
    assert path.stat().st_size < seen[-1].bytes_done <= seen[-1].bytes_total

    class StopError(Exception):
        pass

    def stop(progress: ReadProgress) -> Any:
        raise StopError

    with pytest.raises(StopError):
        read_raw(path, stop)


def test_a_rank_out_of_range_is_none(tmp_path: Path) -> None:
    header = '{"distributedInfo": {"rank": ' + "9" * 400 + ', "x": NaN},'
    read, _ = read_with_repairs(tmp_path, f'{header} "traceEvents": [{A}]}}')
    assert read.info.rank is None


def test_header_values_of_wrong_types_are_ignored(tmp_path: Path) -> None:
    header = (
        '{"deviceProperties": [3, {"name": ["x"], "numSms": "many"}, {"numSms": 7}],'
        ' "distributedInfo": {"rank": "first", "world_size": true}, "metadata": [1],'
    )
    read, made = read_with_repairs(tmp_path, f'{header} "traceEvents": [{A}]}}')
    assert (read.info.rank, read.info.world_size, read.info.compute_units) == (None, None, 7)
    assert made == ()
