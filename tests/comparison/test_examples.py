"""Worked examples of the procedure, and the explanation of each kind of difference."""

import pytest

from jarvis.analyses import load_registry
from jarvis.analyses.runner import split_operations
from jarvis.comparison import Comparison, compare
from jarvis.hardware import HardwareSpec, load_hardware
from jarvis.perf_report import PerfReport
from tests.builders import TraceBuilder, all_reduce, trace
from tests.comparison.sides import FAST, SLOW, side
from tests.worded import Worded, worded

TINY = [[37632, 8, 64], [37632, 64, 8]]
SCORES = [[256, 16, 1024, 1024], [], []]
SQUARE = [[4096, 4096], [4096, 4096]]
ADDED = [[8192, 8192], [8192, 8192], []]


def call(name: str, dims: list, us: float, kernel: str = "kernel") -> TraceBuilder:
    return trace().op(name, dims).launches(kernel, us=us)


def on_gpus(target: TraceBuilder, reference: TraceBuilder) -> Comparison:
    hardware = load_hardware()
    return compare(side(target, hardware.get("MI300X")), side(reference, hardware.get("H100 SXM")))


def test_softmax_faster_by_more_bandwidth() -> None:
    found = on_gpus(call("aten::_softmax", SCORES, 41_860), call("aten::_softmax", SCORES, 68_780))
    row = found.operations.row(0, named=True)
    assert (row["reference_ms"], row["target_ms"]) == pytest.approx((68.78, 41.86))
    assert row["difference_pct"] == pytest.approx(-39.1, abs=0.05)
    assert row["expected_ratio"] == pytest.approx(3350 / 5300)
    assert row["outcome"] == "as expected"
    assert row["explanation"] == "Memory bound: faster, as the target has more memory bandwidth."
    assert found.findings == ()
    assert any(
        sentence
        == "Compute: 41.9 ms on the target, 68.8 ms on the reference, 26.9 ms (39.1%) less."
        for sentence in found.summary
    )


def test_tiny_batched_products_far_slower_than_the_hardware_explains() -> None:
    found = on_gpus(
        call("aten::bmm", TINY, 13_710, "tile_b"), call("aten::bmm", TINY, 490, "tile_a")
    )
    row = found.operations.row(0, named=True)
    assert row["difference_pct"] == pytest.approx(2698, abs=1)
    assert row["outcome"] == "much slower"
    assert "choice or tuning of its kernels" in row["explanation"]
    (finding,) = worded(found.findings)
    shapes = "`[37632,8,64] bf16, [37632,64,8] bf16`"
    assert finding.title == f"`aten::bmm` {shapes} is much slower than the hardware explains"
    assert finding.evidence["Slower (%)"] == pytest.approx(100 * (13.71 / 0.49 - 1))
    assert finding.evidence["Expected (%)"] == pytest.approx(100 * (3350 / 5300 - 1))
    assert "Replay `[37632,8,64] bf16, [37632,64,8] bf16`" in finding.kernel
    assert finding.kernel.endswith("tune or replace `tile_b`; the reference launches `tile_a`.")
    assert "the likely cause" in (finding.hypothesis or "")


@pytest.mark.parametrize(
    ("name", "dims", "target_us", "reference_us", "words"),
    [
        ("aten::add", ADDED, 400, 100, "Memory bound: slower, as the reference has more"),
        ("aten::add", ADDED, 900, 800, "The target is faster than the hardware explains"),
        ("aten::mm", SQUARE, 4000, 2000, "Compute bound: slower, as the reference has more"),
        ("aten::mm", SQUARE, 5500, 2000, "The target is slower than the hardware explains"),
        ("aten::mm", SQUARE, 9000, 2000, "The target takes more than twice the time"),
        ("aten::mm", SQUARE, 2500, 2000, "the reference may be inefficient"),
    ],
)
def test_words_for_each_kind_of_difference(
    name: str, dims: list, target_us: float, reference_us: float, words: str
) -> None:
    found = compare(
        side(call(name, dims, target_us), SLOW), side(call(name, dims, reference_us), FAST)
    )
    assert words in found.operations["explanation"][0]


