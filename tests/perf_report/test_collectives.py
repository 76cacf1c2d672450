"""Communication kernels."""

import json
from pathlib import Path
from typing import Any

import pytest

from jarvis.perf_report import PerfReport
from jarvis.perf_report.collectives import group_ranks
from jarvis.trace import read_trace
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace
from tests.builders import all_reduce as recorded

METADATA = recorded(1 << 20, 8, dtype="BFloat16")
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
    assert found.collectives["collective"].to_list() == ["allreduce", "allreduce"]
    assert found.collectives["kind_source"].to_list() == ["args", "host"]


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


def test_nothing_names_the_kind_of_a_generic_kernel() -> None:
    row = report(trace().op("custom::op").launches(KERNEL)).collectives.row(0, named=True)
    assert (row["kind"], row["kind_source"], row["collective"]) == ("unknown", "name", None)


@pytest.mark.parametrize(
    ("recorded", "kind"),
    [
        ("allreduce_coalesced", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("all_gather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("all_to_allv", "all_to_all_v"),
        ("all_to_all", "all_to_all"),
        ("broadcast", "broadcast"),
        ("_reduce_oop", "reduce"),
        ("send", "send_recv"),
        ("gather", "gather"),
        ("scatter", "scatter"),
    ],
)
def test_recorded_names_have_one_spelling_of_kinds(recorded: str, kind: str) -> None:
    builder = all_reduce(trace().op("op"), 10, **{"Collective name": recorded})
    row = report(builder).collectives.row(0, named=True)
    assert (row["kind"], row["collective"]) == (kind, recorded)


def test_arguments_are_those_of_the_record_around_the_launch(tmp_path: Path) -> None:
    arguments = {**METADATA, "Process Group Description": "default_pg", "Seq": 7, "Rank": 3}
    arguments |= {
        "Is asynchronized op": True,
        "Comms Id": "0xab",
        "Process Group Ranks": "[0, ...]",
    }
    arguments |= {"Global rank start": 0, "Global rank stride": 2}
    built = trace().op("record_param_comms").launches(KERNEL, us=5)
    next(e for e in built.events if e["name"] == "record_param_comms")["args"] |= arguments
    row = report(built).collectives.row(0, named=True)
    assert (row["kind"], row["kind_source"], row["args_source"]) == ("all_reduce", "args", "host")
    assert (row["in_bytes"], row["out_bytes"], row["group_size"]) == (2 << 20, 2 << 20, 8)
    assert (row["pg_desc"], row["seq"], row["group_rank"]) == ("default_pg", 7, 3)
    assert (row["is_async"], row["comms_id"]) == (True, "0xab")
    assert json.loads(row["pg_ranks"]) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert row["process_group_ranks"] == "[0, ...]"
    assert report(built).coll_analysis.is_empty()


@pytest.mark.parametrize(
    ("listed", "start", "stride", "size", "ranks"),
    [
        ("[0, 1, 2]", None, None, 3, [0, 1, 2]),
        ("[0, 1, ..., ...]", 0, 1, 5, [0, 1, 2, 3, 4]),
        ("[3, 5, ...]", 3, 2, 4, [3, 5, 7, 9]),
        ("[3, 6, ...]", 3, 2, 4, None),
        ("[0, 1, ...]", None, 1, 4, None),
        (None, 4, 1, 2, [4, 5]),
        (None, 0, 1, 1 << 40, None),
        ("[]", None, None, None, None),
        ("rubbish", None, None, None, None),
    ],
)
def test_cut_lists_of_ranks_are_completed(
    listed: str | None, start: int | None, stride: int | None, size: int | None, ranks: Any
) -> None:
    found = group_ranks(listed, start, stride, size)
    assert (found and json.loads(found)) == ranks


def test_time_beside_compute_and_alone() -> None:
    built = trace().op("aten::mm").launches("gemm", us=10, at_us=2000)
    all_reduce(built, 10, stream=9, at_us=2004)
    row = report(built).collectives.row(0, named=True)
    assert (row["overlap_ns"], row["exposed_ns"]) == (6_000, 4_000)


def test_the_step_of_a_collective_and_its_recorded_number() -> None:
    built = trace()
    for number in (12, 13):
        all_reduce(built.annotation(f"ProfilerStep#{number}").child("c10d::allreduce_"), 10).up(2)
    found = report(built)
    assert found.collectives["step"].to_list() == [0, 1]
    assert found.steps["number"].to_list() == [12, 13]


def test_recorded_sizes_and_kinds_without_arguments(reference_root: Path) -> None:
    """A trace of PyTorch before kernels and calls had arguments: eight kernels of NCCL."""
    kinds = ["all_to_all"] * 4 + ["all_reduce", "all_to_all", "all_reduce", "all_reduce"]
    sent = [24_576, 192, 1_536, 13_568, 1_576_964, 24_576, 448, 907_840]
    for path in sorted((reference_root / "ranks" / "dlrm-v100").iterdir()):
        found = PerfReport(read_trace(path), None).collectives
        assert found["kind"].to_list() == kinds
        assert found["in_bytes"].to_list() == sent
        assert found["kind_source"].unique().to_list() == ["host"]
