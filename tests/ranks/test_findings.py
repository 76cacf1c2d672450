"""Findings on several ranks: simulated faults are named, and even jobs have none."""

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from jarvis.findings import AnalysisResult, Finding, Priority
from jarvis.ranks.categories import outliers
from jarvis.ranks.delays import delays, with_causes
from jarvis.ranks.findings import rank_findings
from jarvis.ranks.findings.facts import RankFacts
from jarvis.ranks.findings.lateness import latest_roots
from jarvis.ranks.join import Joined, join
from jarvis.ranks.members import Member
from jarvis.reports.ranks import nested
from jarvis.sample import Faults, Job
from jarvis.sample.faults import Late, Slow
from jarvis.text.messages import Message, to_text
from tests.ranks.built import US, members
from tests.ranks.built import job as job_of
from tests.ranks.simulated import recorded, simulated

RANKS, STEPS = 4, 4


def found(folder: Path, faults: Faults) -> tuple[Joined, AnalysisResult]:
    _, ranks = simulated(folder, Job(STEPS, RANKS, faults=faults))
    return with_findings(ranks)


def with_findings(ranks: list[Member]) -> tuple[Joined, AnalysisResult]:
    joined = join(ranks, RANKS)
    return joined, rank_findings(joined, RANKS)


@pytest.fixture(scope="module")
def slow_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Member]:
    """Return the ranks of an even job in which the kernels of rank 2 take 5% longer."""
    faults = Faults(is_even=True, slow=(Slow(2, 1.05),))
    return simulated(tmp_path_factory.mktemp("slow"), Job(STEPS, RANKS, faults=faults))[1]


@pytest.fixture(scope="module")
def slow(slow_ranks: list[Member]) -> tuple[Joined, AnalysisResult]:
    return with_findings(slow_ranks)


@pytest.fixture(scope="module")
def slow_link(tmp_path_factory: pytest.TempPathFactory) -> tuple[Joined, AnalysisResult]:
    """Return an even job of which a link has a tenth of its bandwidth."""
    return found(tmp_path_factory.mktemp("link"), Faults(is_even=True, slow_links={1: 0.1}))


def by_check(result: AnalysisResult) -> dict[str, Finding]:
    checks = {finding.check: finding for finding in result.findings}
    assert len(checks) == len(result.findings)
    return checks


def step_ms(finding: Finding) -> tuple[float, float]:
    assert finding.impact is not None
    assert finding.impact.step_ms is not None
    return finding.impact.step_ms.low, finding.impact.step_ms.high


def test_an_even_job_has_no_finding(tmp_path: Path) -> None:
    joined, result = found(tmp_path, Faults(is_even=True))
    assert result.findings == result.notes == ()
    assert outliers(joined.tables["rank_categories"]).is_empty()
    ratios = joined.tables["ranks"]["speed_ratio"].to_list()
    assert ratios == pytest.approx([1] * RANKS, abs=0.005)


def test_of_two_steps_a_note_says_why_no_rank_is_called_late(tmp_path: Path) -> None:
    faults = Faults(is_even=True, slow=(Slow(2, 1.05),))
    joined, result = with_findings(simulated(tmp_path, Job(2, RANKS, faults=faults))[1])
    gains = dict(joined.tables["ranks"].select("rank", "gain_low_ms").iter_rows())
    assert gains[2] == pytest.approx(1.9, abs=0.2)
    assert "late_rank" not in by_check(result)
    assert to_text(result.notes) == (
        "1 step between the edges of the recording can be compared. That a rank is late step after "
        "step is only said of 3 steps or more; the tables show which ranks were late."
    )


