"""How numbers are printed."""

import pytest

from jarvis.impact import marked_efficiency
from jarvis.text import format as q
from jarvis.text.format import MAX_DECIMALS, column_decimals, decimal, milliseconds, percent


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"),
        (0.0, "0"),
        (0.00123, "0.00123"),
        (0.46, "0.460"),
        (5.3, "5.30"),
        (41.93, "41.9"),
        (708.0, "708"),
        (1234.5, "1,234"),
        (-2.5, "\N{MINUS SIGN}2.50"),
        (1.5e-8, "1.50e-08"),
    ],
)
def test_decimals_have_three_significant_digits(value: float | None, text: str) -> None:
    assert q.decimal(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0%"),
        (41.93, "41.9%"),
        (0.33, "0.33%"),
        (0.4, "0.40%"),
        (0.0042, "<0.01%"),
        (-12.04, "\N{MINUS SIGN}12.0%"),
        (None, "—"),
    ],
)
def test_percentages(value: float | None, text: str) -> None:
    assert q.percent(value) == text


def test_units_stand_beside_the_number() -> None:
    assert q.milliseconds(1.5) == "1.50 ms"
    assert q.microseconds(12.0) == "12.0 µs"
    assert q.microseconds(0.001) == "0.00100 µs"
    assert q.milliseconds(0.667e-6) == "<0.001 µs"
    assert q.tb_per_s(5.3) == "5.30 TB/s"
    assert q.tflops_per_s(708.0) == "708 TFLOP/s"
    assert [q.byte_size(n) for n in (512, 1.5e6, 2e9)] == ["512 B", "1.50 MB", "2.00 GB"]


def test_an_efficiency_above_the_peak_is_marked() -> None:
    assert marked_efficiency(99.0) == "99.0%"
    assert marked_efficiency(104.0) == "104.0% ⚠ above the peak"
    assert marked_efficiency(132.0) == "132.0% ⚠ anomaly"
    assert marked_efficiency(None) == "—"


def test_short_times_are_printed_in_microseconds_without_an_exponent() -> None:
    assert q.milliseconds(1.1e-5) == "0.0110 µs"
    assert q.milliseconds(0.0194) == "19.4 µs"
    assert q.milliseconds(0.1) == "0.100 ms"
    assert q.milliseconds(0.0) == "0 ms"


@pytest.mark.parametrize("value", [0.0, 0.00042, 0.0194, 0.38, 4.567, 45.67, 1234.5])
def test_sentences_and_tables_print_a_number_alike(value: float) -> None:
    assert q.decimal(value) == decimal(value)
    assert q.percent(value) == percent(value)
    assert q.milliseconds(value) == milliseconds(value)


@pytest.mark.parametrize(
    ("largest", "typical", "decimals"),
    [
        (12_345, 120, 0),
        (271, 3, 1),
        (20.0, 0.783, 2),
        (3.8, 1.1, 2),
        (3.8, 0.0012, 3),  # not shown as zero
        (9.66, 0.012, 3),
        (0.783, 0.02, 3),
        (0.0, 0.0, 0),
        (1e-9, 1e-9, MAX_DECIMALS),
    ],
)
def test_columns_have_the_decimals_of_their_numbers(
    largest: float, typical: float, decimals: int
) -> None:
    assert column_decimals(largest, typical) == decimals
