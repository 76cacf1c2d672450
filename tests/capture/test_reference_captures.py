"""Recorded replays and captures: everything is matched, and a damaged capture gives no wrong shape.

The traces are in the reference folder, as are the reports that the sheets must equal.
"""

import random
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

from jarvis.capture import MergedTrace, merge_captures
from jarvis.capture.alignment import Captured, Replayed, Rule, align, coverage
from jarvis.capture.files import Capture, read_captures
from jarvis.capture.matching import Match, Matcher, replays
from jarvis.capture.merged import with_captures
from jarvis.reports.csv import write_csvs
from jarvis.trace import Trace, read_trace
from jarvis.tracelens.options import INFERENCE, ReportOptions
from jarvis.tracelens.report import TraceLensReport
from tests.test_conformance import DEVIATIONS, sheets_of, tool

__all__ = ["tool"]

SGLANG, FLUX = "sglang-qwen3-8b-decode", "xdit-flux-sage"
KERNELS = {SGLANG: [544], FLUX: [1566] * 4}
LEFT_OVER = {SGLANG: 0, FLUX: 1}
MODELLED_PCT = {SGLANG: 98.96, FLUX: 92.5}
MAX_LOST = 0.015
"""Maximum share of time whose call is there and not found."""

SETS = pytest.mark.parametrize("name", [SGLANG, FLUX])


@pytest.fixture(scope="module")
def replay_traces(reference_root: Path) -> dict[str, Trace]:
    root = reference_root / "serving"
    return {name: read_trace(root / name / "trace.json.gz") for name in KERNELS}


@pytest.fixture(scope="module")
def captures(reference_root: Path) -> dict[str, list[Capture]]:
    root = reference_root / "serving"
    return {name: read_captures([root / name / "capture"]) for name in KERNELS}


@pytest.fixture(scope="module")
def merged(
    replay_traces: dict[str, Trace], captures: dict[str, list[Capture]]
) -> dict[str, MergedTrace]:
    return {name: with_captures(replay_traces[name], captures[name]) for name in KERNELS}


def inference_report(trace: Trace) -> TraceLensReport:
    options = ReportOptions(**dict.fromkeys(INFERENCE, True))
    return TraceLensReport(trace, None, tracelens_models_only=True, options=options)


def pair_of(match: Match) -> tuple[Replayed, Captured]:
    assert match.chosen is not None
    return match.replay.replayed, match.chosen.window.captured


@SETS
def test_every_replayed_event_has_its_call(merged: dict[str, MergedTrace], name: str) -> None:
    matches = merged[name].matches
    assert [len(m.chosen.alignment.pairs) for m in matches if m.chosen] == KERNELS[name]
    assert {m.chosen.coverage for m in matches if m.chosen} == {1.0}
    assert {m.chosen.leftovers for m in matches if m.chosen} == {LEFT_OVER[name]}
    assert {m.chosen.alignment.rule for m in matches if m.chosen} == {Rule.NAMES}
    assert {m.confidence for m in matches} == {"names"}


@SETS
def test_the_gpu_timeline_is_that_of_the_recording(
    replay_traces: dict[str, Trace], merged: dict[str, MergedTrace], name: str
) -> None:
    before, after = inference_report(replay_traces[name]), inference_report(merged[name])
    assert after.gpu_timeline.equals(before.gpu_timeline)


@SETS
def test_nearly_all_kernel_time_has_a_model(merged: dict[str, MergedTrace], name: str) -> None:
    rows = inference_report(merged[name]).unified_perf_summary
    times = dict(rows.group_by("has_perf_model").agg(pl.col("kernel_time_us_sum").sum()).rows())
    assert 100 * times[True] / sum(times.values()) >= MODELLED_PCT[name]


@SETS
def test_sheets_equal_those_of_the_reference(
    reference_root: Path,
    merged: dict[str, MergedTrace],
    tool: ModuleType,
    tmp_path: Path,
    name: str,
) -> None:
    write_csvs(inference_report(merged[name]).sheets(), tmp_path)
    golden = reference_root / "serving" / name / "golden"
    named: list[dict[str, Any]] = tomllib.loads(DEVIATIONS.read_text(encoding="utf-8"))["deviation"]
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in sheets_of(golden)}
    for sheet in sheets_of(golden):
        good, counted, *_ = tool.compare_sheet(sheet, tmp_path / sheet.name, 5, named)
        assert good == counted, sheet.name


