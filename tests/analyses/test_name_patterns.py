import polars as pl
import pytest

from jarvis.analyses.kernel_names import first_match, library

KINDS = (("softmax", "softmax"), ("maximum", "max"))


def test_the_first_pattern_that_matches_counts() -> None:
    names = pl.DataFrame({"name": ["aten::LogSoftmax", "aten::amax", "aten::sum", None]})
    assert names.select(first_match(pl.col("name"), KINDS, "other")).to_series().to_list() == [
        "softmax",
        "maximum",
        "other",
        "other",
    ]
    assert names.select(first_match(pl.col("name"), KINDS)).to_series()[2] is None


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("triton_poi_fused_cudnn_batch_norm_aiter_0", "Triton"),
        ("triton_tem_fused_mm_1", "Triton"),
        ("void fbgemm_gpu::split_embedding_kernel<float>", "FBGEMM"),
        ("void aiter::rmsnorm_kernel<8>", "AITER"),
        ("void waiter_kernel()", None),
    ],
)
def test_library_of_a_kernel(kernel: str, expected: str | None) -> None:
    assert pl.DataFrame({"name": [kernel]}).select(library(pl.col("name"))).item() == expected
