"""Model FLOPs utilization: its figures, its denominator, and when it is not known."""

import polars as pl
import pytest

from jarvis.hardware import peak_label
from jarvis.reports.account import account_of, account_parts
from jarvis.reports.utilization import Utilization, recomputed, sentence, utilization
from jarvis.run import Run
from tests.reports.conftest import Analyzed


def changed(run: Run, **tables: pl.DataFrame) -> Run:
    names = run.manifest.tables
    return run.__class__(
        manifest=run.manifest,
        results=run.results,
        tables={name: run.table(name) for name in names} | tables,
        paths_by_category=run.paths_by_category,
        root=run.root,
    )


def found(run: Run) -> Utilization | str:
    account = account_of(run)
    assert account is not None
    result = utilization(run, account)
    return result if isinstance(result, Utilization) else sentence(result)


def test_the_flops_of_a_step_are_a_share_of_the_peak(sample: Analyzed) -> None:
    run = sample.run
    account, mfu = account_of(run), found(run)
    assert account is not None
    assert isinstance(mfu, Utilization)
    assert run.manifest.hardware is not None
    rows = run.table("operations")
    tflop = (rows["flops"] * rows["operation_count"]).sum() / 1e12
    assert 0 < mfu.gflop_per_step / 1e3 * account.step_count <= tflop * (1 + 1e-9)
    per_s = mfu.gflop_per_step / 1e3 * account.step_count / (account.total_ns / 1e9)
    assert mfu.tflops_per_s == pytest.approx(per_s)
    assert mfu.peak_tflops == run.manifest.hardware.peak_tflops(mfu.compute)
    assert mfu.mfu_pct == pytest.approx(100 * per_s / mfu.peak_tflops)
    assert f"TFLOP/s ({peak_label(mfu.compute)}, " in sentence(mfu)
    assert sentence(mfu) in str(account_parts(run)["step_basis"])


def test_work_outside_the_steps_does_not_count(sample: Analyzed) -> None:
    run, mfu = sample.run, found(sample.run)
    assert isinstance(mfu, Utilization)
    bounds = run.manifest.totals.step
    assert bounds is not None
    work = run.table("gpu_work")
    late = work.with_columns(ts_ns=pl.lit(bounds.end_ns + 1, pl.Int64))
    halved = changed(run, gpu_work=pl.concat([work, late.with_columns(uid=pl.col("uid") + 10**6)]))
    half = found(halved)
    assert isinstance(half, Utilization)
    assert half.gflop_per_step == pytest.approx(mfu.gflop_per_step / 2, rel=0.05)


def test_kernels_without_an_operation_make_it_a_lower_bound(sample: Analyzed) -> None:
    run, mfu = sample.run, found(sample.run)
    assert isinstance(mfu, Utilization)
    work = run.table("gpu_work")
    others = work.filter(kind="compute").with_columns(
        operation_uid=pl.lit(None, work.schema["operation_uid"]),
        uid=pl.col("uid") + 10**6,
        dur_ns=pl.col("dur_ns") // 2,
    )
    partly = found(changed(run, gpu_work=pl.concat([work, others])))
    assert isinstance(partly, Utilization)
    assert partly.mfu_pct == pytest.approx(mfu.mfu_pct)
    assert partly.covered_pct == pytest.approx(mfu.covered_pct / 1.5, rel=0.1)
    assert sentence(partly).startswith("MFU at least ")


def test_repeated_flops_count_in_hfu_only(sample: Analyzed) -> None:
    run, before = sample.run, found(sample.run)
    assert isinstance(before, Utilization)
    assert before.repeated_gflop == 0
    assert before.hfu_pct == before.mfu_pct
    assert "HFU" not in sentence(before)
    gflop = pl.col("flops") * pl.col("operation_count") / 1e9
    rows = run.table("operations").filter(gflop > 0).select(operation_uid="uid", gflop=gflop)
    work = run.table("gpu_work").join(rows, "operation_uid")
    slices = run.table("host_slices")
    launch = slices.filter(pl.col("uid").is_in(work["launch_uid"].implode()))[:1]
    name = pl.lit("torch/utils/checkpoint.py(1422): recompute_fn")
    frame = launch.with_columns(uid=pl.lit(-1), name=name).cast(dict(slices.schema))
    repeats = changed(run, host_slices=pl.concat([slices, frame]))
    after = found(repeats)
    assert isinstance(after, Utilization)
    (own,) = work.filter(work["launch_uid"] == launch["uid"][0]).to_dicts()
    assert recomputed(repeats)["uid"].to_list() == [own["uid"]]
    whole_ns = work.filter(operation_uid=own["operation_uid"])["dur_ns"].sum()
    steps = run.manifest.totals.step.steps if run.manifest.totals.step else 0
    expected = own["gflop"] * own["dur_ns"] / whole_ns / steps
    assert after.repeated_gflop == pytest.approx(expected)
    assert after.hfu_pct == pytest.approx(before.mfu_pct)
    assert after.gflop_per_step + after.repeated_gflop == pytest.approx(before.gflop_per_step)
    assert after.mfu_pct / after.hfu_pct == pytest.approx(
        after.gflop_per_step / before.gflop_per_step
    )
    assert "per step without repeated ones" in sentence(after)
    assert "HFU " in sentence(after)


def test_an_unknown_utilization_has_its_reason(sample: Analyzed) -> None:
    run = sample.run
    rows = run.table("operations").with_columns(flops=pl.lit(None, pl.Float64))
    assert "give the FLOPs of only 0.0% of the kernel time" in str(
        found(changed(run, operations=rows))
    )
    unknown = changed(run)
    object.__setattr__(unknown, "manifest", run.manifest.model_copy(update={"hardware": None}))
    assert found(unknown) == "MFU is not known, as the GPU has no known peaks"
