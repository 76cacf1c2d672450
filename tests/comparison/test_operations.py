"""Operations of two sides, and what the two GPUs explain."""

import polars as pl
import pytest

from jarvis.comparison import Comparison, Outcome, Side, compare
from jarvis.comparison.expected import HardwareRatios
from jarvis.hardware import HardwareSpec
from tests.builders import TraceBuilder, trace
from tests.comparison.sides import FAST, SLOW, side
from tests.worded import worded

SQUARE = [[1000, 1000], [1000, 1000]]  # compute bound on both
THIN = [[1, 4000], [4000, 1000]]  # memory bound on both


def products(square_us: float, thin_us: float) -> TraceBuilder:
    builder = trace()
    for _ in range(2):
        builder.op("aten::mm", SQUARE).launches("k", us=square_us)
    return builder.op("aten::mm", THIN).launches("k", us=thin_us)


def compared(
    target: TraceBuilder, reference: TraceBuilder, *hardware: HardwareSpec | None
) -> Comparison:
    target_gpu, reference_gpu = hardware or (SLOW, FAST)
    return compare(side(target, target_gpu), side(reference, reference_gpu))


def test_expected_ratios_follow_the_bound() -> None:
    ratios = HardwareRatios(SLOW, FAST)
    assert ratios.of("memory", "matrix_bf16") == 4.0
    assert ratios.of("compute", "matrix_bf16") == 2.0
    assert ratios.of("compute", "matrix_fp8") is None
    assert ratios.of(None, None) is None
    assert ratios.bounds() == (2.0, 4.0)


def test_only_what_the_hardware_does_not_explain_is_unexpected() -> None:
    found = compared(products(60, 40), products(15, 10)).operations
    assert found["time_ratio"].to_list() == pytest.approx([4.0, 4.0])
    assert found["expected_ratio"].to_list() == pytest.approx([2.0, 4.0])
    assert found["is_unexpected"].to_list() == [True, False]
    # 4 times as slow where 2 is expected: half of the 120 us of both calls.
    assert found["unexplained_ms"].to_list() == pytest.approx([0.06, 0.0])
    assert found["reference_calls"].to_list() == [2, 1]
    assert found["difference_ms"].to_list() == pytest.approx([0.09, 0.03])
    assert found["difference_pct"].to_list() == pytest.approx([300.0, 300.0])


@pytest.mark.parametrize("hardware", [(None, FAST), (SLOW, None), (None, None)])
def test_without_hardware_nothing_is_expected(
    hardware: tuple[HardwareSpec | None, HardwareSpec | None],
) -> None:
    found = compared(products(60, 40), products(15, 10), *hardware).operations
    assert found["expected_ratio_most"].null_count() == found.height == 2
    assert found["is_unexpected"].null_count() == 2
    assert set(found["outcome"]) == {Outcome.UNKNOWN.value}
    assert found["time_ratio"].to_list() == pytest.approx([4.0, 4.0])


@pytest.mark.parametrize(
    ("square_us", "outcome"),
    [
        (61, Outcome.MUCH_SLOWER),  # more than twice the expected 30
        (59, Outcome.SLOWER),
        (37, Outcome.SLOWER),  # more than 1.2 times
        (35, Outcome.EXPECTED),
        (26, Outcome.EXPECTED),
        (24, Outcome.FASTER),  # less than 30 / 1.2
        (14, Outcome.MUCH_FASTER),
    ],
)
def test_outcomes_by_distance_from_the_expected(square_us: float, outcome: Outcome) -> None:
    found = compared(products(square_us, 40), products(15, 10)).operations
    row = found.filter(pl.col("bound") == "compute").row(0, named=True)
    assert row["outcome"] == outcome


def test_the_tolerance_moves_the_line() -> None:
    found = compared(products(45, 40), products(15, 10))
    assert found.operations["outcome"].to_list() == ["slower", "as expected"]
    assert found.at(1.6).operations["outcome"].to_list() == ["as expected", "as expected"]
    assert found.at(1.6).categories["unexplained_ms"].to_list() == [0.0]
    with pytest.raises(ValueError, match=r"0\.9"):
        _ = found.at(0.9).operations


