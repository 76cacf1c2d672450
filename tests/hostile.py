"""A trace in which every text is an injection attempt, and markers of success.

``NASTY`` are texts for one destination each; ``nasty`` puts one into a name without hiding the
name from the patterns of the analyses.
"""

import json
from itertools import cycle
from pathlib import Path

from tests.builders import TraceBuilder, trace

CALLED = "jarvisWasHere"
"""The page function that an injected script calls."""

HOST = "evil.example"
"""The host that an injected URL requests."""

NASTY = (
    f"<img src=x onerror={CALLED}(1)>",
    f"<script>{CALLED}(2)</script>",
    f"\"'><svg onload={CALLED}(3)>",
    f"</title></style></script><body onload={CALLED}(4)>",
    f"[click](javascript:{CALLED}(5)) ![i](http://{HOST}/i.png) <http://{HOST}/a>",
    f"[x]: http://{HOST}/d\n\n# heading\n- item\n| a | b |\n|---|---|",
    "`code` ``` ~~~ **bold** __it__ ~~gone~~ $x^2$ &lt;b&gt; \\",
    ":red[shout] :material/delete: :smile: :violet-background[x]",
    "{{ 7 * 7 }} {% raw %} ${7*7} #{7*7} %s %n",
    '=HYPERLINK("http://evil.example","x")',
    "+cmd|' /C calc'!A0",
    '-2+3+cmd|" /C calc"!A0',
    "@SUM(1+9)*cmd",
    "\t=1+1",
    "../../../../outside",
    "..\\..\\outside",
    "/etc/passwd",
    "CON",
    "a\x00b\x07\x1b[31mred\x1b[0m\x7f\x9b",
    "\u202egnp.exe\u202c \u2066\u200b\ufeff\u2028\u2029",
    "\ud800 half a pair",
    f"datum.x; {CALLED}(6); constructor.constructor('{CALLED}(7)')()",
    "__proto__",
    "'; DROP TABLE jobs; --",
    "x" * 70_000,
)


def hostile_trace() -> TraceBuilder:
    """Return a trace with hostile calls, frames, kernels, copies, collectives, threads, header."""
    texts = cycle(NASTY)
    built = trace(device=f"NVIDIA H200 {NASTY[0]}")
    built.header |= {
        "deviceProperties": [{"id": 0, "name": NASTY[0], "computeMajor": NASTY[2]}],
        "distributedInfo": {
            "rank": NASTY[3],
            "world_size": 2,
            "pg_config": [{"pg_name": NASTY[1]}],
        },
        "trace_name": f"/{NASTY[14]}/{NASTY[1]}",
        "displayTimeUnit": NASTY[2],
        **{text: text for text in NASTY[:-1]},
    }
    built.process(NASTY[0], NASTY[1])
    for number, text in enumerate(NASTY):
        built.thread(number + 2, text)
        built.op(f"ProfilerStep#{number}").child(text)
        built.python(f"nn.Module: {text}_{number}").python(f"{text}.py({number}): {text}")
        for name in _operators(text):
            other = next(texts)
            built.child(
                name,
                [[4096, 4096], [4096, 4096], []],
                types=["c10::BFloat16", "c10::BFloat16", other],
                concrete=["", "", other],
            )
            built.launches(
                f"{other} gemm_kernel {text}", us=9_000.0 + number, call=f"hipLaunch {other}"
            ).up()
        built.child("c10d::allreduce_", [[1024]])
        built.launches(
            f"ncclDevKernel_AllReduce_{text}",
            us=2_000.0,
            stream=9,
            **{"Collective name": text, "Process Group Name": text, "dtype": text},
        ).up()
        built.launches(f"Memcpy HtoD ({text} -> Device)", us=900.0, cat="gpu_memcpy", bytes=64)
    _add_odd_events(built)
    return built


def write_hostile(folder: Path) -> Path:
    """Write the trace to a file with a hostile name, as far as a file system allows."""
    path = folder / f"=a`b|<img src=x onerror={CALLED}(8)>.json"
    path.write_text(json.dumps(hostile_trace().document()), encoding="utf-8")
    return path


def _operators(text: str) -> tuple[str, ...]:
    """Return a text alone, and inside names that each analysis claims."""
    return (
        text,
        f"aten::mm{text}",
        "aten::mm",
        f"{text}triton_poi_fused",
        f"aten::add{text}",
        f"aten::{text}",
    )


def _add_odd_events(built: TraceBuilder) -> None:
    """Streams, devices, correlations and times that are texts or not numbers."""
    end_us = max(e["ts"] + e.get("dur", 0) for e in built.events if "ts" in e) + 10
    for number, text in enumerate(NASTY):
        built.events += [
            {
                "ph": "X",
                "cat": "kernel",
                "name": text,
                "pid": text,
                "tid": text,
                "ts": end_us + 20 * number,
                "dur": 10,
                "args": {"stream": text, "device": text, "correlation": text, text: text},
            },
            {"ph": "X", "cat": text, "name": text, "pid": 1, "tid": 1, "ts": text, "dur": text},
            {"ph": text, "name": text, "pid": 1, "tid": 1, "ts": end_us, "args": text},
            {"ph": "i", "name": text, "s": text, "pid": 1, "tid": 1, "ts": float("nan")},
        ]
