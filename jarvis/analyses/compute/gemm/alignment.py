"""Evidence that the sizes of a matrix product prevent the use of fast kernels."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.analyses.call_times import typical_us
from jarvis.analyses.compute.gemm.messages import SHAPES
from jarvis.analyses.operations import parameters
from jarvis.perf_models.dtypes import bytes_per_element
from jarvis.schemas.names import C

ALIGNMENT = 64
PAST_ALIGNMENT = 7
"""Kernels are tuned for multiples of ALIGNMENT; a size up to PAST_ALIGNMENT above one is the worst
case."""

ALIGNED_BYTES = 16
"""Kernels load this many bytes at once, if rows in memory and the operands' addresses allow it."""

FASTER_PCT = 5.0
"""Minimum advantage in FLOPS/s of the same product with an aligned size, to be evidence."""

TENSOR_CORES_ARCHITECTURE = 80
"""Compute capability from which kernels of earlier generations are a fallback (sm_80)."""

_ALIGN = re.compile(r"_align[abc]?(\d+)(?!\d)")
_FALLBACK = re.compile(r"(?:^|[^a-z])(?:volta|turing)_(?!sgemm)|cutlass\w*_7[05]_")
_ROW_MAJOR = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"})
"""Operators whose operands are A[M,K] and B[K,N]; those of others may be stored transposed."""

SIDES = ("m", "n", "k")


@dataclass(frozen=True, slots=True)
class Misalignment:
    """Evidence of misaligned sizes, as values of a message.

    ``misaligned`` are the sizes at fault (``K=4103``), ``misaligned_note`` and ``align_advice`` ids
    of messages, ``odd_rows`` texts with size and bytes, ``load_elements`` and ``load_bytes`` the
    width of a load, ``neighbor`` the aligned size that is ``faster_pct`` faster.
    """

    misaligned: tuple[str, ...] = ()
    misaligned_note: str = ""
    align_advice: str = ""
    odd_rows: tuple[str, ...] = ()
    load_elements: int | None = None
    load_bytes: float | None = None
    neighbor: str | None = None
    faster_pct: float | None = None


NONE = Misalignment()
_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "misaligned": pl.List(pl.String),
    "misaligned_note": pl.String,
    "align_advice": pl.String,
    "odd_rows": pl.List(pl.String),
    "load_elements": pl.Int64,
    "load_bytes": pl.Float64,
    "neighbor": pl.String,
    "faster_pct": pl.Float64,
}


