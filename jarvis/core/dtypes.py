"""The element types of tensors: the names that programs give them, and their sizes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dtype:
    """One element type.

    ``torch`` is the attribute of ``torch``, ``""`` for a format that kernels name and tensors do
    not have. ``scalar_type`` is the name of c10::ScalarType, as communication kernels record it,
    ``number`` its value, as an argument ``dtype=`` is recorded. ``cpp`` are further names that the
    profiler and kernels use. ``short`` is the name that reports print. ``bytes`` is the size of
    an element, which holds ``packed`` values. ``precision`` is the key of the peaks in
    hardware.toml, None where no peak applies.
    """

    torch: str
    bytes: int
    scalar_type: str = ""
    number: int | None = None
    cpp: tuple[str, ...] = ()
    short: str = ""
    precision: str | None = None
    packed: int = 1

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every name of the type, in lower case."""
        of_c10 = (self.scalar_type, f"c10::{self.scalar_type}") if self.scalar_type else ()
        named = (self.torch, *of_c10, *self.cpp)
        return tuple(dict.fromkeys(name.lower() for name in named if name))


DTYPES = (
    Dtype("float64", 8, "Double", 7, ("double",), "fp64", "fp64"),
    Dtype("float32", 4, "Float", 6, ("float",), "fp32", "fp32"),
    Dtype("float16", 2, "Half", 5, (), "fp16", "fp16"),
    Dtype("bfloat16", 2, "BFloat16", 15, (), "bf16", "bf16"),
    Dtype("float8_e4m3fn", 1, "Float8_e4m3fn", 24, (), "fp8_e4m3", "fp8"),
    Dtype("float8_e4m3fnuz", 1, "Float8_e4m3fnuz", 26, (), "fp8_e4m3", "fp8"),
    Dtype("float8_e5m2", 1, "Float8_e5m2", 23, (), "fp8_e5m2"),
    Dtype("float8_e5m2fnuz", 1, "Float8_e5m2fnuz", 25, (), "fp8_e5m2"),
    Dtype("float8_e8m0fnu", 1, "Float8_e8m0fnu", 44, (), "fp8_e8m0"),
    Dtype("float4_e2m1fn_x2", 1, "Float4_e2m1fn_x2", 45, (), "fp4", "fp4", packed=2),
    Dtype("", 1, cpp=("fp8",), short="fp8", precision="fp8"),
    Dtype("", 1, cpp=("fp4", "mxfp4"), short="fp4", precision="fp4", packed=2),
    Dtype("uint8", 1, "Byte", 0, ("unsigned char",), "uint8", "fp8"),  # holds fp8 in most traces
    Dtype("int8", 1, "Char", 1, ("signed char",), "int8"),
    Dtype("int16", 2, "Short", 2, ("short int",), "int16"),
    Dtype("int32", 4, "Int", 3, (), "int32"),
    Dtype("int64", 8, "Long", 4, ("long int",), "int64"),
    Dtype("uint16", 2, "UInt16", 27, ("unsigned short",), "uint16"),
    Dtype("uint32", 4, "UInt32", 28, ("unsigned int",), "uint32"),
    Dtype("uint64", 8, "UInt64", 29, ("unsigned long",), "uint64"),
    Dtype("bool", 1, "Bool", 11, (), "bool"),
    Dtype("complex32", 4, "ComplexHalf", 8, ("c10::complex<c10::Half>",), "complex32"),
    Dtype("complex64", 8, "ComplexFloat", 9, ("c10::complex<float>",), "complex64"),
    Dtype("complex128", 16, "ComplexDouble", 10, ("c10::complex<double>",), "complex128"),
)
"""Every type; all other tables of types are made of this one."""

_BY_SPELLING = {spelling: dtype for dtype in DTYPES for spelling in dtype.spellings}
_BY_NUMBER = {str(dtype.number): dtype for dtype in DTYPES if dtype.number is not None}


def find_dtype(name: str) -> Dtype | None:
    """Return the type of any of its names, in upper or lower case, or None."""
    return _BY_SPELLING.get(name.lower())


def element_bytes(name: str) -> int | None:
    """Return the bytes of one tensor element of the type, None for an unknown name."""
    dtype = find_dtype(name)
    return None if dtype is None else dtype.bytes


def scalar_type_bytes(number: str) -> int | None:
    """Return the bytes of one element of an argument ``dtype=``, recorded as a number in text."""
    dtype = _BY_NUMBER.get(number)
    return None if dtype is None else dtype.bytes
