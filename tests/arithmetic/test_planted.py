"""The checks of this folder find what is wrong: numbers planted into reports and results."""

import json
import re
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.arithmetic import test_results
from tests.arithmetic.built_traces import BUILT
from tests.arithmetic.conftest import RunOf
from tests.arithmetic.documents import FAIR, Line, findings_file, findings_lines, report_lines
from tests.arithmetic.names import names_of
from tests.arithmetic.planted import altered, planted
from tests.arithmetic.reports import Checker
from tests.arithmetic.run_directory import RunDirectory

ONLY_IMPORT = "from jarvis.pipeline import analyze"
RECORDED = "mi300-resnet-ddp-checkpoint"
CARDS = ("Recommendations", "Detailed Analysis")


@pytest.mark.parametrize("name", [*BUILT, RECORDED])
def test_every_wrong_digit_is_found(
    name: str, run_of: RunOf, request: pytest.FixtureRequest
) -> None:
    if name == RECORDED:
        request.getfixturevalue("reference_root")
    run = run_of(name)
    checker = Checker(run)
    planted, missed = 0, []
    for line, key in _card_lines(run):
        for number, wrong in altered(line):
            planted += 1
            if not any(checker.problems_of(wrong, key)):
                missed.append(wrong.wrong(f"{number} was not missed"))
    assert planted > 1000
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize("name", [*BUILT, RECORDED])
def test_every_wrong_value_is_found(
    name: str, run_of: RunOf, request: pytest.FixtureRequest
) -> None:
    if name == RECORDED:
        request.getfixturevalue("reference_root")
    run = run_of(name)
    names, count, missed = names_of(run), 0, []
    for finding in deepcopy(run.findings):
        values = test_results.values_of(run, finding, names)
        for wrong in planted(finding):
            count += 1
            if not any(values.of_finding(finding)):
                missed.append(f"{finding['title']}: {wrong}")
    assert count > 500
    assert not missed, "\n".join(missed)


def _card_lines(run: RunDirectory) -> list[tuple[Line, str | None]]:
    fair: list[tuple[Line, str | None]] = [
        (line, None) for line in report_lines(run) if line.section in CARDS
    ]
    return fair + [(line, key) for key in run.results for line in findings_lines(run, key)]


KINDS = {
    "a number that nothing accounts for": (r"(- \*\*Issue\*\*: .*)", r"\1 The other 17 wait."),
    "another text of the card": (
        r"\*\*Action A\*\*: .*",
        "**Action A**: Wait.",
    ),
    "the time of another card": (r"take 2\.70 ms", "take 2.10 ms"),
    "a share of something else": (r"\(15\.3% of compute\)", "(11.9% of compute)"),
    "another bandwidth": (r"of 5\.30 TB/s\)", "of 3.35 TB/s)"),
    "another target": (r"approach (\S+ .s) \(80% of", r"approach \1 (70% of"),
    "the ends of a range swapped": (r"\(range (\S+) to (\S+) ms", r"(range \2 to \1 ms"),
    "another expectation": (r"where 70-80% is", "where 60-80% is"),
    "another threshold": (r"8-bit inputs", "4-bit inputs"),
    "a shape that no tensor has": (r"\[8192,8192\] bf16", "[8192,4096] bf16"),
    "a kernel that does not run": (r"`gemm_d_MT64x64x64`", "`gemm_d_MT128x64x64`"),
    "other shared time": (r"(\*\*Overlap:\*\* .*)P(\d+)", r"\1P99"),
    "the number of another card": (r"^### (\S+) P2 ", r"### \1 P3 "),
    "a projection": (r"^(\| 50% of peak \| [\d.]+ .s \| )\S+%", r"\g<1>12.3%"),
    "a measure": (r"^(\| Achieved \(TFLOP/s\) \| )\S+", r"\g<1>123"),
    "a row of operations": (r"^(\| `aten::mm` \S+ bf16, \S+ bf16 \| )\d+", r"\g<1>99"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_found_with_its_place(kind: str, run_of: RunOf) -> None:
    run = run_of("products-and-attention")
    checker = Checker(run)
    texts = {None: run.text(FAIR)} | {key: run.text(findings_file(run, key)) for key in run.results}
    key, report, wrong = next(
        (key, text, wrong)
        for key, text in texts.items()
        for wrong in (re.sub(*KINDS[kind], text, count=1, flags=re.MULTILINE),)
        if wrong != text
    )
    place = 1 + next(
        n
        for n, lines in enumerate(zip(report.splitlines(), wrong.splitlines(), strict=True))
        if lines[0] != lines[1]
    )
    name = FAIR if key is None else findings_file(run, key)
    assert not (checker.fair(report) if key is None else checker.findings(key, report))
    found = checker.fair(wrong) if key is None else checker.findings(key, wrong)
    assert any(problem.startswith(f"{name}:{place}: ") for problem in found), found


def _finding(results: Any, check: str) -> Any:
    return next(f for r in results.values() for f in r["findings"] if f["check"] == check)


def _quantity(results: Any) -> None:
    quantities = _finding(results, "low_efficiency")["quantities"]
    next(q for q in quantities if q["name"] == "compute_pct")["value"] *= 1.001


def _saving(results: Any) -> None:
    _finding(results, "low_efficiency")["impact"]["saved_ms"]["mid"] *= 1.001


def _share(results: Any) -> None:
    _finding(results, "exposed_communication")["impact"]["e2e_pct"]["high"] += 0.01


def _target(results: Any) -> None:
    _finding(results, "slow_kernel")["impact"]["target_pct"] = 80.0


def _priority(results: Any) -> None:
    _finding(results, "slow_kernel")["priority"] = "High"


def _message(results: Any) -> None:
    (message,) = _finding(results, "fusible_chain")["messages"]["issue"]
    message["values"]["times"]["values"]["instances"] += 1


def _category(results: Any) -> None:
    results["elementwise"]["percent_of_compute"] += 0.01


def _measure(results: Any) -> None:
    results["cpu_idle"]["metrics"]["longest_gap_ms"] *= 1.001


PLANTED: dict[Callable[[Any], None], Callable[[RunDirectory], None]] = {
    _quantity: test_results.test_the_values_of_findings,
    _saving: test_results.test_the_savings_of_findings,
    _share: test_results.test_the_savings_of_findings,
    _target: test_results.test_the_savings_of_findings,
    _priority: test_results.test_the_priorities_of_findings,
    _message: test_results.test_the_values_of_findings,
    _category: test_results.test_categories_add_up,
    _measure: test_results.test_the_measures_of_analyses,
}


@pytest.mark.parametrize("plant", PLANTED)
def test_wrong_results_are_found(
    plant: Callable[[Any], None], run_of: RunOf, tmp_path: Path
) -> None:
    run = run_of("training-with-waits")
    wrong = replace(run, root=Path(shutil.copytree(run.root, tmp_path / "run")))
    results = deepcopy(run.results)
    plant(results)
    (wrong.root / "results.json").write_text(json.dumps({"analyses": results}))
    PLANTED[plant](run)
    with pytest.raises(AssertionError):
        PLANTED[plant](wrong)


def test_the_arithmetic_is_its_own() -> None:
    """The checks would agree with any fault whose code they shared."""
    for path in Path(__file__).parent.glob("*.py"):
        imports = re.findall(r"^\s*((?:from|import) jarvis.*)$", path.read_text("utf-8"), re.M)
        allowed = {"conftest.py": [ONLY_IMPORT], "rendered.py": imports}
        assert imports == allowed.get(path.name, []), path.name