def misalignments(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the evidence for each product (columns: fields of ``Misalignment``).

    The kernel's name states a narrow load, or an older generation than the GPU's; a size that is
    contiguous in memory is not a multiple of ALIGNED_BYTES; or the same product with an aligned
    size is faster in this trace.
    """
    sizes = rows.with_columns(us=typical_us()).select(
        C.name, C.dtype, *SIDES, "b", "us", C.main_kernel, C.architecture
    )
    each = list(zip(sizes.iter_rows(named=True), parameters(rows), strict=True))
    aligned = _aligned(row for row, _ in each)
    found = [_of_row(row, params, aligned) for row, params in each]
    return pl.DataFrame([asdict(each) for each in found], schema=_SCHEMA)


Neighbors = Mapping[tuple[Any, ...], Sequence[tuple[int, float]]]
"""Aligned sizes of one side with their size per µs, by side and the rest of the product."""


def _of_row(row: Mapping[str, Any], params: Mapping[str, Any], aligned: Neighbors) -> Misalignment:
    if any(row[side] is None for side in SIDES):
        return NONE
    element_bytes = _element_bytes(params)
    odd = _odd_rows(row, params, element_bytes)
    sizes = tuple(_size(row, side) for side in odd)
    kernel = row[C.main_kernel] or ""
    load = min((int(n) for n in _ALIGN.findall(kernel)), default=None)
    if load is not None and element_bytes and load * element_bytes < ALIGNED_BYTES:
        return _found("load", sizes, load_elements=load, load_bytes=load * element_bytes)
    if _FALLBACK.search(kernel) and _is_newer(row[C.architecture]):
        return _found("fallback", sizes)
    if odd:
        texts = tuple(f"{_size(row, side)}: {nbytes:,.0f} bytes" for side, nbytes in odd.items())
        return _found("rows", sizes, odd_rows=texts)
    return _slower_than_neighbor(row, aligned)


def _found(evidence: str, sizes: tuple[str, ...], **values: Any) -> Misalignment:
    advice = "pad" if sizes else "layout"
    return Misalignment(
        sizes, SHAPES.id(f"misaligned.{evidence}"), SHAPES.id(f"align.{advice}"), **values
    )


def _size(row: Mapping[str, Any], side: str) -> str:
    return f"{side.upper()}={row[side]}"


def _element_bytes(params: Mapping[str, Any]) -> float | None:
    types = params.get("dtype_A_B")
    return bytes_per_element(str(types[0])) if isinstance(types, list) and types else None


def _odd_rows(
    row: Mapping[str, Any], params: Mapping[str, Any], element_bytes: float | None
) -> dict[str, float]:
    """Return the bytes of the contiguous sizes that are not multiples of ALIGNED_BYTES, by side."""
    if element_bytes is None:
        return {}
    # The output of narrow inputs is wider.
    nbytes = {
        side: row[side] * (max(element_bytes, 2) if side == "n" else element_bytes)
        for side in _contiguous(row[C.name], params)
    }
    return {s: n for s, n in nbytes.items() if row[s] > 1 and n % ALIGNED_BYTES}


def _contiguous(name: str, params: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sizes that are contiguous in an operand, by its strides, or in the output."""
    transposed = [_is_transposed(params.get(f"stride_{operand}")) for operand in "AB"]
    is_known = name in _ROW_MAJOR and None not in transposed
    if is_known and transposed[0]:
        yield "m"
    yield "n"
    if not is_known or not transposed[0] or transposed[1]:
        yield "k"


def _is_transposed(strides: object) -> bool | None:
    if not isinstance(strides, list) or len(strides) < 2:
        return None
    return bool(strides[-1] != 1 and strides[-2] == 1)


def _is_newer(architecture: str | None) -> bool:
    """Return whether the GPU is of a generation after those of the fallback kernels."""
    found = re.fullmatch(r"sm_(\d+)[a-z]?", architecture or "")
    return found is not None and int(found[1]) >= TENSOR_CORES_ARCHITECTURE


def _aligned(rows: Iterator[Mapping[str, Any]]) -> Neighbors:
    found: dict[tuple[Any, ...], list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        for side in SIDES:
            if row[side] and row[side] % ALIGNMENT == 0 and row["us"]:
                found[_rest(row, side)].append((row[side], row[side] / row["us"]))
    return found


def _rest(row: Mapping[str, Any], side: str) -> tuple[Any, ...]:
    return (side, *(row[each] for each in (C.name, C.dtype, "b", *SIDES) if each != side))


def _slower_than_neighbor(row: Mapping[str, Any], aligned: Neighbors) -> Misalignment:
    for side in SIDES:
        if not row["us"] or not 0 < row[side] % ALIGNMENT <= PAST_ALIGNMENT:
            continue
        near = [
            (rate * row["us"] / row[side], size)
            for size, rate in aligned.get(_rest(row, side), ())
            if abs(size - row[side]) < ALIGNMENT
        ]
        faster_pct = impact.FULL_PCT * (max(near, default=(0.0, 0))[0] - 1)
        if faster_pct > FASTER_PCT:
            neighbor = f"{side.upper()}={max(near)[1]}"
            sizes = (_size(row, side),)
            return _found("neighbor", sizes, neighbor=neighbor, faster_pct=faster_pct)
    return NONE
