"""The simulated sample: deterministic, shaped like a real trace, and physically possible."""

import getpass
import gzip
import itertools
import json
import re
import socket
from collections import Counter, defaultdict
from math import prod
from pathlib import Path
from typing import Any

import pytest

from jarvis.core.errors import JarvisError
from jarvis.hardware import load_hardware
from jarvis.sample import SCALES, simulate, write_sample
from jarvis.trace import read_trace
from jarvis.trace.metadata import SIMULATED_KEY

Event = dict[str, Any]
HOST = {"cpu_op", "python_function", "cuda_runtime", "user_annotation"}
GPU = {"kernel", "gpu_memcpy", "gpu_memset"}


@pytest.fixture(scope="module")
def sample() -> Event:
    return simulate()


@pytest.fixture(scope="module")
def events(sample: Event) -> list[Event]:
    return sample["traceEvents"]


@pytest.fixture(scope="module")
def ranks() -> list[list[Event]]:
    return [simulate(rank=r, world_size=3, scale="tiny")["traceEvents"] for r in range(3)]


def span_ns(event: Event) -> tuple[int, int]:
    start = round(event["ts"] * 1000)
    return start, start + round(event["dur"] * 1000)


def of(events: list[Event], *categories: str) -> list[Event]:
    return [event for event in events if event.get("cat") in categories]


def collectives(events: list[Event]) -> list[Event]:
    return [kernel for kernel in of(events, "kernel") if "Collective name" in kernel["args"]]


def gpu_time_by_op(events: list[Event]) -> list[tuple[Event, float]]:
    """Yield each op with launches of its own, with the time of its kernels in µs."""
    time_us: dict[int, float] = defaultdict(float)
    for event in of(events, *GPU):
        time_us[event["args"].get("External id", 0)] += event["dur"]
    ops = {op["args"]["External id"]: op for op in of(events, "cpu_op")}
    return [(ops[i], us) for i, us in time_us.items() if i in ops]


def test_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.json.gz", "b.json.gz", "other_seed.json.gz")]
    for path, seed in zip(paths, (0, 0, 1), strict=True):
        assert write_sample(path, world_size=2, seed=seed, scale="tiny") == path
    first, second, other = (path.read_bytes() for path in paths)
    assert first == second
    assert first != other


def test_the_file_holds_what_simulate_gives(tmp_path: Path) -> None:
    arguments: Event = {"steps": 1, "rank": 1, "world_size": 2, "seed": 5, "scale": "tiny"}
    expected = simulate(**arguments)
    plain = write_sample(tmp_path / "plain.json", **arguments)
    packed = write_sample(tmp_path / "new" / "packed.json.gz", **arguments)
    assert json.loads(plain.read_bytes()) == expected
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


def test_the_default_sample_is_small(tmp_path: Path) -> None:
    assert write_sample(tmp_path / "sample.json.gz").stat().st_size < 200_000


def test_nothing_of_this_machine_is_in_it(sample: Event) -> None:
    text = json.dumps(sample)
    assert not re.findall(r"/(home|root|work|tmp|usr|Users)/|\\\\|site-packages", text)
    for value in (getpass.getuser(), socket.gethostname()):
        assert not re.search(rf"\b{re.escape(value)}\b", text)


def test_it_is_marked_as_simulated(sample: Event, tmp_path: Path) -> None:
    assert sample["metadata"][SIMULATED_KEY] == "simulated"
    match = load_hardware().match(sample["deviceProperties"][0]["name"])
    assert match is not None
    assert match.name == "MI300X"
    trace = read_trace(write_sample(tmp_path / "sample.json.gz", steps=1, scale="tiny"))
    assert (trace.info.origin, trace.info.steps) == ("simulated", 1)
    assert (trace.info.rank, trace.info.world_size) == (0, 8)


def test_events_have_whole_nanoseconds_and_an_end(events: list[Event]) -> None:
    for event in events:
        assert event["ph"] in "XsfM"
        assert event["ts"] == round(event["ts"], 3)
        if event["ph"] == "X":
            assert event["dur"] > 0
            assert event["dur"] == round(event["dur"], 3)


def test_host_events_nest(events: list[Event]) -> None:
    threads = defaultdict(list)
    for event in of(events, *HOST):
        threads[event["pid"], event["tid"]].append(span_ns(event))
    assert len(threads) == 2, "the main thread and the autograd thread"
    for spans in threads.values():
        assert len({start for start, _ in spans}) == len(spans), "equal starts have no order"
        open_ends: list[int] = []
        for start, end in sorted(spans):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end < open_ends[-1]
            open_ends.append(end)


