"""Element sizes as the report sheets count them, and hardware peaks, by dtype."""

from jarvis.core.dtypes import element_bytes, find_dtype

INDEX_BYTES = 8  # kernels read and write int64 indices
HALF_PRECISION_BYTES = 2  # output of kernels with narrower operands
FP8_BYTES = 1
PACKED_FP4_BYTES = 0.5  # per element
SCALE_BYTES = 4  # float32 scale per token or group
MX_BLOCK = 32  # elements that share a one-byte scale in the MX formats

_SHEET_NAMES = (
    *("double", "float", "c10::half", "c10::bfloat16"),
    *("c10::float8_e4m3fn", "c10::float8_e4m3fnuz", "c10::float8_e5m2", "c10::float8_e8m0fnu"),
    *("c10::float4_e2m1fn_x2", "fp8", "fp4"),
    *("unsigned char", "signed char", "int", "long int"),
)
SHEET_BYTES = {name: element_bytes(name) for name in _SHEET_NAMES} | {"scalar": 4}
"""Element sizes in bytes as the report sheets count them, by lower-case dtype name.

TraceLens supports no other dtypes, and counts a Python scalar as one element of 4 bytes.
"""


def bytes_per_element(dtype: str) -> int | None:
    """Return the bytes per element as the report sheets count them, None for an unknown dtype."""
    return SHEET_BYTES.get(dtype.lower())


def precision(dtype: str) -> str | None:
    """Return the precision key of the hardware peaks (``"bf16"``), None if no peak applies."""
    found = find_dtype(dtype)
    return None if found is None else found.precision


def compute_spec(unit: str, dtype: str | None) -> str:
    """Return the name of the peak, ``"matrix_bf16"`` or ``"vector_fp32"``; ``""`` if none."""
    key = precision(dtype or "")
    return f"{unit}_{key}" if key else ""


def is_floating(dtype: str) -> bool:
    """Return whether a dtype name is that of a floating-point or complex type."""
    return any(mark in dtype.lower() for mark in ("float", "double", "half"))
