"""What findings advise, and how they word what a trace cannot show."""

import re

import pytest

from jarvis.analyses import checks, load_analyses
from jarvis.analyses.compute.convolution import overheads
from jarvis.text.messages import tables
from tests.analyses.rows import category, operation
from tests.analyses.test_convolution import conv
from tests.analyses.test_gemm import gemm
from tests.layout.wording import CLAIMS, VENDOR_WORDS
from tests.reports.conftest import Analyzed
from tests.test_language import own_words
from tests.worded import Worded, in_words

low_efficiency = in_words(checks.low_efficiency)
layout_transposes = in_words(overheads.layout_transposes)


def product(**values: object) -> Worded:
    (found,) = low_efficiency(category("gemm", gemm(4096, 4096, 4096, **values)))
    return found


def test_products_bound_by_memory_get_the_usual_advice() -> None:
    found = product(bound="memory", bytes=1e8)
    for advice in ("Batch more rows", "fuse", "sparsity", "W8A8, FP8"):
        assert advice in found.algorithmic
    assert "Bandwidth below expectation is a kernel opportunity" in found.kernel
    assert "replay package" in found.kernel


def test_products_bound_by_compute_get_the_usual_advice() -> None:
    found = product()
    for advice in ("Tune tile sizes and kernel selection", "replay package"):
        assert advice in found.kernel


def test_tiny_batches_get_the_usual_advice() -> None:
    (found,) = low_efficiency(category("gemm", gemm(8, 16, 32, b=2000)))
    assert "bmm or grouped GEMM" in found.algorithmic
    assert "more than 5 times slower" in found.kernel


def test_quantized_products_are_to_be_validated_and_replayed() -> None:
    (found,) = low_efficiency(category("gemm", gemm(4096, 4096, 4096, name="vllm::w8a8_gemm")))
    assert "a different efficiency profile" in found.issue
    assert "Validate the scheme" in found.algorithmic
    assert "calibration" in found.algorithmic
    assert "replay package" in found.kernel


def test_many_calls_of_one_product_are_to_be_batched() -> None:
    row = gemm(144, 512, 512, count=250, roofline_time_us=0.3, time_us=1500.0)
    (found,) = low_efficiency(category("gemm", row))
    assert "Batch more rows" in found.algorithmic
    assert "each of the 250 calls" in found.algorithmic
    assert "torch.compile may batch them" in found.algorithmic


@pytest.mark.parametrize("bound", ["compute", "memory"])
def test_what_a_trace_cannot_show_is_left_to_a_profiler_on_the_replay_package(bound: str) -> None:
    found = product(bound=bound, bytes=1e8)
    assert found.capture is not None
    assert "A trace does not show why" in found.capture
    assert "replay package" in found.capture
    assert "hardware-counter profiler" in found.capture
    assert found.hypothesis is None


@pytest.mark.parametrize(
    ("made", "algorithmic", "kernel"),
    [
        (conv((64, 64, 5, 5)), "fuse the following normalization", "tune the tiles"),
        (conv((64, 64, 1, 1)), "fuse the following normalization", "plain matrix product"),
        (
            conv((64, 1, 3, 3), groups=64),
            "Fuse it with the following pointwise",
            "specialized for depthwise",
        ),
    ],
    ids=["large", "1x1", "depthwise"],
)
def test_kinds_of_convolution_get_the_usual_advice(
    made: dict, algorithmic: str, kernel: str
) -> None:
    row = made | {"pct_roofline": 10.0, "bound": "compute", "has_perf_model": True}
    (found,) = low_efficiency(category("convolution", row))
    assert algorithmic in found.algorithmic
    assert kernel in found.kernel
    assert "replay package" in found.kernel


@pytest.mark.parametrize(("share", "verb"), [(42.0, "Convert"), (15.0, "Consider converting")])
def test_the_layout_advice_follows_the_overhead(share: float, verb: str) -> None:
    row = conv(time_us=5000.0, transposes_us=50 * share)
    (found,) = layout_transposes(category("convolution", row))
    assert found.algorithmic.startswith(f"{verb} the model and its input to channels_last")
    assert found.hypothesis is not None
    assert "channels-first" in found.hypothesis


def test_layout_comes_first_where_transposes_cost_time() -> None:
    row = conv(transposes_us=390.0)
    row |= {"pct_roofline": 20.0, "bound": "compute", "has_perf_model": True}
    (found,) = low_efficiency(category("convolution", row))
    assert "change the layout first" in found.algorithmic


def test_memory_bound_operators_are_fused_or_replayed() -> None:
    row = operation("aten::foo", time_us=2000.0, pct_roofline=10.0, bound="memory")
    (found,) = low_efficiency(category("other", row))
    assert found.algorithmic.startswith("Fuse `aten::foo`")
    assert "replay package" in found.kernel


def test_causes_are_called_likely_and_hypotheses(busy: Analyzed) -> None:
    texts = busy.markdown()
    reported = "".join(own_words(text) for text in texts.values())
    assert "Likely cause (hypothesis)" in reported
    assert not CLAIMS.search(reported)
    assert not re.search(r"\bcaused by\b|\bbecause of\b", reported)


def test_vendors_stand_in_quoted_names_only(busy: Analyzed) -> None:
    texts = busy.markdown()
    name = "category_findings/gemm_findings.md"
    for file, text in texts.items():
        without_peaks = re.sub(r"### Hardware Reference.*?\n### ", "", text, flags=re.DOTALL)
        words = own_words(without_peaks.replace("AMD Instinct MI300X", ""))
        assert not VENDOR_WORDS.search(words), file
    assert "`Cijk_Alik_Bljk_BBS_BH_MT256x128x64`" in texts[name]
    system = texts["system_findings/multi_kernel_findings.md"]
    for words in ("collective communication", "D2H", "H2D", "Compute/Communication Overlap"):
        assert words.lower() in system.lower()


def test_libraries_are_named_by_what_they_do() -> None:
    load_analyses()
    texts = [text for table in tables().values() for text in table.values()]
    assert any("DNN library" in text for text in texts)
    assert any("GPU graph" in text for text in texts)
    assert not [text for text in texts if VENDOR_WORDS.search(own_words(text))]
