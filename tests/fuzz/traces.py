"""Mutated traces, analyzed by the command line."""

import copy
import json
import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from tests.builders import TraceBuilder, trace
from tests.fuzz.commands import assert_analyses_work, run, run_well
from tests.fuzz.reading import mutated
from tests.fuzz.values import TEXTS, change, odd

FORMATS = ("json", "html", "csv", "xlsx", "fair", "rough", "analysis", "findings")
PLATFORMS = ((), ("--platform", "MI300X"), ("--platform", "H200"))
BF16 = ["c10::BFloat16"] * 5


def fuzz(count: int, seed: int, folder: Path) -> Counter[str]:
    """Analyze ``count`` mutated traces; the runs must pass all later commands."""
    outcomes: Counter[str] = Counter()
    for number in range(seed, seed + count):
        outcomes[_outcome(random.Random(number), folder / str(number))] += 1
    return outcomes


def _outcome(draw: random.Random, folder: Path) -> str:
    folder.mkdir()
    file, root = folder / "trace.json", folder / "run"
    file.write_bytes(_text(draw))
    platform = draw.choice(PLATFORMS)
    if run("analyze", file, "--output-dir", root, *platform).code:
        assert not root.exists()
        assert run("report", file, "--output-csvs-dir", folder / "csvs").code == 1
        return "refused with a sentence"
    assert_analyses_work(root)
    run_well("validate", root)
    run_well("report", file, "--output-csvs-dir", folder / "csvs", *draw.choice(PLATFORMS))
    run_well("tree", root, "--name", "*", *draw.choice(((), ("--json",))))
    name = draw.choice(FORMATS)
    run_well("export", root, "--format", name, "-o", folder / name)
    return "analyzed"


def _text(draw: random.Random) -> bytes:
    document = copy.deepcopy(draw.choice(seeds()))
    for _ in range(draw.choice((1, 1, 2, 3, 5, 12))):
        _change(document, draw)
    text = json.dumps(document).encode()
    return mutated(text, draw) if draw.random() < 0.15 else text


def _change(document: dict[str, Any], draw: random.Random) -> None:
    """Change an event or any other value."""
    events = document.get("traceEvents")
    events = [e for e in events if isinstance(e, dict)] if isinstance(events, list) else []
    if not events or draw.random() < 0.2:
        change(document, draw)
        return
    _change_event(document["traceEvents"], draw.choice(events), draw.choice(events), draw)


def _change_event(  # noqa: C901 - one action each
    events: list[Any], event: dict[str, Any], other: dict[str, Any], draw: random.Random
) -> None:
    action = draw.randrange(9)
    if action == 0:
        event["name"] = draw.choice((draw.choice(TEXTS), other.get("name")))
    elif action == 1:
        event["ts"], event["dur"] = other.get("ts"), other.get("dur")
    elif action == 2:
        event["ph"] = draw.choice(("B", "E", "M", "i", "s", "f", "x", "0x10", "", None, 1))
    elif action == 3:
        event["cat"] = draw.choice((other.get("cat"), odd(draw)))
    elif action == 4:
        event["args"] = copy.deepcopy(other.get("args"))
    elif action == 5:
        events.append(copy.deepcopy(event))
    elif action == 6:
        events.remove(event)
    elif action == 7:
        for key in ("ts", "dur"):
            if isinstance(event.get(key), int | float):
                event[key] *= draw.choice((-1, 0, 0.5, 1, 2, 1000))
    else:
        change(event, draw)


def write_trace(document: dict[str, Any], path: Path) -> Path:
    """Write a trace unchanged."""
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@cache
def seeds() -> tuple[dict[str, Any], ...]:
    """Return small valid traces with data for every analysis."""
    return _products().document(), _training().document(), _without_operators().document()


