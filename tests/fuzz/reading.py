"""Mutated traces for the reader: no crash, no hang, and valid JSON is read correctly."""

import json
import random
import re
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from jarvis.core.errors import TraceError
from jarvis.trace import compiled, read_trace, tables
from jarvis.trace.event_store import RawTrace
from jarvis.trace.reader import read_raw
from tests.builders import trace
from tests.trace import oracle

__all__ = ["compiled", "fuzz"]  # imported here to exclude it from the timing

SLOW_S = 5.0
"""Reading a few kB must not take longer."""

TABLES = (
    ((tables.CPU_OP,), tables.CPU_OPS),
    (tables.RUNTIME_CATEGORIES, tables.RUNTIME),
    (tables.GPU_CATEGORIES, tables.GPU_EVENTS),
    (tables.FLOW_CATEGORIES, tables.FLOWS),
    (tables.ANNOTATION_CATEGORIES, tables.BASE),
)
TOKENS = [
    *(b'"', b'""', b"{", b"}", b"[", b"]", b",", b":", b"\\", b'\\"', b"\\u00e9", b"\\ud800"),
    *(b"null", b"true", b"NaN", b"-Infinity", b"-", b"0", b"1e400", b"1E-3", b"-7.25", b"9" * 25),
    *(b"\x00", b"\n", b"\t", b"\x1f", b"\xff", b"\xc3", b"\xc3\xa9", b"\xef\xbb\xbf", b"/*", b"<"),
    *(
        b'"args"',
        b'"ts":',
        b'"traceEvents": [',
        b"]}",
        b"}, {",
        b'{"ph": "X"}',
        b"[" * 50,
        b"{" * 50,
    ),
]


VALUES = [
    *(b"0", b"-1", b"17", b"1.5", b"-0.0005", b"1e3", b"2.5E-7", b"9223372036854775807"),
    *(b"18446744073709551615", b"1712195496500267.951", b"null", b"true", b"false", b'""', b'"X"'),
    *(b'"cpu_op"', b'"kernel"', b'"7"', b'"\\u00e9\\n"', b'"\\"', b'"\xc3\xa9"', b"[]", b"{}"),
    *(b"[[1, 2], []]", b'{"a": [1, "]"]}', b'"traceEvents"', b'"args"', b'"' + b"x" * 300 + b'"'),
]
_SCALAR = re.compile(rb'(?<=[:,\[ ])(?:"[^"\\]*"(?!\s*:)|-?\d+(?:\.\d+)?|null)(?=[,}\]\s])')


def seeds() -> list[bytes]:
    """Return small valid traces in several layouts."""
    built = trace().process("python").thread(1, "main")
    built.op("aten::linear", [[8, 4], [4, 2]], seq=3).child("aten::mm", [[8, 4], [4, 2]])
    built.launches('gemm<"T", 3>', us=12.345).launches("ncclDevKernel", us=3, stream="2000")
    document = built.document()
    document["traceEvents"] += [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 1, "dur": 2.5},
        {"args": {"x": [1, {"y": "}, {"}], "z": None, "big": 2**63}, "name": "é\n", "cat": 3},
    ]
    events = document["traceEvents"]
    return [
        json.dumps(document).encode(),
        json.dumps(document, indent=1).encode(),
        json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(),
        json.dumps(events).encode(),
        json.dumps({"traceEvents": events[:3], "distributedInfo": {"rank": 1}}).encode(),
    ]


def mutated(text: bytes, draw: random.Random) -> bytes:
    """Return a text with a few random changes."""
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        at = draw.randrange(len(text) + 1)
        to = min(len(text), at + draw.choice((1, 1, 2, 5, 40)))
        what = draw.randrange(12)
        if what >= 7 and (scalars := list(_SCALAR.finditer(text))):
            found = draw.choice(scalars)
            text = text[: found.start()] + draw.choice(VALUES) + text[found.end() :]
        elif what == 0:
            text = text[:at] + text[to:]
        elif what == 1:
            text = text[:at] + draw.choice(TOKENS) + text[at:]
        elif what == 2:
            text = text[:at] + draw.choice(TOKENS) + text[to:]
        elif what == 3:
            text = text[:at] + bytes([draw.randrange(256)]) + text[at + 1 :]
        elif what == 4:
            text = text[:to] + text[at:]
        elif what == 5 and draw.random() < 0.2:
            text = text[:at]
        else:
            other = draw.randrange(len(text) + 1)
            text = text[:at] + text[other : other + 30] + text[at:]
    return text


def oracle_events(text: bytes) -> list[Any] | None:
    """Return the events as parsed by orjson, or None if the text is not a trace.

    Nor is one compared that has two lists of events: orjson keeps the last one, we keep both.
    """
    if text.count(b'"traceEvents"') > 1:
        return None
    try:
        return oracle.events_of(text)
    except (
        orjson.JSONDecodeError,
        AssertionError,
        KeyError,
        TypeError,
        ValueError,
        ArithmeticError,
    ):
        return None


def differs(raw: RawTrace, events: list[Any]) -> bool:
    """Return whether a table differs from the reference reader."""
    if raw.event_count != len(events):
        return True
    return any(
        not tables.table(raw.store, categories, fields).equals(
            oracle.table(events, categories, fields)
        )
        for categories, fields in TABLES
    )


def fuzz(count: int, seed: int, folder: Path) -> Counter[str]:
    """Read ``count`` mutated traces; raise AssertionError if one is read wrongly."""
    draw = random.Random(seed)
    originals = seeds()
    path = folder / "trace.json"
    outcomes: Counter[str] = Counter()
    for number in range(count):
        text = mutated(draw.choice(originals), draw)
        path.write_bytes(text)
        block_bytes = draw.choice((5, 64, 1000, 1 << 20, 1 << 20))
        plain_bytes = draw.choice((0, block_bytes))
        begin = time.process_time()
        try:
            raw = read_raw(path, block_bytes=block_bytes, plain_bytes=plain_bytes)
        except TraceError:
            outcomes["refused with a sentence"] += 1
            raw = None
        assert time.process_time() - begin < SLOW_S, text
        events = oracle_events(text)
        if raw is None:
            assert events is None, text
        elif events is not None:
            assert not differs(raw, events), text
            outcomes["valid JSON, read the same"] += 1
        else:
            outcomes["broken, mended" if raw.repairs.all() else "broken, read leniently"] += 1
        if number % 10 == 0:
            with suppress(TraceError):
                read_trace(path)
    return outcomes