def test_a_slow_gpu_is_named(slow: tuple[Joined, AnalysisResult]) -> None:
    joined, result = slow
    checks = by_check(result)
    assert set(checks) == {"slow_gpu", "late_rank"}
    ratio = dict(joined.tables["ranks"].select("rank", "speed_ratio").iter_rows())[2]
    assert ratio == pytest.approx(1.05, abs=0.005)
    finding = checks["slow_gpu"]
    rows = [(number, each.check, whole) for number, each, whole in nested(result.findings)]
    assert rows == [(1, "late_rank", None), (2, "slow_gpu", 1)]
    assert to_text(checks["late_rank"].algorithmic).startswith("Compare its clocks")
    standing_out = outliers(joined.tables["rank_categories"])
    assert standing_out["rank"].unique().to_list() == [2]
    assert standing_out["category"][0] == "GEMM"
    assert standing_out["extra_pct"].to_list() == pytest.approx([5] * standing_out.height, abs=1)
    issue = to_text(checks["late_rank"].issue)
    assert re.search(
        r"GEMM kernels [\d.]+ ms \(`aten::mm` [\d.]+ ms: the same kernels take longer\)", issue
    )
    another = finding.model_copy(update={"evidence": {**finding.evidence, "rank": 3}})
    assert [whole for *_, whole in nested((another, *result.findings))] == [None, None, 2]
    assert finding.evidence["rank"] == 2
    assert "clocks" in to_text(finding.algorithmic)
    low, high = step_ms(finding)
    assert low == high == pytest.approx(1.9, abs=0.1)
    assert finding.priority is Priority.HIGH
    assert to_text(finding.caveat).startswith("Based on 4 ranks of 4; their clocks agree within")


def test_a_rank_that_began_later_hides_no_slow_gpu(tmp_path: Path) -> None:
    """The first step has three ranks: what it gains is between two bounds."""
    faults = Faults(is_even=True, slow=(Slow(2, 1.05),), steps_shift={1: 1})
    joined, result = found(tmp_path, faults)
    assert joined.tables["instances"]["step"].n_unique() == STEPS
    checks = by_check(result)
    assert set(checks) == {"slow_gpu", "late_rank"}
    low, high = step_ms(checks["slow_gpu"])
    assert low < high == pytest.approx(1.9, abs=0.1)
    assert low == pytest.approx(high, rel=0.1)
    assert to_text(result.notes) == (
        "The recording of rank 1 lacks up to 15 collectives that others have, in step 10: transfer "
        "is at most what is shown there."
    )


def test_delays_for_which_the_others_do_not_stop_computing_name_no_rank(
    slow: tuple[Joined, AnalysisResult],
) -> None:
    """In each step another rank is latest, at a collective that is hidden behind compute."""
    tables = slow[0].tables
    waits = tables["instances"].select("instance_id", "step", "exposed_wait_us")
    hidden = (
        tables["lateness"]
        .join(waits, on="instance_id")
        .sort("exposed_wait_us", "instance_id")
        .unique("step", keep="first", maintain_order=True)
    )
    assert hidden.height >= 3
    assert hidden["exposed_wait_us"].sum() < 0.05 * waits["exposed_wait_us"].sum()
    is_hidden = pl.col("instance_id").is_in(hidden["instance_id"].implode())
    late = tables["lateness"].with_columns(
        pl.when(is_hidden).then(10**9).otherwise("lateness_ns").alias("lateness_ns"),
        pl.when(is_hidden).then(0).otherwise("root_rank").alias("root_rank"),
    )
    result = rank_findings(replace(slow[0], tables={**tables, "lateness": late}), RANKS)
    assert by_check(result)["late_rank"].evidence["rank"] == 2


