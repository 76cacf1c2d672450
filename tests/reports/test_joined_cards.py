"""Kernels without operators: one card for one reason, under their own names."""

import pytest

from jarvis.findings import OpRef, Priority
from jarvis.pipeline import analyze
from jarvis.reports.details import details_of
from jarvis.reports.fair import joined
from jarvis.reports.sections import kernel_without_operator, operation_line
from jarvis.validation import is_valid, validate
from tests.builders import trace
from tests.layout import checks as layout
from tests.reports.conftest import Analyzed
from tests.reports.test_markdown_reports import section

GEMM = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1_SN_LDSB1"
NORM = "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256E"


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Analyzed:
    root = tmp_path_factory.mktemp("replayed")
    built = trace("AMD Instinct MI300X").graph((GEMM, 900), (NORM, 400))
    run = analyze(built.write(root / "trace.json"), output_dir=root / "run")
    return Analyzed(run, root / "run")


def test_one_reason_is_one_card(replayed: Analyzed) -> None:
    fair = replayed.text("standalone_analysis_fair.md")
    cards = section(fair, "Recommendations")
    assert cards.count("No perf model: kernels replayed from a GPU graph") == 1
    assert "P1 and P2 (Medium): No perf model: kernels replayed from a GPU graph" in cards
    assert (
        "efficiency of those of GEMM with 0.900 ms (69.2% of compute) and Normalization with"
        in cards
    )
    assert "[Detailed Analysis: GEMM](#p1-no-perf-model-gemm-" in cards
    assert ", [Normalization](#p2-no-perf-model-normalization-" in cards


def test_joined_cards_pass_the_checks(replayed: Analyzed) -> None:
    assert is_valid(validate(replayed.root))
    assert layout.problems(replayed.root) == {}


def test_kernels_without_operators_have_their_own_names(replayed: Analyzed) -> None:
    fair = replayed.text("standalone_analysis_fair.md")
    assert f"- **Operation**: `{GEMM}` (1 launch), `{NORM}` (1 launch)" in fair
    assert f"| 1 | `{GEMM}` | 1 | 0.900 | 100.0% |" in fair
    assert "Synthetic Op" not in fair
    assert "Kernels of these operations" not in fair


def test_different_reasons_stay_apart(sample: Analyzed) -> None:
    details = [d for d in details_of(sample.run) if d.finding.priority is not Priority.LOW]
    cards = joined(details)
    assert [card.parts for card in cards] == [(detail,) for detail in details]
    assert [card.label for card in cards] == [d.recommendation.label for d in details]


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("hipGraphLaunch->k<a->b> (Synthetic Op)", "k<a->b>"),
        ("aten::mm", None),
        ("a->b", None),
        ("aten::add (Synthetic Op)", None),
    ],
)
def test_the_kernel_in_a_name(name: str, kernel: str | None) -> None:
    assert kernel_without_operator(name) == kernel


def test_operators_beside_kernels_are_called() -> None:
    names = ("hipGraphLaunch->k (Synthetic Op)", "aten::mm", "aten::b", "aten::c")
    line = operation_line(OpRef(uid=i, name=n, operation_count=2) for i, n in enumerate(names))
    assert line == "`k` (2 calls), `aten::mm` (2 calls), `aten::b` (2 calls) and 1 more operator"