def test_a_stream_runs_one_thing_at_a_time(events: list[Event]) -> None:
    streams = defaultdict(list)
    for event in of(events, *GPU):
        assert (event["pid"], event["tid"]) == (event["args"]["device"], event["args"]["stream"])
        streams[event["tid"]].append(span_ns(event))
    assert len(streams) == 2, "compute and collectives"
    for spans in streams.values():
        spans.sort()
        for (_, end), (start, _) in itertools.pairwise(spans):
            assert end <= start


def test_everything_on_the_gpu_was_launched_before(events: list[Event]) -> None:
    calls = {call["args"]["correlation"]: call for call in of(events, "cuda_runtime")}
    arrows = {phase: {} for phase in "sf"}
    for arrow in of(events, "ac2g"):
        arrows[arrow["ph"]][arrow["id"]] = arrow
    launched = of(events, *GPU)
    assert len({event["args"]["correlation"] for event in launched}) == len(launched)
    for event in launched:
        number = event["args"]["correlation"]
        call, tail, head = calls[number], arrows["s"][number], arrows["f"][number]
        assert call["ts"] < event["ts"]
        assert (tail["pid"], tail["tid"], tail["ts"]) == (call["pid"], call["tid"], call["ts"])
        assert (head["pid"], head["tid"], head["ts"]) == (event["pid"], event["tid"], event["ts"])
    assert set(arrows["s"]) == {event["args"]["correlation"] for event in launched}


def test_frames_know_their_callers(events: list[Event]) -> None:
    frames = {frame["args"]["Python id"]: frame for frame in of(events, "python_function")}
    roots = [f for f in frames.values() if f["args"]["Python parent id"] is None]
    assert [root["name"] for root in roots] == ["train.py(141): <module>"]
    for frame in frames.values():
        if frame not in roots:
            (start, end), parent = span_ns(frame), frames[frame["args"]["Python parent id"]]
            assert span_ns(parent)[0] < start < end < span_ns(parent)[1]
    modules = {f["name"].split(": ")[1] for f in frames.values() if "nn.Module" in f["name"]}
    assert {"TransformerBlock_0", "TransformerBlock_3", "Conv2d_7", "RMSNorm_1"} <= modules


def test_every_backward_node_belongs_to_an_earlier_forward_op(events: list[Event]) -> None:
    main = min(op["tid"] for op in of(events, "cpu_op"))
    forward, backward = defaultdict(list), {}
    for op in of(events, "cpu_op"):
        number = op["args"].get("Sequence number")
        if number is not None and op["tid"] == main:
            forward[number].append(op)
        elif number is not None and op["name"].startswith("autograd::engine::evaluate_function"):
            assert number not in backward
            backward[number] = op
    assert set(backward) == set(forward)
    for number, node in backward.items():
        last = max(forward[number], key=lambda op: op["ts"])
        assert last["ts"] + last["dur"] < node["ts"]
        name = node["name"].split(": ")[1].removesuffix("0").removesuffix("1")
        plain = name.removesuffix("Backward").lower()
        assert plain in last["name"].replace("_", "").lower() or name in {
            "CloneBackward",
            "ReluBackward",
            "NativeBatchNormBackward",
            "MaxPool2DWithIndicesBackward",
        }


def test_no_kernel_beats_the_peaks_and_efficiencies_differ(events: list[Event]) -> None:
    spec = load_hardware().get("MI300X")
    peak = spec.max_achievable_tflops["matrix_bf16"]
    gemm, memory = [], []
    for op, us in gpu_time_by_op(events):
        dims = [tuple(shape) for shape in op["args"].get("Input Dims", [])]
        if op["name"] in {"aten::mm", "aten::bmm", "aten::addmm"}:
            left, right = dims[1:3] if op["name"] == "aten::addmm" else dims[:2]
            flops, nbytes = 2 * prod(left) * right[-1], 2 * (prod(left) + prod(right))
            roofline_us = max(flops / peak / 1e6, nbytes / spec.mem_bw_gbps / 1e3)
            gemm.append(roofline_us / us)
        elif op["name"] in {"aten::add", "aten::copy_", "aten::mul", "aten::gelu"}:
            memory.append(2 * 2 * prod(dims[0]) / spec.mem_bw_gbps / 1e3 / us)
    assert len(gemm) > 100
    assert max(gemm) < 0.85
    assert sum(share > 0.5 for share in gemm) > len(gemm) / 2
    assert min(gemm) < 0.1, "tiny batched products"
    assert any(0.15 < share < 0.3 for share in gemm), "a misaligned product"
    assert max(memory) < 0.85