def test_calls_that_launching_decides_are_not_judged() -> None:
    tiny = [[8, 8], [8, 8]]
    builds = (trace().op("aten::mm", tiny).launches("k", us=us) for us in (9.0, 3.0))
    found = compared(*builds).operations
    assert found["outcome"].to_list() == [Outcome.SHORT.value]
    assert found["is_unexpected"].to_list() == [None]


def test_a_call_that_launching_decides_on_one_side_is_held_to_the_other_sides_time() -> None:
    tiny = [[8, 8], [8, 8]]
    builds = (trace().op("aten::mm", tiny).launches("k", us=us) for us in (30.0, 5.0))
    row = compared(*builds, FAST, SLOW).operations.row(0, named=True)
    # Bandwidth would ask for a quarter of the reference's time, but the roofline is tiny.
    assert (row["expected_ratio_least"], row["expected_ratio_most"]) == pytest.approx((1.0, 1.0))
    assert row["outcome"] == "much slower"
    assert row["attainable_ms"] == pytest.approx(0.005)


def test_a_faster_reference_than_the_roofline_asks_for_no_more_than_the_roofline() -> None:
    # 2 GFLOP take 20 us on the target at its peak; the reference's 4 us would ask for 8.
    found = compared(products(60, 40), products(4, 10)).operations
    row = found.filter(pl.col("bound") == "compute").row(0, named=True)
    assert row["is_roofline_capped"]
    assert "roofline allows" in row["explanation"]
    assert row["attainable_ms"] == pytest.approx(0.04)
    assert row["unexplained_ms"] == pytest.approx(0.08)


def test_an_unknown_bound_expects_a_range() -> None:
    def unknown(us: float) -> TraceBuilder:
        return trace().op("custom::op", [[512, 512]]).launches("k", us=us)

    for us, outcome in ((100.0, "slower"), (70.0, "as expected"), (14.0, "faster")):
        row = compared(unknown(us), unknown(20.0)).operations.row(0, named=True)
        assert (row["expected_ratio_least"], row["expected_ratio_most"]) == pytest.approx((2, 4))
        assert row["expected_ratio"] is None
        assert outcome in row["outcome"]


def test_rows_that_differ_in_strides_count_as_one() -> None:
    dims = [[64, 64], [64, 64]]
    target = trace().op("aten::mm", dims).launches("k", us=30)
    target.op("aten::mm", dims, strides=[[1, 64], [64, 1]]).launches("k", us=50)
    reference = trace().op("aten::mm", dims).launches("k", us=20)
    row = compared(target, reference).operations.row(0, named=True)
    assert len(row["uids"]) == row["target_calls"] == 2
    assert row["target_us_per_call"] == pytest.approx(40)
    assert row["time_ratio"] == pytest.approx(2.0)


def linear(inner: str, dims: list[list[int]], us: float, *more: tuple[str, float]) -> TraceBuilder:
    """A module whose linear layer is lowered to one operator, and perhaps to others after it."""
    builder = trace().python("nn.Module: Linear_0").child("aten::linear", [[512, 512]])
    builder.child(inner, dims).launches("gemm", us=us).up()
    for name, more_us in more:
        builder.child(name, [[512, 512]]).launches("elementwise", us=more_us).up()
    return builder


MM, ADDMM = [[512, 512], [512, 512]], [[512], [512, 512], [512, 512]]


def test_what_names_do_not_match_matches_by_its_place() -> None:
    target = linear("aten::mm", MM, 50, ("custom::bias", 10))
    reference = linear("aten::addmm", ADDMM, 20)
    found = compared(target, reference)
    row = found.operations.row(0, named=True)
    assert found.operations.height == 1
    assert (row["matched_by"], row["place"]) == ("call tree", "Linear / aten::linear")
    assert (row["name"], row["reference_name"]) == ("aten::mm, custom::bias", "aten::addmm")
    assert row["time_ratio"] == pytest.approx(3.0)
    assert found.unmatched.is_empty()


