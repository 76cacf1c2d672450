"""Facts about a trace: each with tables where it holds and a near miss where it does not."""

import re
from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest

from jarvis.analyses import load_analyses
from jarvis.analyses.runner import run_analyses, split_operations
from jarvis.findings import Finding
from jarvis.preconditions import FACTS, Facts, Subject
from jarvis.text.messages import Message, preconditions, tables, to_text
from jarvis.tracelens.report import TraceLensReport
from tests.analyses.rows import operation, operations, table
from tests.builders import TraceBuilder, trace

Tables = Mapping[str, pl.DataFrame]

BF16 = ["c10::BFloat16", "c10::BFloat16"]
PRODUCT = {"M": 64, "N": 16, "K": 32}
MM = {
    "input_dims": "((64, 32), (32, 16))",
    "input_types": "('c10::BFloat16', 'c10::BFloat16')",
    "input_strides": "((32, 1), (16, 1))",
    "concrete_inputs": "('', '')",
}


def work(**values: Any) -> dict[str, Any]:
    return {"kind": "compute", "device": 0, "stream": 7, "ts_ns": 0, "dur_ns": 10, **values}


def calls(*uids: int | None, **values: Any) -> pl.DataFrame:
    """Kernels one after the other, each of its own call of the operation with this uid."""
    rows = [
        work(ts_ns=100 * i, operation_uid=uid, launcher_uid=i, **values)
        for i, uid in enumerate(uids)
    ]
    return table("gpu_work", *rows)


def copy(direction: str, **values: Any) -> dict[str, Any]:
    return work(kind="copy", direction=direction, **values)


def one(name: str = "aten::mm", **values: Any) -> pl.DataFrame:
    return operations(operation(name, time_us=1.0, **values))


def two(first: dict[str, Any], second: dict[str, Any]) -> pl.DataFrame:
    return operations(*(operation(time_us=1.0, **values) for values in (first, second)))


def collective(kind: str | None, dur_us: float = 1.0, **values: Any) -> dict[str, Any]:
    return {"uid": 1, "name": "ncclDevKernel", "collective": kind, "dur_us": dur_us, **values}


def slices(*names: str) -> Tables:
    return {"host_slices": table("host_slices", *({"name": name} for name in names))}


def gpu(*rows: dict[str, Any]) -> Tables:
    return {"gpu_work": table("gpu_work", *rows)}


def products(*sides: dict[str, int], **values: Any) -> Tables:
    """Calls of ``aten::mm`` with these sides, one after the other."""
    rows = [operation("aten::mm", time_us=1.0, params=each, **values) for each in sides]
    return {"operations": operations(*rows), "gpu_work": calls(*range(1, len(sides) + 1))}


ADD = {"name": "aten::add", "input_dims": "((8,), (8,))"}
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
STEPS = [f"ProfilerStep#{number}" for number in range(3)]
FRAMED = {"host_threads": table("host_threads", {"thread": 0, "python_ns": 5})}
TRAINING = one(direction="backward")

REGION = "Torch-Compiled Region: "
FLASH = "aten::_scaled_dot_product_flash_attention"
QKV = {"input_dims": "((4, 8, 64, 64),)"}
COMPILED = operations(
    operation("triton_poi_fused_mul_0", time_us=1.0),
    operation("triton_poi_fused_mul_1", time_us=1.0),
    operation("aten::mm", time_us=1.0, op_category="GEMM"),
)