def test_a_rank_that_waits_for_its_data_in_each_step_is_named(tmp_path: Path) -> None:
    late = tuple(Late(1, 5.0, "loader", step) for step in range(STEPS))
    joined, result = found(tmp_path, Faults(is_even=True, late=late))
    (finding,) = result.findings
    assert finding.check == "late_rank"
    assert finding.evidence["rank"] == 1
    leads = joined.tables["rank_steps"].group_by("rank").agg(pl.col("launch_lead_us").median())
    lead_us = dict(leads.iter_rows())
    assert finding.evidence["launch_lead_us"] == lead_us[1]
    assert 0 < lead_us[1] < finding.evidence["usual_launch_lead_us"]
    issue = to_text(finding.issue)
    assert "3 other ranks wait for it" in issue
    assert "idle (data loading) 5.00 ms, but 1.74 ms less in all else" in issue
    assert to_text(finding.algorithmic).startswith("Speed up its data loading")
    assert step_ms(finding)[0] == pytest.approx(4.9, abs=0.1)
    causes = joined.tables["lateness_causes"]
    own = causes.unique("instance_id")
    made_up = [
        own.with_columns(
            state=pl.lit(state),
            detail=pl.lit(detail, pl.String),
            extra_ns=pl.lit(ms * 1000 * US, pl.Int64),
        )
        for state, detail, ms in (("compute", "gemm", 4), ("communication", None, -4))
    ]
    changed = {**joined.tables, "lateness_causes": pl.concat([causes, *made_up])}
    (both,) = rank_findings(replace(joined, tables=changed), RANKS).findings
    assert (
        "idle (data loading) 5.00 ms, gemm kernels 4.00 ms, but 5.74 ms less in all else, most in "
        "communication" in to_text(both.issue)
    )
    rows = delays(changed["lateness"], changed["instances"])
    delay = with_causes(rows, changed)
    late = delay.row(0, named=True)
    found_also = re.fullmatch(r"compute: gemm 4.0 ms, (\d\.\d+) ms less in all else", late["also"])
    assert found_also
    delay_ms = late["extra_ms"] + 4 - float(found_also[1])
    assert delay_ms == pytest.approx(late["own_lateness_ns"] / 1e6, abs=0.01)
    lateness = joined.tables["lateness"]
    roots = latest_roots(RankFacts(joined, RANKS))["root_instance"]
    is_own = pl.col("own_lateness_ns") >= pl.col("inherited_ns")
    known = lateness.filter(is_own, pl.col("instance_id").is_in(roots.implode()))["instance_id"]
    for kept, text in (
        (known[-1:], "Record more steps first: "),
        (known[:0], "Record more steps: "),
    ):
        is_late = pl.col("instance_id").is_in(kept.implode())
        own_ns = pl.when(is_late).then("own_lateness_ns").otherwise(10**12)
        fewer = {
            **joined.tables,
            "lateness": lateness.with_columns(own_ns.alias("own_lateness_ns")),
        }
        (finding,) = rank_findings(replace(joined, tables=fewer), RANKS).findings
        assert ("Where all ranks can be compared (1 step)" in to_text(finding.issue)) == len(kept)
        assert to_text(finding.algorithmic).startswith(text)
        assert ("Speed up its data loading" in to_text(finding.algorithmic)) == len(kept)


def test_an_issue_of_a_stored_run_is_still_a_sentence() -> None:
    values = {"steps": 3, "late_ranks": 3, "excess_pct": 6.9, "causes": None}
    text = to_text(Message(id="ranks.jitter.issue", values=values))
    assert text.startswith("The largest delays of 3 steps are from 3 ranks")


def test_another_late_rank_in_each_step_is_jitter(tmp_path: Path) -> None:
    late = tuple(Late(step, 6.0, "loader", step) for step in range(STEPS))
    _, result = found(tmp_path, Faults(is_even=True, late=late))
    (finding,) = result.findings
    assert finding.check == "jitter"
    assert "data loading" in to_text(finding.issue)
    assert step_ms(finding)[0] == pytest.approx(6.0, abs=0.3)


def test_more_work_than_the_mean_is_named(slow: tuple[Joined, AnalysisResult]) -> None:
    flops = [1e12, 1e12, 1.08e12, 1e12]
    work = slow[0].work.with_columns(flops=pl.Series(flops))
    assert (slow[0].work["rows"] == slow[0].work["mean_rows"]).all()
    uneven = rank_findings(replace(slow[0], work=work), RANKS)
    finding = by_check(uneven)["work_imbalance"]
    assert to_text(finding.title).startswith("Rank 2 computes 5.9% more than the mean of the ranks")
    issue = "It does 1.08 TFLOPs in a step; the mean of the ranks (in a pipeline, of its stage) is "
    assert to_text(finding.issue) == f"{issue}1.02 TFLOPs."
    tokens = work.with_columns(rows=pl.lit(1080.0), mean_rows=pl.lit(1000.0))
    uneven = rank_findings(replace(slow[0], work=tokens), RANKS)
    assert "have 1,080 rows on average" in to_text(by_check(uneven)["work_imbalance"].issue)
    assert step_ms(finding)[0] == pytest.approx(1.9, abs=0.1)
    even = rank_findings(replace(slow[0], work=work.with_columns(flops=pl.lit(1e12))), RANKS)
    assert "work_imbalance" not in by_check(even)


def test_small_messages_are_named(slow_link: tuple[Joined, AnalysisResult]) -> None:
    joined = slow_link[0]
    instances = joined.tables["instances"].with_columns(floor_us=pl.col("transfer_us") * 0.9)
    small = replace(joined, tables={**joined.tables, "instances": instances})
    (finding,) = rank_findings(small, RANKS).findings
    assert finding.check == "small_messages"
    assert "100.0%" in to_text(finding.issue)
    low, high = step_ms(finding)
    assert 1 < low < high < 3


