"""Figures of a run from its manifest equal those of its tables and findings."""

from pathlib import Path

import polars as pl
import pytest

from jarvis.reports.account import account_of
from jarvis.reports.ranking import recommendations
from jarvis.run import Basis, Run, RunFigures
from jarvis.run.figures import COMMUNICATION, COPIES, IDLE
from jarvis.schemas.names import C
from jarvis.text.messages import to_text


@pytest.fixture(scope="module")
def run(made_once: Path) -> Run:
    return Run.load(made_once)


def test_times_are_those_of_the_account_of_a_step(run: Run) -> None:
    figures, account = RunFigures.of(run.manifest), account_of(run)
    assert account is not None
    assert figures.basis is (Basis.STEP if account.is_marked else Basis.RECORDING)
    assert figures.time_ms == pytest.approx(account.step_ms)
    assert figures.busy_pct == pytest.approx(100 - account.pct(account.idle_ns))
    assert figures.times_ms[IDLE] == pytest.approx(account.mean_ms(account.idle_ns))
    parts = {COMMUNICATION: C.exposed_comm_ns, COPIES: C.exposed_copy_ns}
    for key, part in parts.items():
        assert figures.times_ms[key] == pytest.approx(account.mean_ms(account.parts_ns[part]))
        assert figures.times_ms[key] > 0
    assert figures.gpu == "AMD Instinct MI300X"


def test_times_of_categories_are_those_of_their_operations_per_step(run: Run) -> None:
    figures = RunFigures.of(run.manifest)
    sums = run.table("operations").group_by(C.category).agg(pl.col(C.kernel_time_us).sum())
    expected = {key: time_us / 1e3 / figures.steps for key, time_us in sums.iter_rows() if time_us}
    assert {"gemm", "elementwise"} <= expected.keys()
    for key, time_ms in expected.items():
        assert figures.times_ms[key] == pytest.approx(time_ms)
        assert figures.titles[key] == run.results[key].title


def test_the_top_finding_is_the_first_of_all_reports(run: Run) -> None:
    first, top = recommendations(run)[0].finding, RunFigures.of(run.manifest).top_finding
    assert top is not None
    assert (top.category, top.title) == (first.category, to_text(first.title))
    assert top.gain_ms == (first.impact and first.impact.gain_ms)


def test_runs_without_steps_have_the_time_of_the_gpu_window(run: Run) -> None:
    totals = run.manifest.totals.__class__(
        **{name: getattr(run.manifest.totals, name) for name in run.manifest.totals.__slots__}
        | {"step": None}
    )
    figures = RunFigures.of(run.manifest.model_copy(update={"totals": totals, "top_finding": None}))
    assert (figures.basis, figures.steps) == (Basis.WINDOW, 1)
    assert figures.time_ms == totals.total_time_ms
    assert figures.busy_pct == pytest.approx(totals.busy_pct)
    assert figures.times_ms[IDLE] == totals.idle_time_ms
    assert figures.top_finding is None
