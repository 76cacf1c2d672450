"""Number formats of tables."""

import polars as pl
import pytest

from jarvis.dashboard.widgets.table import in_readable_units, number_format
from jarvis.schemas import INTEGER, NUMBER, Column


@pytest.mark.parametrize(
    ("times_ms", "label", "shown"),
    [
        ([20.0, 3.8, 0.783], "Time (ms)", ["20.00", "3.80", "0.78"]),
        ([1.1, None], "Time (ms)", ["1.10"]),
        ([0.0068, 0.05], "Time (µs)", ["6.80", "50.00"]),
        ([-1.5, 0.5], "Time (ms)", ["-1.50", "0.50"]),
    ],
)
def test_times_have_one_unit_and_trailing_zeros(
    times_ms: list[float | None], label: str, shown: list[str]
) -> None:
    column = Column("time", "Time (ms)", NUMBER, "ms")
    frame, columns = in_readable_units(pl.DataFrame({"time": times_ms}), {"time": column})
    form = number_format(columns["time"], frame["time"]).replace(",", "")
    assert columns["time"].label == label
    assert [form % value for value in frame["time"].drop_nulls()] == shown


def test_sizes_have_the_unit_of_the_largest() -> None:
    column = Column("moved", "Mean bytes", INTEGER, "bytes", ",d")
    frame, columns = in_readable_units(
        pl.DataFrame({"moved": [6_553_600, 81_920]}), {"moved": column}
    )
    assert columns["moved"].label == "Mean size (MB)"
    assert frame["moved"].to_list() == pytest.approx([6.5536, 0.08192])
    assert number_format(columns["moved"], frame["moved"]) == "%,.2f"
