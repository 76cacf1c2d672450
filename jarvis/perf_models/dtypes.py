"""What the profiler's dtype names mean: bytes per element and the precision of the peak."""

INDEX_BYTES = 8  # where kernels write or read indices they are int64

SHEET_BYTES = {
    "double": 8,
    "long int": 8,
    "float": 4,
    "int": 4,
    "scalar": 4,
    "c10::half": 2,
    "c10::bfloat16": 2,
    "c10::float8_e4m3fnuz": 1,
    "c10::float8_e4m3fn": 1,
    "c10::float8_e5m2": 1,
    "c10::float8_e8m0fnu": 1,
    "unsigned char": 1,
    "signed char": 1,
    "fp8": 1,
    "c10::float4_e2m1fn_x2": 1,  # a packed pair
    "fp4": 1,
}
"""The sizes that the report sheets count with, by lower-case dtype name."""

REAL_BYTES = {name: size for name, size in SHEET_BYTES.items() if name != "scalar"} | {
    "bool": 1,
    "char": 1,
    "c10::float8_e5m2fnuz": 1,
    "short": 2,
    "short int": 2,
    "unsigned short": 2,
    "unsigned int": 4,
    "long": 8,
    "unsigned long": 8,
    "c10::complex<c10::half>": 4,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
    "c10::float": 4,
    "c10::double": 8,
    "c10::byte": 1,
    "c10::char": 1,
    "c10::int": 4,
    "c10::long": 8,
}
"""The size of every tensor element the profiler can name; a Python scalar is none."""

_PRECISIONS = {
    "float": "fp32",
    "double": "fp64",
    "c10::half": "fp16",
    "c10::bfloat16": "bf16",
    "c10::float8_e4m3fnuz": "fp8",
    "c10::float8_e4m3fn": "fp8",
    "unsigned char": "fp8",
    "fp8": "fp8",
    "fp4": "fp4",
    "mxfp4": "fp4",
    "c10::float4_e2m1fn_x2": "fp4",
}

HALF_PRECISION_BYTES = 2  # what kernels with narrower operands write
FP8_BYTES = 1
PACKED_FP4_BYTES = 0.5  # per element
SCALE_BYTES = 4  # the scale of a token or a group
MX_BLOCK = 32  # elements that share a one-byte scale in the MX formats

SCALAR_TYPE_BYTES = {
    "0": 1,  # uint8
    "1": 1,  # int8
    "3": 4,  # int32
    "5": 2,  # float16
    "6": 4,  # float32
    "7": 8,  # float64
    "15": 2,  # bfloat16
    "23": 1,  # float8_e5m2
    "24": 1,  # float8_e4m3fn
    "25": 1,  # float8_e5m2fnuz
    "26": 1,  # float8_e4m3fnuz
}
"""Element size of a ``dtype=`` argument, which is recorded as the number of c10::ScalarType."""


def bytes_per_element(dtype: str) -> int | None:
    """Bytes per element as the report sheets count them; None for an unknown dtype."""
    return SHEET_BYTES.get(dtype.lower())


def real_bytes_per_element(dtype: str) -> int | None:
    """Bytes per tensor element as they are; None for an unknown dtype."""
    return REAL_BYTES.get(dtype.lower())


def precision(dtype: str) -> str | None:
    """The precision key of the hardware peaks (``"bf16"``), or None where no peak applies."""
    return _PRECISIONS.get(dtype.lower())


def compute_spec(unit: str, dtype: str | None) -> str:
    """Name of the peak, ``"matrix_bf16"`` or ``"vector_fp32"``; ``""`` if the dtype has none."""
    key = precision(dtype or "")
    return f"{unit}_{key}" if key else ""


def is_floating(dtype: str) -> bool:
    """Whether a dtype name is that of a floating-point or complex type."""
    return any(mark in dtype.lower() for mark in ("float", "double", "half"))
