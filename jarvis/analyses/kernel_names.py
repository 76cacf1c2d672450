"""Facts in the names of operators and GPU kernels: kind, library, tile, layout changes."""

import re
from collections.abc import Iterable

import polars as pl

from jarvis.schemas.names import C
from jarvis.text.format import MAX_NAME_LENGTH

FUSION_LIST = r"(triton_(?:poi|red|per|for))_fused\w*"
"""The list of fused operators in the name of a kernel that Inductor generated: the kernel is none
of them. Kernels from a template (``triton_tem_fused_mm``) are what their name lists."""


def family_name(name: str) -> str:
    """Return ``name`` without the operators that a compiled kernel lists."""
    return re.sub(FUSION_LIST, r"\1_", name)


def first_match(
    name: pl.Expr, patterns: Iterable[tuple[str, str]], otherwise: str | None = None
) -> pl.Expr:
    """Return the title of the first ``(title, pattern)`` that matches the lower-case ``name``.

    ``otherwise`` if none matches. Operators that a compiled kernel lists are ignored.
    """
    short = name.str.head(MAX_NAME_LENGTH).str.replace_all(FUSION_LIST, "${1}_")
    lower = short.str.to_lowercase()
    titles = [pl.when(lower.str.contains(pattern)).then(pl.lit(t)) for t, pattern in patterns]
    return pl.coalesce(*titles, pl.lit(otherwise, dtype=pl.String))


NATIVE_LIBRARY = "PyTorch native"
"""The framework's own kernels."""

CK = "CK"
"""Composable Kernel, whose types other libraries use too."""

LIBRARIES = (
    ("Triton", r"triton_(?:poi|red|per|for|tem)_"),
    ("FBGEMM", r"fbgemm"),
    ("AITER", r"(?:^|[^a-z])aiter"),
    (CK, r"ck_tile|_zn2ck|\bck::|fmhafwd|fmhabwd|fmha_fwd|fmha_bwd|kernel_gemm_xdl"),
    ("MIOpen", r"igemm_(?:fwd|bwd|wrw)_gtc|miopen|subtensorop|batched_transpose_|_nchw2|_cnhw2"),
    ("Tensile", r"cijk_"),
    ("rocPRIM", r"rocprim"),
    ("AOTriton", r"^attn_fwd|^attn_bwd|^bwd_kernel_d|^bwd_preprocess|^bwd_postprocess"),
    ("cuDNN", r"cudnn|implicit_convolve_sgemm"),
    ("FlashAttention", r"pytorch_flash|flash_fwd|flash_bwd"),
    ("cuBLAS", r"nvjet|cublas|sm\d+_xmma|gemmsn|gemvnsp|gemv2t|ampere_\w*gemm|volta_\w*gemm"),
    ("rocBLAS", r"wvsplitk|splitkreduce|rocblas"),
    ("CUTLASS", r"cutlass"),
    ("Triton", r"(?:^|[^a-z])triton"),
    (NATIVE_LIBRARY, r"at::native|at_cuda_detail"),
)
"""Library and the pattern of its kernel names (lower case), most specific first."""

GENERIC_NAME = r"(?i)(?:^|[^\w])(?:\w*entry\w*|kernel\w?|device_kernel|trampoline_kernel)$"
"""Functions that only run the code of a template argument."""

TILES = (
    r"_MT(\d+x\d+(?:x\d+)?)",
    r"tilesize(\d+x\d+x\d+)",
    r"nvjet_[a-z]+_(\d+x\d+)_",
    r"_bt(\d+x\d+x\d+)_",
    r"_(\d{2,}x\d{2,}x\d{2,})_\d+x\d+x\d+",
    r"_(\d+x\d+_\d+)x\d+_[nt]{2}",
    r"gemm\w*?_(\d+x\d+)_",
    r"_(\d{2,}x\d{2,})_\d+x\d+",
)
"""Patterns of macro tiles in kernel names; the first match counts."""


def main_kernel() -> pl.Expr:
    """Return the name of the kernel that takes most time in ``kernels``."""
    return pl.col(C.kernels).list.first().struct.field(C.name)


def library(kernel: pl.Expr) -> pl.Expr:
    """Return the library that a kernel name points to.

    Types of CK among the template arguments count only if the function has a generic name.
    """
    function = kernel.str.replace(r"<.*", "")
    ck, others = [
        [each for each in LIBRARIES if (each[0] == CK) is is_ck] for is_ck in (True, False)
    ]
    is_named = ~function.str.contains(GENERIC_NAME) & first_match(function, ck).is_null()
    return (
        pl.when(is_named)
        .then(first_match(kernel, others))
        .otherwise(first_match(kernel, LIBRARIES))
    )


def tile(kernel: pl.Expr) -> pl.Expr:
    """Return the macro tile that a kernel name states, as ``256x128x64`` or ``256x128``."""
    return pl.coalesce(kernel.str.extract(pattern) for pattern in TILES).str.replace("_", "x")


def time_us(pattern: str) -> pl.Expr:
    """Return the GPU time of the entries of ``kernels`` whose lower-case name matches
    ``pattern``."""
    entry = pl.element().struct
    is_match = entry.field(C.name).str.to_lowercase().str.contains(pattern)
    time = entry.field(C.total_us)
    return pl.col(C.kernels).list.eval(pl.when(is_match).then(time).otherwise(0.0)).list.sum()


def count_of(pattern: str) -> pl.Expr:
    """Return the number of launches in ``kernels`` whose lower-case name matches ``pattern``."""
    entry = pl.element().struct
    is_match = entry.field(C.name).str.to_lowercase().str.contains(pattern)
    count = entry.field(C.count)
    return pl.col(C.kernels).list.eval(pl.when(is_match).then(count).otherwise(0)).list.sum()


def names_by_time(rows: pl.DataFrame, pattern: str) -> list[str]:
    """Return the names of kernels that match in lower case, most time first."""
    kernels = rows.select(C.kernels).explode(C.kernels).unnest(C.kernels)
    matching = kernels.filter(pl.col(C.name).str.to_lowercase().str.contains(pattern))
    times = matching.group_by(C.name).agg(pl.col(C.total_us).sum())
    return times.sort(C.total_us, C.name, descending=[True, False])[C.name].to_list()