def test_the_comparison_looks_first_at_what_is_slower_than_predicted_and_counts() -> None:
    def model(product_us: float, small_us: float, slow_us: float) -> TraceBuilder:
        builder = trace().op("aten::mm", SQUARE).launches("k", us=product_us)
        builder.op("aten::mul", ADDED[:2]).launches("k", us=small_us)
        return builder.op("aten::add", ADDED).launches("k", us=slow_us)

    # The product is as slow as the hardware explains; the small one slower, but hardly there.
    found = compare(side(model(40_000, 200, 9000), SLOW), side(model(20_000, 20, 500), FAST))
    outcomes = dict(found.operations.select("name", "outcome").iter_rows())
    assert outcomes == {
        "aten::mm": "as expected",
        "aten::mul": "much slower",
        "aten::add": "much slower",
    }
    assert [finding.operations[0].name for finding in found.findings] == ["aten::add"]


def test_work_that_only_the_target_does_is_a_finding() -> None:
    def with_casts(casts: int) -> TraceBuilder:
        builder = trace().op("aten::mm", SQUARE).launches("k", us=5000)
        for _ in range(casts):
            builder.op("aten::copy_", [[4096, 4096], [4096, 4096], []]).launches("cast", us=400)
        return builder

    found = compare(side(with_casts(3), FAST), side(with_casts(0), FAST))
    (finding,) = worded(found.findings)
    assert finding.check == "only_in_target"
    assert finding.impact is not None
    assert finding.impact.saved_ms.high == pytest.approx(1.2)
    assert "`aten::copy_`" in finding.issue
    assert finding.kernel.startswith("Replay `aten::copy_` and make `cast` faster")


def test_two_workloads_make_no_findings_of_what_one_does_alone() -> None:
    found = compare(
        side(call("aten::mm", SQUARE, 5000), FAST), side(call("aten::add", ADDED, 5000), FAST)
    )
    assert found.findings == ()
    assert "probably run different workloads" in found.workload[-2]


def collective(*messages: int, us: float) -> TraceBuilder:
    builder = trace().op("aten::mm", SQUARE).launches("k", us=1000)
    for nelems in messages:
        builder.op("c10d::allreduce_").launches(
            "ncclDevKernel_AllReduce",
            us=us,
            **all_reduce(nelems, 8, **{"Process Group Ranks": "[0, 1]"}),
        )
    return builder


def test_equal_types_and_sizes_are_the_same_collectives() -> None:
    same = compare(
        side(collective(1024, 2048, us=90), SLOW), side(collective(2048, 1024, us=50), FAST)
    )
    assert same.same_collectives is True
    assert same.collectives["found_in"].to_list() == ["both", "both"]
    assert same.collectives["difference_ms"].to_list() == pytest.approx([0.04, 0.04])
    assert any("Both sides use the same collectives" in text for text in same.summary)
    other = compare(side(collective(1024, 4096, us=90), SLOW), side(collective(1024, us=50), FAST))
    assert other.same_collectives is False
    assert sorted(other.collectives["found_in"]) == ["both", "target"]
    assert (
        compare(side(collective(us=1), SLOW), side(collective(us=1), SLOW)).same_collectives is None
    )


def test_copies_over_the_link_are_expected_to_follow_no_figure_of_the_gpus() -> None:
    def copy(us: float) -> TraceBuilder:
        builder = trace().op("aten::copy_", [[4096, 4096], [4096, 4096], []])
        return builder.launches("Memcpy HtoD (Pageable -> Device)", us=us, cat="gpu_memcpy")

    found = compare(side(copy(900), SLOW), side(copy(100), FAST))
    assert found.operations["outcome"].to_list() == ["not known"]
    assert found.operations["explanation"].to_list() == [
        "No peak of the two GPUs applies, so no ratio is expected."
    ]


def test_what_a_side_does_not_tell_is_reported_and_not_compared() -> None:
    whole = side(collective(1024, us=90), SLOW)
    part = side(collective(1024, us=90), None, without=["call_tree", "collectives", "gpu_timeline"])
    found = compare(whole, part)
    assert found.totals.is_empty()
    assert found.modules.is_empty()
    assert found.collectives.is_empty()
    assert found.same_collectives is None
    assert [sentence.split(",")[0].split(":")[0] for sentence in found.unknown] == [
        "The GPU of the reference is not described",
        "The reference has no GPU timeline",
        "The reference has no call tree",
        "The reference has no data about collectives",
    ]
    assert compare(part, part).operations["difference_ms"].to_list() == [0.0]


