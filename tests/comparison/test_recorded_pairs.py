"""The recorded pairs: each number of a comparison worked out from the sheets of both reports.

That the sheets are right is for the conformance tests to say.
"""

import csv
import re
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from jarvis.comparison import Comparison
from jarvis.findings import Finding
from jarvis.pipeline import compare
from jarvis.run import Run
from tests.recorded_runs import RecordedRun
from tests.worded import Worded

csv.field_size_limit(10**9)

MODELS = ("qwen1.5-0.5b", "bert-small")
REFERENCE, TARGET = "h100", "mi300"
GB_PER_S = {REFERENCE: 3350, TARGET: 5300}
TFLOPS = {
    REFERENCE: {"matrix_bf16": 990, "vector_bf16": 133.8, "vector_fp32": 66.9},
    TARGET: {"matrix_bf16": 708, "vector_bf16": 163, "vector_fp32": 81},
}
KERNEL = re.compile(
    r"'name': '([^']*)', 'stream': \d+, 'count': (\d+), "
    r"'total_duration_us': ([\d.]+)"
)
KEY = ("name", "Input Dims", "Input type")
Row = dict[str, str]
Pair = tuple[str, Comparison]


@pytest.fixture(scope="module", params=MODELS)
def pair(request: pytest.FixtureRequest, runs: Callable[[str], Run]) -> Pair:
    model = request.param
    return model, compare(runs(f"{TARGET}-{model}"), runs(f"{REFERENCE}-{model}"))


@pytest.fixture(scope="module")
def runs(recorded_run: RecordedRun) -> Callable[[str], Run]:
    return cache(lambda name: Run.load(recorded_run(name)))


@pytest.fixture
def sheets(pair: Pair, runs: Callable[[str], Run]) -> Callable[[str, str], list[Row]]:
    def read(gpu: str, sheet: str) -> list[Row]:
        root = runs(f"{gpu}-{pair[0]}").root
        path = root / "perf_report_csvs" / f"{sheet}.csv"
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    return read


def known(text: str) -> float:
    return float(text) if text else 0.0


class Call:
    """The rows of one operation on one GPU, as the sheet has them."""

    def __init__(self, gpu: str, rows: list[Row]) -> None:
        self.count = sum(int(row["operation_count"]) for row in rows)
        self.us = sum(float(row["Kernel Time (µs)_sum"]) for row in rows)
        self.per_call_us = self.us / self.count
        row = rows[0]
        self.is_priced = row["GFLOPS"] != "" and row["Compute Spec"] in TFLOPS[gpu]
        if self.is_priced:
            flops, megabytes = known(row["GFLOPS"]) * 1e9, known(row["Data Moved (MB)"])
            compute_us = flops / TFLOPS[gpu][row["Compute Spec"]] / 1e6
            memory_us = megabytes * 2**20 / GB_PER_S[gpu] / 1e3
            self.bound = "compute" if compute_us >= memory_us else "memory"
            self.roofline_us = max(compute_us, memory_us)
            self.compute = row["Compute Spec"]
            self.is_short = self.per_call_us < 10 and self.roofline_us < 2


def calls(gpu: str, rows: list[Row]) -> dict[tuple[str, ...], Call]:
    grouped: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if known(row["Kernel Time (µs)_sum"]) > 0:
            grouped.setdefault(tuple(row[name] for name in KEY), []).append(row)
    return {key: Call(gpu, same) for key, same in grouped.items()}


def expected_ratios(target: Call, reference: Call) -> tuple[float, float]:
    ratio = hardware_ratio(target, reference)
    if min(target.roofline_us, reference.roofline_us) < 1:
        return 1.0, 1.0
    if target.is_short or reference.is_short:
        return min(ratio, 1.0), max(ratio, 1.0)
    return ratio, ratio


def hardware_ratio(target: Call, reference: Call) -> float:
    if target.bound != reference.bound:
        return target.roofline_us / reference.roofline_us
    if target.bound == "memory":
        return GB_PER_S[REFERENCE] / GB_PER_S[TARGET]
    return TFLOPS[REFERENCE][target.compute] / TFLOPS[TARGET][target.compute]


def compared(
    pair: Pair, sheets: Callable[[str, str], list[Row]]
) -> Iterator[tuple[dict, Call, Call]]:
    target, reference = (
        calls(gpu, sheets(gpu, "unified_perf_summary")) for gpu in (TARGET, REFERENCE)
    )
    assert target.keys() & reference.keys()
    rows = pair[1].operations.iter_rows(named=True)
    found = {(row["name"], row["input_dims"], row["input_types"]): row for row in rows}
    assert found.keys() == target.keys() & reference.keys()
    for key, row in found.items():
        yield row, target[key], reference[key]


def test_totals(pair: Pair, sheets: Callable[[str, str], list[Row]]) -> None:
    parts = {
        gpu: {row["type"]: float(row["time ms"]) for row in sheets(gpu, "gpu_timeline")}
        for gpu in (TARGET, REFERENCE)
    }
    rows = list(pair[1].totals.iter_rows(named=True))
    assert [row["type"] for row in rows] == list(parts[TARGET])
    for row in rows:
        target, reference = parts[TARGET][row["type"]], parts[REFERENCE][row["type"]]
        assert row["target_ms"] == pytest.approx(target)
        assert row["difference_ms"] == pytest.approx(target - reference)
        if reference > 0:
            change = 100 * (target - reference) / reference
            assert row["difference_pct"] == pytest.approx(change)
        else:
            assert row["difference_pct"] is None


