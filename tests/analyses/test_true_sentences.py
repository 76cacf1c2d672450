"""Sentences that hold for some calls only: each where it holds and a near miss where it must not
appear."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from jarvis.analyses import checks
from jarvis.analyses.attention_copies import contiguous_copies, without_removed
from jarvis.analyses.base import Check
from jarvis.analyses.compute import elementwise
from jarvis.analyses.kernel_names import library
from jarvis.findings import AnalysisResult, Finding, Status
from jarvis.pipeline import analyze
from jarvis.text.messages import MessageTable, to_text
from tests.analyses.rows import category, operation, operations, table
from tests.builders import trace
from tests.worded import Worded, supported_in, worded

FLASH = "aten::_scaled_dot_product_flash_attention"
HEADS_FIRST = "((16, 16, 559, 64), (16, 16, 559, 64), (16, 16, 559, 64), ())"
BY_HEADS, BY_QUERIES = (572416, 35776, 64, 1), (572416, 64, 1024, 1)


def found(key: str, *rows: dict[str, Any], check: Check | None = None, **values: Any) -> Worded:
    """The only finding on these rows, with the actions that they support."""
    tables = values.pop("tables", {})
    data = replace(category(key, *rows, top={1}, **values), tables=tables)
    each = [check] if check else [checks.low_efficiency, checks.opportunity]
    (finding,) = supported_in(data, (finding for one in each for finding in one(data)))
    return finding


def slow(name: str, time_us: float = 1000.0, pct: float = 20.0, **values: Any) -> dict[str, Any]:
    return operation(name, time_us=time_us, pct_roofline=pct, bound="memory", **values)


def product(m: int, n: int, k: int, pct: float = 20.0, **values: Any) -> dict[str, Any]:
    params = {"M": m, "N": n, "K": k, "B": 1, "dtype_A_B": ["c10::BFloat16", "c10::BFloat16"]}
    row = {"time_us": 2000.0, "pct_roofline": pct, "bound": "compute", "params": params}
    return operation("aten::mm", **(row | values))


@pytest.mark.parametrize(("k", "is_said"), [(8192, True), (2048, False)])
def test_the_reason_says_which_calls_it_is_of(k: int, is_said: bool) -> None:
    rows = [product(32768, 2048, 2048, count=4), product(32768, 2048, k, time_us=1990.0)]
    card = found("gemm", *rows)
    of_some = "in the heaviest signature (4 of 5 calls), the product M=32768"
    assert (of_some in card.issue) is is_said
    assert ("M=32768, N=2048, K=2048" in card.issue) is True


GENERAL = "void at::native::elementwise_kernel<512, 1, at::native::gpu_kernel>"
VECTORIZED = "void at::native::vectorized_elementwise_kernel<4, at::native>"
CAST = {"input_strides": "((8, 1), (8, 1))", "input_types": "('float', 'c10::BFloat16')"}


def cast(kernel: str, time_us: float, width: int = 8) -> dict[str, Any]:
    dims = {"input_dims": f"((64, {width}), (64, {width}))", "bytes": 2.0**25}
    kernels = [(kernel, time_us)]
    return slow(
        "aten::copy_", time_us, count=49, roofline_time_us=6.0, kernels=kernels, **dims, **CAST
    )


def test_a_kernel_is_named_with_the_calls_that_it_runs() -> None:
    card = found("elementwise", cast(GENERAL, 1000.0), cast(VECTORIZED, 600.0))
    assert f"`{GENERAL}` (49 of 98 calls) should read several" in card.kernel
    assert "(49 of 98 calls) is that of the general path" in card.hypothesis
    card = found("elementwise", cast(GENERAL, 1000.0), cast(GENERAL, 600.0))
    assert f"`{GENERAL}` should read several" in card.kernel
    both = cast(GENERAL, 600.0)
    counts = ((GENERAL, 600.0, 40), (VECTORIZED, 100.0, 9))
    both["kernels"] = [
        dict(both["kernels"][0], name=name, total_us=us, count=count) for name, us, count in counts
    ]
    card = found("elementwise", cast(GENERAL, 1000.0), both)
    assert f"`{GENERAL}` (89 of 98 calls) should read several" in card.kernel
    card = found("elementwise", cast(VECTORIZED, 1000.0), cast(VECTORIZED, 600.0))
    assert f"`{VECTORIZED}` should reach the bandwidth of a copy" in card.kernel


@pytest.mark.parametrize(
    ("strides", "words"),
    [
        ((BY_HEADS, BY_QUERIES), "contiguous rows of 128 B"),
        ((BY_HEADS, (572416, 35776, 1, 559)), "a tiled transpose"),
        ((BY_HEADS, (1144832, 71552, 128, 2)), "a copy of as much contiguous memory"),
    ],
)
def test_a_transpose_is_advised_only_where_the_rows_differ(strides: tuple, words: str) -> None:
    layout = {"input_dims": f"({(16, 16, 559, 64)}, {(16, 16, 559, 64)}, ())", "bytes": 2.0**25}
    layout |= {"input_strides": f"({strides[0]}, {strides[1]}, ())"}
    layout |= {"input_types": "('c10::BFloat16', 'c10::BFloat16', 'Scalar')"}
    card = found("elementwise", slow("aten::copy_", roofline_time_us=6.0, **layout))
    assert words in card.kernel
    assert ("tiled transpose" in card.kernel) is ("accessed with large strides" in card.issue)


def test_neighbors_are_those_of_the_calls_at_their_place() -> None:
    norm, rope = {"module_path": ["Norm_1"]}, {"module_path": ["Attention_1"]}
    rows = [slow("aten::mul", count=98, **norm), slow("aten::pow", 900.0, **norm)]
    elsewhere = slow("aten::mul", 500.0, count=48, **rope)
    (card, _) = supported_in(
        data := category("elementwise", *rows, elsewhere, top={1}), checks.low_efficiency(data)
    )
    assert "Fuse 98 of 146 calls with `aten::pow` in `Norm`" in card.algorithmic
    (card, _) = supported_in(
        data := category("elementwise", *rows, top={1}), checks.low_efficiency(data)
    )
    assert "Fuse it with `aten::pow` in `Norm`" in card.algorithmic


def many(dims: str, *, time_us: float, count: int) -> dict[str, Any]:
    return operation("aten::add_", time_us=time_us, count=count, input_dims=dims)


def foreach(*rows: dict[str, Any]) -> str:
    """Texts of findings on 1,001 elementwise calls or more that follow one another."""
    uids = [uid for uid, row in enumerate(rows, 1) for _ in range(row["operation_count"])]
    events = [
        {"device": 0, "stream": 7, "ts_ns": i, "operation_uid": uid, "launcher_uid": i}
        for i, uid in enumerate(uids)
    ]
    tables = {"gpu_work": table("gpu_work", *events)}
    card = found("elementwise", *rows, check=elementwise.many_calls, tables=tables)
    return str(card.kernel)


def test_only_short_calls_can_become_a_few() -> None:
    small = many("((64,), (64,))", time_us=2000.0, count=1000)
    large = many("((32, 64, 56, 56), (32, 64, 56, 56))", time_us=6000.0, count=60)
    text = foreach(small, large)
    assert "the 1,000 launches of calls below 10 µs (2.00 ms in all) can become a few" in text
    assert "no change to the kernels" in foreach(large | {"operation_count": 1060})
    activation = many("((64,), (64,))", time_us=200.0, count=100) | {"name": "aten::threshold_"}
    text = foreach(small, activation)
    assert "the 1,000 launches of calls below 10 µs (2.00 ms in all)" in text


def test_short_calls_are_counted_without_the_long_ones() -> None:
    short = operation("aten::add_", time_us=1900.0, count=1000, input_dims="((64,),)")
    long = operation("aten::add_", time_us=6000.0, count=20, input_dims="((512, 512),)")
    check = checks.many_small_calls
    assert (
        "1,000 calls of `aten::add_`, of 1,020 in all, take 1.90 µs"
        in found("elementwise", short, long, check=check).issue
    )
    assert (
        "1,000 calls of `aten::add_` take 1.90 µs" in found("elementwise", short, check=check).issue
    )
    groups = [
        {"count": 900, "total_us": 1800.0, "mean_us": 2.0},
        {"count": 100, "total_us": 4000.0, "mean_us": 40.0},
    ]
    mixed = operation("aten::add_", time_us=5800.0, count=1000, populations=groups)
    assert (
        "900 calls of `aten::add_`, of 1,000 in all, take 2.00 µs"
        in found("elementwise", mixed, check=check).issue
    )


def attention(**values: Any) -> dict[str, Any]:
    params = {"B": 16, "N_Q": 559, "H_Q": 16, "N_KV": 559, "H_KV": 16, "d_h_qk": 64}
    row = {"time_us": 1000.0, "input_dims": HEADS_FIRST, "module_path": ["Attention_0"]}
    row |= {"bound": "compute", "pct_roofline": 5.0, "flops": 3.5e10, "peak_tflops": 708.0}
    params |= values.pop("params", {})
    return operation(
        values.pop("name", FLASH), **(row | {"params": params | {"causal": True}} | values)
    )


MASKED = "((16, 16, 559, 64), (16, 16, 559, 64), (16, 16, 559, 64), (16, 1, 559, 559), ())"


@pytest.mark.parametrize(
    ("values", "batches", "packs"),
    [
        ({}, False, False),
        ({"params": {"B": 1, "H_Q": 8}}, True, False),
        ({"input_dims": MASKED, "name": "aten::scaled_dot_product_attention"}, False, True),
    ],
    ids=["fills the GPU, no mask", "40 blocks", "with a mask"],
)
def test_batching_and_packing_need_an_empty_gpu_and_a_mask(
    values: dict[str, Any], batches: bool, packs: bool
) -> None:
    card = found("sdpa_fwd", attention(**values))
    assert ("Batch more sequences" in card.algorithmic) is batches
    assert ("pack short sequences" in card.algorithmic) is packs


@pytest.mark.parametrize(("dims", "is_said"), [(MASKED, True), (HEADS_FIRST, False)])
def test_a_mask_is_blamed_only_where_there_is_one(dims: str, is_said: bool) -> None:
    long = {"params": {"N_Q": 4096, "N_KV": 4096}, "input_dims": dims}
    assert ("mask" in found("sdpa_fwd", attention(**long)).algorithmic) is is_said


def copied(strides: tuple[int, ...]) -> Finding:
    """The finding on copies around attention whose tensors have these strides."""
    call = attention(count=24, input_strides=f"({strides}, {strides}, {strides}, ())")
    copy = {"input_dims": f"({(16, 16, 559, 64)}, {(16, 16, 559, 64)})", "count": 72}
    copies = operation("aten::copy_", time_us=700.0, module_path=["Attention_0"], **copy)
    tables = {"operations": operations(call, copies)}
    data = replace(category("sdpa_fwd", call), tables=tables)
    (finding,) = contiguous_copies(data)
    (card,) = supported_in(data, [finding])
    made: Finding = card.finding
    return made


def test_a_kernel_that_reads_strides_needs_no_other_kernel() -> None:
    card = Worded(copied(BY_HEADS))
    assert "reads query, key and value with strides already" in card.kernel
    assert card.capture is None
    card = Worded(copied(BY_QUERIES))
    assert "Use an attention kernel that accepts the strides" in card.kernel
    assert "how much slower the kernel is on strided inputs" in card.capture


def result(key: str, *findings: Finding) -> AnalysisResult:
    return AnalysisResult(key=key, title=key, tier="compute", status=Status.OK, findings=findings)


def test_copies_to_remove_are_not_to_be_made_faster() -> None:
    removed = copied(BY_HEADS)
    rows = [slow("aten::sub"), slow("aten::copy_"), slow("aten::mul")]
    faster = list(checks.low_efficiency(category("elementwise", *rows)))
    remaining = without_removed(
        result("elementwise", *faster), [result("sdpa_fwd", removed), result("elementwise")]
    )
    assert {finding.operations[0].name for finding in faster} == {row["name"] for row in rows}
    assert [finding.operations[0].name for finding in remaining.findings] == [
        "aten::sub",
        "aten::mul",
    ]
    assert without_removed(remaining, [result("sdpa_fwd")]) == remaining


def test_a_rotary_embedding_is_counted_at_its_function() -> None:
    rotate = {"entry_point": "model.py(61): rotate_half", "module_path": ["Attention_0"]}
    rows = [
        slow("aten::cat", count=48, input_dims="((16, 16, 559, 32),)", **rotate),
        slow(
            "aten::cat",
            300.0,
            module_path=["RotaryEmbedding_0"],
            entry_point="model.py(9): forward",
        ),
    ]
    data = category("other", *rows, top={1})
    cards = worded(checks.low_efficiency(data))
    (card,) = [each for each in cards if "rotary" in each.title]
    assert "its 48 calls of `aten::cat`" in card.algorithmic
    assert card.issue.startswith("48 calls")
    alone = category("other", rows[1], top={1})
    (card,) = worded(checks.low_efficiency(alone))
    assert "rotary" in card.title


@pytest.mark.parametrize(
    ("kernel", "n", "is_said"),
    [
        ("Cijk_MT128x128x64_SN", 2816, False),
        ("Cijk_MT128x128x64_SN", 1024, True),
        ("Cijk_SN", 1024, False),
    ],
    ids=["1,540 tiles in 12 rounds", "560 tiles in 5 rounds", "unknown tile"],
)
def test_another_batch_size_needs_uneven_rounds(kernel: str, n: int, is_said: bool) -> None:
    row = product(8944, n, 1024, kernels=[(kernel, 2000.0)])
    card = found("gemm", row, compute_units=132)
    assert ("Try another batch size" in card.algorithmic) is is_said


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void paged_attention_kernel<(vllm::Fp8)0, ck_tile::ComposedAttention<0u> >(int)", None),
        ("void ck_tile::kentry<256, ck_tile::FmhaFwdKernel<float> >(float)", "CK"),
        ("void kentry<ck_tile::FmhaFwdKernel<float> >(float)", "CK"),
        ("_ZN2ck16kernel_gemm_xdlI", "CK"),
    ],
)
def test_a_template_argument_does_not_name_the_library(name: str, expected: str | None) -> None:
    assert pl.select(library(pl.lit(name))).item() == expected


SILU = "triton_poi_fused__unsafe_view_mul_silu_2"


def compiled(*names: str, products: int = 1, **values: Any) -> Worded:
    """A finding on a compiled kernel between products, with these annotations."""
    rows = [slow(SILU, pct=20.0, **values), slow("aten::mm", op_category="GEMM")]
    order = [2] * products + [1] + [2] * products if products else [None, 1, None]
    events = [
        {"device": 0, "stream": 7, "ts_ns": i, "operation_uid": uid} for i, uid in enumerate(order)
    ]
    tables = {
        "operations": operations(*rows),
        "gpu_work": table("gpu_work", *events),
        "host_slices": table("host_slices", *({"name": name} for name in names)),
    }
    return found("triton", rows[0], tables=tables)


def test_graph_breaks_are_blamed_only_where_regions_are_several() -> None:
    first, second = "Torch-Compiled Region: 0/0", "Torch-Compiled Region: 1/0"
    assert "remove graph breaks" in compiled(first, second).algorithmic
    card = compiled(first, first)
    assert "graph breaks" not in card.algorithmic
    assert "max-autotune mode" in card.algorithmic
    assert "no change to the model" in compiled(first, products=0).algorithmic


@pytest.mark.parametrize(("moved", "is_said"), [(3 * 2.0**29, False), (2 * 2.0**29, True)])
def test_a_counted_update_in_place_needs_no_caveat(moved: float, is_said: bool) -> None:
    arguments = {"input_dims": "((32768, 8192), (32768, 8192), ())", "bytes": moved}
    arguments |= {"input_types": "('c10::BFloat16', 'c10::BFloat16', 'Scalar')"}
    assert ("in place" in (compiled(**arguments).caveat or "")) is is_said


ONES = MessageTable("test_ones", {"calls": "In the {calls} of {name} each of {calls} counts."})


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "In the call of `a` each of 1 call counts."),
        (2, "In the 2 calls of `a` each of 2 calls counts."),
    ],
)
def test_one_call_is_the_call(count: int, text: str) -> None:
    assert to_text(ONES("calls", calls=count, name="a")) == text


HALF = "c10::BFloat16"
WIDE = [4096, 4096]


def rotations(per_call: int, folder: Path) -> Worded:
    """A function that rotates several tensors in each of its two calls."""
    built = trace("AMD Instinct MI300X").python("run.py(1): main")
    for layer in range(2):
        built.python(f"nn.Module: Attention_{layer}").python("model.py(5): forward")
        built.child("aten::mm", [WIDE, WIDE]).launches("Cijk_gemm", us=10).up()
        built.python("model.py(68): apply_rotary")
        for _ in range(per_call):
            for name in ("mul", "neg", "add"):
                built.child(f"aten::{name}", [WIDE, WIDE], types=[HALF, HALF])
                built.launches(f"void at::native::{name}_kernel<4>", us=90).up()
        built.up()
        built.child("aten::mm", [WIDE, WIDE]).launches("Cijk_gemm", us=10).up()
        built.up(2)
    run = analyze(built.write(folder / "trace.json"), output_dir=folder / "run")
    (finding,) = worded(run.results["kernel_fusion"].findings)
    return finding


def test_a_function_with_several_chains_is_counted_by_its_calls(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    issue = rotations(2, tmp_path / "two").issue
    assert "`apply_rotary` runs 2 times, and 3 kernels in a row" in issue
    assert "run 4 times within it: together" in issue
    (tmp_path / "one").mkdir()
    assert "`apply_rotary` runs 2 times as 3 kernels" in rotations(1, tmp_path / "one").issue
