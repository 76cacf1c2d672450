"""What the comparative reports say of built pairs: names, gaps, what cannot be known."""

import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from jarvis.cli import main
from jarvis.core.workspace import RunPaths
from jarvis.pipeline import analyze, compare
from jarvis.reports.comparative import write_comparison
from jarvis.run import Run
from jarvis.text.format import MINUS
from jarvis.validation import validate
from tests.builders import TraceBuilder, all_reduce, trace
from tests.layout import checks as layout

H100, MI300X = "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X"
BF16 = ["c10::BFloat16"] * 2
SQUARE = [[4096, 4096], [4096, 4096]]
COLLECTIVE = all_reduce(1024, 8, **{"Process Group Ranks": "[0, 1]"})

Make = Callable[..., Run]


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The run of a built trace, made once: products of ``us`` each, copies and collectives."""

    @cache
    def make(
        device: str,
        us: float,
        *,
        calls: int = 2,
        casts: int = 0,
        collective_us: float = 0,
        model: str | None = None,
    ) -> Run:
        built = products(device, us, calls, casts)
        if collective_us:
            built.op("c10d::allreduce_")
            built.launches("ncclDevKernel", us=collective_us, stream=9, **COLLECTIVE)
        folder = tmp_path_factory.mktemp("made")
        path = built.write(folder / f"{device.split()[1].lower()}.json")
        return analyze(path, output_dir=folder / "run", model_name=model)

    return make


def products(device: str, us: float, calls: int, casts: int) -> TraceBuilder:
    """Products, and copies that only some traces have."""
    built = trace(device=device)
    for _ in range(calls):
        built.op("aten::mm", SQUARE, types=BF16).launches("gemm_kernel", us=us)
    for _ in range(casts):
        built.op("aten::copy_", [*SQUARE, []]).launches("cast_kernel", us=400)
    return built


def reports(target: Run, reference: Run, folder: Path, tolerance: float = 1.2) -> dict[str, str]:
    """Both reports; what is wrong with them fails."""
    folder.mkdir()
    compared = compare(target, reference, tolerance=tolerance)
    write_comparison(compared, target, reference, folder)
    assert [str(p) for outcome in validate(folder) for p in outcome.problems] == []
    assert layout.problems(folder) == {}
    paths = RunPaths(folder)
    kinds = ("fair", "rough")
    return {kind: paths.comparative_report(kind).read_text(encoding="utf-8") for kind in kinds}


def part(text: str, heading: str) -> str:
    """The text under a heading of the second level."""
    return text.partition(f"\n## {heading}")[2].partition("\n## ")[0]


def title(text: str) -> str:
    return text.partition("\n")[0]


def test_the_layout(make: Make, tmp_path: Path) -> None:
    reference = make(H100, 250, model="Tiny")
    target = make(MI300X, 900, model="Tiny")
    fair = reports(target, reference, tmp_path / "out")["fair"]
    assert title(fair) == "# Tiny Performance Comparison: H100 SXM vs MI300X"
    assert re.findall(r"^## (.*)", fair, re.MULTILINE) == [
        "Executive Summary",
        "Recommendations for MI300X",
        "Detailed Comparison",
        "Appendix",
    ]
    summary = part(fair, "Executive Summary")
    assert "Target: MI300X; reference: H100 SXM." in summary
    assert "| Part of the recording | Reference | Target | Difference | Δ |" in summary
    assert re.search(r"\| Compute \| 0.500 ms \(\S+%\) \| 1.80 ms \(\S+%\) \| 1.30 ms ", summary)
    assert "### Key Findings\n\n1. " in summary
    card = part(fair, "Recommendations for MI300X")
    assert re.search(
        r"^### (🔴|🟡|🟢) Priority 1 \(\w+\): `aten::mm` `.*` is much slower", card, re.MULTILINE
    )
    expected = "unexpected: should be about 39.8% slower, based on hardware"
    shapes = "`[4096,4096] bf16, [4096,4096] bf16`"
    assert f"- **Gap**: Target is 260.0% slower on `aten::mm` {shapes} ({expected})." in card
    for label in ("Action A (algorithmic)", "Action B (kernel only)", "Impact"):
        assert f"- **{label}**: " in card
    details = part(fair, "Detailed Comparison")
    assert "### 1. `aten::mm` [4096,4096] bf16, [4096,4096] bf16\n" in details
    assert "| Time | 0.500 ms | 1.80 ms | +260.0% | No: about +39.8% expected |" in details
    appendix = part(fair, "Appendix")
    assert "| Metric | Target Platform | Reference Platform | Expected time ratio |" in appendix
    assert "| Peak HBM Bandwidth | 5.30 TB/s | 3.35 TB/s | 0.632 |" in appendix
    assert "| Peak MAF matrix_bf16 | 708 TFLOP/s | 990 TFLOP/s | 1.40 |" in appendix
    assert "| Memory Size | 192 GB | 80 GB | — |" in appendix
    assert "Methodology" not in fair


def test_what_the_hardware_explains_is_no_recommendation(make: Make, tmp_path: Path) -> None:
    reference, target = (
        make(H100, 250),
        make(MI300X, 350),
    )
    fair = reports(target, reference, tmp_path / "out")["fair"]
    assert "Nothing needs attention" in part(fair, "Recommendations for MI300X")
    assert "| 0.500 ms | 0.700 ms | +40.0% | Yes |" in fair
    strict = reports(target, reference, tmp_path / "strict", tolerance=1.001)["fair"]
    assert "| 0.500 ms | 0.700 ms | +40.0% | No: about +39.8% expected |" in strict


def test_a_trace_against_itself_has_no_difference(make: Make, tmp_path: Path) -> None:
    run = make(MI300X, 900, casts=1)
    found = reports(run, run, tmp_path / "out")
    summary = part(found["fair"], "Executive Summary")
    assert "There is no difference between the two sides." in summary
    assert summary.count("| 0 ms | 0.0% |") == 3
    assert "Nothing follows" in found["fair"]
    assert "Priority 1" not in found["fair"] + found["rough"]
    assert "| 1.80 ms | 1.80 ms | 0.0% | Yes |" in found["fair"]
    assert "= 1.00 per call" in found["rough"]
    assert "Actual / expected = " not in found["rough"]


def test_exchanged_roles_mirror_the_differences(make: Make, tmp_path: Path) -> None:
    one, other = make(H100, 250), make(MI300X, 900)
    forth = reports(other, one, tmp_path / "forth")["fair"]
    back = reports(one, other, tmp_path / "back")["fair"]
    assert "| 0.500 ms | 1.80 ms | +260.0% | No: about +39.8% expected |" in forth
    assert f"| 1.80 ms | 0.500 ms | {MINUS}72.2% | No: about {MINUS}28.5% expected |" in back
    assert "Priority 1" not in back


def test_names_of_models(make: Make, tmp_path: Path) -> None:
    def names(reference: str | None, target: str | None) -> dict[str, str]:
        runs = make(MI300X, 900, model=target), make(H100, 250, model=reference)
        return reports(*runs, tmp_path / f"{reference}_{target}")

    end = "Performance Comparison: H100 SXM vs MI300X"
    assert title(names("A", "A")["fair"]) == f"# A {end}"
    differing = names("A", "B")
    assert title(differing["fair"]) == f"# A and B {end}"
    assert title(differing["rough"]) == f"# A and B {end} (Rough)"
    assert "The models differ by name: B on the target, A on the reference." in differing["fair"]
    assert title(names(None, "B")["fair"]) == f"# B {end}"
    assert title(names(None, None)["fair"]) == f"# h100 and instinct {end}"


def test_a_gpu_that_is_not_described(make: Make, tmp_path: Path) -> None:
    reference = make(H100, 250)
    target = make("Mystery 9000", 900)
    fair = reports(target, reference, tmp_path / "out")["fair"]
    assert "no operation has an expected ratio" in part(fair, "Recommendations for Mystery")
    assert "| 0.500 ms | 1.80 ms | +260.0% | Not known |" in fair
    assert "| Peak HBM Bandwidth | — | 3.35 TB/s | — |" in fair
    assert "The GPU of the target is not described, so no ratio is expected" in fair
    assert "[What Is Not Compared, and Why](#what-is-not-compared-and-why)" in fair


def test_work_of_the_target_alone(make: Make, tmp_path: Path) -> None:
    reference = make(MI300X, 900)
    target = make(MI300X, 900, casts=2)
    fair = reports(target, reference, tmp_path / "out")["fair"]
    card = part(fair, "Recommendations for MI300X")
    assert "- **Gap**: Target alone spends 0.800 ms on `aten::copy_` (no counterpart" in card
    assert re.search(r"^### 1\. .*: work that only the target does$", fair, re.MULTILINE)
    assert "Only on One Side" not in fair


def test_calls_that_differ_are_judged_per_call(make: Make, tmp_path: Path) -> None:
    reference = make(MI300X, 900, calls=2)
    target = make(MI300X, 900, calls=6)
    fair = reports(target, reference, tmp_path / "out")["fair"]
    assert "| 1.80 ms | 5.40 ms | +200.0% | Yes |" in fair
    assert "differ in the number of calls" in part(fair, "Executive Summary")


def test_collectives(make: Make, tmp_path: Path) -> None:
    reference = make(H100, 900, collective_us=300)
    target = make(MI300X, 900, collective_us=600)
    fair = reports(target, reference, tmp_path / "out")["fair"]
    assert "Both sides use the same collectives" in fair
    assert re.search(
        r"^\| allreduce \| Float \| 8 \| \S+ \| 1 / 1 \| 0.300 ms \| 0.600 ms \| \+100.0% \|$",
        fair,
        re.MULTILINE,
    )


def test_reports_in_place_of_traces(make: Make, tmp_path: Path) -> None:
    """What a performance report does not have is named, and no command is offered that needs it."""
    sides = {}
    for name, device, us, platform in (
        ("reference", H100, 250, "H100 SXM"),
        ("target", MI300X, 900, "MI300X"),
    ):
        traced = make(device, us)
        assert traced.root is not None
        sheets = shutil.copytree(traced.root / "perf_report_csvs", tmp_path / f"{name}_sheets")
        sides[name] = analyze(sheets, platform=platform, output_dir=tmp_path / name)
    fair = reports(sides["target"], sides["reference"], tmp_path / "out")["fair"]
    assert "- **Gap**: Target is 260.0% slower on `aten::mm`" in fair
    missing = fair.partition("### What Is Not Compared, and Why")[2].partition("###")[0]
    for role in ("Target", "Reference"):
        assert f"- {role}: Not in a TraceLens report: single kernels" in missing
    assert "| performance report | not named | MI300X |" in fair
    assert "jarvis replay" not in fair


def test_the_folder_of_the_command_is_valid(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(make(device, us).root) for device, us in ((H100, 250), (MI300X, 900))]
    out = tmp_path / "out"
    assert main(["compare", *folders, "--output-dir", str(out), "--tolerance", "1.5"]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "comparative_analysis_fair.md",
        "comparative_analysis_rough.md",
        "comparison.xlsx",
        "comparison_data",
        "reference_perf_report.xlsx",
        "target_perf_report.xlsx",
    ]
    rough = (out / "comparative_analysis_rough.md").read_text(encoding="utf-8")
    assert "--tolerance 1.5 --output-dir comparison" in rough
    assert main(["compare", *folders, "--output-dir", str(out)]) == 0  # again, in its place
    assert main(["validate", str(out)]) == 0
    assert "fail" not in capsys.readouterr().out


def test_what_takes_more_time_than_kernels_is_named(make: Make, tmp_path: Path) -> None:
    reference = make(H100, 900, collective_us=300)
    target = make(MI300X, 900, collective_us=9000)
    fair = reports(target, reference, tmp_path / "out")["fair"]
    reported = re.search(
        r"target's GPU computes (\S+)% of its step time and communicates alone", fair
    )
    assert reported
    assert float(reported[1]) < 50


def test_two_workloads_have_nothing_to_recommend(make: Make, tmp_path: Path) -> None:
    built = trace(device=H100).op("aten::add", SQUARE, types=BF16).launches("k", us=100)
    reference = analyze(built.write(tmp_path / "other.json"), output_dir=tmp_path / "other")
    fair = reports(make(MI300X, 900), reference, tmp_path / "out")["fair"]
    assert "no operation is compared" in part(fair, "Recommendations for MI300X")
    assert "No operation has a counterpart on the other side." not in fair
    assert "probably run different workloads" in fair


def test_analyze_takes_a_reference(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = make(H100, 250).root
    assert reference is not None
    monkeypatch.chdir(reference.parent)
    path = products(MI300X, 900, 2, 0).write(tmp_path / "target.json")
    out = tmp_path / "out"
    command = ["analyze", str(path), "--output-dir", str(out), "--reference"]
    assert main([*command, "nowhere"]) == 1
    assert not out.exists()
    assert main([*command, reference.name]) == 0
    assert f"{RunPaths(out).comparative_report('fair')}\n" in capsys.readouterr().out
    assert Run.load(out).manifest.reference == str(reference)
    assert main(["validate", str(out)]) == 0
    assert "- **Gap**: Target is 260.0% slower" in RunPaths(out).comparative_report(
        "fair"
    ).read_text(encoding="utf-8")
