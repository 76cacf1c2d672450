"""Whatever a trace records, a formula gives a cost that makes sense or says that it cannot."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jarvis.perf_models import NoModelForCallError, OpSignature, PerfModel, all_models

EXTENTS = st.sampled_from([0, 1, 2, 4, 8])
SHAPES = st.integers(0, 4).flatmap(lambda rank: st.tuples(*[EXTENTS] * rank))
LISTS = st.lists(SHAPES, max_size=3).map(tuple)
DIMS = st.lists(st.one_of(SHAPES, SHAPES, SHAPES, LISTS), max_size=16).map(tuple)
DTYPES = st.sampled_from(
    ["float", "c10::BFloat16", "c10::Float8_e4m3fn", "unsigned char", "long int", "Scalar", "bool"]
)
VALUES = st.sampled_from(
    ["", "0", "1", "8", "True", "[1, 1]", "[]", "0.5", "experts_per_token=2", "gated=True"]
)
STEPS = st.sampled_from(
    [
        None,
        "NA",
        "step[DECODE bs=2 toks=2]",
        "execute_3_context_1(sq10sk30sqsq100sqsk300)_generation_2(sq2sk50sqsq2sqsk50)",
    ]
)
ALLOWED = (ArithmeticError, LookupError, TypeError, ValueError, NoModelForCallError)
FAMILIES = {
    *("CrossEntropy", "CustomCollective", "FusedRoPE", "GroupQuant", "GroupedGEMM", "SSM", "mHC"),
    *("InferenceAttention", "MoE_aux", "MoE_comm", "MoE_fused", "MoE_unfused", "RMSNorm", "RoPE"),
}
MODELS = [model for model in all_models() if model.sheet in FAMILIES]


@settings(max_examples=300)
@given(
    st.sampled_from(MODELS),
    st.booleans(),
    DIMS,
    st.lists(DTYPES, max_size=16).map(tuple),
    st.lists(VALUES, max_size=20).map(tuple),
    STEPS,
)
def test_costs_are_no_less_than_nothing(
    model: PerfModel,
    backward: bool,
    dims: tuple[Any, ...],
    types: tuple[str, ...],
    values: tuple[str, ...],
    step: str | None,
) -> None:
    formula = model.backward if backward else model.cost
    if formula is None:
        return
    op = OpSignature(model.name, dims, types, (), values, annotation=step)
    try:
        cost = formula(op)
    except ALLOWED:
        return
    for figure in (cost.flops, cost.bytes, cost.exact_flops, cost.exact_bytes):
        assert figure is None or figure >= 0
