"""The schemas of tables, and reports against them."""

from pathlib import Path

import polars as pl
import pytest

from jarvis import comparison, schemas
from jarvis.core.errors import MissingTableError
from jarvis.hardware import load_hardware
from jarvis.schemas import ranks, serving, steps
from jarvis.schemas.rows import RowsByUid
from jarvis.tracelens.report import OPTIONAL_TABLES, TABLES, TraceLensReport
from tests.builders import trace


def report(with_hardware: bool) -> TraceLensReport:
    builder = trace().process("python").op("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=12)
    builder.op("aten::copy_").launches("Memcpy DtoD (Device -> Device)", cat="gpu_memcpy")
    builder.op("c10d::allreduce_").launches("ncclDevKernel")
    return TraceLensReport(builder.read(), load_hardware().get("H200") if with_hardware else None)


@pytest.mark.parametrize("with_hardware", [True, False])
@pytest.mark.parametrize("name", [*TABLES, *OPTIONAL_TABLES, "GEMM"])
def test_a_report_keeps_the_schema(name: str, with_hardware: bool) -> None:
    frame = report(with_hardware).table(name)
    table = name if name in schemas.TABLES else "roofline"
    promised = {c.name: c for c in schemas.columns(table)}
    parameters = [c for c in frame.columns if c.startswith(schemas.PARAM_PREFIX)]
    required = [c.name for c in promised.values() if not c.optional and c.name != schemas.ANY_PARAM]
    assert [c for c in frame.columns if c in required] == required
    assert set(frame.columns) <= set(promised) | set(parameters)
    for column in set(frame.columns) - set(parameters):
        assert frame.schema[column] == promised[column].dtype, column


def test_every_table_of_a_report_has_a_schema_and_the_other_way_round() -> None:
    others = {"roofline", "trace_health", *serving.CAPTURES, *serving.TABLES}
    others |= {*steps.SIMULATION, *comparison.TABLES, *ranks.TABLES}
    assert {*TABLES, *OPTIONAL_TABLES} | others == set(schemas.TABLES)


@pytest.mark.parametrize("table", list(schemas.TABLES))
def test_columns_have_one_description_and_unique_labels(table: str) -> None:
    columns = schemas.columns(table)
    assert len({c.name for c in columns}) == len({c.label for c in columns}) == len(columns)
    assert all(c.meaning for c in columns)


def test_labels_of_parameters_are_made_for_their_name() -> None:
    assert schemas.label("roofline", "param_M") == "param: M"
    frame = pl.DataFrame({"name": ["aten::mm"], "param_M": [8]})
    assert schemas.labeled(frame, "roofline").columns == ["name", "param: M"]


def test_unknown_tables_and_columns_are_errors_that_list_the_known_ones() -> None:
    with pytest.raises(MissingTableError, match="gpu_timeline"):
        schemas.columns("nothing")
    with pytest.raises(MissingTableError, match="no such column"):
        schemas.label("gpu_timeline", "param_M")
    with pytest.raises(MissingTableError, match="operations"):
        report(False).table("nothing")


def test_sheets_have_flat_cells_under_their_labels() -> None:
    sheets = report(True).sheets()
    for sheet, frame in sheets.items():
        assert not any(dtype.is_nested() for dtype in frame.dtypes), sheet
        assert pl.Boolean not in frame.dtypes, sheet
    row = sheets["unified_perf_summary"].row(0, named=True)
    assert row["has_perf_model"] == "True"
    assert row["Input Dims"] == "((8, 4), (4, 2))"
    assert sheets["GEMM"]["Input Dims_first"].to_list() == ["[[8, 4], [4, 2]]"]
    assert sheets["ops_summary"]["Categories"].to_list()[0] == "['GEMM']"
    assert "np." not in row["kernel_details_summary"]


def test_a_trace_without_host_ops_has_the_timeline_only() -> None:
    only_gpu = TraceLensReport(trace().launches("gemm", call="hipLaunchKernel").read(), None)
    assert list(only_gpu.sheets()) == ["gpu_timeline"]
    assert only_gpu.operations["kernel_time_us"].to_list() == [10.0]


def test_the_metrics_page_matches_the_schemas() -> None:
    page = Path(__file__).parent.parent / "docs" / "metrics.md"
    assert page.read_text(encoding="utf-8") == schemas.schemas_markdown()


def test_rows_are_found_by_their_uids_in_the_order_of_the_table() -> None:
    rows = pl.DataFrame({"uid": [7, 2, 9, 7], "name": ["a", "b", "c", "d"]})
    assert RowsByUid(rows).of([9, 7, 7, 1]).rows() == [(7, "a"), (9, "c"), (7, "d")]
    assert RowsByUid(rows).of([]).equals(rows.clear())
