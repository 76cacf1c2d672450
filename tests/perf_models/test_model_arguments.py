import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis.core.dtypes import element_bytes
from jarvis.perf_models import OpSignature, UnexpectedArgumentsError
from jarvis.perf_models.arguments import (
    broadcast,
    flag,
    flags,
    integer,
    integers,
    optional_tensor,
    tensor,
    text,
    total_bytes,
)
from jarvis.perf_models.dtypes import (
    bytes_per_element,
    compute_spec,
    precision,
)

CALL = OpSignature(
    "aten::op",
    ((8, 4), (), ((2, 2), (3, 3))),
    ("c10::BFloat16", "Scalar", "TensorList"),
    ((4, 1), (), ((2, 1), (3, 1))),
    ("", "3", "[1, -2]", "[]", "[True, False]", "True", "None", "false"),
)


def test_a_tensor_has_shape_dtype_strides_and_sizes() -> None:
    t = tensor(CALL, 0)
    assert (t.shape, t.dtype, t.strides) == ((8, 4), "c10::BFloat16", (4, 1))
    assert (t.numel, t.size, t.real_size, t.given) == (32, 2, 2, True)


def test_a_scalar_is_one_element_and_no_real_tensor() -> None:
    scalar = tensor(CALL, 1)
    assert (scalar.numel, scalar.size, scalar.real_size, scalar.given) == (1, 4, None, False)


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(UnexpectedArgumentsError, match=r"aten::op .* 3 arguments.*argument 7"):
        tensor(CALL, 7)
    assert optional_tensor(CALL, 7).given is False


def test_a_list_of_tensors_is_not_a_tensor() -> None:
    with pytest.raises(UnexpectedArgumentsError, match="list of tensors"):
        tensor(CALL, 2)


def test_strides_may_be_missing() -> None:
    assert tensor(OpSignature("aten::op", ((2,),), ("float",)), 0).strides is None
    assert tensor(OpSignature("aten::op", ((2,),), ("float",), (None,)), 0).strides is None


def test_values_are_read_from_text() -> None:
    assert integers(CALL, 2) == (1, -2)
    assert integers(CALL, 3) == ()
    assert integers(CALL, 1) is None
    assert flags(CALL, 4) == [True, False]
    assert flags(CALL, 0) is None
    assert [flag(CALL, i) for i in (5, 7, 0, 99)] == [True, False, False, False]
    assert integer(CALL, 1, 9) == 3
    assert integer(CALL, 0, 9) == 9
    assert text(CALL, 6) == ""


def test_a_value_of_another_kind_is_named() -> None:
    for read in (lambda: flag(CALL, 1), lambda: integer(CALL, 5, 9), lambda: integers(CALL, 4)):
        with pytest.raises(UnexpectedArgumentsError, match=r"Argument \d of aten::op .* as"):
            read()


def test_a_trace_without_values_has_no_defaults() -> None:
    call = OpSignature("aten::op", ((8, 4),), ("float",))
    with pytest.raises(UnexpectedArgumentsError, match="without the values"):
        integer(call, 1, 9)


def test_bytes_are_unknown_if_a_part_is() -> None:
    assert total_bytes((3, 2), (1, 4)) == 10
    assert total_bytes((3, 2), (1, None)) is None


def test_broadcasting() -> None:
    assert broadcast((8, 1, 4), (3, 1)) == (8, 3, 4)
    assert broadcast((0,), (1,)) == (0,)
    assert broadcast((), (2,)) == (2,)
    with pytest.raises(UnexpectedArgumentsError, match="cannot be broadcast"):
        broadcast((2,), (3,))


@given(st.lists(st.integers(1, 9), max_size=5).map(tuple))
def test_a_shape_broadcasts_with_itself_and_with_a_scalar(shape: tuple[int, ...]) -> None:
    assert broadcast(shape, shape) == shape
    assert broadcast(shape, ()) == broadcast((), shape) == shape


@pytest.mark.parametrize(
    ("name", "sheet", "real", "key"),
    [
        ("float", 4, 4, "fp32"),
        ("double", 8, 8, "fp64"),
        ("c10::Half", 2, 2, "fp16"),
        ("c10::BFloat16", 2, 2, "bf16"),
        ("c10::Float8_e4m3fn", 1, 1, "fp8"),
        ("c10::Float8_e5m2", 1, 1, None),
        ("c10::Float4_e2m1fn_x2", 1, 1, "fp4"),
        ("unsigned char", 1, 1, "fp8"),
        ("long int", 8, 8, None),
        ("Scalar", 4, None, None),
        ("bool", None, 1, None),
        ("short", None, 2, None),
        ("c10::complex<float>", None, 8, None),
        ("TensorList", None, None, None),
        ("", None, None, None),
    ],
)
def test_dtypes(name: str, sheet: int | None, real: int | None, key: str | None) -> None:
    assert bytes_per_element(name) == sheet
    assert element_bytes(name) == real
    assert precision(name) == key


def test_the_peak_is_named_by_unit_and_precision() -> None:
    assert compute_spec("matrix", "c10::BFloat16") == "matrix_bf16"
    assert compute_spec("vector", "int") == ""
    assert compute_spec("matrix", None) == ""
