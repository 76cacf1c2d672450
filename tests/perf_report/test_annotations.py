"""The step around an attention op, from the trace to its cost."""

import polars as pl
import pytest

from jarvis.perf_report.annotations import step_annotations
from jarvis.tracelens.report import TraceLensReport
from tests.builders import trace

ATTENTION = "vllm::unified_attention_with_output"
CALLS = pl.DataFrame(
    {
        "uid": [1, 2, 3, 4],
        "name": [ATTENTION, f"{ATTENTION}_base", "aten::mm", ATTENTION],
        "ts_ns": [100, 400, 400, None],
        "dur_ns": [50, 50, 50, 50],
    }
)


def _around(*steps: tuple[str, int, int]) -> dict[int, str]:
    frame = pl.DataFrame(
        steps, schema={"name": pl.String, "ts_ns": pl.Int64, "dur_ns": pl.Int64}, orient="row"
    )
    return dict(step_annotations(CALLS, frame).iter_rows())


def test_only_attention_is_given_the_text_of_its_step() -> None:
    assert _around(("step A", 0, 200), ("step B", 300, 200)) == {1: "step A", 2: "step B"}


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ((), "NA"),
        ((("inner", 90, 100), ("outer", 0, 500)), "outer"),
        ((("first", 0, 150), ("second", 100, 51)), "second"),
        ((("later", 101, 500),), "NA"),
        ((("short", 0, 120),), "NA"),
    ],
)
def test_the_earliest_that_ends_after_the_call_counts(
    steps: tuple[tuple[str, int, int], ...], found: str
) -> None:
    assert _around(*steps)[1] == found


def test_attention_is_priced_by_the_lengths_in_its_step() -> None:
    builder = trace()
    dims = [[12, 4, 8], [12, 2, 8], [12, 2, 8], [12, 4, 8]]
    builder.op(ATTENTION, dims).launches("attention", us=10)
    step = "execute_3_context_1(sq10sk30sqsq100sqsk300)_generation_2(sq2sk50sqsq2sqsk50)"
    event = {"ph": "X", "cat": "user_annotation", "name": step, "pid": 100, "tid": 1}
    builder.events.append(event | {"ts": 0, "dur": 9000, "args": {}})
    report = TraceLensReport(builder.read(), None, strict=True)
    sheet = report.roofline_sheets["InferenceAttention_fwd"]
    assert sheet["gflops"].to_list() == [38400 / 1e9]
    assert sheet["param_c_sqsk"].to_list() == [300]
