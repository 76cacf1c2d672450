from collections.abc import Callable

import pytest

from jarvis.perf_models import OpCost, UnexpectedArgumentsError

Price = Callable[..., OpCost]

BF16 = "c10::BFloat16"


def test_causal_convolution(price: Price) -> None:
    name = "DaoAILab::_causal_conv1d_fwd_cpp"
    cost = price(name, [(2, 4, 8), (4, 3), (4,)], BF16)
    assert cost.flops == 2 * 64 * 3
    assert cost.bytes == (2 * 64 + 12 + 4) * 2
    assert cost.compute == "matrix_bf16"
    assert price(name, [(2, 4, 8), (4, 3), ()], BF16).bytes == (2 * 64 + 12) * 2
    with pytest.raises(UnexpectedArgumentsError):
        price(name, [(2, 4), (4, 3)], BF16)


def test_mamba(price: Price) -> None:
    """B, T = 1, 4; two heads of 2, one group, state 3, chunks of 2, convolution of 10 by 4."""
    dims = [(1, 4, 16), (10, 4), (10,), (2,), (2,), (2,)]
    types = [BF16, BF16, BF16, "float", "float", "float"]
    values = {6: "2", 15: "2", 16: "1"}
    for backward in (False, True):
        cost = price("MambaSplitConv1dScanCombinedFn", dims, types, values, backward=backward)
        assert cost.flops == 320 + 48 + 64 + 192
        assert cost.bytes == (64 + 40 + 10 + 16) * 2 + 3 * 2 * 4
        assert cost.compute == "matrix_bf16"
        assert (cost.params["N"], cost.params["chunk_size"]) == (3, 2)


@pytest.mark.parametrize("width", [10, 17])
def test_a_width_that_leaves_no_whole_state_is_refused(price: Price, width: int) -> None:
    dims = [(1, 4, width), (10, 4), (10,), (2,), (2,), (2,)]
    with pytest.raises(UnexpectedArgumentsError, match="does not fit"):
        price("MambaSplitConv1dScanCombinedFn", dims, BF16, {6: "2", 15: "2", 16: "1"})
