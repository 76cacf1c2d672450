"""Laws of comparisons: a side against itself, swapped roles, and time that counts once."""

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jarvis.comparison import Comparison, Side, compare
from tests.builders import TraceBuilder, trace
from tests.comparison.sides import FAST, SLOW, side

TOLERANCE = 1.2137  # no ratio of whole microseconds equals it
HARDWARE = (SLOW, FAST, None)
MIRRORED = {
    "much slower": "much faster",
    "slower": "faster",
    "faster": "slower",
    "much faster": "much slower",
}
CALLS = (
    ("aten::mm", [[512, 512], [512, 512]]),
    ("aten::addmm", [[512], [512, 512], [512, 512]]),
    ("aten::mm", [[8, 1024], [1024, 1024]]),
    ("aten::mul", [[4096, 4096], [4096, 4096]]),
    ("aten::bmm", [[16, 64, 64], [16, 64, 64]]),
    ("custom::norm", [[4096]]),
)
PLACES = ("nn.Module: Linear_0", "nn.Module: Norm_0", None)
Call = tuple[int, str | None, int]

calls = st.lists(
    st.tuples(st.integers(0, len(CALLS) - 1), st.sampled_from(PLACES), st.integers(1, 400)),
    min_size=1,
    max_size=8,
)
gpus = st.sampled_from(HARDWARE)


def built(recorded: Sequence[Call]) -> TraceBuilder:
    builder = trace()
    for number, place, us in recorded:
        name, dims = CALLS[number]
        if place is None:
            builder.op(name, dims).launches(f"kernel_{number}", us=us).up()
        else:
            builder.python(place).child("aten::linear", [[512]]).child(name, dims)
            builder.launches(f"kernel_{number}", us=us).up(3)
    return builder


def by_uids(comparison: Comparison, *, swapped: bool = False) -> dict[tuple, dict]:
    """Rows of the operations by the rows of either side, those of the target first."""
    order = ("reference_uids", "uids") if swapped else ("uids", "reference_uids")
    rows = comparison.operations.iter_rows(named=True)
    return {tuple(tuple(sorted(row[name])) for name in order): row for row in rows}


@settings(max_examples=15)
@given(calls, calls, gpus, gpus)
def test_swapped_roles_give_mirrored_numbers(
    first: list[Call], second: list[Call], first_gpu: object, second_gpu: object
) -> None:
    sides = side(built(first), first_gpu), side(built(second), second_gpu)
    there, back = compare(*sides, TOLERANCE), compare(*sides[::-1], TOLERANCE)
    rows, mirrored = by_uids(there), by_uids(back, swapped=True)
    assert rows.keys() == mirrored.keys()
    for key, row in rows.items():
        other = mirrored[key]
        assert row["difference_ms"] == pytest.approx(-other["difference_ms"], abs=1e-12)
        assert row["time_ratio"] == pytest.approx(1 / other["time_ratio"])
        assert row["matched_by"] == other["matched_by"]
        assert row["outcome"] == MIRRORED.get(other["outcome"], other["outcome"])
        assert row["is_unexpected"] == other["is_unexpected"]
        for name, mirror in (("least", "most"), ("most", "least")):
            ratio, inverse = row[f"expected_ratio_{name}"], other[f"expected_ratio_{mirror}"]
            assert (ratio is None) == (inverse is None)
            assert ratio is None or ratio == pytest.approx(1 / inverse)
    for name, key in (("totals", "type"), ("categories", "category"), ("kernels", "kernel")):
        here, opposite = (getattr(found, name).sort(key) for found in (there, back))
        assert here[key].to_list() == opposite[key].to_list()
        assert here["difference_ms"].to_list() == pytest.approx(
            [-value for value in opposite["difference_ms"]], abs=1e-12
        )
    assert there.only_in_target["uid"].sort().equals(back.only_in_reference["uid"].sort())
    assert there.only_in_reference["uid"].sort().equals(back.only_in_target["uid"].sort())


@settings(max_examples=15)
@given(calls, gpus)
def test_a_side_against_itself_shows_no_difference(recorded: list[Call], gpu: object) -> None:
    same = side(built(recorded), gpu)
    found = compare(same, same)
    assert found.findings == ()
    assert found.unmatched.is_empty()
    assert not found.operations["is_unexpected"].any()
    assert set(found.operations["explanation"]) == {"No difference."}
    for name, table in found.tables().items():
        if "difference_ms" in table.columns:
            assert (table["difference_ms"] == 0).all(), name
            assert table["difference_pct"].drop_nulls().eq(0).all(), name


@settings(max_examples=15)
@given(calls, calls, gpus, gpus)
def test_no_time_counts_twice(
    first: list[Call], second: list[Call], first_gpu: object, second_gpu: object
) -> None:
    target, reference = side(built(first), first_gpu), side(built(second), second_gpu)
    found = compare(target, reference)
    for role, given_side in (("target", target), ("reference", reference)):
        only = found.unmatched.filter(pl.col("side") == role)["time_ms"].sum()
        matched = found.operations[f"{role}_ms"].sum()
        assert matched + only == pytest.approx(operations_ms(given_side))
        assert found.categories[f"{role}_ms"].sum() == pytest.approx(operations_ms(given_side))
        assert found.kernels[f"{role}_ms"].sum() == pytest.approx(operations_ms(given_side))
    savings = [finding.impact.saved_ms for finding in found.findings]
    assert sum(saved.high for saved in savings) <= target.compute_ms * (1 + 1e-9)
    assert all(0 <= saved.low <= saved.mid <= saved.high for saved in savings)


def operations_ms(of: Side) -> float:
    return of.tables["operations"]["kernel_time_us"].sum() / 1e3


def test_savings_of_work_at_the_same_time_are_no_more_than_the_compute_time() -> None:
    def parallel(us: float) -> TraceBuilder:
        builder = trace()
        for stream in (7, 8, 9):
            dims = [[4096, 4096], [4096 + stream, 4096]]
            builder.op(f"custom::op_{stream}", dims)
            builder.launches("k", us=us, stream=stream, at_us=2000)
        return builder

    found = compare(side(parallel(900), FAST), side(parallel(100), FAST))
    saved = sum(finding.impact.saved_ms.high for finding in found.findings)
    assert len(found.findings) == 3
    assert found.target.compute_ms == pytest.approx(0.9)
    assert saved == pytest.approx(0.9)