def test_modules_are_compared_by_place() -> None:
    def model(us: float) -> TraceBuilder:
        builder = trace()
        for layer in range(2):
            builder.python(f"nn.Module: Block_{layer}").python("nn.Module: Linear_0")
            builder.child("aten::mm", SQUARE).launches("k", us=us).up(3)
        return builder

    rows = compare(side(model(300), SLOW), side(model(100), FAST)).modules
    assert rows["path"].to_list() == ["Block", "Block / Linear"]
    assert rows["target_calls"].to_list() == rows["reference_calls"].to_list() == [2, 2]
    assert rows["difference_ms"].to_list() == pytest.approx([0.4, 0.4])


def test_kernels_that_an_operation_is_lowered_to() -> None:
    def lowered(*kernels: tuple[str, float]) -> TraceBuilder:
        builder = trace().op("aten::mm", SQUARE)
        for name, us in kernels:
            builder.launches(name, us=us)
        return builder

    found = compare(
        side(lowered(("split", 30), ("gemm", 300)), SLOW), side(lowered(("gemm", 100)), FAST)
    )
    rows = found.lowering.select("side", "kernel", "found_in", "us_per_call", "percent").rows()
    assert rows == [
        ("target", "gemm", "both", pytest.approx(300), pytest.approx(100 * 300 / 330)),
        ("target", "split", "target", pytest.approx(30), pytest.approx(100 * 30 / 330)),
        ("reference", "gemm", "both", pytest.approx(100), pytest.approx(100)),
    ]
    row = found.operations.row(0, named=True)
    assert (row["kernel"], row["reference_kernel"], row["same_kernels"]) == ("gemm", "gemm", False)
    times = {row["kernel"]: row for row in found.kernels.iter_rows(named=True)}
    assert times["split"]["found_in"] == "target"
    assert times["gemm"]["difference_pct"] == pytest.approx(200)


def test_a_finding_says_what_differs_and_how_much_the_hardware_explains() -> None:
    found = on_gpus(call("aten::bmm", TINY, 13_710), call("aten::bmm", TINY, 490))
    finding = Worded(found.findings[0])
    assert finding.issue == (
        "On the target `aten::bmm` `[37632,8,64] bf16, [37632,64,8] bf16` takes 13.7 ms in 1 call, "
        "2698.0% longer than the 0.490 ms of "
        "the reference for as many, where the two GPUs explain 0.310 ms, 36.8% shorter. 13.4 ms "
        "are not explained: 13,710 µs per call against 490 µs."
    )


def test_kernels_of_one_short_name_are_variants() -> None:
    kernels = [f"void copy_kernel<{size}, {'Wrapper, ' * 20}4>(int)" for size in (128, 256)]
    found = on_gpus(
        call("aten::bmm", TINY, 13_710, kernels[0]), call("aten::bmm", TINY, 490, kernels[1])
    )
    assert Worded(found.findings[0]).kernel.endswith(
        "tune or replace `copy_kernel`, which the reference launches in another variant."
    )


@pytest.mark.parametrize("hardware", [(FAST, FAST), (None, None)])
def test_what_the_reference_fuses_is_a_finding_of_its_own(
    hardware: tuple[HardwareSpec | None, HardwareSpec | None],
) -> None:
    def norm(*kernels: tuple[str, float]) -> TraceBuilder:
        builder = trace().op("aten::mm", SQUARE).launches("gemm", us=5000).up()
        for layer in range(2):
            builder.python(f"nn.Module: Norm_{layer}")
            for name, us in kernels:
                builder.child(name, [[4096, 4096]]).launches(name, us=us).up()
            builder.up()
        return builder

    target = norm(("custom::square", 300), ("custom::mean", 200), ("custom::scale", 400))
    found = compare(side(target, hardware[0]), side(norm(("custom::norm", 450)), hardware[1]))
    (finding,) = worded(found.findings)
    assert finding.check == "fused_on_reference"
    assert finding.title == "`Norm`: 3 kernels in 1.80 ms against 1 kernel in 0.900 ms"
    assert finding.evidence["Launches per call"] == pytest.approx(3)
    assert finding.evidence["Reference launches per call"] == pytest.approx(1)
    assert finding.impact is not None
    assert finding.impact.saved_ms.high == pytest.approx(0.9)
    assert finding.impact.time_ms == pytest.approx(1.8)
    assert {reference.uid for reference in finding.operations} | set(finding.shared_uids) == set(
        found.operations.filter(matched_by="call tree")["uids"][0]
    )


