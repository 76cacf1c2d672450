"""The check of a run against the last runs of its project."""

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from jarvis.cli import baseline as cli
from jarvis.run import Manifest, Run, RunFigures
from jarvis.run.baseline import (
    DEVIATION_FACTOR,
    LAST_RUNS,
    NOISE_DEVIATIONS,
    THRESHOLD_PCT,
    check_run,
    incomparable_reason,
)
from jarvis.run.figures import IDLE


@pytest.fixture(scope="module")
def manifest(made_once: Path) -> Manifest:
    return Run.load(made_once).manifest


def figures(manifest: Manifest, time_ms: float, **times_ms: float) -> RunFigures:
    return replace(
        RunFigures.of(manifest), time_ms=time_ms, times_ms=times_ms, titles={k: k for k in times_ms}
    )


def test_the_limit_is_the_median_and_the_larger_of_noise_and_threshold(manifest: Manifest) -> None:
    times_ms = [100.0, 104.0, 96.0, 110.0, 101.0]
    baseline = [figures(manifest, time_ms) for time_ms in times_ms]
    check = check_run(figures(manifest, 110.0), baseline, threshold_pct=5.0)
    deviation_ms = median(abs(time_ms - 101.0) for time_ms in times_ms)
    assert deviation_ms == 3.0
    assert check.step.median_ms == 101.0
    noise_ms = NOISE_DEVIATIONS * DEVIATION_FACTOR * deviation_ms
    assert check.step.noise_ms == pytest.approx(noise_ms)
    assert noise_ms > 5.05
    assert check.step.limit_ms == pytest.approx(101.0 + noise_ms)
    assert not check.is_slower
    wide = check_run(figures(manifest, 110.0), baseline, threshold_pct=20.0)
    assert wide.step.limit_ms == pytest.approx(101.0 * 1.2)


@pytest.mark.parametrize(
    ("time_ms", "is_slower"), [(105.0, False), (105.001, True), (90.0, False), (200.0, True)]
)
def test_equal_baseline_runs_leave_the_threshold(
    manifest: Manifest, time_ms: float, *, is_slower: bool
) -> None:
    baseline = [figures(manifest, 100.0)] * 5
    check = check_run(figures(manifest, time_ms), baseline, threshold_pct=5.0)
    assert check.step.noise_ms == 0.0
    assert check.step.limit_ms == pytest.approx(105.0)
    assert check.is_slower is is_slower
    assert check.step.change_pct == pytest.approx(time_ms - 100.0)


def test_with_two_runs_only_the_threshold_counts(manifest: Manifest) -> None:
    baseline = [figures(manifest, 50.0), figures(manifest, 150.0)]
    check = check_run(figures(manifest, 106.0), baseline, threshold_pct=5.0)
    assert (check.step.noise_ms, check.has_noise) == (None, False)
    assert check.step.limit_ms == pytest.approx(105.0)
    assert check.is_slower
    assert check_run(figures(manifest, 106.0), [*baseline, baseline[0]]).has_noise


def test_parts_are_named_if_they_matter_and_do_not_decide(manifest: Manifest) -> None:
    baseline = [figures(manifest, 100.0, gemm=50.0, norm=10.0, gone=5.0, tiny=0.1)] * 3
    run = figures(manifest, 104.0, gemm=60.0, norm=10.1, tiny=0.9, new=2.0)
    check = check_run(run, baseline, threshold_pct=5.0)
    assert not check.is_slower
    assert [part.key for part in check.parts if part.is_slower] == ["gemm", "new"]
    assert [part.key for part in check.parts] == ["gemm", "new", "tiny", "norm", "gone"]
    new = next(part for part in check.parts if part.key == "new")
    assert (new.median_ms, new.limit_ms, new.change_pct) == (0.0, 0.0, None)


def test_real_figures_have_all_parts(manifest: Manifest) -> None:
    run = RunFigures.of(manifest)
    check = check_run(run, [run] * 3)
    assert {part.key for part in check.parts} == run.times_ms.keys()
    assert IDLE in run.times_ms
    assert {part.change_pct for part in check.parts} == {0.0}


def test_only_like_runs_are_compared(manifest: Manifest) -> None:
    def changed(**trace: object) -> Manifest:
        return manifest.model_copy(update={"trace": manifest.trace.model_copy(update=trace)})

    assert incomparable_reason(manifest, manifest) is None
    assert (
        incomparable_reason(manifest, changed(device_names=("NVIDIA H100",)))
        == "recorded on NVIDIA H100"
    )
    assert incomparable_reason(manifest, manifest.model_copy(update={"model_name": None})) is None
    other = manifest.model_copy(update={"model_name": "Other"})
    assert incomparable_reason(manifest, other) == "of the model Other"
    assert incomparable_reason(changed(world_size=2), changed(world_size=8)) == "of 8 ranks"
    assert incomparable_reason(changed(world_size=2), changed(world_size=None)) is None
    bounds = manifest.totals.step
    assert bounds is not None
    recording = replace(manifest.totals, step=replace(bounds, is_marked=not bounds.is_marked))
    reason = incomparable_reason(manifest, manifest.model_copy(update={"totals": recording}))
    assert reason is not None
    assert reason.startswith("with the time of a ")


def test_the_command_has_the_same_defaults() -> None:
    assert (cli.DEFAULT_LAST, cli.DEFAULT_THRESHOLD_PCT) == (LAST_RUNS, THRESHOLD_PCT)
