from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis.perf_models.step_annotation import (
    CapturedBatch,
    Phase,
    StepKind,
    captured_batch,
    looks_like_step,
    parse,
)

CONTEXT, GENERATION, EMPTY = Phase(10, 30, 100, 300), Phase(2, 50, 2, 50), Phase()
PREFILL, DECODE, MIXED, DIFFUSION = StepKind


def counts(annotation: str) -> tuple[Any, ...]:
    """Kind, tokens, and requests and tokens of both phases."""
    step = parse(annotation)
    assert step is not None
    return (
        step.kind,
        step.tokens,
        (step.context_requests, step.context_tokens),
        (step.generation_requests, step.generation_tokens),
    )


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (
            "execute_3_context_1(sq10sk30sqsq100sqsk300)_generation_2(sq2sk50sqsq2sqsk50)",
            (MIXED, 12, (1, 10), (2, 2)),
        ),
        (
            "execute_70_context_1(sq64sk96sqsq4096sqsk6144)_generation_6(sq6sk900sqsq6sqsk900)",
            (MIXED, 70, (1, 64), (6, 6)),
        ),
        ("execute_context_1(10)_generation_2(2)", (MIXED, 12, (1, 10), (2, 2))),
        ("execute_context_0(0)_generation_8(8)", (DECODE, 8, (0, 0), (8, 8))),
        ("execute_context_2(90)_generation_0(0)", (PREFILL, 90, (2, 90), (0, 0))),
        ("execute_context_0(0)_generation_0(0)", (None, 0, (0, 0), (0, 0))),
        (
            "step[MIXED bs=3 c=1 g=2 toks=12 c_sq=10 c_sk=30 c_sqsq=100 c_sqsk=300 "
            "g_sq=2 g_sk=50 g_sqsq=2 g_sqsk=50]",
            (MIXED, 12, (1, 10), (2, 2)),
        ),
        (
            "step[DECODE bs=2 toks=2 g_sq=2 g_sk=50 g_sqsq=2 g_sqsk=50]",
            (DECODE, 2, (0, 0), (2, 2)),
        ),
        (  # two tokens for each request, and another order of the keys
            "step[DECODE bs=8 g_sq=16 g_sqsq=32 g_sqsk=4000 g_sk=2000]",
            (DECODE, 16, (0, 0), (8, 16)),
        ),
        ("step[EXTEND bs=2 c_sq=9 c_sk=9 c_sqsq=41 c_sqsk=41]", (PREFILL, 9, (2, 9), (0, 0))),
        ("step[DECODE bs=2 toks=7]", (DECODE, 7, (0, 0), (2, 7))),
        ("step[DECODE bs=5]", (DECODE, 5, (0, 0), (5, 5))),
        ("step[DECODE spec=1 bs=5]", (DECODE, 5, (0, 0), (5, 5))),
        ("step[EXTEND bs=2 toks=300]", (PREFILL, 300, (2, 300), (0, 0))),
        ("step[EXTEND toks=70 bs=5 cached=3]", (PREFILL, 70, (5, 70), (0, 0))),
        ("step[EXTEND bs=5]", (PREFILL, None, (5, None), (0, 0))),
        ("step[MIXED bs=5]", (MIXED, None, (None, None), (None, None))),
        ("step[MIXED bs=5 toks=40]", (MIXED, 40, (None, None), (None, None))),
        ("prefill[bs=1 tok=10 sk=30 sqsq=100 sqsk=300]", (PREFILL, 10, (1, 10), (0, 0))),
        (
            "prefill[bs=2 tok=300 ctx=[200, 100] sqsq=50000 sqsk=50000 sk=300]",
            (PREFILL, 300, (2, 300), (0, 0)),
        ),
        ("prefill[bs=4 tok=90 ctx=[50, 20]...+2 tbo=1]", (PREFILL, 90, (4, 90), (0, 0))),
        ("decode[bs=2 tok=2 sk=50 sqsq=2 sqsk=50]", (DECODE, 2, (0, 0), (2, 2))),
        ("decode[bs=5/8 tok=5 d=5]", (DECODE, 5, (0, 0), (5, 5))),
        ("decode[bs=2 tok=6 spec=3]", (DECODE, 6, (0, 0), (2, 6))),
        ("prefill[bs=3 tok=12 p=1 d=2]", (MIXED, 12, (1, None), (2, None))),
        ("execute_diffusion_2_512x768", (DIFFUSION, None, (None, None), (None, None))),
    ],
)
def test_requests_and_tokens_of_each_form(annotation: str, expected: tuple[Any, ...]) -> None:
    assert counts(annotation) == expected


