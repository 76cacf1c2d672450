import pytest

from jarvis.text.shapes import compact_dims, compact_shapes, product_shape
from jarvis.text.short_names import short_operation_name

X = "\N{MULTIPLICATION SIGN}"


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ('{"M":141,"N":512,"K":64,"B":1}', f"141{X}512{X}64"),
        ('{"M":141,"N":512,"K":64,"B":8}', f"141{X}512{X}64 (x8)"),
        ('{"M":141,"N":512,"K":64}', f"141{X}512{X}64"),
        ('{"M":141,"N":512,"K":64,"G":4}', None),
        ('{"M":141,"K":64}', None),
        ('{"M":null,"N":2,"K":64}', None),
        ('{"op_shape":[4]}', None),
        (None, None),
    ],
)
def test_the_sides_of_a_product(params: str | None, expected: str | None) -> None:
    assert product_shape(params) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("[512] bf16, [141,512] bf16", f"512, 141{X}512 bf16"),
        ("[2,3] bf16, [2,3] bf16, [4] fp32", f"2{X}3 bf16 (x2), 4 fp32"),
        ("[2,3], [] ", "[2,3], [] "),
        ("[] int64", "scalar int64"),
        ("[8,2]", f"8{X}2"),
        ("other text", "other text"),
        (None, None),
    ],
)
def test_compact_shapes(arguments: str | None, expected: str | None) -> None:
    assert compact_shapes(arguments) == expected


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ("((512,), (141, 512), (512, 512), (), ())", f"512, 141{X}512, 512{X}512"),
        ("((2, 3), (2, 3), ())", f"2{X}3 (x2)"),
        ("(((16, 32), (16, 32)), ())", f"16{X}32 (x2)"),
        ("((),)", "scalar"),
        (None, None),
    ],
)
def test_compact_dims(dims: str | None, expected: str | None) -> None:
    assert compact_dims(dims) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::addmm", "addmm"),
        ("triton_poi_fused_add_3", "triton_poi_fused_add_3"),
        (
            "Cijk_Alik_Bljk_BBS_BH_Bias_UserArgs_MT256x32x64_MI16x16x1",
            "Cijk_Alik_Bljk_BBS MT256x32x64",
        ),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bEEvPT0_", "add_rmsnorm_quant_kernel"),
        (
            "void at::native::vectorized_layer_norm_kernel<float>(int)",
            "vectorized_layer_norm_kernel",
        ),
        ("autograd::engine::evaluate_function: MmBackward0",) * 2,
        (
            "hipGraphLaunch->void paged_attention_ll4mi<bf16>(int) (Synthetic Op)",
            "paged_attention_ll4mi",
        ),
    ],
)
def test_short_operation_names(name: str, expected: str) -> None:
    assert short_operation_name(name) == expected