def test_every_number_of_the_operations(
    pair: Pair, sheets: Callable[[str, str], list[Row]]
) -> None:
    priced = 0
    for row, target, reference in compared(pair, sheets):
        ratio = target.per_call_us / reference.per_call_us
        assert row["target_calls"] == target.count
        assert row["reference_calls"] == reference.count
        assert row["target_ms"] == pytest.approx(target.us / 1e3)
        assert row["reference_ms"] == pytest.approx(reference.us / 1e3)
        assert row["difference_ms"] == pytest.approx((target.us - reference.us) / 1e3)
        change = 100 * (target.us - reference.us) / reference.us
        assert row["difference_pct"] == pytest.approx(change)
        assert row["time_ratio"] == pytest.approx(ratio)
        if not (target.is_priced and reference.is_priced):
            continue
        priced += 1
        least, most = expected_ratios(target, reference)
        assert (row["bound"], row["reference_bound"]) == (target.bound, reference.bound)
        assert row["expected_ratio_least"] == pytest.approx(least)
        assert row["expected_ratio_most"] == pytest.approx(most)
        assert row["expected_ratio"] == (pytest.approx(most) if least == most else None)
        attainable_us = max(reference.per_call_us * most, target.roofline_us)
        assert row["attainable_ms"] == pytest.approx(attainable_us * target.count / 1e3)
        assert row["efficiency_pct"] == pytest.approx(100 * target.roofline_us / target.per_call_us)
        assert row["outcome"] == outcome(target, reference, ratio / least, ratio / most)
        if row["outcome"] in ("slower", "much slower"):
            gap_ms = (target.per_call_us - attainable_us) * target.count / 1e3
            assert row["unexplained_ms"] == pytest.approx(gap_ms)
    assert priced >= pair[1].operations.height / 2


def outcome(target: Call, reference: Call, over_least: float, over_most: float) -> str:
    if target.is_short and reference.is_short:
        return "too short"
    if over_most > 1.2:
        return "much slower" if over_most > 2 else "slower"
    if over_least < 1 / 1.2:
        return "much faster" if over_least < 1 / 2 else "faster"
    return "as expected"


def test_kernels(pair: Pair, sheets: Callable[[str, str], list[Row]]) -> None:
    for gpu, side in ((TARGET, "target"), (REFERENCE, "reference")):
        times: dict[str, float] = {}
        counts: dict[str, int] = {}
        for row in sheets(gpu, "unified_perf_summary"):
            for name, count, us in KERNEL.findall(row["kernel_details_summary"]):
                times[name] = times.get(name, 0) + float(us) / 1e3
                counts[name] = counts.get(name, 0) + int(count)
        found = {row["kernel"]: row for row in pair[1].kernels.iter_rows(named=True)}
        assert set(times) == {name for name, row in found.items() if row[f"{side}_launches"]}
        for name, time_ms in times.items():
            assert found[name][f"{side}_ms"] == pytest.approx(time_ms), name
            assert found[name][f"{side}_launches"] == counts[name]


def test_categories_add_up_to_the_operations(pair: Pair) -> None:
    found = pair[1]
    for side in (found.target, found.reference):
        role = "target" if side is found.target else "reference"
        sums: dict[str, float] = {}
        for row in side.tables["operations"].iter_rows(named=True):
            sums[row["category"]] = sums.get(row["category"], 0.0) + row["kernel_time_us"] / 1e3
        rows = {row["category"]: row for row in found.categories.iter_rows(named=True)}
        assert {key: rows[key][f"{role}_ms"] for key in sums} == pytest.approx(sums)


def test_findings_gather_the_rows_that_are_slower_than_explained(pair: Pair) -> None:
    found = pair[1]
    compute_ms = found.target.compute_ms
    gaps: dict[str, list[dict]] = {}
    for row in found.operations.iter_rows(named=True):
        if row["outcome"] in ("slower", "much slower"):
            gaps.setdefault(row["name"], []).append(row)
    expected = {
        name: rows
        for name, rows in gaps.items()
        if sum(row["target_ms"] for row in rows) >= 0.01 * compute_ms
        and sum(row["unexplained_ms"] for row in rows) >= max(0.005 * compute_ms, 0.01)
    }
    assert {finding.operations[0].name for finding in found.findings} == set(expected)
    for finding in found.findings:
        check_finding(finding, expected[finding.operations[0].name], compute_ms)


def check_finding(finding: Finding, rows: list[dict], compute_ms: float) -> None:
    gap_ms = sum(row["unexplained_ms"] for row in rows)
    sure_ms = sum(max(0, row["target_ms"] - 1.2 * row["attainable_ms"]) for row in rows)
    time_ms = sum(row["target_ms"] for row in rows)
    as_many_ms = sum(row["target_ms"] / row["time_ratio"] for row in rows)
    assert finding.impact is not None
    saved, share = finding.impact.saved_ms, finding.impact.compute_pct
    assert (saved.low, saved.high) == pytest.approx((sure_ms, gap_ms))
    assert saved.mid == pytest.approx((sure_ms + gap_ms) / 2)
    assert share.high == pytest.approx(100 * gap_ms / compute_ms)
    facts = finding.evidence
    assert facts["gpu_time_ms"] == pytest.approx(time_ms)
    assert facts["slower_pct"] == pytest.approx(100 * (time_ms / as_many_ms - 1))
    attainable_ms = sum(row["attainable_ms"] for row in rows)
    assert facts["expected_pct"] == pytest.approx(100 * (attainable_ms / as_many_ms - 1))


def test_attention_is_what_to_look_at_in_both_pairs(pair: Pair) -> None:
    first = Worded(pair[1].findings[0])
    assert "flash_attention" in first.title
    assert first.title.endswith("is much slower than the hardware explains")
    assert "attn_fwd" in first.kernel
    assert pair[1].unmatched.is_empty()
    assert all("have no recorded launch" in text for text in pair[1].unknown)
