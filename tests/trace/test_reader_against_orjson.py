"""The reader against the reference reader, cell by cell."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from jarvis.trace import tables
from jarvis.trace.event_store import RawTrace
from jarvis.trace.layout import BASE_KEYS
from jarvis.trace.reader import read_raw
from jarvis.trace.tables import Field
from tests.trace import oracle

TABLES: tuple[tuple[tuple[str, ...], tuple[Field, ...]], ...] = (
    ((tables.CPU_OP,), tables.CPU_OPS),
    (tables.RUNTIME_CATEGORIES, tables.RUNTIME),
    (tables.GPU_CATEGORIES, tables.GPU_EVENTS),
    (tables.FLOW_CATEGORIES, tables.FLOWS),
    (tables.ANNOTATION_CATEGORIES, tables.BASE),
    ((tables.PYTHON_FUNCTION,), tables.BASE),
)
BLOCK_SIZES = (611, 4099, 65_536)


def assert_same(raw: RawTrace, text: bytes) -> None:
    """Compare every column of the tables and every key of every event."""
    events = oracle.events_of(text)
    assert raw.event_count == len(events)
    for categories, fields in TABLES:
        assert_frame_equal(
            tables.table(raw.store, categories, fields), oracle.table(events, categories, fields)
        )
    for category in {oracle.category(e) for e in events if isinstance(e, dict)}:
        fields = every_key(events, category)
        assert_frame_equal(
            tables.table(raw.store, [category], fields), oracle.table(events, (category,), fields)
        )


def every_key(events: list[Any], category: str | None) -> tuple[Field, ...]:
    """Return all keys of the events of a category, as JSON text."""
    mine = [e for e in events if isinstance(e, dict) and oracle.category(e) == category]
    outer = {key for event in mine for key in event} - set(BASE_KEYS)
    inner = {key for e in mine if isinstance(e.get("args"), dict) for key in e["args"]}
    return tuple(
        Field(f"{in_args}.{key}", key, pl.String, tables._text, in_args)
        for in_args, keys in ((False, outer), (True, inner))
        for key in sorted(keys)
    )


PLAIN = 1 << 27
"""One block: the JSON library reads valid text."""


def read(tmp_path: Path, text: bytes, block_bytes: int) -> RawTrace:
    path = tmp_path / "t.json"
    path.write_bytes(text)
    return read_blocks(path, block_bytes)


def read_blocks(path: Path, block_bytes: int) -> RawTrace:
    plain_bytes = PLAIN if block_bytes == PLAIN else 0
    return read_raw(path, block_bytes=block_bytes, plain_bytes=plain_bytes)


@pytest.mark.parametrize("block_bytes", [*BLOCK_SIZES, 1 << 22, PLAIN])
def test_shared_traces(reference_root: Path, block_bytes: int) -> None:
    for path in sorted((reference_root / "traces").glob("*.json.gz")):
        if block_bytes == min(BLOCK_SIZES) and path.stat().st_size > 200_000:
            continue  # a million blocks prove no more
        raw = read_blocks(path, block_bytes)
        assert_same(raw, gzip.decompress(path.read_bytes()))
        assert raw.repairs.all() == ()


EVENTS: list[dict[str, Any]] = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 1.5, "dur": 2},
    {
        "ph": "X",
        "cat": "kernel",
        "name": 'quoted "name" \\ back\\slash \u00e9 \U0001f600',
        "pid": "Spans",
        "tid": "stream 7",
        "ts": 1712195496500267.25,
        "dur": 0.001,
        "args": {
            "correlation": 7,
            "stream": "2000",
            "grid": [1, [2, {"a": "}, {"}], "]"],
            "bytes": 2**62,
            "huge": 2**64,
            "share": 0.125,
            "flag": True,
            "nothing": None,
            "traceEvents": [1],
            "": "empty key",
        },
    },
    {"ph": "s", "cat": "ac2g", "id": 7, "pid": 1, "tid": 2, "ts": 1.75, "name": "ac2g"},
    {"args": {}, "cat": "cpu_op", "name": "", "ts": -3.25, "dur": 1e-2, "ph": "X"},
    {"ph": "M", "name": "process_name", "args": {"name": "python"}},
]
WAYS_TO_WRITE = {
    "one line": lambda document: json.dumps(document).encode(),
    "no spaces": lambda document: json.dumps(document, separators=(",", ":")).encode(),
    "indented": lambda document: json.dumps(document, indent=2).encode(),
    "tabs and carriage returns": lambda document: (
        json.dumps(document, indent="\t").replace("\n", "\r\n").encode()
    ),
    "raw unicode": lambda document: json.dumps(document, ensure_ascii=False).encode(),
    "byte order mark": lambda document: b"\xef\xbb\xbf" + json.dumps(document).encode(),
}
DOCUMENTS = {
    "events first": {"traceEvents": EVENTS, "schemaVersion": 1},
    "events last": {"metadata": {"traceEvents": "no"}, "traceName": "]}", "traceEvents": EVENTS},
    "bare list": EVENTS,
    "not only objects": {"traceEvents": [None, *EVENTS, 3, "x", [1, {"ph": "X"}]]},
    "none": {"traceEvents": []},
}


def test_a_small_trace_needs_no_compiled_code(reference_root: Path) -> None:
    code = (
        "import sys; from jarvis.trace import read_trace; "
        f"read_trace({str(reference_root / 'traces' / 'mi300-bert-small.json.gz')!r})"
        ".python_call_tree; print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1 << 22, PLAIN])
@pytest.mark.parametrize("way", WAYS_TO_WRITE)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_way_to_write_a_trace(
    tmp_path: Path, document: str, way: str, block_bytes: int
) -> None:
    text = WAYS_TO_WRITE[way](DOCUMENTS[document])
    raw = read(tmp_path, text, block_bytes)
    assert_same(raw, text.removeprefix(b"\xef\xbb\xbf"))
    if isinstance(DOCUMENTS[document], dict):
        header = {k: v for k, v in DOCUMENTS[document].items() if k != "traceEvents"}  # type: ignore[attr-defined]
        assert raw.metadata == header


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
)
JSON_VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
TEXT_OR_NUMBER = st.text(max_size=6) | st.integers(-5, 10**6)
TIMES = st.integers(-(10**6), 10**16) | st.decimals(0, 10**15, places=3).map(float)
AN_EVENT = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from(["X", "M", "s", "f"]),
        "cat": st.sampled_from(["cpu_op", "kernel", "ac2g", "odd one", ""]),
        "name": st.text(max_size=20),
        "pid": TEXT_OR_NUMBER,
        "tid": TEXT_OR_NUMBER,
        "ts": TIMES,
        "dur": TIMES,
        "id": TEXT_OR_NUMBER,
        "args": st.dictionaries(
            st.sampled_from(["correlation", "stream", "Input Dims", "x", "y"]),
            JSON_VALUES,
            max_size=4,
        ),
    },
)


@given(
    st.lists(AN_EVENT, max_size=6),
    st.sampled_from([None, 2]),
    st.sampled_from([3, 50, 1 << 20, PLAIN]),
)
def test_any_events(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[dict[str, Any]],
    indent: int | None,
    block_bytes: int,
) -> None:
    text = json.dumps({"traceEvents": events}, indent=indent).encode()
    folder = tmp_path_factory.getbasetemp()
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:  # lone surrogates, numbers that no double holds
        return
    assert_same(read(folder, text, block_bytes), text)