def test_many_more_launches_are_no_question_of_fusion() -> None:
    def steps(count: int, us: float) -> TraceBuilder:
        builder = trace().python("nn.Module: Block_0")
        for number in range(count):
            builder.child(f"custom::{count}_{number}", [[4096]]).launches("k", us=us).up()
        return builder

    found = compare(side(steps(17, 100), FAST), side(steps(1, 100), FAST))
    assert [finding.check for finding in found.findings] == ["slower_than_hardware"]


def test_a_finding_about_short_calls_of_the_reference_says_what_it_is_held_to() -> None:
    def call_often(us: float) -> TraceBuilder:
        builder = trace()
        for _ in range(40):
            builder.op("aten::mm", [[8, 8], [8, 8]]).launches("k", us=us)
        return builder

    found = compare(side(call_often(30), FAST), side(call_often(5), SLOW))
    (finding,) = worded(found.findings)
    assert finding.evidence["Expected (%)"] == pytest.approx(0)
    assert "where the two GPUs explain no difference" in finding.issue
    assert "below a microsecond" in (finding.caveat or "")


FP8 = "c10::Float8_e4m3fn"


def projection(name: str, dtype: str, us: float) -> TraceBuilder:
    """A layer of one product, besides work that both sides do."""
    builder = trace().op("aten::add", ADDED).launches("add", us=2000).up()
    builder.python("nn.Module: Linear_0").child("aten::linear", SQUARE)
    return builder.child(name, SQUARE, types=[dtype] * 2).launches("gemm", us=us).up(3)


@pytest.mark.parametrize("gpu", ["H100 SXM", None])
def test_other_types_are_not_called_like_for_like(gpu: str | None) -> None:
    hardware = load_hardware().get(gpu) if gpu else None
    target = projection("aten::mm", "c10::BFloat16", 2000)
    reference = projection("aten::_scaled_mm", FP8, 1000)
    found = compare(side(target, hardware), side(reference, hardware))
    row = found.operations.filter(matched_by="call tree").row(0, named=True)
    assert (row["dtype"], row["reference_dtype"]) == ("bf16", "fp8")
    assert row["outcome"] == "not known"
    assert row["explanation"] == "Not like for like: bf16 on the target, fp8 on the reference."
    (finding,) = worded(found.findings)
    assert finding.check == "other_type"
    place = "`aten::mm` at `Linear / aten::linear`"
    assert finding.title == f"{place}: bf16 on the target, fp8 on the reference"
    assert "100.0% longer than the 1.00 ms of the reference" in finding.issue
    assert "in fp8 as the reference does" in finding.algorithmic
    assert any(
        text.startswith("Not like for like, in different types: 1 op") for text in found.summary
    )


def test_one_type_under_two_names_is_like_for_like() -> None:
    hardware = load_hardware().get("H100 SXM")
    target = projection("aten::mm", "c10::BFloat16", 2000)
    reference = projection("aten::addmm", "c10::BFloat16", 1000)
    found = compare(side(target, hardware), side(reference, hardware))
    row = found.operations.filter(matched_by="call tree").row(0, named=True)
    assert row["outcome"] == "slower"
    assert [finding.check for finding in found.findings] == ["slower_than_hardware"]