def test_experts_with_more_tokens_are_named(slow_link: tuple[Joined, AnalysisResult]) -> None:
    def changed(sizes: list[int], floor: float | None = None) -> Joined:
        joined, rank = slow_link[0], pl.col("rank")
        instances = joined.tables["instances"].with_columns(
            kind=pl.lit("all_to_all_v"), floor_us=pl.col("transfer_us") * floor
        )
        received = dict(enumerate(sizes))
        kernels = joined.tables["instance_ranks"].with_columns(
            out_bytes=rank.replace_strict(received, return_dtype=pl.Int64)
        )
        pairs = joined.tables["pairs"].clear()
        sent = {"src": [0, 1, 3, 9], "dst": [2, 2, 2, 2], "bytes": [50, 120, 30, 500]}
        pairs = pl.concat([pairs, pl.DataFrame(sent)], how="diagonal")
        new = {"instances": instances, "instance_ranks": kernels, "pairs": pairs}
        return replace(joined, tables={**joined.tables, **new})

    finding = by_check(rank_findings(changed([100, 100, 200, 100]), RANKS))["ep_imbalance"]
    assert to_text(finding.issue).endswith("it receives most from rank 1: 120 B.")
    assert to_text(finding.title).startswith("Rank 2 receives 60.0% more than the mean")
    assert finding.evidence["rank"] == 2
    without_latency, _ = step_ms(finding)
    half = by_check(rank_findings(changed([100, 100, 200, 100], 0.4), RANKS))["ep_imbalance"]
    assert 0 < step_ms(half)[0] < without_latency
    all_latency = rank_findings(changed([100, 100, 200, 100], 1.0), RANKS)
    assert "ep_imbalance" not in by_check(all_latency)
    for even in ([100, 100, 115, 100], [0, 0, 0, 0]):
        assert "ep_imbalance" not in by_check(rank_findings(changed(even), RANKS))


def test_a_slow_link_is_named(slow_link: tuple[Joined, AnalysisResult]) -> None:
    (finding,) = slow_link[1].findings
    assert finding.check == "slow_link"
    assert finding.evidence["peak_gb_per_s"] == 192
    low, high = step_ms(finding)
    assert 1.5 < low < high < 2.5


def test_a_missing_rank_is_a_note(slow_ranks: list[Member]) -> None:
    joined, result = with_findings(slow_ranks[1:])
    assert result.findings == ()  # the missing rank may be as late
    high = dict(joined.tables["ranks"].select("rank", "gain_high_ms").iter_rows())[2]
    assert high == pytest.approx(1.9, abs=0.1)
    assert to_text(result.notes).startswith("1 rank of 4 is not recorded")


def test_ranks_that_send_different_sizes_do_not_match() -> None:
    at = [1_000 * US * number for number in range(4)]
    options = [{"seq": number} for number in range(len(at))]
    ranks = job_of([[begin] * 3 for begin in at], options=options)
    own = ranks[1].member(3)
    changed = own.tables["collectives"].with_columns(
        pl.when(pl.col("seq") == 2).then(8192).otherwise("in_bytes").alias("in_bytes")
    )
    parts = members(ranks)
    parts[1] = replace(own, tables={**own.tables, "collectives": changed})
    (finding,) = rank_findings(join(parts, 3), 3).findings
    assert finding.check == "mismatch"
    assert to_text(finding.title) == "Ranks send different sizes in 1 collective"
    assert "rank 1 sends 8.19 kB where another rank sends 4.10 kB" in to_text(finding.issue)


def test_half_of_a_recorded_job_names_no_rank(reference_root: Path) -> None:
    paths = sorted((reference_root / "ranks" / "dlrm-v100").iterdir())
    joined = join(recorded(paths), 8)
    result = rank_findings(joined, 8)
    assert result.findings == ()
    assert joined.tables["instances"]["transfer_is_bound"].all()
    assert to_text(result.notes).startswith("4 ranks of 8 are not recorded")
    ranks = joined.tables["ranks"]
    assert (ranks["gain_low_ms"] <= ranks["gain_high_ms"]).all()
