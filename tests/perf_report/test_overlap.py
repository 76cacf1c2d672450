"""Work of other streams that overlaps the kernels of a call."""

import polars as pl

from jarvis.schemas import columns
from jarvis.tracelens.options import ReportOptions
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

MM = [[8, 4], [4, 2]]


def report(builder: TraceBuilder, **options: object) -> TraceLensReport:
    chosen = ReportOptions(include_overlap_info=True, **options)  # type: ignore[arg-type]
    return TraceLensReport(builder.read(), None, options=chosen)


def overlapping() -> TraceBuilder:
    """A gemm of 100 us; 30 us of it under one collective, 20 us under a copy."""
    builder = trace().op("aten::mm", MM).launches("gemm", us=100, at_us=2000)
    builder.op("c10d::allreduce_").launches("nccl_a", us=50, at_us=2070, stream=8)
    builder.op("aten::copy_").launches("copy", us=20, at_us=2020, stream=9, cat="gpu_memcpy")
    return builder


def unique(found: TraceLensReport) -> dict[str, dict[str, object]]:
    rows = found.overlap_sheets["ops_unique_args"].iter_rows(named=True)
    return {row["name"]: row for row in rows}


def test_the_partners_and_the_overlapped_share_of_a_call() -> None:
    mm = unique(report(overlapping()))["aten::mm"]
    assert mm["overlapping_kernel_names"] == ["copy", "nccl_a"]  # in order of time
    assert mm["overlap_pct_mean"] == 0.5
    assert mm["overlap_pct_std"] is None
    partners = mm["overlapping_kernels"]
    assert isinstance(partners, list)
    assert [(p["name"], p["stream"], p["total_duration_us"]) for p in partners] == [
        ("copy", 9, 20.0),
        ("nccl_a", 8, 50.0),
    ]
    assert mm["trunc_overlapping_kernels"] == (
        "[{'name': 'copy', 'stream': 9, 'mean_duration_us': 20.0}, "
        "{'name': 'nccl_a', 'stream': 8, 'mean_duration_us': 50.0}]"
    )


def test_the_other_side_of_a_pair_overlaps_too() -> None:
    copy = unique(report(overlapping()))["aten::copy_"]
    assert (copy["overlapping_kernel_names"], copy["overlap_pct_mean"]) == (["gemm"], 1.0)


def test_a_call_without_partners_has_none() -> None:
    builder = trace().op("aten::mm", MM).launches("gemm", us=10)
    row = unique(report(builder))["aten::mm"]
    assert (row["overlapping_kernel_names"], row["overlap_pct_mean"]) == (None, None)
    assert (row["overlapping_kernels"], row["trunc_overlapping_kernels"]) == ([], None)


def test_less_than_a_microsecond_is_no_overlap() -> None:
    builder = trace().op("aten::mm", MM).launches("gemm", us=10, at_us=2000)
    builder.op("aten::a").launches("a", us=10, at_us=2009.001, stream=8)
    assert unique(report(builder))["aten::mm"]["overlapping_kernel_names"] is None
    builder = trace().op("aten::mm", MM).launches("gemm", us=10, at_us=2000)
    builder.op("aten::a").launches("a", us=10, at_us=2009, stream=8)
    assert unique(report(builder))["aten::mm"]["overlap_pct_mean"] == 0.1


def test_work_of_the_same_stream_is_no_partner() -> None:
    builder = trace().op("aten::mm", MM).launches("gemm", us=10, at_us=2000)
    builder.op("aten::a").launches("a", us=10, at_us=2005)
    assert unique(report(builder))["aten::mm"]["overlapping_kernel_names"] is None


def test_overlapping_launchers_count_a_kernel_once() -> None:
    builder = trace().op("aten::mm", MM).launches("gemm", us=100, at_us=2000)
    builder.op("aten::a").launches("a", us=40, at_us=2000, stream=8)
    builder.op("aten::b").launches("b", us=40, at_us=2020, stream=9)
    assert unique(report(builder))["aten::mm"]["overlap_pct_mean"] == 0.6


def test_unlinked_work_overlaps_where_the_timeline_counts_it() -> None:
    builder = trace().op("aten::mm", MM).launches("gemm", us=10, at_us=2000)
    builder.unlinked("early", us=1000, stream=8)  # from the start of the trace on
    assert unique(report(builder))["aten::mm"]["overlapping_kernel_names"] is None
    counted = report(builder, include_unlinked_kernels=True)
    assert unique(counted)["aten::mm"]["overlapping_kernel_names"] == ["early"]


def test_calls_with_other_partners_are_other_rows() -> None:
    builder = overlapping().op("aten::mm", MM).launches("gemm", us=5, at_us=4000)
    found = report(builder)
    for table in (
        found.overlap_sheets["ops_unique_args"],
        found.overlap_sheets["unified_perf_summary"],
        found.roofline_sheets["GEMM_kl_overlap"],
    ):
        rows = table.filter(pl.col("name") == "aten::mm")
        assert rows["overlapping_kernel_names"].to_list() == [["copy", "nccl_a"], None]
    assert found.roofline_sheets["GEMM"].height == 1


def test_overlap_sheets_follow_their_sheets_with_the_names_second() -> None:
    sheets = report(overlapping()).sheets()
    assert list(sheets)[3:9] == [
        "ops_unique_args",
        "ops_unique_args_kl_overlap",
        "unified_perf_summary",
        "unified_perf_summary_kl_overlap",
        "GEMM",
        "GEMM_kl_overlap",
    ]
    sheet = sheets["ops_unique_args_kl_overlap"]
    assert sheet.columns[1] == "overlapping_kernel_names"
    after = sheet.columns.index("trunc_kernel_details") + 1
    assert sheet.columns[after : after + 7] == [
        "overlapping_kernels_details_summary",
        "trunc_overlapping_kernels_details",
        *(f"overlap_pct_{name}" for name in ("mean", "median", "std", "min", "max")),
    ]
    assert "overlap_pct_mean" not in sheets["ops_unique_args"].columns
    assert {c.name for c in columns("roofline") if c.optional} >= {"overlap_pct_mean"}
