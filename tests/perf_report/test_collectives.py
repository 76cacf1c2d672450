"""Communication kernels."""

from typing import Any

import pytest

from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

METADATA: dict[str, Any] = {
    "Collective name": "allreduce",
    "In msg nelems": 1 << 20,
    "Out msg nelems": 1 << 20,
    "In split size": "[]",
    "Out split size": "[]",
    "Group size": 8,
    "dtype": "BFloat16",
    "Process Group Name": "0",
    "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
}
KERNEL = "ncclDevKernel_Generic"


def all_reduce(builder: TraceBuilder, us: float, **changes: Any) -> TraceBuilder:
    return builder.launches(KERNEL, us=us, **{**METADATA, **changes})


def report(builder: TraceBuilder) -> TraceLensReport:
    return TraceLensReport(builder.read(), None)


def test_equal_messages_are_one_row() -> None:
    builder = all_reduce(all_reduce(trace().op("c10d::allreduce_"), 10), 30)
    row = report(builder).coll_analysis.row(0, named=True)
    assert row["operation_count"] == 2
    assert (row["dur_us_sum"], row["dur_us_mean"]) == (40.0, 20.0)
    assert row["dur_us_std"] == pytest.approx(200**0.5)
    assert (row["in_msg_mb"], row["out_msg_mb"]) == (2.0, 2.0)
    assert row["rank"] == 0


def test_kernels_without_full_metadata_stay_out_of_the_sheet_only() -> None:
    builder = all_reduce(trace().op("c10d::allreduce_"), 10).launches(KERNEL, us=5)
    found = report(builder)
    assert found.coll_analysis["operation_count"].to_list() == [1]
    assert found.collectives["dur_us"].to_list() == [10.0, 5.0]
    assert found.collectives["collective"].to_list() == ["allreduce", None]


def test_an_unknown_element_size_leaves_the_message_size_unknown() -> None:
    builder = all_reduce(trace().op("c10d::allreduce_"), 10, dtype="Strange")
    found = report(builder)
    assert found.coll_analysis["in_msg_mb"].to_list() == [None]
    assert found.collectives["message_mb"].to_list() == [None]


def test_messages_of_every_dtype_have_a_size_though_the_sheet_knows_few() -> None:
    builder = all_reduce(trace().op("c10d::allreduce_"), 10, dtype="Float8_e4m3fn")
    found = report(builder)
    assert found.coll_analysis["in_msg_mb"].to_list() == [None]
    assert found.collectives["message_mb"].to_list() == [1.0]


def test_the_message_of_a_collective_is_the_larger_one() -> None:
    builder = trace().op("c10d::allgather")
    all_reduce(builder, 10, **{"Collective name": "allgather", "Out msg nelems": 8 << 20})
    assert report(builder).collectives["message_mb"].to_list() == [16.0]


def test_custom_all_reduce_kernels_are_named() -> None:
    builder = trace().op("custom").launches("void vllm::cross_device_reduce_1stage<2>")
    assert report(builder).collectives["collective"].to_list() == ["allreduce"]


def test_a_missing_group_has_a_name() -> None:
    builder = all_reduce(trace().op("c10d::allreduce_"), 10, **{"Process Group Name": None})
    assert report(builder).coll_analysis["process_group_name"].to_list() == ["Unknown_Group"]


def test_unlinked_kernels_count() -> None:
    builder = trace().unlinked(KERNEL, us=4, **METADATA).op("aten::mm").launches("gemm")
    assert report(builder).coll_analysis["dur_us_sum"].to_list() == [4.0]
