"""Examples of broken traces, for ``broken-traces.md`` and a test."""

import gzip
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jarvis.core.errors import TraceError
from jarvis.sample import simulate
from jarvis.trace import read_trace
from jarvis.trace_health import Severity, facts_of, trace_health

Document = dict[str, Any]
Change = Callable[[Document], None]

WHOLE = "A valid trace"


def inputs() -> dict[str, bytes]:
    """Return the files by their fault."""
    text = _text()
    packed = gzip.compress(text, mtime=0)
    return {
        WHOLE: text,
        "Cut JSON": text[: len(text) * 2 // 3],
        "Cut gzip file": packed[: len(packed) * 2 // 3],
        "Cut before the first event": text[:200],
        "Quotes in names that are not escaped": text.replace(b'"aten::mm"', b'"aten::mm<"T">"'),
        "Control characters in names": text.replace(b'"aten::mm"', b'"aten::\nmm"'),
        "Invalid UTF-8": text.replace(b'"aten::mm"', b'"aten::\xffmm"'),
        "NaN": text.replace(b'"cat": "kernel"', b'"cat": "kernel", "share": NaN', 3),
        "Trailing commas": text.replace(b"}}, {", b",}}, {", 3),
        "Invalid JSON between events": text.replace(b"}}, {", b"}}, {oops}, {", 2),
        "Entries that are not events": _changed(lambda d: d["traceEvents"].extend([None, 7, "x"])),
        "Overlapping events": _changed(_overlap),
        "Negative durations": _changed(_on("kernel", lambda e: e.update(dur=-1.0))),
        "Missing durations": _changed(_on("kernel", lambda e: e.pop("dur"))),
        "Missing args": _changed(_on("kernel", lambda e: e.pop("args"))),
        "Duplicate correlation ids": _changed(_same_ids),
        "Unknown metadata": _changed(_unknown_metadata),
        "No GPU events": _changed(_without("kernel", "gpu_memcpy", "gpu_memset", "ac2g")),
        "GPU events only": _changed(_without("cpu_op", "cuda_runtime", "ac2g", "user_annotation")),
        "No flow arrows": _changed(_without("ac2g")),
        "No shapes": _changed(_on("cpu_op", _remove_arguments)),
        "No Python stack": _changed(_without("python_function")),
        "No device properties": _changed(lambda d: d.pop("deviceProperties")),
        "Two ranks merged into one file": _changed(_merged),
        "A list of events without a header": json.dumps(_document()["traceEvents"]).encode(),
        "An HTML error page": b"<!DOCTYPE html><title>404 Not Found</title>",
        "A CPU profile of a browser": b'{"nodes": [], "startTime": 0, "samples": []}',
        "A database of another profiler": b"SQLite format 3\x00" + bytes(84),
        "A memory snapshot": b"\x80\x04\x95\x10\x00\x00\x00",
        "An empty file": b"",
        "A trace without events": b'{"traceEvents": []}',
    }


def messages_for(content: bytes) -> list[str]:
    """Return the messages for a file: its rejection, or its warnings and notes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(content)
        try:
            trace = read_trace(path)
        except TraceError as error:
            return [f"Rejected: {error}".replace(f"{folder}/", "")]
        facts = facts_of(trace_health(trace))
    return [f"{f.severity.capitalize()}: {f.summary}" for f in facts if f.severity != Severity.OK]


def broken_inputs_markdown() -> str:
    """Return the page ``broken-traces.md``."""
    rows = {name: messages_for(content) for name, content in inputs().items()}
    usual = set(rows[WHOLE])
    lines = [
        "# Broken traces",
        "",
        "Damaged traces are parsed as far as possible. Repairs and losses are counted and reported",
        "on the overview, in both reports and on the command line. Only a file that is not a trace",
        "is rejected. Each row reads such a file (`make docs`).",
        "",
        "| file | messages |",
        "|---|---|",
    ]
    for name, messages in rows.items():
        new = [line for line in messages if name == WHOLE or line not in usual]
        text = "<br>".join(line.replace("|", "\\|") for line in new) or "none"
        lines.append(f"| {name} | {text} |")
    return "\n".join(lines) + "\n"


def _document() -> Document:
    document: Document = json.loads(_text())
    return document


@cache
def _text() -> bytes:
    return json.dumps(simulate(steps=1, world_size=1, scale="tiny")).encode()


def _changed(change: Change) -> bytes:
    document = _document()
    change(document)
    return json.dumps(document).encode()


def _on(category: str, change: Callable[[Document], Any], count: int = 5) -> Change:
    """Return a change of the first ``count`` events of a category."""

    def apply(document: Document) -> None:
        found = [e for e in document["traceEvents"] if e.get("cat") == category]
        for event in found if category == "cpu_op" else found[:count]:
            change(event)

    return apply


def _without(*categories: str) -> Change:
    def apply(document: Document) -> None:
        events = document["traceEvents"]
        document["traceEvents"] = [e for e in events if e.get("cat") not in categories]

    return apply


def _overlap(document: Document) -> None:
    for event in [e for e in document["traceEvents"] if e.get("cat") == "cpu_op"][:40:2]:
        event["dur"] = event["dur"] * 3 + 50


def _same_ids(document: Document) -> None:
    launches = [e for e in document["traceEvents"] if e.get("cat") == "cuda_runtime"]
    for event in launches[1:6]:
        event["args"]["correlation"] = launches[0]["args"]["correlation"]


def _unknown_metadata(document: Document) -> None:
    document["traceEvents"].append({"ph": "M", "name": "clock_sync", "pid": 1, "args": [1]})
    document["somethingNew"] = {"a": [1, 2]}


def _remove_arguments(event: Document) -> None:
    for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs"):
        event["args"].pop(key, None)


def _merged(document: Document) -> None:
    other = simulate(steps=1, world_size=1, scale="tiny", seed=1)["traceEvents"]
    for event in other:
        for key in ("pid", "id"):
            if isinstance(event.get(key), int):
                event[key] += 1_000_000
        arguments = event.get("args", {})
        for key in ("correlation", "External id"):
            if key in arguments:
                arguments[key] += 1_000_000
    document["traceEvents"] += other