def test_models_that_only_a_common_wrapper_contains_do_not_match() -> None:
    def wrapped(model: str, name: str, dims: list[list[int]]) -> TraceBuilder:
        wrapper = trace().python("nn.Module: DistributedDataParallel_0")
        return wrapper.python(f"nn.Module: {model}_0").child(name, dims).launches("k", us=50)

    found = compared(
        wrapped("LanguageModel", "aten::mm", MM), wrapped("ResNet", "aten::relu", [[64]])
    )
    assert found.operations.is_empty()
    assert found.findings == ()


def test_products_below_one_call_are_separated() -> None:
    def two(name: str, bias: list[list[int]], us: float) -> TraceBuilder:
        builder = trace().python("nn.Module: Linear_0")
        for n in (512, 256):
            dims = [*([[n]] if bias else []), [512, 512], [512, n]]
            builder.child("aten::linear", [[512, n]]).child(name, dims).launches("k", us=us).up(2)
        return builder

    found = compared(two("aten::mm", [], 40), two("aten::addmm", [[1]], 20)).operations
    assert found["target_ms"].to_list() == pytest.approx([0.04, 0.04])
    assert set(found["matched_by"]) == {"call tree"}
    assert set(found["work_ratio"].round(2)) == {1.0}


def test_without_a_call_tree_products_match_by_their_dimensions() -> None:
    sides = [
        side(linear("aten::mm", MM, 50), SLOW, without=["call_tree", "call_tree_operations"]),
        side(linear("aten::addmm", ADDMM, 20), FAST, without=["call_tree"]),
    ]
    found = compare(*sides)
    assert found.operations["matched_by"].to_list() == ["product"]
    assert found.unmatched.is_empty()


def test_a_launch_call_is_no_place() -> None:
    target, reference = (trace().launches(name, us=20) for name in ("one", "another"))
    found = compared(target, reference)
    assert found.operations.is_empty()
    assert len(found.only_in_target) == len(found.only_in_reference) == 1


def test_different_work_at_one_place_expects_nothing() -> None:
    target = linear("aten::mm", [[1024, 512], [512, 512]], 50)
    row = compared(target, linear("aten::mm", MM, 20)).operations.row(0, named=True)
    assert row["matched_by"] == "call tree"
    assert row["work_ratio"] == pytest.approx(2.0)
    assert row["outcome"] == Outcome.UNKNOWN.value
    assert "same amount of work" in row["explanation"]


def test_only_one_side_has_it() -> None:
    shared = linear("aten::mm", MM, 50)
    other = trace().op("custom::extra", [[8]]).launches("extra", us=7).up()
    other.python("nn.Module: Linear_0").child("aten::linear", [[512, 512]])
    other.child("aten::mm", MM).launches("gemm", us=50)
    found = compared(other, shared)
    assert found.only_in_reference.is_empty()
    row = found.only_in_target.row(0, named=True)
    assert (row["name"], row["time_ms"], row["kernel"]) == ("custom::extra", 0.007, "extra")


def test_a_pair_of_sides_without_tables_has_no_rows() -> None:
    nothing = Side("nothing", None, {})
    tables = compare(nothing, nothing).tables()
    assert {name: table.height for name, table in tables.items() if name != "comparison_bounds"}
    assert sum(table.height for name, table in tables.items() if "bounds" not in name) == 0


TINY_ADD, LARGE_ADD = [[64, 64], [64, 64], []], [[2048, 1024], [2048, 1024], []]


def adds(dims: list, us: float) -> TraceBuilder:
    builder = trace()
    for _ in range(20):
        builder.op("aten::add", dims).launches("k", us=us)
    return builder