CASES: list[tuple[str, Tables, Tables]] = [
    ("has_stacks", {"operations": one(entry_point="train.py(3): step")}, {"operations": one()}),
    ("has_stacks", {"operations": one(module_path=["Linear"])}, {"operations": one()}),
    ("has_stacks", FRAMED, {"host_threads": table("host_threads", {"thread": 0, "python_ns": 0})}),
    ("has_shapes", {"operations": one(**MM)}, {"operations": one()}),
    ("has_host_calls", gpu(work(linked=True)), gpu(work(linked=False))),
    ("has_host_calls", {"operations": one()}, {"operations": one("launch->kernel")}),
    ("has_several_steps", slices(*STEPS), slices(*STEPS[:2], STEPS[0], "step")),
    (
        "is_served",
        {"steps": table("steps", {"source": "engine"})},
        {"steps": table("steps", {"source": "profiler"})},
    ),
    ("has_backward", {"operations": TRAINING}, {"operations": one(direction="forward")}),
    (
        "has_checkpointing",
        {"call_tree": table("call_tree", {"name": "CheckpointFunctionBackward"})},
        {"call_tree": table("call_tree", {"name": "save_checkpoint"})},
    ),
    (
        "has_clones",
        {"call_tree": table("call_tree", {"name": "aten::contiguous"})},
        {"call_tree": table("call_tree", {"name": "aten::is_contiguous"})},
    ),
    (
        "communication_starts_late",
        gpu(work(), work(kind="communication", stream=9, ts_ns=10, dur_ns=90)),
        gpu(
            work(ts_ns=20),
            # The second one waits for the first one, not for compute.
            work(kind="communication", stream=9, ts_ns=10, dur_ns=30),
            work(kind="communication", stream=9, ts_ns=41, dur_ns=60),
        ),
    ),
    (
        "has_compiled_code",
        {"operations": one("triton_poi_fused_add_0")},
        {"operations": one("my_triton_kernel")},
    ),
    (
        "has_several_compiled_regions",
        slices(f"{REGION}0/0", f"{REGION}1/0"),
        slices(f"{REGION}0/0", f"{REGION}0/0", "Torch-Compiled Region"),
    ),
    (
        "runs_next_to_products",
        {"operations": COMPILED, "gpu_work": calls(3, 1, None, 1, 3, 2, None)},
        {"operations": COMPILED, "gpu_work": calls(3, 1, None, 1, None, 2, None)},
    ),
    (
        "attention_reads_strides",
        {"operations": one(FLASH, **QKV, input_strides="((32768, 4096, 64, 1),)")},
        {"operations": one(FLASH, **QKV, input_strides="((32768, 64, 512, 1),)")},
    ),
    (
        "has_graph_replay",
        gpu(work(launcher_name="cudaGraphLaunch")),
        gpu(work(launcher_name="cudaLaunchKernel", linked=True)),
    ),
    (
        "has_graph_replay",
        {"operations": one("hipGraphLaunch->kernel")},
        {"operations": one("aten::graph_op")},
    ),
    (  # a graph launch under the operator of a compiled region
        "has_graph_replay",
        {"inference_events": table("inference_events", {"uid": 1, "graph_launch_uid": 5})},
        {"inference_events": table("inference_events", {"uid": 1})}
        | gpu(work(launcher_name="Torch-Compiled Region: 0/0", linked=True)),
    ),
    ("has_loader_workers", slices(LOADER), slices(LOADER.replace("MultiP", "SingleP"))),
    (
        "has_loader_without_workers",
        {"idle_gaps": table("idle_gaps", {"host_call": "#_SingleProcessDataLoaderIter.__next__"})},
        {"idle_gaps": table("idle_gaps", {"host_call": LOADER})},
    ),
    (
        "has_host_reads",
        {"operations": one("aten::_local_scalar_dense")},
        {"operations": one("aten::items")},
    ),
    ("has_barriers", slices("c10d::barrier"), slices("c10d::broadcast_")),
    (
        "has_several_streams",
        gpu(work(), work(stream=20)),
        gpu(work(), work(), work(device=1, stream=20)),
    ),
    (
        "communication_shares_compute_stream",
        gpu(work(), work(kind="communication")),
        gpu(work(), work(kind="communication", stream=20)),
    ),
    (
        "copies_share_compute_stream",
        gpu(work(), copy("H2D")),
        gpu(work(), copy("D2H"), copy("H2D", stream=20)),
    ),
    (
        "copies_are_pageable",
        gpu(copy("H2D", src_kind="Pageable")),
        gpu(copy("H2D", src_kind="Pinned"), copy("D2H", dst_kind="Pageable")),
    ),
    (
        "is_reduction_collective",
        {"collectives": table("collectives", collective("allreduce", 6), collective(None, 4))},
        {
            "collectives": table(
                "collectives", collective("allreduce", 4), collective("all_to_all", 6)
            )
        },
    ),
    (
        "reduces_gradients",
        {
            "operations": TRAINING,
            "collectives": table("collectives", collective("_reduce_scatter_base")),
        },
        {"operations": TRAINING, "collectives": table("collectives", collective("all_to_all"))},
    ),
    (
        "messages_are_large",
        {"collectives": table("collectives", collective("allreduce", message_mb=1.0))},
        {"collectives": table("collectives", collective("allreduce", message_mb=0.9))},
    ),
    ("has_replay_package", {"operations": one(**MM)}, {"operations": one()}),
    (
        "has_replay_package",
        {"operations": one(**MM)},
        {"operations": one("mine::product", **MM)},
    ),
    (
        "has_replay_package",
        {"operations": two({"name": "aten::mm", **MM}, {"name": "aten::mm", **MM})},
        {"operations": two({"name": "aten::mm", **MM}, {"name": "aten::mm"})},
    ),
    # query, key and value; then with work between them, and on streams of their own
    (
        "calls_are_independent",
        products(PRODUCT, PRODUCT, PRODUCT),
        {**products(PRODUCT, PRODUCT), "gpu_work": calls(1, None, 2, None, 1)},
    ),
    (
        "calls_are_independent",
        products(PRODUCT, PRODUCT),
        {
            **products(PRODUCT, PRODUCT),
            "gpu_work": pl.concat([calls(1), calls(2, stream=20)]),
        },
    ),
    # the second product reads the first: its K is the first one's N
    (
        "calls_are_independent",
        products({"M": 64, "N": 64, "K": 64}, {"M": 64, "N": 16, "K": 64}),
        products({"M": 64, "N": 8, "K": 64}, {"M": 64, "N": 64, "K": 8}),
    ),
    # other modules
    (
        "calls_are_independent",
        {
            "operations": two(
                {"name": "aten::mm", "params": PRODUCT, "module_path": ["Attention", "q"]},
                {"name": "aten::mm", "params": PRODUCT, "module_path": ["Attention", "k"]},
            ),
            "gpu_work": calls(1, 2),
        },
        {
            "operations": two(
                {"name": "aten::mm", "params": PRODUCT, "module_path": ["Attention", "o"]},
                {"name": "aten::mm", "params": PRODUCT, "module_path": ["MLP", "up"]},
            ),
            "gpu_work": calls(1, 2),
        },
    ),
    # elementwise: in place, and out of place on tensors of one size
    (
        "calls_are_independent",
        {"operations": two(ADD | {"name": "aten::add_"}, ADD), "gpu_work": calls(1, 1, 1, 1)},
        {"operations": two(ADD, ADD), "gpu_work": calls(1, 1, 2, 2)},
    ),
]