@pytest.mark.parametrize(
    ("reference", "matched"), [("aten::_softmax", "arguments"), ("aten::_log_softmax", None)]
)
def test_both_spellings_of_softmax_are_one_operation(reference: str, matched: str | None) -> None:
    found = on_gpus(call("aten::softmax", SCORES, 41_860), call(reference, SCORES, 68_780))
    assert found.operations["matched_by"].to_list() == [matched] * (matched is not None)
    if matched:
        row = found.operations.row(0, named=True)
        assert row["expected_ratio"] == pytest.approx(3350 / 5300)
        assert row["efficiency_pct"] == pytest.approx(
            row["reference_efficiency_pct"] * 68_780 / 41_860 * 3350 / 5300
        )


@pytest.mark.parametrize("waits", [True, False])
def test_time_that_the_host_does_not_wait_for_is_low_and_comes_last(waits: bool) -> None:
    def step(us: float, idle_us: float) -> TraceBuilder:
        builder = trace().annotation("ProfilerStep#0")
        builder.child("aten::mm", SQUARE).launches("gemm", us=us).up()
        (builder.runtime("cudaDeviceSynchronize", us) if waits else builder.waits(us))
        builder.waits(idle_us).child("aten::add", ADDED).launches("add", us=200)
        return builder.waits(1000).up(2)

    found = worded(compare(side(step(9000, 3000), FAST), side(step(2000, 1000), FAST)).findings)
    checks = ["longer_idle", "slower_than_hardware"]
    assert [finding.check for finding in found] == (checks[::-1] if waits else checks)
    slower = next(finding for finding in found if finding.check == "slower_than_hardware")
    assert slower.impact is not None
    assert slower.impact.step_ms is not None
    assert slower.impact.saved_ms.high == pytest.approx(7.0, rel=0.01)
    assert slower.impact.step_ms.high == pytest.approx(7.0 if waits else 0.0, abs=0.1)
    assert (slower.priority.value == "Low") is not waits
    assert waits or "the step does not wait for it" in (slower.priority_reason or "")


def test_an_operator_called_attention_is_attention_at_the_same_place() -> None:
    def layer(name: str, us: float) -> TraceBuilder:
        builder = trace().python("nn.Module: Attention_0").child("aten::contiguous", [[8]])
        return builder.child(name, [[2, 16, 512, 64]] * 3).launches("fwd_kernel", us=us).up(3)

    hardware = load_hardware().get("H100 SXM")
    target, reference = (
        layer(name, us)
        for name, us in (("attention", 90), ("aten::_scaled_dot_product_flash_attention", 30))
    )
    found = compare(side(target, hardware), side(reference, hardware))
    assert found.operations["matched_by"].to_list() == ["call tree"]
    for built in (target, reference):
        split = split_operations(PerfReport(built.read(), hardware), load_registry().analyses)
        assert split.operations["category"].to_list() == ["sdpa_fwd"]


@pytest.mark.parametrize(("transpose_us", "is_named"), [(600, True), (20, False)])
def test_a_kernel_that_only_one_side_launches_is_named(transpose_us: float, is_named: bool) -> None:
    def product(*kernels: tuple[str, float]) -> TraceBuilder:
        builder = trace().op("aten::mm", SQUARE)
        for name, us in kernels:
            builder.launches(name, us=us)
        return builder

    target = product(("gemm_a", 1500), ("transpose_ab", transpose_us))
    found = compare(side(target, FAST), side(product(("gemm_b", 1000)), FAST))
    (finding,) = worded(found.findings)
    assert ("`transpose_ab` (600 µs per call)" in finding.algorithmic) is is_named
    assert ("2 kernels per call against 1." in finding.issue) is is_named


def test_nothing_is_asked_of_a_side_that_did_not_run_the_operation() -> None:
    hardware = load_hardware().get("H100 SXM")
    sides = [
        side(projection(name, "c10::BFloat16", us), hardware)
        for name, us in (("aten::mm", 2000), ("aten::addmm", 1000))
    ]
    (by_place,) = worded(compare(*sides).findings)
    assert "Time `aten::mm` alone on the target and `aten::addmm` on the reference" in (
        by_place.capture or ""
    )
    (same,) = worded(
        on_gpus(call("aten::mm", SQUARE, 9000), call("aten::mm", SQUARE, 500)).findings
    )
    assert "Time `aten::mm` alone on both GPUs" in (same.capture or "")
