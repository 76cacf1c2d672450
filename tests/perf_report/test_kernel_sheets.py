"""The kernel summary and the sheets about short kernels."""

import polars as pl
import pytest

from jarvis.tracelens.options import ReportOptions
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

ROWS = (
    "parent_op_category",
    "parent_cpu_op",
    "kernel_name",
    "dur_us_sum",
    "dur_us_count",
    "percent_of_kernels",
)


def report(builder: TraceBuilder, **options: object) -> TraceLensReport:
    return TraceLensReport(builder.read(), None, options=ReportOptions(**options))  # type: ignore[arg-type]


def mixed() -> TraceBuilder:
    builder = trace().op("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=30)
    builder.op("aten::mm", [[8, 4], [4, 2]]).launches("gemm", us=50)
    builder.op("c10d::allreduce_").launches("ncclDevKernel", us=10)
    builder.up().graph(("replayed", 5.0))
    builder.launches("bare", us=3).unlinked("early", us=2)
    return builder.op("aten::to").launches("Memcpy HtoD", us=9, cat="gpu_memcpy")


def test_kernels_are_grouped_by_launcher() -> None:
    summary = report(mixed()).kernel_summary
    assert summary.select(ROWS).rows() == [
        ("GEMM", "aten::mm", "gemm", 80.0, 2, 80.0),
        ("other", "c10d::allreduce_", "ncclDevKernel", 10.0, 1, 10.0),
        ("graph", "cudaGraphLaunch", "replayed", 5.0, 1, 5.0),
        ("runtime", "cudaLaunchKernel", "bare", 3.0, 1, 3.0),
        (None, None, "early", 2.0, 1, 2.0),
    ]


def test_statistics_of_a_row() -> None:
    row = report(mixed()).kernel_summary.row(0, named=True)
    assert row["kernel_stream"] == 7
    assert (row["dur_us_mean"], row["dur_us_min"], row["dur_us_max"]) == (40.0, 30.0, 50.0)


def test_the_share_of_total_time_is_of_the_timeline() -> None:
    builder = trace().op("aten::mm").launches("a", us=30, at_us=2000)
    builder.launches("b", us=10, at_us=2090)  # the timeline spans 100 us
    shares = report(builder).kernel_summary["percent_of_total"].to_list()
    assert shares == [pytest.approx(30.0), pytest.approx(10.0)]


def test_rows_differ_by_stream() -> None:
    builder = trace().op("aten::a").launches("k", us=2, stream=7).launches("k", us=1, stream=8)
    assert report(builder).kernel_summary["kernel_stream"].to_list() == [7, 8]


def short(**options: object) -> TraceLensReport:
    builder = trace()
    for us in (1.0, 1.5, 3.0, 9.999, 10.0):
        builder.op("aten::neg", [[4]]).launches("k", us=us)
    builder.op("aten::bare").launches("k", us=2)  # no arguments recorded
    builder.up().launches("k", us=2)  # no operator
    return report(builder, **options)


def test_the_histogram_has_equal_bins_from_shortest_to_longest() -> None:
    histogram = short(short_kernel_histogram_bins=3, short_kernel_threshold_us=9.5)
    assert histogram.short_kernel_histogram.rows() == [
        (1.0, pytest.approx(5 / 3), 2),  # 1, 1.5
        (pytest.approx(5 / 3), pytest.approx(7 / 3), 2),  # 2, 2
        (pytest.approx(7 / 3), 3.0, 1),
    ]


def test_a_kernel_as_long_as_the_threshold_is_not_short() -> None:
    counts = short().short_kernel_histogram["count"]
    assert counts.len() == 100
    assert counts.sum() == 6


def test_short_kernels_by_operator_and_arguments() -> None:
    summary = short().short_kernels_summary
    assert summary.drop("percent_of_total").rows() == [
        (
            "aten::neg",
            "((4,),)",
            "((1,),)",
            "('',)",
            "k",
            15.499,
            4,
            pytest.approx(3.87475),
        )
    ]


def test_the_top_short_kernels_are_selected() -> None:
    builder = trace()
    for dims, us in (([[1]], 1.0), ([[2]], 3.0), ([[3]], 2.0)):
        builder.op("aten::neg", dims).launches("k", us=us)
    kept = report(builder, topk_short_kernels=2).short_kernels_summary
    assert kept["input_dims"].to_list() == ["((2,),)", "((3,),)"]


def test_without_short_kernels_there_are_no_sheets_of_them() -> None:
    builder = trace().op("aten::mm").launches("gemm", us=99)
    assert report(builder, short_kernel_study=True).short_kernel_histogram.is_empty()
    assert "short_kernel_histogram" not in report(builder, short_kernel_study=True).sheets()


def test_a_trace_without_operators_has_rows_by_kernel_name() -> None:
    builder = trace().launches("gemm", us=8, call="hipLaunchKernel").unlinked("early", us=2)
    options = {"enable_kernel_summary": True, "short_kernel_study": True}
    sheets = report(builder, **options).sheets()
    assert list(sheets) == [
        "gpu_timeline",
        "kernel_summary",
        "short_kernel_histogram",
        "short_kernels_summary",
    ]
    assert sheets["kernel_summary"].select("Parent op category", "Kernel name").rows() == [
        ("runtime", "gemm"),
        (None, "early"),
    ]
    assert sheets["short_kernels_summary"].columns[:2] == [
        "Kernel name",
        "Short Kernel duration (µs) sum",
    ]
    assert pl.Series(sheets["short_kernels_summary"]["Kernel name"]).to_list() == ["gemm", "early"]