def _products() -> TraceBuilder:
    built = trace(device="AMD Instinct MI300X").process("python").thread(1, "main")
    built.op("ProfilerStep#1")
    for _ in range(2):
        built.child("aten::mm", [[4097, 4096], [4096, 1025]], types=BF16).launches("gemm", us=900)
        built.up().child("aten::addmm", [[256], [256, 16384], [16384, 256]])
        built.launches("gemm_MT64x64x64", us=300).launches("splitKreduce_kernel", us=90).up()
        built.child("aten::bmm", [[128, 512, 64], [128, 64, 512]], strides=[[32768, 64, 1]] * 2)
        built.launches("gemm_scores", us=120).up()
        built.child("aten::_softmax", [[128, 512, 512], [], []], concrete=["", "-1", "False"])
        built.launches("softmax_warp_forward", us=80).up()
        built.child("aten::bmm", [[128, 512, 512], [128, 512, 64]]).launches("gemm_o", us=110).up()
        built.child("aten::mul", [[8192, 8192], [8192, 1]]).launches("vectorized_mul", us=700).up()
        built.child("aten::cat", [[[64, 8], [64, 8]], []]).launches("CatArrayBatchedCopy", us=5)
        built.up()
    built.child("aten::sum", [[512, 512], [], [], []], concrete=["", "[1]", "False", ""])
    built.launches("reduce_kernel", us=60).up()
    built.child("triton_poi_fused_add_mul_0", [[512, 512], [512, 512]])
    built.launches("triton_poi_fused_add_mul_0", us=40).up()
    built.child("flash_attn::_flash_attn_forward", [[2, 512, 8, 64]] * 3, types=BF16)
    built.launches("flash_fwd_kernel", us=300, stream=8, at_us=1500.0)
    built.op("graph").graph(("k1", 5.0), ("k2", 6.0), ("k2", 7.0))
    for _ in range(30):
        built.op("aten::topk", [[64, 64]]).launches("sort_kernel", us=6)
    return built


def _training() -> TraceBuilder:
    built = trace(device="NVIDIA H100 80GB HBM3")
    shape = [32, 256, 1024]
    for step in range(3):
        built.op("aten::copy_", [[1024, 1024], [1024, 1024]])
        built.launches(
            "Memcpy HtoD (Pageable -> Device)",
            us=40.0,
            cat="gpu_memcpy",
            call="cudaMemcpyAsync",
            bytes=2097152,
        )
        built.op("root").python(f"nn.Module: Block_{step}")
        for name in ("aten::pow", "aten::mean", "aten::rsqrt", "aten::mul"):
            built.child(name, [shape, shape], types=BF16[:2]).launches(f"k_{name[6:]}", us=30).up()
        built.op(
            "aten::native_batch_norm",
            [[32, 64, 112, 112], [64], [64], [64], [64], [], [], []],
            concrete=["", "", "", "", "", "True", "0.1", "1e-05"],
        ).launches("batch_norm_collect_statistics_kernel", us=260)
        built.op(
            "aten::convolution",
            [[8, 64, 56, 56], [64, 64, 3, 3], [64], [], [], [], [], [], []],
            types=BF16[:3],
            concrete=["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"],
            seq=step,
        ).launches("nchwToNhwcKernel", us=20).launches("implicit_gemm", us=200)
        built.op("aten::layer_norm", [[4096, 1024], [], [1024], [1024]])
        built.launches("layer_norm_kernel", us=45)
        built.op("aten::embedding", [[50_000, 512], [8, 128]]).launches("gather", us=25)
        built.op("c10d::allreduce_", []).launches(
            "ncclDevKernel_AllReduce",
            us=900.0,
            stream=9,
            **{"Collective name": "allreduce", "In msg nelems": 1024, "dtype": "BFloat16"},
        )
        built.thread(2).op(f"autograd::engine::evaluate_function: MmBackward{step}", seq=step)
        built.child("aten::mm", [[64, 64], [64, 64]]).launches("gemm_b", us=9).thread(1)
        built.waits(4_000)
        built.op("aten::item").runtime("cudaStreamSynchronize", us=500.0)
    return built


def _without_operators() -> TraceBuilder:
    built = trace()
    for number in range(4):
        built.unlinked(f"gemm_{number % 2}", us=20.0 + number, stream=7 + number % 2)
    return built