SUBJECT = Subject((1, 2), "H2D")


@pytest.mark.parametrize(("name", "holds", "misses"), CASES)
def test_a_fact_holds_and_narrowly_does_not(name: str, holds: Tables, misses: Tables) -> None:
    assert Facts(holds.get).hold([name], SUBJECT)
    assert not Facts(misses.get).hold([name], SUBJECT)
    assert Facts(misses.get).hold([f"not {name}"], SUBJECT)


def test_every_fact_has_a_case() -> None:
    assert {name for name, *_ in CASES} == set(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_no_fact_holds_without_tables(name: str) -> None:
    assert not Facts({}.get).hold([name], SUBJECT)
    empty = {"operations": operations(), "gpu_work": table("gpu_work")}
    assert not Facts(empty.get).hold([name], SUBJECT)


def test_a_precondition_may_name_several_operations() -> None:
    made = products(
        {"M": 64, "N": 64, "K": 64}, {"M": 64, "N": 16, "K": 64}, {"M": 1, "N": 1, "K": 1}
    )
    facts = Facts(made.get)
    assert facts.hold(["calls_are_independent(1 2)"], Subject())
    assert facts.hold(["not calls_are_independent(1 3)"], Subject())


def test_a_precondition_may_name_its_subject() -> None:
    facts = Facts({"operations": two({"name": "aten::mm", **MM}, {"name": "aten::mm"})}.get)
    assert facts.hold(["has_replay_package(1)", "not has_replay_package(2)"], Subject())
    copies = Facts(gpu(copy("D2H", dst_kind="Pageable")).get)
    assert copies.hold(["copies_are_pageable(D2H)"], Subject(direction="H2D"))


@pytest.mark.parametrize(
    ("name", "unknown"),
    [
        ("has_backward", {"operations": one("launch->kernel")}),
        ("has_graph_replay", gpu(work(linked=False))),
        ("is_reduction_collective", {}),
        ("messages_are_large", {}),
        ("communication_starts_late", {}),
        ("reduces_gradients", {"operations": TRAINING}),
        ("communication_shares_compute_stream", {}),
        ("copies_share_compute_stream", {}),
    ],
)
def test_of_an_unknown_fact_nothing_holds(name: str, unknown: Tables) -> None:
    facts = Facts(unknown.get)
    assert not facts.hold([name], SUBJECT)
    assert not facts.hold([f"not {name}"], SUBJECT)


@pytest.mark.parametrize("need", ["has_luck", "not", "has_stacks()", "no has_stacks"])
def test_an_unknown_precondition_is_an_error(need: str) -> None:
    with pytest.raises(ValueError, match="does not name a fact"):
        Facts({}.get).hold([need], SUBJECT)


def test_every_template_needs_known_facts() -> None:
    load_analyses()
    facts = Facts({}.get)
    for needs in preconditions().values():
        for need in needs:
            facts.hold([need], SUBJECT)


REPLAYED = ("parts", "convolution_kernel_team")
"""Tables whose messages get the precondition with the operation that they are about."""


def test_what_is_recorded_or_replayed_has_its_precondition() -> None:
    load_analyses()
    texts = {
        f"{name}.{key}": text
        for name, templates in tables().items()
        if not name.startswith(("comparison", "test_"))
        for key, text in templates.items()
    }
    offers = [each for each, text in texts.items() if "replay package" in text]
    assert offers
    assert {each.partition(".")[0] for each in offers} == set(REPLAYED)
    stacks = [each for each, text in texts.items() if "`with_stack=True`" in text]
    assert stacks
    assert all("not has_stacks" in preconditions()[each] for each in stacks)


DEMANDS = {
    r"[Pp]in the host memory|pinned memory without|without blocking from pinned": (
        r"copies_are_pageable.*"
    ),
    r"separate stream": r"(communication|copies)_share(s)?_compute_stream.*",
    r"num_workers": r"has_loader_(without_)?workers",
    r"grouped (GEMM|kernel) for": r"calls_are_independent",
    r"(Replay|replay) .*from a GPU graph|^Replay from": r"not has_graph_replay",
    r"gradient reductions|reductions (early|run)|[Ss]tore gradients|(each|copies) gradient": (
        r"reduces_gradients|has_backward"
    ),
    r"checkpoint less": r"has_checkpointing",
    r"[Rr]emove reads of single values": r"has_host_reads",
}
"""Advice by pattern, and the pattern of a precondition that it needs."""


@pytest.mark.parametrize("advice", DEMANDS)
def test_advice_has_its_precondition(advice: str) -> None:
    load_analyses()
    texts = {
        f"{name}.{key}": text
        for name, templates in tables().items()
        if not name.startswith(("comparison", "test_"))
        for key, text in templates.items()
    }
    giving = [each for each, text in texts.items() if re.search(advice, text)]
    assert giving
    for each in giving:
        needs = preconditions().get(each, ())
        assert any(re.fullmatch(DEMANDS[advice], need) for need in needs), each


def found(builder: TraceBuilder, key: str, check: str) -> Finding:
    report, analyses = TraceLensReport(builder.read(), None), load_analyses()
    split = split_operations(report, analyses)
    result = run_analyses(report, {key: analyses[key]}, split)[key].result
    return next(finding for finding in result.findings if finding.check == check)


def copies(kind: str, stream: int) -> TraceBuilder:
    builder = trace()
    for _ in range(12):
        builder.op("aten::mm", [[64, 64], [64, 64]], types=BF16).launches("gemm", us=10).up()
        name = f"Memcpy HtoD ({kind} -> Device)"
        builder.op("aten::copy_").launches(name, us=30, cat="gpu_memcpy", stream=stream).up()
    return builder


def test_pinned_copies_on_their_own_stream_leave_nothing_to_do() -> None:
    pageable = found(copies("Pageable", 7), "multi_kernel", "memory_copies")
    assert to_text(pageable.kernel) == (
        "Pin the host memory and copy without blocking. Copy on a separate stream."
    )
    pinned = found(copies("Pinned", 7), "multi_kernel", "memory_copies")
    assert to_text(pinned.kernel) == "Copy on a separate stream."
    both = found(copies("Pinned", 20), "multi_kernel", "memory_copies")
    assert to_text(both.kernel) == "The trace supports no change to the kernels here."


def test_stacks_are_asked_for_once() -> None:
    assert "with_stack" in to_text(
        found(copies("Pinned", 7), "multi_kernel", "memory_copies").capture
    )
    framed = copies("Pinned", 7).python("train.py(1): step", us=50)
    assert not found(framed, "multi_kernel", "memory_copies").capture


def short_calls(*, is_replayed: bool) -> TraceBuilder:
    builder = trace()
    for _ in range(120):
        builder.op("aten::sort", [[64]]).launches("sort_kernel", us=4).up()
        builder.op("aten::mul", [[64], [64]]).launches("mul_kernel", us=2).up()
    if is_replayed:
        builder.graph(("replayed_kernel", 5))
    return builder


@pytest.mark.parametrize("is_replayed", [False, True])
def test_a_replayed_graph_is_not_advised(is_replayed: bool) -> None:
    finding = found(short_calls(is_replayed=is_replayed), "other", "many_small_calls")
    assert ("from a GPU graph" in to_text(finding.kernel)) is not is_replayed
    assert "grouped kernel" not in to_text(finding.kernel)  # other work runs between the calls


def test_results_have_the_preconditions_and_open_without_them() -> None:
    finding = found(copies("Pageable", 7), "multi_kernel", "memory_copies")
    stored = finding.kernel[0].model_dump(mode="json")
    assert stored["needs"] == ["copies_are_pageable"]
    assert Message.model_validate(stored) == finding.kernel[0]
    del stored["needs"]
    earlier = Message.model_validate(stored)
    assert to_text(earlier) == to_text(finding.kernel[0])
    assert earlier.model_dump(mode="json") == stored
