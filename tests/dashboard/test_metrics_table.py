"""The table of operations: the server filters, sorts and pages all rows."""

import shutil
from pathlib import Path

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Dataframe

from jarvis.core.workspace import RunPaths
from jarvis.dashboard.widgets.row_order import PAGE_ROWS
from jarvis.run import Run, category_table
from tests.dashboard.conftest import Draw

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


def table(page: AppTest) -> Dataframe:
    assert not page.exception
    return next(d for d in page.dataframe if "state" in d.value.columns)


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
    times = many["kernel_time_us"].head(PAGE_ROWS)
    assert shown.value["kernel_time_us"].to_list() == times.to_list()
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
    expected = ordered[column].slice(PAGE_ROWS, PAGE_ROWS).to_list()
    assert table(page).value[column].to_list() == expected
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
        found["kernel_time_us"].head(PAGE_ROWS).to_list()
    )
    page.text_input(key="gemm_search").set_value(".*").run()
    assert any("The filters hide every row." in note.value for note in page.info)


def test_a_link_to_an_operation_opens_its_page_with_its_details(
    registered: Draw, many: pl.DataFrame
) -> None:
    place = 2 * PAGE_ROWS + 7
    page = registered("gemm", analysis=MANY, gemm_op=str(many["uid"][place]))
    assert table(page).value["kernel_time_us"].to_list()[7] == many["kernel_time_us"][place]
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
    page.selectbox(key="gemm_sort").set_value("operation_count").run()
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


def test_a_column_of_another_page_is_corrected_with_a_word(
    registered: Draw, many: pl.DataFrame
) -> None:
    for parameters in ({"gemm_sort": "salary"}, {"gemm_page": "4000"}, {"gemm_page": "x"}):
        page = registered("gemm", analysis=MANY, **parameters)
        (value,) = parameters.values()
        assert any(value in warning.value for warning in page.warning)
        assert table(page).value["kernel_time_us"][0] == many["kernel_time_us"][0]
