"""The table of element types, of which all others are made."""

import pytest

from jarvis.core.dtypes import DTYPES, element_bytes, find_dtype, scalar_type_bytes
from jarvis.hardware import PRECISIONS


def test_no_two_types_have_a_name_or_number_in_common() -> None:
    names = [name for dtype in DTYPES for name in dtype.spellings]
    numbers = [dtype.number for dtype in DTYPES if dtype.number is not None]
    assert len(names) == len(set(names))
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(
    ("name", "torch", "size"),
    [
        ("float", "float32", 4),
        ("c10::Float", "float32", 4),
        ("c10::BFloat16", "bfloat16", 2),
        ("BFloat16", "bfloat16", 2),
        ("bfloat16", "bfloat16", 2),
        ("long int", "int64", 8),
        ("Long", "int64", 8),
        ("unsigned char", "uint8", 1),
        ("c10::complex<float>", "complex64", 8),
        ("fp8", "", 1),
    ],
)
def test_a_type_is_found_by_any_of_its_names(name: str, torch: str, size: int) -> None:
    dtype = find_dtype(name)
    assert dtype is not None
    assert (dtype.torch, dtype.bytes, element_bytes(name)) == (torch, size, size)


@pytest.mark.parametrize("name", ["", "Scalar", "TensorList", "QInt8", "c10::"])
def test_other_names_are_no_types(name: str) -> None:
    assert find_dtype(name) is None
    assert element_bytes(name) is None


def test_a_requested_type_is_a_number() -> None:
    assert scalar_type_bytes("15") == 2
    assert scalar_type_bytes("6") == 4
    assert scalar_type_bytes("") is None
    assert scalar_type_bytes("None") is None


def test_every_type_has_a_short_name_and_a_precision_of_the_hardware_if_any() -> None:
    assert all(dtype.short for dtype in DTYPES)
    assert {dtype.precision for dtype in DTYPES} - {None} <= set(PRECISIONS)


def test_packed_values_share_an_element() -> None:
    assert {dtype.short for dtype in DTYPES if dtype.packed > 1} == {"fp4"}
