"""The step around an op, from the trace to its cost."""

from typing import Any

import polars as pl
import pytest

from jarvis.perf_models import all_models
from jarvis.perf_report import PerfReport
from jarvis.perf_report.annotations import step_annotations
from jarvis.tracelens.report import TraceLensReport
from tests.builders import TraceBuilder, trace

ATTENTION = "vllm::unified_attention_with_output"
CALLS = pl.DataFrame(
    {
        "uid": [1, 2, 3, 4],
        "name": [ATTENTION, "vllm::gdn_attention_core", "aten::mm", ATTENTION],
        "ts_ns": [100, 400, 400, None],
        "dur_ns": [50, 50, 50, 50],
    }
)
LENGTHS = "execute_3_context_1(sq10sk30sqsq100sqsk300)_generation_2(sq2sk50sqsq2sqsk50)"
INNER = "step[DECODE bs=2 g_sq=2 g_sk=50 g_sqsq=2 g_sqsk=50]"
NATIVE = "execute_context_1(10)_generation_2(2)"

Q, K, CACHE = [12, 4, 8], [12, 2, 8], [10, 16, 2, 8]
ANNOTATED: dict[str, list[Any]] = {
    ATTENTION: [Q, K, K],
    "aiter::mha_varlen_fwd": [Q, K, K],
    "aiter::fmha_v3_varlen_fwd": [Q, K, K],
    "aiter::mha_batch_prefill": [Q, K, K],
    "pseudo_mla_prefill_fwd": [Q, K, K],
    "pseudo_mla_decode_fwd": [Q, K],
    "sglang_profiler::tilelang_kernel_tilelang_sparse_fwd": [Q, K],
    "sglang_profiler::attention_paged_attention_ragged": [[2], [2], Q, CACHE, CACHE],
    "aiter::pa_decode_gluon": [Q, Q, CACHE],
    "pseudo_v4_paged_decode_swa": [Q, [99, 8]],
    "pseudo_v4_paged_decode_csa": [Q, [99, 8]],
    "pseudo_v4_paged_decode_hca": [Q, [99, 8]],
    "vllm::gdn_attention_core": [[12, 48], [12, 4], [12, 4], [12, 4, 8]],
    "aiter::linear_attention_with_output_base": [[12, 48], [12, 4], [12, 4], [12, 4, 8]],
}


def _around(*steps: tuple[str, int, int], cat: str = "user_annotation") -> dict[int, str | None]:
    schema = {"name": pl.String, "ts_ns": pl.Int64, "dur_ns": pl.Int64}
    frame = pl.DataFrame(steps, schema=schema, orient="row")
    return dict(step_annotations(CALLS, frame.with_columns(cat=pl.lit(cat))).iter_rows())


def _annotated(builder: TraceBuilder, step: str, start: float = 0, us: float = 9000) -> None:
    event = {"ph": "X", "cat": "user_annotation", "name": step, "pid": 100, "tid": 1}
    builder.events.append(event | {"ts": start, "dur": us, "args": {}})


def test_only_ops_that_read_it_are_given_the_text_of_their_step() -> None:
    assert _around((LENGTHS, 0, 200), (NATIVE, 300, 200)) == {1: LENGTHS, 2: NATIVE}


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ((), None),
        ((("ProfilerStep#1", 0, 500), (LENGTHS, 50, 200)), LENGTHS),
        ((("ProfilerStep#1", 0, 500),), None),
        (((LENGTHS, 0, 500), (INNER, 90, 100)), INNER),
        (((LENGTHS, 0, 500), (INNER, 20, 30), (INNER, 60, 30)), LENGTHS),
        (((LENGTHS, 0, 500), (NATIVE, 90, 100)), LENGTHS),
        (((NATIVE, 0, 500), (LENGTHS, 200, 100)), NATIVE),
        (((LENGTHS, 101, 500),), None),
        (((LENGTHS, 0, 149),), None),
        (((LENGTHS, 0, 150),), LENGTHS),
    ],
)
def test_the_innermost_step_with_lengths_counts_else_the_innermost(
    steps: tuple[tuple[str, int, int], ...], found: str | None
) -> None:
    assert _around(*steps)[1] == found


def test_a_step_on_the_gpu_is_not_around_a_call_of_the_host() -> None:
    assert _around((LENGTHS, 0, 500), cat="gpu_user_annotation")[1] is None


def test_every_model_that_reads_annotations_is_listed() -> None:
    assert {model.name for model in all_models() if model.needs_annotation} == ANNOTATED.keys()


@pytest.mark.parametrize("name", ANNOTATED)
def test_every_model_that_reads_annotations_is_given_them(name: str) -> None:
    with_step, without = trace(), trace()
    for builder in (with_step, without):
        builder.op(name, ANNOTATED[name]).launches("attention", us=10)
    _annotated(with_step, LENGTHS)
    operations = PerfReport(with_step.read(), None).operations
    assert operations["has_perf_model"].to_list() == [True]
    assert operations["flops"].item() > 0
    assert PerfReport(without.read(), None).operations["has_perf_model"].to_list() == [False]


def test_attention_is_priced_by_the_lengths_in_its_step() -> None:
    builder = trace()
    builder.op(ATTENTION, [Q, K, K, Q]).launches("attention", us=10)
    _annotated(builder, LENGTHS)
    report = TraceLensReport(builder.read(), None, strict=True)
    sheet = report.roofline_sheets["InferenceAttention_fwd"]
    assert sheet["gflops"].to_list() == [38400 / 1e9]
    assert sheet["param_c_sqsk"].to_list() == [300]


def test_a_row_of_several_steps_has_their_mean_cost() -> None:
    builder = trace()
    for start, keys in ((1000.0, 50), (2000.0, 150)):
        builder.waits(start - builder._time)
        builder.op(ATTENTION, [Q, K, K, Q]).launches("attention", us=10).up()
        step = f"step[DECODE bs=2 g_sq=2 g_sk={keys} g_sqsq=2 g_sqsk={keys}]"
        _annotated(builder, step, start - 1, us=900)
    operations = PerfReport(builder.read(), None, strict=True).operations
    assert operations["operation_count"].to_list() == [2]
    assert operations["flops"].item() == 2 * 4 * 16 * 100
    assert operations["bytes"].item() == 2 * 6 * 16 * 2 + (100 - 2) * 2 * 16 * 2
    params = operations["params"].str.json_decode(pl.Struct({"N_Q": pl.Int64, "g_sk": pl.Int64}))
    assert params.to_list() == [{"N_Q": 12, "g_sk": None}]
