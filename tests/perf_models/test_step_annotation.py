import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis.perf_models.step_annotation import Phase, StepTokens, parse

CONTEXT, GENERATION, EMPTY = Phase(10, 30, 100, 300), Phase(2, 50, 2, 50), Phase()


@pytest.mark.parametrize(
    ("annotation", "step"),
    [
        (
            "execute_3_context_1(sq10sk30sqsq100sqsk300)_generation_2(sq2sk50sqsq2sqsk50)",
            StepTokens(12, CONTEXT, GENERATION),
        ),
        ("execute_context_1(10)_generation_2(2)", StepTokens(12)),
        (
            "step[MIXED bs=3 toks=12 c_sq=10 c_sk=30 c_sqsq=100 c_sqsk=300 "
            "g_sq=2 g_sk=50 g_sqsq=2 g_sqsk=50]",
            StepTokens(12, CONTEXT, GENERATION),
        ),
        (
            "step[DECODE bs=2 toks=2 g_sq=2 g_sk=50 g_sqsq=2 g_sqsk=50]",
            StepTokens(2, EMPTY, GENERATION),
        ),
        ("step[DECODE bs=2 toks=7]", StepTokens(7)),
        ("step[DECODE bs=5]", StepTokens(5)),
        ("step[DECODE spec=1 bs=5]", StepTokens(5)),
        ("step[EXTEND toks=70 bs=5 cached=3]", StepTokens(70)),
        ("step[EXTEND bs=5]", StepTokens()),
        ("step[TRAIN bs=5 toks=5]", None),
        ("prefill[bs=1 tok=10 sk=30 sqsq=100 sqsk=300]", StepTokens(10, CONTEXT, EMPTY)),
        ("decode[bs=2 tok=2 sk=50 sqsq=2 sqsk=50]", StepTokens(2, EMPTY, GENERATION)),
        ("decode[bs=2 tok=2]", StepTokens(2)),
        ("execute_diffusion_2_512x768", StepTokens()),
        ("ProfilerStep#3", None),
        ("NA", None),
        ("", None),
        (None, None),
    ],
)
def test_each_form_of_annotation(annotation: str | None, step: StepTokens | None) -> None:
    assert parse(annotation) == step


@given(st.lists(st.integers(0, 10**9), min_size=8, max_size=8))
def test_the_sums_are_read_as_written(sums: list[int]) -> None:
    c, g = sums[:4], sums[4:]
    names = ("sq", "sk", "sqsq", "sqsk")
    first, second = (
        "".join(f"{name}{value}" for name, value in zip(names, phase, strict=True))
        for phase in (c, g)
    )
    step = parse(f"execute_9_context_4({first})_generation_5({second})")
    assert step == StepTokens(c[0] + g[0], Phase(*c), Phase(*g))
