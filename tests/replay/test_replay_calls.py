"""A recorded call as the replay describes it."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jarvis.core.errors import ReplayError
from jarvis.recorded_calls.calls import replay_ir
from jarvis.recorded_calls.initial_values import INDEX_BOUNDS
from jarvis.recorded_calls.schema import NAMESPACE, signatures

TYPES = {
    *("Tensor", "Tensor[]", "Tensor?[]", "Scalar", "Scalar[]", "int", "int[]", "float", "float[]"),
    *("bool", "bool[]", "str", "ScalarType", "Layout", "MemoryFormat", "Device", "Generator"),
}


def row(name: str, *recorded: tuple[Any, str, Any, str]) -> dict[str, Any]:
    """``recorded``: (dims, type, strides, concrete) of each argument."""
    columns = list(zip(*recorded, strict=True)) or [()] * 4
    names = ("input_dims", "input_types", "input_strides", "concrete_inputs")
    return {"name": name, **{key: repr(tuple(c)) for key, c in zip(names, columns, strict=True)}}


def bf16(*shape: int, strides: tuple[int, ...] | None = None) -> tuple[Any, str, Any, str]:
    if strides is None:
        strides = tuple(int(x) for x in _dense(shape))
    return shape, "c10::BFloat16", strides, ""


def _dense(shape: tuple[int, ...]) -> list[int]:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return steps[::-1]


def scalar(text: str) -> tuple[Any, str, Any, str]:
    return (), "Scalar", (), text


def numbers(text: str) -> tuple[Any, str, Any, str]:
    return (), "ScalarList", (), text


NOTHING = ((), "", (), "")


def positional(ir: dict[str, Any]) -> dict[str, Any]:
    return {item["arg_name"]: item["value"] for item in ir["list_pos_args"]}


def keywords(ir: dict[str, Any]) -> dict[str, Any]:
    return {item["arg_name"]: item["value"] for item in ir["list_kwargs"]}


def test_a_product_with_its_strides() -> None:
    ir = replay_ir(row("aten::mm", bf16(8, 4), bf16(4, 2, strides=(1, 4))))
    assert ir["list_kwargs"] == []
    assert ir["list_pos_args"] == [
        {
            "arg_name": "self",
            "arg_type": "Tensor",
            "value": {"shape": [8, 4], "dtype": "bfloat16", "strides": [4, 1], "init": "normal"},
        },
        {
            "arg_name": "mat2",
            "arg_type": "Tensor",
            "value": {"shape": [4, 2], "dtype": "bfloat16", "strides": [1, 4], "init": "normal"},
        },
    ]


def test_scalars_after_the_star_are_keywords() -> None:
    ir = replay_ir(row("aten::addmm", bf16(2), bf16(8, 4), bf16(4, 2), scalar("1"), scalar("0.5")))
    assert keywords(ir) == {"beta": 1, "alpha": 0.5}


def test_an_output_is_passed_by_keyword_and_not_filled() -> None:
    ir = replay_ir(row("aten::mm", bf16(8, 4), bf16(4, 2), bf16(8, 2)))
    assert keywords(ir)["out"]["init"] is None


def test_a_convolution_backward() -> None:
    ir = replay_ir(
        row(
            "aten::convolution_backward",
            bf16(2, 8, 4, 4),
            bf16(2, 3, 8, 8),
            bf16(8, 3, 3, 3),
            numbers("[0]"),
            numbers("[2, 2]"),
            numbers("[1, 1]"),
            numbers("[1, 1]"),
            scalar("False"),
            numbers("[0, 0]"),
            scalar("1"),
            numbers("[True, True, False]"),
        )
    )
    values = positional(ir)
    assert values["transposed"] is False
    assert values["stride"] == [2, 2]
    assert values["output_mask"] == [True, True, False]
    assert values["groups"] == 1


def test_what_is_missing_is_null_or_left_to_its_default() -> None:
    norm = row(
        "aten::native_layer_norm", bf16(2, 8), numbers("[8]"), NOTHING, bf16(8), scalar("1e-05")
    )
    assert positional(replay_ir(norm))["weight"] is None
    gelu = replay_ir(row("aten::gelu", bf16(2, 8), NOTHING))
    assert gelu["list_kwargs"] == []


def test_a_number_or_a_tensor_picks_the_signature() -> None:
    assert positional(replay_ir(row("aten::mul", bf16(4), scalar("2"))))["other"] == 2
    assert positional(replay_ir(row("aten::mul", bf16(4), bf16(4))))["other"]["shape"] == [4]
    zero_dim = ((), "double", (), "")
    value = positional(replay_ir(row("aten::mul", bf16(4), zero_dim)))["other"]
    assert value == {"shape": [], "dtype": "float64", "strides": [], "init": "normal"}


def test_indices_point_into_what_they_index() -> None:
    index = ((6,), "long int", (1,), "")
    ir = replay_ir(row("aten::index_select", bf16(50, 8), scalar("0"), index))
    assert positional(ir)["index"] == {
        "shape": [6],
        "dtype": "int64",
        "strides": [1],
        "init": "integers",
        "high": 50,
    }
    mask = ((2, 8), "bool", (8, 1), "")
    ir = replay_ir(row("aten::masked_fill", bf16(2, 8), mask, scalar("-inf")))
    assert positional(ir)["mask"]["high"] == 2
    assert positional(ir)["value"] == "-inf"  # JSON has no infinity


def test_a_tensor_that_is_only_written_is_not_filled() -> None:
    values = positional(replay_ir(row("aten::copy_", bf16(4), bf16(4), scalar("False"))))
    assert values["self"]["init"] is None
    assert values["src"]["init"] == "normal"


def test_strides_that_were_not_recorded_are_dense() -> None:
    recorded = row("aten::relu", ((2, 3, 4), "float", (), ""))
    assert positional(replay_ir(recorded))["self"]["strides"] == [12, 4, 1]


@pytest.mark.parametrize(
    ("recorded", "reason"),
    [
        (row("triton_poi_fused_add_0", bf16(4)), "a compiler generated"),
        (row("vllm::unified_attention", bf16(4)), "the library vllm"),
        (row("c10d::allreduce_", bf16(4)), "other processes"),
        (row("MulBackward0", bf16(4)), "step of autograd"),
        (row("aten::no_such_operator", bf16(4)), "not known"),
        (row("aten::cat", (((4,), (4,)), "TensorList", (), ""), scalar("0")), "show the dtype"),
        (row("aten::cat", ((), "TensorList", (), ""), scalar("0")), "too long for the trace"),
        (row("aten::index", bf16(4), NOTHING), "does not record its argument indices"),
        ({**row("aten::mm"), "input_dims": None}, "records no arguments"),
        (row("aten::mm", bf16(4, 4)), "fit no known signature"),
        (row("aten::mm", bf16(4, 4), scalar("1")), "fit no known signature"),
        (row("aten::mm", bf16(4, 4), ((4, 4), "c10::Odd", (4, 1), "")), "fit no known signature"),
        (row("aten::amax", bf16(4), numbers("[x]"), scalar("True")), "fit no known signature"),
        (row("aten::amax", bf16(4), numbers("[0]"), scalar("1")), "fit no known signature"),
    ],
)
def test_what_cannot_be_replayed_says_why(recorded: dict[str, Any], reason: str) -> None:
    with pytest.raises(ReplayError, match=reason):
        replay_ir(recorded)


def test_every_signature_is_well_formed() -> None:
    for name, found in signatures().items():
        overloads = [signature.overload for signature in found]
        assert len(overloads) == len(set(overloads)), name
        for signature in found:
            names = [argument.name for argument in signature.arguments]
            assert len(names) == len(set(names)), name
            assert {argument.type for argument in signature.arguments} <= TYPES, name
            keyword = [argument.is_keyword for argument in signature.arguments]
            assert keyword == sorted(keyword), name


def test_bounds_of_indices_name_arguments_that_exist() -> None:
    for name, (index, indexed, along) in INDEX_BOUNDS.items():
        for signature in signatures()[NAMESPACE + name]:
            names = {argument.name for argument in signature.arguments}
            assert {index, indexed} <= names, name
            assert along != "dim" or along in names, name


def tensor_list(*shapes: tuple[int, ...]) -> tuple[Any, str, Any, str]:
    return shapes, "TensorList", tuple(tuple(_dense(shape)) for shape in shapes), ""


def launched(recorded: dict[str, Any], kernel: str) -> dict[str, Any]:
    return {**recorded, "kernels": [{"name": kernel}]}


def test_kernels_tell_the_dtype_of_lists_of_tensors() -> None:
    cat = row("aten::cat", tensor_list((4, 2), (4, 3)), scalar("1"))
    ir = replay_ir(launched(cat, "CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>"))
    assert [(t["shape"], t["dtype"]) for t in positional(ir)["tensors"]] == [
        ([4, 2], "bfloat16"),
        ([4, 3], "bfloat16"),
    ]
    copied = row("aten::_foreach_copy_", tensor_list((4,)), tensor_list((4,)), scalar("False"))
    ir = replay_ir(
        launched(copied, "multi_tensor_apply_kernel<List<2>, CopyFunctor<int, long, 2, 1, 1> >")
    )
    (written,), (read,) = positional(ir)["self"], positional(ir)["src"]
    assert (written["dtype"], written["init"]) == ("int32", None)
    assert (read["dtype"], read["init"]) == ("int64", "integers")


def test_offsets_cut_up_what_they_point_into() -> None:
    bag = row(
        "aten::_embedding_bag",
        bf16(50, 8),
        ((12,), "long int", (1,), ""),
        ((3,), "long int", (1,), ""),
        *(scalar("False"), scalar("0"), scalar("False"), NOTHING, scalar("False"), scalar("-1")),
    )
    values = positional(replay_ir(bag))
    assert values["indices"]["high"] == 50
    assert (values["offsets"]["init"], values["offsets"]["high"]) == ("offsets", 12)


def test_divisors_are_not_zero_and_probabilities_no_less() -> None:
    whole = ((4,), "long int", (1,), "")
    assert positional(replay_ir(row("aten::remainder", whole, whole)))["other"]["low"] == 1
    drawn = row("aten::multinomial", bf16(4), scalar("2"), scalar("False"), NOTHING)
    assert positional(replay_ir(drawn))["self"]["init"] == "uniform"


def test_one_kernel_of_a_call_represents_the_call() -> None:
    recorded = row("aten::mse_loss->void reduce_kernel<512>", bf16(4), bf16(4), scalar("1"))
    assert positional(replay_ir(recorded))["reduction"] == 1


def test_a_tensor_may_be_undefined_or_a_number_where_nothing_else_fits() -> None:
    product = replay_ir(row("aten::mul", bf16(4), scalar("0.5"), bf16(4)))
    assert product["overload"] == "out"
    assert positional(product)["other"]["shape"] == []
    assert positional(product)["other"]["dtype"] == "float64"
    sum_of_products = row("aten::addmm", NOTHING, bf16(8, 4), bf16(4, 2), scalar("1"), scalar("1"))
    assert positional(replay_ir(sum_of_products))["self"] is None


def test_a_call_of_an_older_release_lacks_the_newest_arguments() -> None:
    older = row("aten::_fused_rms_norm", bf16(4, 8), numbers("[8]"), bf16(8))
    assert positional(replay_ir(older))["eps"] is None


def test_the_overload_is_named() -> None:
    assert replay_ir(row("aten::mul", bf16(4), bf16(4)))["overload"] == "Tensor"
    assert replay_ir(row("aten::mm", bf16(8, 4), bf16(4, 2)))["overload"] == ""


def test_the_device_is_left_to_the_replay() -> None:
    zeros = row("aten::zeros", numbers("[3, 4]"), scalar("6"), *(NOTHING,) * 3)
    assert keywords(replay_ir(zeros)) == {"dtype": 6, "device": None}


GARBAGE = st.recursive(
    st.one_of(
        st.none(), st.integers(-2, 5), st.just(1 << 70), st.text("a:[1]e9", max_size=6), st.floats()
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)
NAMES = ("mm", "cat", "index_select", "nll_loss_forward", "embedding", "sum", "index", "take")
TYPE = st.sampled_from(("float", "long int", "TensorList", "Scalar", "ScalarList", "", 3, ()))


@given(
    name=st.sampled_from(NAMES),
    recorded=st.lists(st.tuples(GARBAGE, TYPE, GARBAGE, GARBAGE), max_size=5),
)
@settings(max_examples=100)
def test_no_recorded_argument_ends_an_analysis(name: str, recorded: list[Any]) -> None:
    kernel = {"name": "CatArrayBatchedCopy<OpaqueType<4u>, int>"}
    try:
        ir = replay_ir({**row(f"aten::{name}", *recorded), "kernels": [kernel]})
    except ReplayError:
        return
    orjson.dumps(ir)
    json.dumps(ir, allow_nan=False)


def test_an_index_without_its_dimension_cannot_be_replayed() -> None:
    index = ((6,), "long int", (1,), "")
    with pytest.raises(ReplayError, match="do not match the tensor that they index"):
        replay_ir(row("aten::index_select", bf16(50, 8), scalar("2"), index))
