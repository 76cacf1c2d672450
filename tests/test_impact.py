"""The formulas and rules of impact, with numbers computed by hand."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis import impact
from jarvis.findings import Priority

times_ms = st.floats(0.001, 1e5)
percents = st.floats(0.01, 100.0)
BASES = {"compute_ms": 100.0, "total_ms": 200.0}


def test_time_at_target_scales_with_efficiency() -> None:
    assert impact.time_at_target(10.0, 40.0, 80.0) == pytest.approx(5.0)
    assert impact.time_at_target(10.0, 80.0, 80.0) == 10.0
    assert impact.time_at_target(10.0, 95.0, 80.0) == 10.0


def test_projection_gives_op_compute_and_wall_improvement() -> None:
    row = impact.project(10.0, 25.0, 50.0, **BASES)
    assert row.time_ms == pytest.approx(5.0)
    assert row.saved_ms == pytest.approx(5.0)
    assert row.op_improvement_pct == pytest.approx(50.0)
    # an op of 10 % of compute that improves by 50 % gains 5 % of compute
    assert row.compute_pct == pytest.approx(5.0)
    assert row.e2e_pct == pytest.approx(2.5)


def test_projection_table_has_the_fixed_rows_and_the_slider() -> None:
    table = impact.projection_table(10.0, 25.0, 65.0, **BASES)
    assert [row.target_pct for row in table] == [20.0, 50.0, 65.0, 70.0, 100.0]
    assert table[0].saved_ms == 0.0
    assert len(impact.projection_table(10.0, 25.0, 70.0, **BASES)) == 4


@given(times_ms, percents, percents)
def test_saving_is_never_negative_nor_more_than_the_time(
    time_ms: float, efficiency: float, target: float
) -> None:
    saved = impact.project(time_ms, efficiency, target, **BASES).saved_ms
    assert 0 <= saved <= time_ms


@given(times_ms, percents)
def test_modelled_range_is_ordered(time_ms: float, efficiency: float) -> None:
    gain = impact.modelled_impact(time_ms, efficiency, 80.0, **BASES)
    assert 0 <= gain.saved_ms.low <= gain.saved_ms.mid + 1e-9
    assert gain.saved_ms.mid <= gain.saved_ms.high + 1e-9
    assert gain.compute_pct.mid == pytest.approx(2 * gain.e2e_pct.mid)


@given(st.lists(st.tuples(times_ms, st.floats(0.01, 79.9)), min_size=1, max_size=8))
def test_a_group_saves_what_its_rows_save(rows: list[tuple[float, float]]) -> None:
    time_ms = sum(time for time, _ in rows)
    efficiency = sum(time * e for time, e in rows) / time_ms
    each = sum(impact.project(time, e, 80.0, **BASES).saved_ms for time, e in rows)
    assert impact.project(time_ms, efficiency, 80.0, **BASES).saved_ms == pytest.approx(each)


@given(st.lists(st.tuples(times_ms, st.none() | st.floats(0.01, 200.0)), min_size=1, max_size=8))
def test_column_expression_equals_the_scalar_formula(
    rows: list[tuple[float, float | None]],
) -> None:
    frame = pl.DataFrame(
        rows, schema={"kernel_time_us": pl.Float64, "pct_roofline": pl.Float64}, orient="row"
    ).with_columns(bound=pl.lit("memory"), kernel_count=pl.lit(0))
    saved = frame.select(impact.saved_us(80.0)).to_series().to_list()
    expected = [
        None if e is None else impact.project(t, e, 80.0, **BASES).saved_ms for t, e in rows
    ]
    assert saved == pytest.approx(expected)


def test_a_lower_limit_of_efficiency_promises_no_saving() -> None:
    row = {"kernel_time_us": [10.0], "pct_roofline": [5.0], "bound": ["memory only"]}
    row["kernel_count"] = [1]
    assert pl.DataFrame(row).select(impact.saved_us(80.0)).item() is None


def test_no_kernel_of_a_row_gets_shorter_than_the_shortest_kernels() -> None:
    row = {"kernel_time_us": [10.0], "pct_roofline": [5.0], "bound": ["memory"]}
    one, four = (
        pl.DataFrame({**row, "kernel_count": [kernels]}).select(impact.saved_us(80.0)).item()
        for kernels in (1, 4)
    )
    assert one == pytest.approx(10 - impact.KERNEL_FLOOR_US)
    assert four == pytest.approx(10 - 4 * impact.KERNEL_FLOOR_US)


def test_bounded_range() -> None:
    bounded = impact.bounded_impact(10.0, 4.0, **BASES)
    assert (bounded.saved_ms.low, bounded.saved_ms.mid, bounded.saved_ms.high) == (0.0, 2.0, 4.0)
    assert bounded.method == "upper bound"
    assert bounded.efficiency_pct is None
    assert impact.bounded_impact(10.0, 4.0, efficiency_pct=4.6, **BASES).efficiency_pct == 4.6


def test_shares_of_nothing_are_zero() -> None:
    assert impact.share_pct(1.0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("efficiency", "word"),
    [
        (None, "not available"),
        (0.0, "needs investigation"),
        (40.0, "needs investigation"),
        (40.1, "acceptable"),
        (60.1, "good"),
        (80.1, "excellent"),
        (100.1, "above the peak: verify the measurement and the peak"),
        (110.1, "anomaly: verify the measurement and the peak"),
    ],
)
def test_efficiency_scale(efficiency: float | None, word: str) -> None:
    assert impact.efficiency_word(efficiency) == word


def test_time_test() -> None:
    assert impact.is_time_relevant(50.1, 0.0)
    assert impact.is_time_relevant(0.1, 5.1)
    assert not impact.is_time_relevant(50.0, 5.0)


@pytest.mark.parametrize(
    ("compute_pct", "efficiency", "is_pattern", "expected"),
    [
        (15.1, 29.9, False, Priority.CRITICAL),
        (15.1, 30.0, False, Priority.HIGH),
        (10.1, 90.0, False, Priority.HIGH),
        (1.1, 39.9, False, Priority.HIGH),
        (1.0, 39.9, False, Priority.LOW),
        (5.1, 90.0, False, Priority.MEDIUM),
        (2.0, 90.0, True, Priority.MEDIUM),
        (5.0, None, False, Priority.LOW),
    ],
)
def test_local_priority(
    compute_pct: float, efficiency: float | None, is_pattern: bool, expected: Priority
) -> None:
    found = impact.local_priority(
        compute_pct=compute_pct, efficiency_pct=efficiency, is_pattern=is_pattern
    )
    assert found is expected


@pytest.mark.parametrize(
    ("is_top", "compute_pct", "category_pct", "efficiency", "expected"),
    [
        (True, 15.1, 20.0, 29.9, Priority.CRITICAL),
        (False, 15.1, 20.0, 29.9, Priority.HIGH),
        (True, 14.9, 20.0, 29.9, Priority.HIGH),
        (True, 2.0, 3.0, 90.0, Priority.HIGH),
        (False, 2.0, 10.1, 39.9, Priority.HIGH),
        (False, 2.0, 9.9, 39.9, Priority.LOW),
        (False, 5.1, 9.9, 41.0, Priority.MEDIUM),
        (True, 1.0, 90.0, 10.0, Priority.LOW),
    ],
)
def test_final_priority(
    is_top: bool, compute_pct: float, category_pct: float, efficiency: float, expected: Priority
) -> None:
    found = impact.final_priority(
        is_top_operation=is_top,
        compute_pct=compute_pct,
        category_pct=category_pct,
        efficiency_pct=efficiency,
    )
    assert found is expected


def test_a_tiny_saving_is_not_urgent() -> None:
    facts = {"is_top_operation": True, "compute_pct": 20.0, "category_pct": 50.0}
    found = impact.final_priority(**facts, efficiency_pct=79.0, saved_compute_pct=0.4)
    assert found is Priority.LOW


def test_saving_less_than_a_launch_costs_is_not_urgent() -> None:
    facts = {"is_top_operation": True, "compute_pct": 20.0, "category_pct": 50.0}
    priorities = [
        impact.final_priority(**facts, efficiency_pct=5.0, saved_compute_pct=9.0, saved_ms=saved)
        for saved in (0.0099, 0.0101)
    ]
    assert priorities == [Priority.LOW, Priority.CRITICAL]


def test_kernels_that_overlap_save_no_more_than_the_wall_time() -> None:
    found = impact.bounded_impact(50.0, 40.0, compute_ms=30.0, total_ms=30.0)
    assert (found.saved_ms.mid, found.saved_ms.high) == (20.0, 30.0)
    assert found.e2e_pct.high == 100.0
