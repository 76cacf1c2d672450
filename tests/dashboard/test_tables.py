"""Number formats and widths of tables."""

import json
import os
import shutil
from pathlib import Path

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from jarvis.analyses import load_analyses
from jarvis.core.workspace import analyses_dir
from jarvis.dashboard.pages.category.operations_table import with_small_shares
from jarvis.dashboard.widgets.table import cut_to_width, in_readable_units, number_format
from jarvis.schemas import FLAG, INTEGER, NUMBER, Column
from tests.dashboard.table_widths import CARD_PX, PAGE_PX, used_px


@pytest.mark.parametrize(
    ("times_ms", "label", "shown"),
    [
        ([20.0, 3.8, 0.783], "Time (ms)", ["20.00", "3.80", "0.78"]),
        ([154.0, 3.8, 0.0022, 0.0001], "Time (ms)", ["154.000", "3.800", "0.002", "0.000"]),
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


def test_columns_alike_have_equal_decimals() -> None:
    def page() -> None:
        import polars as pl

        from jarvis.dashboard.widgets.table import small_table
        from jarvis.schemas import NUMBER, Column

        columns = {name: Column(name, f"{name} (ms)", NUMBER, "ms") for name in "ab"}
        for small in (0.0013, 5.0):
            frame = pl.DataFrame({"a": [148.8, 1.3], "b": [67.2, small]})
            small_table(frame, columns, "Times", alike=("a", "b"))

    for table, form in zip(
        AppTest.from_function(page, default_timeout=60).run().dataframe,
        ("%,.3f", "%,.2f"),
        strict=True,
    ):
        columns = json.loads(table.proto.columns)
        assert [columns[name]["type_config"]["format"] for name in "ab"] == [form] * 2


def test_sizes_have_the_unit_of_the_largest() -> None:
    column = Column("moved", "Mean bytes", INTEGER, "bytes", ",d")
    frame, columns = in_readable_units(
        pl.DataFrame({"moved": [6_553_600, 81_920]}), {"moved": column}
    )
    assert columns["moved"].label == "Mean size (MB)"
    assert frame["moved"].to_list() == pytest.approx([6.5536, 0.08192])
    assert number_format(columns["moved"], frame["moved"]) == "%,.2f"


@pytest.mark.parametrize(
    ("own", "least", "shown"),
    [
        (",.1f", 0.005, ["0.01", "67.90"]),
        (",.1f", 0.0433, ["0.04", "67.90"]),
        (",.1f", 0.05, ["0.1", "67.9"]),
        (",.1f", 0.0, ["0.0", "67.9"]),
        (",.2f", 0.0433, ["0.04", "67.90"]),
        (",.1f", 0.004, ["0.0", "67.9"]),
    ],
)
def test_percentages_have_the_decimals_that_show_the_smallest(
    own: str, least: float, shown: list[str]
) -> None:
    column = Column("share", "Share (%)", NUMBER, "%", own)
    form = number_format(column, pl.Series([least, 67.9])).replace(",", "")
    assert [form % value for value in (least, 67.9)] == shown


def test_texts_have_the_room_that_others_leave() -> None:
    def page() -> None:
        import polars as pl

        from jarvis.dashboard.widgets.table import small_table
        from jarvis.schemas import NUMBER, TEXT, Column

        texts = [Column(name, name.title(), TEXT) for name in ("kernel", "operation")]
        columns = {column.name: column for column in (*texts, Column("ms", "Time (ms)", NUMBER))}
        operation = "_scaled_dot_product_flash_attention"
        for kernel in ("flash_fwd_kernel", f"sm90_{'x' * 120}_cublas"):
            frame = pl.DataFrame({"kernel": [kernel], "operation": [operation], "ms": [1.0]})
            small_table(frame, columns, "Events", widths={"ms": 440}, fits_texts=True)

    short, long = AppTest.from_function(page, default_timeout=60).run().dataframe
    assert [short.value["kernel"][0], len(short.value["operation"][0])] == ["flash_fwd_kernel", 35]
    kernel, operation = (long.value[name][0] for name in ("kernel", "operation"))
    assert kernel.startswith("sm90_x")
    assert kernel.endswith("cublas")
    assert operation.startswith("_scaled_dot")
    assert operation.endswith("ttention")
    assert "…" in kernel
    assert "…" in operation
    assert used_px(long) <= CARD_PX


def test_a_tiny_efficiency_is_a_text_beside_columns_of_bars() -> None:
    rows = pl.DataFrame({"percent_of_category": [60.0, 40.0], "pct_roofline": [24.6, 9.89e-5]})
    shown = with_small_shares(rows)
    assert shown["pct_roofline"].to_list() == ["24.6%", "<0.01%"]
    assert shown["percent_of_category"].equals(rows["percent_of_category"])


def test_flags_are_words() -> None:
    column = Column("flash", "Flash", FLAG)
    frame, _ = in_readable_units(pl.DataFrame({"flash": [True, False, None]}), {"flash": column})
    assert frame["flash"].to_list() == ["yes", "no", None]


@pytest.fixture
def _only_the_sample(
    sample_id: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leave out runs of other tests, whose labels are further columns."""
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path))
    copy = analyses_dir() / sample_id
    shutil.copytree(home / "analyses" / sample_id, copy, copy_function=os.link)


@pytest.mark.usefixtures("_only_the_sample")
@pytest.mark.parametrize(
    ("page", "place", "last", "room_px"),
    [
        ("call_tree", 0, None, CARD_PX),
        ("call_tree", 1, None, CARD_PX),
        ("call_tree", 2, None, CARD_PX),
        ("cpu_idle", 0, None, CARD_PX),
        ("kernel_fusion", 0, None, CARD_PX),
        ("multi_kernel", -1, "algo_gbs", CARD_PX),
        ("timeline", 0, None, CARD_PX),
        ("timeline", 1, None, CARD_PX),
        ("replay", 0, None, PAGE_PX),
        ("runs", 0, "created", PAGE_PX),
    ],
)
def test_the_main_columns_are_in_view_in_a_window_of_1280_pixels(
    request: pytest.FixtureRequest, page: str, place: int, last: str | None, room_px: int
) -> None:
    draw = request.getfixturevalue("registered" if page in load_analyses() else "filed")
    table = draw(page, analysis=request.getfixturevalue("sample_id")).dataframe[place]
    assert used_px(table, last) <= room_px


def test_a_name_without_room_keeps_its_end() -> None:
    names = pl.Series(["max_pool2d_with_indices_backward", "mm", None])
    assert cut_to_width(names, 175).to_list() == ["max_pool2d_with_…backward", "mm", None]
    assert cut_to_width(names, 220).to_list() == names.to_list()
