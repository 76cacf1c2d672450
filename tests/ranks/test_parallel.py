"""A simulated job that is divided in four ways, against what is true of it."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from jarvis.cli import main
from jarvis.core.errors import JarvisError
from jarvis.perf_report import PerfReport
from jarvis.ranks.findings import rank_findings
from jarvis.ranks.findings.facts import RankFacts
from jarvis.ranks.findings.overlap import exposed_transfer
from jarvis.ranks.gain import StepGain
from jarvis.ranks.join import Joined, join
from jarvis.ranks.members import Member
from jarvis.ranks.roles import role_in_description
from jarvis.sample import Faults, Job, Parallel, write_job
from jarvis.sample.faults import Late
from jarvis.text.messages import to_text
from jarvis.trace import read_trace
from tests.ranks.built import US, BuiltRank, Kernel, members
from tests.ranks.simulated import TABLES

DIVISION = Parallel(tp=2, pp=2, dp=2, ep=2)
RANKS, STEPS, FIRST_STEP = DIVISION.world_size, 3, 10
LATE_MS, LATE_RANKS = 25.0, {1: 1, 2: 4}
"""By step: rank 1 is in the first stage, and its lateness goes on to the second; rank 4 is in the
second one."""
HOT_RANK = 7


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[Member]]:
    folder = tmp_path_factory.mktemp("parallel")
    late = tuple(Late(rank, LATE_MS, "loader", step) for step, rank in LATE_RANKS.items())
    faults = Faults(is_even=True, late=late, hot_experts={HOT_RANK: 1.5})
    paths = {rank: folder / f"rank{rank}.json" for rank in range(RANKS)}
    truth = write_job(Job(STEPS, RANKS, 1, "wide", faults, DIVISION), paths)
    return truth, [member(rank, path) for rank, path in paths.items()]


def member(rank: int, path: Path) -> Member:
    trace = read_trace(path)
    report = PerfReport(trace, None)
    return Member(rank, path.name, trace.info, {name: report.table(name) for name in TABLES})


@pytest.fixture(scope="module")
def joined(job: tuple[dict[str, Any], list[Member]]) -> Joined:
    return join(job[1], RANKS)


def with_group_of(found: Joined) -> pl.DataFrame:
    groups = found.tables["communicators"].select("comm_id", "role", "ranks")
    return found.tables["instances"].join(groups, on="comm_id")


def test_every_collective_is_that_of_the_job(
    job: tuple[dict[str, Any], list[Member]], joined: Joined
) -> None:
    """Groups of one name are separated, each send has its receive, and all clocks agree."""
    instances = job[0]["instances"]
    assert joined.tables["unmatched"].is_empty()
    assert set(joined.tables["clocks"]["clock_quality"]) == {"fine"}
    assert joined.tables["ranks"]["clock_offset_us"].to_list() == [0] * RANKS
    kernels = joined.tables["instance_ranks"].sort("rank")
    rows = joined.tables["instances"].sort("last_ns")
    assert rows.height == len(instances)
    assert not rows["transfer_is_bound"].any()
    first_us = min(min(each["arrivals_us"]) for each in instances)
    of_ranks = kernels.group_by("instance_id").agg("rank", "start_ns", "wait_ns")
    found = sorted(
        (row["kind"], row["rank"], row["start_ns"], row["wait_ns"], row["bytes"], row["step"])
        for row in rows.join(of_ranks, on="instance_id").iter_rows(named=True)
    )
    true = sorted(_true(each, first_us) for each in instances)
    assert found == true


def _true(each: dict[str, Any], first_us: float) -> tuple[Any, ...]:
    columns = zip(each["ranks"], each["arrivals_us"], each["waits_us"], strict=True)
    ranks, arrivals, waits = zip(*sorted(columns), strict=True)
    starts = [round(1e3 * (arrival - first_us)) for arrival in arrivals]
    waits = [round(1e3 * wait) for wait in waits]
    step = FIRST_STEP + each["step"]
    return each["kind"], list(ranks), starts, waits, each["bytes"], step


@pytest.mark.parametrize("has_description", [True, False])
def test_roles_of_groups_and_places_of_ranks(
    job: tuple[dict[str, Any], list[Member]], has_description: bool
) -> None:
    numbers = {name: str(n) for n, name in enumerate(("0", "tp", "dp", "pp", "ep", "edp"))}

    def plain(rank: Member) -> Member:
        kernels = rank.tables["collectives"].with_columns(
            pg_desc=pl.lit("undefined"), group=pl.col("group").replace(numbers)
        )
        return replace(rank, tables={**rank.tables, "collectives": kernels})

    found = join([r if has_description else plain(r) for r in job[1]], RANKS).tables
    stages = [[0, 1, 2, 3], [4, 5, 6, 7]]
    pairs = [[f"{a}-{a + 1}", f"{a + 2}-{a + 3}"] for a, *_ in stages]
    tensors = {text for of_stage in pairs for text in of_stage}
    data = {f"{a + place}, {a + place + 2}" for a, *_ in stages for place in (0, 1)}
    roles = {
        role: set(rows["ranks"])
        for (role,), rows in found["communicators"].group_by("role", maintain_order=True)
    }
    assert roles == {
        "tp": tensors,
        "ep": tensors,
        "dp": data,
        "pp": {f"{place}, {place + 4}" for place in range(4)},
        "group of 8 (stride 1)": {"0-7"},
    }
    places = found["ranks"].select("dp", "tp", "pp", "ep")
    assert places.rows() == [(r // 2 % 2, r % 2, r // 4, r % 2) for r in range(RANKS)]


@pytest.mark.parametrize(
    ("description", "role"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("mesh_tp", "tp"),
        ("EXPERT_DATA_PARALLEL_GROUP", "dp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("mesh_dp_shard", "dp"),
        ("context_parallel", "cp"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", None),
        ("default_pg", None),
        ("undefined", None),
        (None, None),
    ],
)
def test_descriptions_state_roles(description: str | None, role: str | None) -> None:
    assert role_in_description(description) == role


def test_lateness_is_followed_through_groups_and_stages(joined: Joined) -> None:
    late = joined.tables["lateness"].join(
        with_group_of(joined).select("instance_id", "role", "step"), on="instance_id"
    )
    clear = late.filter(pl.col("lateness_ns") > 0.4e6 * LATE_MS)
    true = pl.col("step").replace_strict(
        {FIRST_STEP + step: rank for step, rank in LATE_RANKS.items()}, default=None
    )
    assert clear.filter(pl.col("role") == "dp").height >= 12
    assert clear.filter(pl.col("role") == "pp").height >= 8
    assert (clear["root_rank"] == clear.select(true).to_series()).mean() >= 0.95


def test_the_command_divides_a_job(tmp_path: Path) -> None:
    output = ["--scale", "tiny", "--steps", "1", "-o", str(tmp_path / "o" / "t.json")]
    assert (
        main(["sample", "--parallel", "tp=2,pp=1,dp=2,ep=4", "--slow-link", "1:0.5", *output]) == 0
    )
    truth = json.loads((tmp_path / "o" / "truth.json").read_bytes())
    assert truth["parallel"] == {"tp": 2, "pp": 1, "dp": 2, "ep": 4}
    assert sorted(truth["files"]) == ["0", "1", "2", "3"]
    for text in ("tp=2,xp=1", "tp=a", "tp=0", "tp=2,ep=3"):
        with pytest.raises(JarvisError):
            Parallel.of(text)
    with pytest.raises(JarvisError, match="8 ranks, the job 4"):
        Job(1, 4, parallel=DIVISION)


def test_pairs_are_what_ranks_send_to_each_other(
    job: tuple[dict[str, Any], list[Member]], joined: Joined
) -> None:
    true: dict[tuple[int, int], list[int]] = {}
    for rank in job[1]:
        for event in json.loads(Path(rank.info.path).read_bytes())["traceEvents"]:
            args = event.get("args", {}) if event.get("cat") == "kernel" else {}
            sent = {}
            if args.get("Collective name") == "send":
                sent = {args["Dst Rank"]: 2 * args["In msg nelems"]}
            if args.get("Collective name") == "all_to_allv":
                rows = json.loads(args["In split size"])
                group = json.loads(args["Process Group Ranks"])
                width = 2 * args["In msg nelems"] // sum(rows)
                sent = {to: width * n for to, n in zip(group, rows, strict=True) if to != rank.rank}
            for to, nbytes in sent.items():
                pair = true.setdefault((rank.rank, to), [0, 0])
                pair[0] += nbytes
                pair[1] += 1
    pairs = joined.tables["pairs"]
    found = {(src, dst): [nbytes, n] for src, dst, nbytes, n, _ in pairs.iter_rows()}
    assert found == true
    transfers = with_group_of(joined).filter(kind="send_recv", ranks="0, 4")["transfer_us"].sum()
    both = pairs.filter(pl.col("src") + pl.col("dst") == 4, pl.col("src").is_in([0, 4]))
    assert both["transfer_us"].sum() == pytest.approx(transfers)


def test_sends_of_a_rank_without_a_trace_are_those_that_others_receive(
    job: tuple[dict[str, Any], list[Member]], joined: Joined
) -> None:
    sent = pl.col("src") == 4, pl.col("dst") == 0
    rest = join([rank for rank in job[1] if rank.rank != 4], RANKS).tables["pairs"]
    (row,) = rest.filter(*sent).iter_rows()
    assert row[:4] == joined.tables["pairs"].filter(*sent).row(0)[:4]
    assert row[4] is None


def test_cut_lists_of_rows_give_no_pairs(job: tuple[dict[str, Any], list[Member]]) -> None:
    rank = job[1][0]
    kernels = rank.tables["collectives"].with_columns(in_split_size=pl.lit("[8, 8, ...]"))
    cut = replace(rank, tables={**rank.tables, "collectives": kernels})
    pairs = join([cut, *job[1][1:]], RANKS).tables["pairs"]
    assert pairs.filter(src=0)["dst"].to_list() == [4]
    kernels = kernels.with_columns(in_split_size=pl.lit("[]"))
    even = replace(rank, tables={**rank.tables, "collectives": kernels})
    found = join([even, *job[1][1:]], RANKS).tables["pairs"].filter(src=0, dst=1)
    rows = kernels.filter(kind="all_to_all_v")["in_bytes"]
    assert found["bytes"].item() == sum((n + 1) // 2 for n in rows)


def test_bubbles_are_the_waiting_for_other_stages(
    job: tuple[dict[str, Any], list[Member]], joined: Joined
) -> None:
    """Between any two moments at which something begins or ends, a rank waits or not."""
    stage, rank, step = RANKS // 2, job[1][2], 2
    waits = [
        (start, start + wait)
        for each in job[0]["instances"]
        if each["step"] == step and len({r // stage for r in each["ranks"]}) > 1
        for r, start, wait in zip(each["ranks"], each["arrivals_us"], each["waits_us"], strict=True)
        if r == rank.rank
    ]
    compute = [
        (event["ts"], event["ts"] + event["dur"])
        for event in json.loads(Path(rank.info.path).read_bytes())["traceEvents"]
        if event.get("cat") == "kernel" and event["tid"] == 0
    ]
    bounds = sorted({time for spans in (waits, compute) for span in spans for time in span})

    def has(spans: list[tuple[float, float]], begin: float, end: float) -> bool:
        return any(first <= begin and end <= last for first, last in spans)

    inside = [pair for pair in pairwise(bounds) if has(waits, *pair)]
    free_us = sum(end - begin for begin, end in inside if not has(compute, begin, end))
    row = joined.tables["rank_steps"].filter(rank=rank.rank, step=FIRST_STEP + step)
    assert row["bubble_ms"].item() == pytest.approx(free_us / 1e3, abs=1e-3)
    assert free_us > 10_000


def test_bubbles_are_divided_at_the_first_and_the_last_micro_batch(
    job: tuple[dict[str, Any], list[Member]], joined: Joined
) -> None:
    """The second stage waits for its first micro-batch, and at the end of the step for the first
    stage, which sends nothing after the last micro-batch has come back."""
    rank, number = 5, 2
    step = [each for each in job[0]["instances"] if each["step"] == number]
    own = [
        (arrival, each["kind"], wait, len(each["ranks"]))
        for each in step
        for r, arrival, wait in zip(
            each["ranks"], each["arrivals_us"], each["waits_us"], strict=True
        )
        if r == rank
    ]
    sent = sorted(each for each in own if each[1] == "send_recv")
    (of_all,) = (each for each in own if each[3] == RANKS)
    (row,) = joined.tables["rank_steps"].filter(rank=rank, step=FIRST_STEP + number).to_dicts()
    assert row["bubble_before_ms"] == pytest.approx(sent[0][2] / 1e3, abs=1e-3)
    assert row["bubble_after_ms"] == pytest.approx(of_all[2] / 1e3, abs=1e-3)
    assert row["bubble_before_ms"] > 2
    assert row["bubble_after_ms"] > 1
    rest = row["bubble_ms"] - row["bubble_before_ms"] - row["bubble_after_ms"]
    assert row["bubble_between_ms"] == pytest.approx(rest)
    assert joined.tables["rank_steps"].filter(rank=0)["bubble_before_ms"].max() == 0


def test_the_first_micro_batch_of_a_recording_is_waited_for(tmp_path: Path) -> None:
    """No collective of the first stage is before its first send, so that this is an edge."""
    paths = {rank: tmp_path / f"rank{rank}.json" for rank in range(2)}
    job = Job(STEPS, 2, 1, "tiny", Faults(is_even=True), Parallel(pp=2))
    truth = write_job(job, paths)
    joined = join([member(rank, path) for rank, path in paths.items()], 2)
    first = min(
        (each for each in truth["instances"] if each["step"] == 0 and each["kind"] == "send_recv"),
        key=lambda each: each["end_us"],
    )
    assert joined.tables["instances"].sort("last_ns")["is_edge"][0]
    waited_us = dict(zip(first["ranks"], first["waits_us"], strict=True))[1]
    row = joined.tables["rank_steps"].filter(rank=1, step=FIRST_STEP)
    assert row["bubble_before_ms"].item() == pytest.approx(waited_us / 1e3, abs=1e-3)
    assert waited_us > 100


def test_a_bubble_is_measured_against_the_ideal(joined: Joined) -> None:
    checks = {f.check: f for f in rank_findings(joined, RANKS).findings}
    finding = checks["pipeline_bubble"]
    assert (finding.evidence["stage_count"], finding.evidence["micro_batch_count"]) == (2, 4)
    assert finding.evidence["ideal_pct"] == pytest.approx(20)
    assert finding.impact is not None
    assert not finding.impact.is_replayed
    text = to_text(finding.issue)
    assert "With 2 stages and 4 micro-batches in a step, 20.0% is unavoidable" in text
    assert re.search(
        r"stage 1 \S+ ms \(\S+ ms before its first micro-batch, .* its last one\)", text
    )
    steps = joined.tables["rank_steps"].with_columns(bubble_ms=pl.col("duration_ms") / 100)
    few = replace(joined, tables={**joined.tables, "rank_steps": steps})
    assert "pipeline_bubble" not in {f.check for f in rank_findings(few, RANKS).findings}


def test_the_rank_with_more_tokens_is_named(
    job: tuple[dict[str, Any], list[Member]], joined: Joined
) -> None:
    """The experts of one rank get 1.5 times the tokens of those of the other one: 60% of them."""
    work = {row["rank"]: row for row in joined.work.iter_rows(named=True)}
    most, least = work[HOT_RANK], work[HOT_RANK - 1]
    for rank, of_mean in ((HOT_RANK, 1.2), (HOT_RANK - 1, 0.8)):
        products = [row for row in _products(job[1][rank]) if row[1] == (4096, 2048)]
        rows = [n for n, _ in products]
        assert sum(rows) / len(rows) == pytest.approx(of_mean * 8192, rel=0.01)
    assert most["rows"] == pytest.approx(1.2 * 8192, rel=0.01)
    assert most["mean_rows"] == pytest.approx(8192, rel=0.01)
    assert most["flops"] > 1.05 * work[4]["flops"] > 1.05 * least["flops"]
    assert [work[rank]["stage"] for rank in range(RANKS)] == [0] * 4 + [1] * 4
    evidence = {f.check: f for f in rank_findings(joined, RANKS).findings}
    assert "work_imbalance" not in evidence  # without a replay it is not known what it costs


def _products(rank: Member) -> list[tuple[int, tuple[int, int]]]:
    """Return rows and matrix of the forward products in the trace of a rank."""
    events = json.loads(Path(rank.info.path).read_bytes())["traceEvents"]
    dims = [e["args"]["Input Dims"] for e in events if e.get("name") == "aten::addmm"]
    return [(each[1][0], tuple(each[2])) for each in dims]


class Replay:
    """In place of the steps replayed together: a transfer that is hidden saves all of it."""

    def __init__(self, joined: Joined, members: Sequence[Member]) -> None:
        instances = joined.tables["instances"]
        self.members = members
        self.transfers = dict(instances.select("instance_id", "transfer_us").iter_rows())
        self.steps = joined.tables["rank_steps"]["step"].n_unique()
        self.factors: list[dict[int, float]] = []

    def scaled_transfer(self, factors: dict[int, float]) -> StepGain:
        self.factors.append(factors)
        saved = sum((1 - factor) * self.transfers[at] for at, factor in factors.items())
        return StepGain(saved / 1e3 / self.steps, saved / 1e3 / self.steps)


def exposed_ms(joined: Joined, role: str) -> float:
    """Return the transfer of the groups of a role without compute, of the median rank and step."""
    rows = with_group_of(joined).filter(~pl.col("is_edge"), role=role).select("instance_id", "step")
    kernels = joined.tables["instance_ranks"].join(rows, on="instance_id").group_by("rank")
    sums = kernels.agg(pl.col("exposed_transfer_ns").sum() / 1e6)["exposed_transfer_ns"]
    return float(np.median(sums)) / rows["step"].n_unique()


def test_transfers_of_experts_and_stages_could_run_beside_other_micro_batches(
    job: tuple[dict[str, Any], list[Member]], joined: Joined
) -> None:
    replay = Replay(joined, job[1])
    facts = RankFacts(replace(joined, joint=cast(Any, replay)), RANKS)
    (finding,) = exposed_transfer(facts)
    hidden = exposed_ms(joined, "ep") + exposed_ms(joined, "pp")
    # A send beside an all-to-all counts once.
    assert 0.9 * hidden < finding.evidence["hideable_ms"] <= hidden
    assert finding.evidence["exposed_ms"] < joined.tables["rank_steps"]["exposed_comm_ms"].max()
    assert finding.impact is not None
    assert finding.impact.saved_ms.high == pytest.approx(2 * finding.impact.saved_ms.low)
    of_tensors = float(to_text(finding.issue).split("of tensors ")[1].split(" ms")[0])
    assert 0.9 * exposed_ms(joined, "tp") < of_tensors <= exposed_ms(joined, "tp")
    assert "another micro-batch" in to_text(finding.algorithmic)
    assert "asynchronous tensor parallelism" in to_text(finding.algorithmic)
    sums = with_group_of(joined).filter(role="tp")["instance_id"]
    assert not set(sums) & set(replay.factors[-1]), "sums of tensors have nothing to run beside"
    replay.members = [
        replace(each, tables={**each.tables, "gpu_work": each.tables["gpu_work"].clear()})
        for each in job[1]
    ]
    assert list(exposed_transfer(facts)) == []


MS = 1_000_000


def data_parallel(kind: str, computes: Sequence[int]) -> list[Member]:
    """Return two ranks whose steps have four collectives of 1 ms, each after some µs of compute."""
    kernels, compute, at = [], [], 0
    for number in range(12):
        compute.append((at, at + computes[number % 4] * US))
        begin = compute[-1][1]
        options = {"kind": kind, "in_bytes": 1 << 22, "step": number // 4, "pg_desc": "dp"}
        kernels.append(Kernel(begin, begin + MS, options))
        at = begin + MS
    ranks = [BuiltRank(rank, kernels, compute=compute) for rank in (0, 1)]
    found = []
    for each in members(ranks):
        own = each.tables["collectives"]
        bounds = own.group_by("step").agg(
            start_ns=pl.col("ts_ns").min() - computes[0] * US, end_ns=pl.col("end_ns").max()
        )
        steps = each.tables["steps"].drop("start_ns", "dur_ns").join(bounds, on="step")
        steps = steps.with_columns(
            source=pl.lit("step"), dur_ns=pl.col("end_ns") - pl.col("start_ns")
        ).drop("end_ns")
        found.append(replace(each, tables={**each.tables, "steps": steps}))
    return found


@pytest.mark.parametrize(
    ("kind", "hideable_ms"),
    [
        # Of 2.25 ms until the last gradients of a step are sent; the first ones are at the edge.
        ("all_reduce", (2.0 + 2.25 + 2.25) / 3),
        # Since the gather before, at most the 1 ms that the transfer takes.
        ("all_gather", (1.5 + 1.75 + 1.75) / 3),
    ],
)
def test_gradients_and_parameters_could_run_beside_compute(kind: str, hideable_ms: float) -> None:
    ranks = data_parallel(kind, [2000, 250, 500, 1500])
    joined = join(ranks, 2)
    replay = Replay(joined, ranks)
    facts = RankFacts(replace(joined, joint=cast(Any, replay)), 2)
    (finding,) = exposed_transfer(facts)
    assert finding.evidence["hideable_ms"] == pytest.approx(hideable_ms)