def without(captured: Captured, gone: Sequence[int]) -> tuple[Captured, list[int]]:
    """The calls without some, and the original position of each one left."""
    left = [at for at in range(len(captured.tokens)) if at not in set(gone)]
    parts = (captured.tokens, captured.ops, captured.shapes)
    thinned = Captured(*(tuple(part[at] for at in left) for part in parts))
    return thinned, left


def meaning(match: Match) -> list[tuple[str | None, str | None]]:
    """Operator and shapes of each captured call."""
    assert match.chosen is not None
    window = match.chosen.window
    ops = window.trace.cpu_ops.select(
        pl.col("uid").alias("op_uid"),
        pl.col("name", "input_dims").cast(pl.String).name.suffix("_of"),
    )
    found = window.dispatches.join(ops, on="op_uid", how="left", maintain_order="left")
    return found.select("name_of", "input_dims_of").rows()


@SETS
@pytest.mark.parametrize("share", [0.01, 0.05])
@pytest.mark.parametrize("seed", range(10))
def test_missing_calls_give_no_wrong_shape(
    merged: dict[str, MergedTrace], name: str, share: float, seed: int
) -> None:
    match = merged[name].matches[0]
    right, captured = pair_of(match)
    assert match.chosen is not None
    true = dict(match.chosen.alignment.pairs)
    count = round(share * len(captured.tokens))
    thinned, left = without(
        captured, random.Random(seed).sample(range(len(captured.tokens)), count)
    )
    found = align(right, thinned)
    means = meaning(match)
    wrong = [at for at, to in found.pairs if means[left[to]] != means[true[at]]]
    assert wrong == []
    there = [(at, to) for at, to in true.items() if to in set(left)]
    assert coverage(right, found.pairs) >= coverage(right, there) - MAX_LOST


@SETS
def test_a_replay_that_begins_late_is_matched(merged: dict[str, MergedTrace], name: str) -> None:
    match = merged[name].matches[0]
    events, captured = pair_of(match)
    assert match.chosen is not None
    cut = Replayed(
        tokens=events.tokens[100:],
        durations_ns=events.durations_ns[100:],
        streams=events.streams[100:],
        node_ids=events.node_ids[100:],
    )
    found = align(cut, captured)
    true = dict(match.chosen.alignment.pairs)
    means = meaning(match)
    assert len(found.pairs) == len(cut.tokens)
    assert all(means[to] == means[true[at + 100]] for at, to in found.pairs)


@SETS
def test_two_streams_give_no_wrong_shape(merged: dict[str, MergedTrace], name: str) -> None:
    match = merged[name].matches[0]
    events, captured = pair_of(match)
    assert match.chosen is not None
    split = replace(events, streams=tuple(at % 7 == 0 for at in range(len(events.tokens))))
    found = align(split, captured)
    true, means = dict(match.chosen.alignment.pairs), meaning(match)
    assert coverage(split, found.pairs) == 1
    assert all(means[to] == means[true[at]] for at, to in found.pairs)


def test_the_capture_of_another_model_is_refused(
    replay_traces: dict[str, Trace], captures: dict[str, list[Capture]]
) -> None:
    for name, other in ((SGLANG, FLUX), (FLUX, SGLANG)):
        found = Matcher(captures[other], None).matches([*replays(replay_traces[name])])
        assert all(match.chosen is None for match in found)
        assert all("of the kernel names are the same" in match.reason for match in found)


@SETS
def test_a_capture_without_kernel_names_infers_nothing_wrong(
    merged: dict[str, MergedTrace], name: str
) -> None:
    match = merged[name].matches[0]
    events, captured = pair_of(match)
    assert match.chosen is not None
    unnamed = replace(captured, tokens=(None,) * len(captured.tokens))
    found = align(events, unnamed)
    true, means = dict(match.chosen.alignment.pairs), meaning(match)
    assert all(means[to] == means[true[at]] for at, to in found.pairs)


def test_nothing_is_written_beside_the_captures(reference_root: Path) -> None:
    folder = reference_root / "serving" / SGLANG / "capture"
    before = {path.name for path in folder.iterdir()}
    merge_captures(read_trace(folder.parent / "trace.json.gz"), [folder])
    assert {path.name for path in folder.iterdir()} == before