def test_every_category_has_something_to_show(events: list[Event]) -> None:
    launching = Counter(op["name"] for op, _ in gpu_time_by_op(events))
    assert set(launching) >= {
        "aten::addmm",
        "aten::mm",
        "aten::bmm",
        "aten::_flash_attention_forward",
        "aten::_flash_attention_backward",
        "aten::_softmax",
        "aten::mul",
        "aten::add",
        "aten::copy_",
        "aten::gelu",
        "aten::mean",
        "aten::sum",
        "aten::native_layer_norm",
        "aten::native_layer_norm_backward",
        "aten::native_batch_norm",
        "aten::miopen_convolution",
        "aten::convolution_backward",
        "aten::max_pool2d_with_indices",
        "aten::index_select",
        "aten::_foreach_addcdiv_",
        "aten::_local_scalar_dense",
    }
    copies = Counter(copy["name"] for copy in of(events, "gpu_memcpy"))
    assert copies == {"Memcpy HtoD (Host -> Device)": 6, "Memcpy DtoH (Device -> Host)": 2}


def test_layout_transposes_take_a_good_part_of_convolution_time(events: list[Event]) -> None:
    convolution = [
        k for k in of(events, "kernel") if re.match("igemm|batched_transpose", k["name"])
    ]
    transposes = sum(k["dur"] for k in convolution if "transpose" in k["name"])
    assert 0.3 < transposes / sum(k["dur"] for k in convolution) < 0.45


def test_communication_is_partly_hidden_and_the_gpu_sometimes_idle(events: list[Event]) -> None:
    def covered_ns(spans: list[tuple[int, int]]) -> int:
        total, reached = 0, 0
        for start, end in sorted(spans):
            total += max(0, end - max(start, reached))
            reached = max(reached, end)
        return total

    exchange = collectives(events)
    compute = [span_ns(e) for e in of(events, *GPU) if e not in exchange]
    everything = compute + [span_ns(e) for e in exchange]
    communication_ns = covered_ns([span_ns(e) for e in exchange])
    exposed_ns = covered_ns(everything) - covered_ns(compute)
    assert 0.02 < exposed_ns / communication_ns < 0.5
    total_ns = max(end for _, end in everything) - min(start for start, _ in everything)
    assert 0.02 < 1 - covered_ns(everything) / total_ns < 0.2


def test_ranks_differ_but_their_collectives_end_together(ranks: list[list[Event]]) -> None:
    assert len({json.dumps(events) for events in ranks}) == 3
    exchanges = [sorted(collectives(events), key=lambda e: e["ts"]) for events in ranks]
    assert len(exchanges[0]) >= 2
    for same in zip(*exchanges, strict=True):
        assert len({span_ns(kernel)[1] for kernel in same}) == 1
        assert len({kernel["args"]["In msg nelems"] for kernel in same}) == 1
    assert len({kernel["dur"] for kernel in next(zip(*exchanges, strict=True))}) == 3
    assert {kernel["args"]["device"] for kernel in exchanges[2]} == {2}


def test_all_gradients_are_exchanged_once_per_step(events: list[Event]) -> None:
    sent = sum(kernel["args"]["In msg nelems"] for kernel in collectives(events)) / 2
    scaled = sum(
        prod(op["args"]["Input Dims"][0])
        for op in of(events, "cpu_op")
        if op["name"] == "aten::mul" and op["args"]["Concrete Inputs"][1:2] == ["0.125"]
    )
    assert sent == scaled / 2 > 100e6


def test_one_process_alone_exchanges_nothing() -> None:
    trace = simulate(steps=1, world_size=1, scale="tiny")
    assert not collectives(trace["traceEvents"])
    assert "distributedInfo" not in trace


def test_steps_and_scale_set_the_size() -> None:
    one, three = (
        simulate(steps=steps, world_size=1, scale="tiny")["traceEvents"] for steps in (1, 3)
    )
    assert 2.8 < len(three) / len(one) < 3.0
    names = [e["name"] for e in of(three, "user_annotation") if "ProfilerStep" in e["name"]]
    assert names == ["ProfilerStep#10", "ProfilerStep#11", "ProfilerStep#12"]
    shadows = [e["name"] for e in of(three, "gpu_user_annotation") if "Step#" in e["name"]]
    assert shadows == names
    small = simulate(steps=1, world_size=1, scale="small")["traceEvents"]
    assert len(small) > 1.5 * len(one)


@pytest.mark.parametrize("wrong", [{"rank": 2, "world_size": 2}, {"rank": -1}, {"scale": "huge"}])
def test_wrong_arguments_are_rejected_with_the_valid_ones(wrong: Event) -> None:
    with pytest.raises(JarvisError, match=rf"ranks|{', '.join(SCALES)}"):
        simulate(**wrong)