@pytest.mark.parametrize(
    ("annotation", "sums"),
    [
        (
            "execute_3_context_1(sq10sk30sqsq100sqsk300)_generation_2(sq2sk50sqsq2sqsk50)",
            (CONTEXT, GENERATION),
        ),
        (
            "step[MIXED bs=3 toks=12 c_sq=10 c_sk=30 c_sqsq=100 c_sqsk=300 "
            "g_sq=2 g_sk=50 g_sqsq=2 g_sqsk=50]",
            (CONTEXT, GENERATION),
        ),
        ("step[DECODE bs=2 g_sqsk=50 g_sqsq=2 g_sk=50 g_sq=2 new=7]", (EMPTY, GENERATION)),
        ("prefill[bs=1 tok=10 ctx=[10] sk=30 sqsq=100 sqsk=300]", (CONTEXT, EMPTY)),
        ("decode[bs=2/4 tok=2 sk=50 sqsq=2 sqsk=50]", (EMPTY, GENERATION)),
        ("execute_context_1(10)_generation_2(2)", (None, None)),
        ("step[DECODE bs=2]", (None, None)),
        ("decode[bs=2 tok=2]", (None, None)),
    ],
)
def test_sums_of_detailed_annotations(
    annotation: str, sums: tuple[Phase | None, Phase | None]
) -> None:
    step = parse(annotation)
    assert step is not None
    assert (step.context, step.generation) == sums


def test_engine_padding_and_pictures() -> None:
    padded = parse("decode[bs=5/8 tok=5 d=5]")
    assert padded is not None
    assert (padded.engine, padded.requests, padded.padded_requests) == ("ATOM", 5, 8)
    pictures = parse("execute_diffusion_2_512x768")
    assert pictures is not None
    assert (pictures.pictures, pictures.resolution) == (2, "512x768")
    engines = [
        step.engine
        for text in ("execute_context_0(0)_generation_8(8)", "step[DECODE bs=5]")
        if (step := parse(text))
    ]
    assert engines == ["vLLM", "SGLang"]


@pytest.mark.parametrize(
    "annotation",
    [
        "step[TRAIN bs=5 toks=5]",
        "step[DECODE bs=5",
        "prefill[bs=2 ctx=[1, 2]",
        "execute_context_x(1)_generation_1(1)",
        f"execute_context_0(0)_generation_1({'9' * 19})",
    ],
)
def test_text_that_only_begins_like_a_step(annotation: str) -> None:
    assert parse(annotation) is None
    assert looks_like_step(annotation)


@pytest.mark.parametrize("annotation", ["ProfilerStep#3", "my step[DECODE bs=1]", "NA", "", None])
def test_other_text(annotation: str | None) -> None:
    assert parse(annotation) is None
    assert not looks_like_step(annotation or "")


def test_the_batch_of_a_capture() -> None:
    assert captured_batch("capture_16_decode") == CapturedBatch(16, "decode")
    assert captured_batch("capture_frame") is None
    assert parse("capture_16_decode") is None


def test_a_long_text_without_an_end_is_refused_at_once() -> None:
    assert parse("prefill[" + "=[" * 500_000) is None


@given(st.lists(st.integers(0, 10**9), min_size=8, max_size=8))
def test_the_sums_are_read_as_written(sums: list[int]) -> None:
    c, g = sums[:4], sums[4:]
    names = ("sq", "sk", "sqsq", "sqsk")
    first, second = (
        "".join(f"{name}{value}" for name, value in zip(names, phase, strict=True))
        for phase in (c, g)
    )
    step = parse(f"execute_9_context_4({first})_generation_5({second})")
    assert step is not None
    assert (step.tokens, step.context, step.generation) == (c[0] + g[0], Phase(*c), Phase(*g))