@pytest.mark.parametrize(
    ("dims", "ratio", "outcome"),
    [(TINY_ADD, 1.0, "as expected"), (LARGE_ADD, 0.25, "much slower")],
)
def test_a_roofline_below_a_microsecond_explains_no_ratio(
    dims: list, ratio: float, outcome: str
) -> None:
    # The bandwidth of the target is 4 times that of the reference, the times are equal.
    found = compared(adds(dims, 14.0), adds(dims, 14.0), FAST, SLOW)
    row = found.operations.row(0, named=True)
    assert (row["expected_ratio"], row["outcome"]) == (pytest.approx(ratio), outcome)
    assert bool(found.findings) == (outcome == "much slower")


def test_a_tiny_roofline_is_judged_by_the_measured_time() -> None:
    found = compared(adds(TINY_ADD, 60.0), adds(TINY_ADD, 14.0))
    row = found.operations.row(0, named=True)
    assert row["outcome"] == "much slower"
    assert row["attainable_ms"] == pytest.approx(20 * 0.014)
    assert row["explanation"].startswith("Launch bound: the roofline of a call is below a microsec")


@pytest.mark.parametrize(("target_us", "outcome"), [(30.0, "slower"), (22.0, "as expected")])
def test_the_same_gpu_on_both_sides_explains_nothing(target_us: float, outcome: str) -> None:
    def work(us: float) -> TraceBuilder:
        builder = trace().op("custom::op", [[512, 512]]).launches("k", us=5 * us)
        builder.op("aten::mm", SQUARE).launches("gemm", us=3 * us)
        builder.op("aten::copy_", [[4096], [4096], []])
        return builder.launches("Memcpy HtoD (Pageable -> Device)", us=2 * us, cat="gpu_memcpy")

    found = compared(work(target_us), work(20.0), FAST, FAST.model_copy())
    assert found.operations["expected_ratio"].to_list() == pytest.approx([1.0, 1.0, 1.0])
    assert set(found.operations["outcome"]) == {outcome}
    assert len(found.findings) == (3 if outcome == "slower" else 0)
    texts = [*found.summary, *found.operations["explanation"]]
    texts += [text for each in worded(found.findings) for text in (each.title, each.issue)]
    assert not [text for text in texts if "explain" in text and "not explained" not in text]


def test_short_calls_on_the_same_gpu_are_judged() -> None:
    found = compared(adds(TINY_ADD, 9.0), adds(TINY_ADD, 4.0), FAST, FAST)
    assert found.operations["outcome"].to_list() == ["much slower"]
    assert compared(adds(TINY_ADD, 9.0), adds(TINY_ADD, 4.0)).operations["outcome"].to_list() == [
        Outcome.SHORT.value
    ]


def test_a_peak_is_no_reason_far_below_the_roofline() -> None:
    far = compared(products(4000, 40), products(2000, 10)).operations
    near = compared(products(40, 40), products(20, 10)).operations
    of = pl.col("bound") == "compute"
    assert "peaks are not the reason" in far.filter(of)["explanation"][0]
    assert near.filter(of)["explanation"][0].startswith("Compute bound: slower")


def test_a_headline_names_the_arguments_that_its_numbers_cover() -> None:
    def sized(*times: float) -> TraceBuilder:
        builder = trace()
        for n, us in zip((1024, 2048, 4096), times, strict=True):
            builder.op("aten::mm", [[n, n], [n, n]]).launches("k", us=us)
        return builder

    titles = []
    for times in ((100, 800, 6400), (300, 800, 6400), (300, 2400, 6400), (300, 2400, 19200)):
        found = compared(sized(*times), sized(50, 400, 3200))
        titles += [finding.title for finding in worded(found.findings)]
    assert [title.partition(" is much")[0] for title in titles] == [
        "`aten::mm` `[1024,1024] bf16, [1024,1024] bf16`",
        "`aten::mm` (2 of 3 argument lists)",
        "`aten::mm` (all 3 argument lists)",
    ]
