"""The table of operations: the server filters, sorts and pages all rows."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Dataframe

from jarvis.core.workspace import RunPaths
from jarvis.dashboard.pages.category import page as category_page
from jarvis.dashboard.widgets.finding_cards import OPERATIONS_SHOWN
from jarvis.dashboard.widgets.row_order import PAGE_ROWS
from jarvis.run import Run, category_table
from jarvis.server.submission import Submission, submit
from jarvis.text.shapes import call_shapes
from tests.builders import trace
from tests.dashboard.conftest import Draw
from tests.dashboard.table_widths import PAGE_PX, is_shown, used_px

MANY = "many-rows"
COPIES = 60


@pytest.fixture(scope="module")
def many(home: Path, sample_id: str) -> pl.DataFrame:
    """Return a stored analysis with hundreds of GEMM rows, longest first."""
    root = home / "analyses" / MANY
    shutil.copytree(home / "analyses" / sample_id, root)
    run = Run.load(root)
    operations, originals = run.table("operations"), run.category_operations("gemm")
    rows = pl.concat([originals] * COPIES)
    rows = rows.with_columns(
        uid=pl.int_range(pl.len()) + operations["uid"].max() + 1,
        kernel_time_us=pl.col("kernel_time_us") * (1 + pl.int_range(pl.len()) / 1e5),
        percent_of_category=pl.col("percent_of_category") / COPIES,
    ).sort("kernel_time_us", descending=True)
    assert rows.height > 3 * PAGE_ROWS
    rows.write_parquet(RunPaths(root).table(category_table("gemm")))
    others = operations.filter(~pl.col("uid").is_in(originals["uid"].implode()))
    known = [others, rows.select(operations.columns)]
    pl.concat(known).write_parquet(RunPaths(root).table("operations"))
    return rows


def table(page: AppTest, column: str = "state") -> Dataframe:
    assert not page.exception
    return next(d for d in page.dataframe if column in d.value.columns)


def config(shown: Dataframe) -> dict[str, dict[str, object]]:
    """Return the configuration of the columns of a table."""
    found: dict[str, dict[str, object]] = json.loads(shown.proto.columns)
    return found


def outlined(page: AppTest) -> list[int]:
    """Return the number of outlined marks of each chart that has operations."""
    return [
        arrow_rows(dataset.data.data)
        for chart in page.get("vega_lite_chart")
        for dataset in chart.proto.datasets
        if dataset.name == "selected"
    ]


def arrow_rows(data: bytes) -> int:
    return pl.read_ipc_stream(data).height


def key_of(page: AppTest) -> str:
    return str(table(page).key)


def select(page: AppTest, *, rows: list[int], columns: list[str] | None = None) -> AppTest:
    """Simulate a click on a row or a column header."""
    chosen = {"rows": rows, "columns": columns or [], "cells": []}
    page.session_state[key_of(page)] = {"selection": chosen}
    return page.run()


def selected_places(page: AppTest) -> list[int]:
    return list(page.session_state[key_of(page)]["selection"]["rows"])


def linked(page: AppTest) -> str | None:
    """Return the operation in the URL of the page."""
    given = page.query_params.get("gemm_op")
    return given[0] if isinstance(given, list) else given


def test_the_browser_gets_one_page_of_all_rows(registered: Draw, many: pl.DataFrame) -> None:
    page = registered("gemm", analysis=MANY)
    shown = table(page)
    times = many["kernel_time_us"].head(PAGE_ROWS) / 1000
    assert shown.value["kernel_time_us"].to_list() == times.to_list()
    assert config(shown)["kernel_time_us"]["label"] == "↓ Kernel time (ms)"
    assert any(f"{many.height:,} of {many.height:,} rows" in c.value for c in page.caption)


@pytest.mark.parametrize("column", ["pct_roofline", "flops_per_byte", "arguments"])
@pytest.mark.parametrize("direction", ["descending", "ascending"])
def test_a_link_sorts_all_rows_and_opens_the_page(
    registered: Draw, many: pl.DataFrame, column: str, direction: str
) -> None:
    page = registered("gemm", analysis=MANY, gemm_sort=column, gemm_order=direction, gemm_page="2")
    ordered = many.sort(
        column, descending=direction == "descending", nulls_last=True, maintain_order=True
    )
    expected = ordered.slice(PAGE_ROWS, PAGE_ROWS)["kernel_time_us"] / 1000
    assert table(page).value["kernel_time_us"].to_list() == expected.to_list()
    arrow = "↓" if direction == "descending" else "↑"
    labels = {name: str(own.get("label")) for name, own in config(table(page)).items()}
    assert [name for name, label in labels.items() if label.startswith(arrow)] == [column]
    assert not page.warning


def test_the_last_page_holds_the_rest(registered: Draw, many: pl.DataFrame) -> None:
    last = (many.height - 1) // PAGE_ROWS + 1
    page = registered("gemm", analysis=MANY, gemm_page=str(last))
    assert len(table(page).value) == many.height - (last - 1) * PAGE_ROWS


def test_search_finds_rows_of_every_page_and_is_literal(
    registered: Draw, many: pl.DataFrame
) -> None:
    page = registered("gemm", analysis=MANY, gemm_page="3")
    page.text_input(key="gemm_search").set_value("BMM").run()
    found = many.filter(pl.col("name") == "aten::bmm")
    assert table(page).value["kernel_time_us"].to_list() == (
        (found["kernel_time_us"].head(PAGE_ROWS) / 1000).to_list()
    )
    page.text_input(key="gemm_search").set_value(".*").run()
    assert any("The filters hide every row." in note.value for note in page.info)


def test_a_link_to_an_operation_opens_its_page_with_its_details(
    registered: Draw, many: pl.DataFrame
) -> None:
    place = 2 * PAGE_ROWS + 7
    page = registered("gemm", analysis=MANY, gemm_op=str(many["uid"][place]))
    assert (
        table(page).value["kernel_time_us"].to_list()[7] == (many["kernel_time_us"] / 1000)[place]
    )
    assert selected_places(page) == [7]
    assert any("target_pct" in d.value.columns for d in page.dataframe)


def test_a_selection_stays_under_filters_orders_and_pages_that_leave_the_row(
    registered: Draw, many: pl.DataFrame
) -> None:
    row = many.filter(pl.col("bound") == "memory").row(1, named=True)
    uid = str(row["uid"])
    page = registered("gemm", analysis=MANY, gemm_op=uid)
    assert linked(page) == uid
    page.button_group(key="gemm_bound").set_value("memory").run()
    assert linked(page) == uid
    assert selected_places(page) == [1]
    page.query_params["gemm_sort"] = "operation_count"
    page.run()
    assert linked(page) == uid
    page.slider(key="target").set_value(55).run()
    assert linked(page) == uid
    assert any("target_pct" in d.value.columns for d in page.dataframe)
    page.button_group(key="gemm_bound").set_value("compute").run()
    assert linked(page) is None
    assert not page.warning


def test_a_row_can_be_deselected(registered: Draw, many: pl.DataFrame) -> None:
    page = registered("gemm", analysis=MANY)
    select(page, rows=[3])
    assert linked(page) == str(many["uid"][3])
    select(page, rows=[])
    assert linked(page) is None


def test_details_are_closed_by_one_click(registered: Draw, many: pl.DataFrame) -> None:
    page = select(registered("gemm", analysis=MANY), rows=[3])
    page.button(key="gemm_close").click().run()
    assert linked(page) is None
    assert selected_places(page) == []
    assert not any("target_pct" in d.value.columns for d in page.dataframe)


def test_a_row_is_outlined_in_the_charts_of_the_same_run(
    registered: Draw, many: pl.DataFrame
) -> None:
    page = registered("gemm", analysis=MANY)
    assert set(outlined(page)) == {0}
    longest = many["uid"][0]
    select(page, rows=[0])
    assert linked(page) == str(longest)
    assert outlined(page)[0] == 1


def test_a_click_on_a_mark_selects_its_row_once(registered: Draw, many: pl.DataFrame) -> None:
    page = registered("gemm", analysis=MANY)
    page.session_state["gemm_panel_1"] = {"selection": {"picked": [{"uid": int(many["uid"][5])}]}}
    page.run()
    assert linked(page) == str(many["uid"][5])
    assert selected_places(page) == [5]
    page.button(key="gemm_close").click().run()
    assert linked(page) is None
    # The chart is a new one, in which the same mark can be clicked again.
    page.session_state["gemm_panel_1_1"] = {"selection": {"picked": [{"uid": int(many["uid"][5])}]}}
    page.run()
    assert linked(page) == str(many["uid"][5])


def test_only_the_headers_sort(registered: Draw, many: pl.DataFrame) -> None:
    page = registered("gemm", analysis=MANY, gemm_sort="operation_count")
    assert not any(box.key == "gemm_sort" for box in page.selectbox)
    assert config(table(page))["operation_count"]["label"] == "↓ Count"
    assert any(note.value == "Sorted by Count, largest first" for note in page.caption)


def test_names_and_shapes_are_short_and_the_details_have_the_full_ones(
    registered: Draw, many: pl.DataFrame
) -> None:
    row = many.row(0, named=True)
    page = registered("gemm", analysis=MANY, gemm_op=str(row["uid"]))
    first = table(page).value.iloc[0]
    sides = json.loads(row["params"])
    assert "::" not in first["name"]
    assert f"{sides['M']}×{sides['N']}×{sides['K']}" in first["arguments"]  # noqa: RUF001
    assert any(
        row["name"] in text.value and row["arguments"] in text.value.replace("\\", "")
        for text in page.markdown
    )


def test_operations_that_checkpointing_repeats_are_named(
    registered: Draw, home: Path, tmp_path: Path
) -> None:
    builder, sides = trace("AMD Instinct MI300X"), [[512, 512], [512, 512]]
    builder.python("torch/utils/checkpoint.py(343): checkpoint")
    builder.child("aten::mm", sides).launches("gemm", us=50.0)
    builder.thread(2, "pt_autograd_0").python("torch/utils/checkpoint.py(1500): recompute_fn")
    builder.child("aten::mm", sides).launches("gemm", us=40.0)
    entry = submit(Submission(builder.write(tmp_path / "checkpoint.json")))
    shown = table(registered("gemm", analysis=entry.id)).value
    assert shown["name"].to_list() == ["mm", "mm, recomputed"]


def test_without_efficiencies_the_place_of_the_calls_is_in_view(
    registered: Draw, home: Path, tmp_path: Path
) -> None:
    builder = trace("AMD Instinct MI300X").python("srt/models/qwen3.py(7): forward")
    path = builder.launches("rotary_kernel", us=50.0).write(tmp_path / "place.json")
    shown = table(registered("other", analysis=submit(Submission(path)).id), "called_from")
    assert shown.value["called_from"].to_list() == ["forward (qwen3.py:7)"]
    assert used_px(shown, "called_from") <= PAGE_PX


def test_long_places_are_cut_in_their_middle_and_whole_in_a_wide_window(
    registered: Draw, home: Path, tmp_path: Path
) -> None:
    place = "init_forward_metadata_of_a_replayed_graph_with_long_name (attention_backend.py:7)"
    builder = trace("AMD Instinct MI300X")
    builder.python("srt/attention_backend.py(7): " + place.partition(" ")[0])
    path = builder.launches("rotary_kernel", us=50.0).write(tmp_path / "long.json")
    page = registered("other", analysis=submit(Submission(path)).id)
    (shown,) = table(page, "called_from").value["called_from"]
    assert "…" in shown
    assert is_shown(shown, place)
    page.session_state["_is_wide"] = True
    page.run()
    assert table(page, "called_from").value["called_from"].to_list() == [place]


def test_long_shapes_are_cut_in_their_middle(registered: Draw, tmp_path: Path, home: Path) -> None:
    """A table cuts texts at the edge of a cell, where the rest can look like a whole shape."""
    sides = [[8, 64, 64 + n, 128] for n in range(5)]
    builder = trace("AMD Instinct MI300X").op("aten::cat_like", sides)
    path = builder.launches("kernel", us=50.0).write(tmp_path / "shapes.json")
    shown = table(registered("other", analysis=submit(Submission(path)).id), "arguments")
    (text,) = shown.value["arguments"]
    assert "…" in text
    assert text.startswith("8×64×64×128")  # noqa: RUF001
    assert text.endswith("68×128 bf16")  # noqa: RUF001


def test_a_column_of_another_page_is_corrected_with_a_word(
    registered: Draw, many: pl.DataFrame
) -> None:
    for parameters in ({"gemm_sort": "salary"}, {"gemm_page": "4000"}, {"gemm_page": "x"}):
        page = registered("gemm", analysis=MANY, **parameters)
        (value,) = parameters.values()
        assert any(value in warning.value for warning in page.warning)
        assert table(page).value["kernel_time_us"][0] == (many["kernel_time_us"] / 1000)[0]


def test_shapes_are_computed_for_the_buttons_of_the_open_finding_only(
    registered: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = trace(device="AMD Instinct MI300X")
    for number in range(90):
        built.op("aten::mm", [[256, 256], [256, 16 + number]]).launches("gemm", us=40.0)
    made = submit(Submission(built.write(tmp_path / "many.json"))).id
    asked: list[object] = []

    def counting(arguments: str | None, params: str | None) -> str | None:
        asked.append(arguments)
        return call_shapes(arguments, params)

    monkeypatch.setattr(category_page, "call_shapes", counting)
    drawn = registered("gemm", made)
    assert not drawn.exception
    assert 0 < len(asked) <= OPERATIONS_SHOWN


def test_a_default_order_that_changes_is_no_choice() -> None:
    def draw() -> None:
        import streamlit as st

        from jarvis.dashboard.session import links
        from jarvis.dashboard.widgets.row_order import order_of

        links.begin_page("gemm")
        default = st.selectbox("Default", ["time", "saving"])
        st.text(order_of("gemm", {"time": "Time", "saving": "Saving"}, default).column)

    page = AppTest.from_function(draw).run()
    page.selectbox[0].set_value("saving").run()
    assert page.text[0].value == "saving"
    assert "gemm_sort" not in page.query_params


def test_a_long_name_has_the_room_that_its_shapes_leave(registered: Draw, sample_id: str) -> None:
    shown = table(registered("sdpa_fwd", analysis=sample_id))
    widths = config(shown)
    for name in ("name", "arguments"):
        longest = max(map(len, shown.value[name]))
        assert int(str(widths[name]["width"])) > 6 * longest


def test_a_small_efficiency_is_not_shown_as_0(registered: Draw, sample_id: str) -> None:
    """Bars have one format for all rows; below 0.01% the column is text without bars."""
    shown = table(registered("gemm", analysis=sample_id))
    assert "<0.01%" in set(shown.value["percent_of_category"])
    assert config(shown)["pct_roofline"]["type_config"]["format"] == "%,.1f%%"  # type: ignore[index]
