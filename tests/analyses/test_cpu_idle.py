"""CPU / idle: idle share, short kernels, projected speedup."""

import polars as pl
import pytest

from jarvis.analyses.system.cpu_idle import gpu_idle, measure, short_kernels
from jarvis.findings import Priority, Severity
from tests.analyses.rows import system, table, totals

KEY = "cpu_idle"


def kernels(*durations_us: float, linked: bool = True, cat: str = "kernel") -> pl.DataFrame:
    rows = (
        {
            "uid": uid,
            "kind": "compute",
            "cat": cat,
            "ts_ns": uid * 100_000,
            "dur_ns": int(us * 1000),
            "linked": linked,
        }
        for uid, us in enumerate(durations_us)
    )
    return table("gpu_work", *rows)


def idle(pct: float):
    return totals(100 - pct, idle_ms=pct)


@pytest.mark.parametrize(
    ("pct", "severity"),
    [
        (71.0, Severity.CRITICAL),
        (70.0, Severity.HIGH),
        (50.0, Severity.MEDIUM),
        (30.0, Severity.LOW),
        (15.0, Severity.ACCEPTABLE),
    ],
)
def test_severity(pct: float, severity: Severity) -> None:
    (finding,) = gpu_idle(system(KEY, idle(pct)))
    assert finding.severity is severity
    assert f"{pct:.1f}%" in finding.issue


def test_below_fifteen_percent_there_is_nothing_to_fix() -> None:
    assert not list(gpu_idle(system(KEY, idle(14.9))))


def test_saving_is_idle_time_beyond_the_target() -> None:
    (finding,) = gpu_idle(system(KEY, idle(60.0)))
    # 40 ms busy at 20 % idle take 50 ms of 100 ms
    assert finding.impact.saved_ms.mid == pytest.approx(50.0)
    assert finding.impact.saved_ms.high == pytest.approx(60.0)
    assert measure(system(KEY, idle(60.0)))["potential_speedup"] == pytest.approx(2.0)
    assert measure(system(KEY, idle(10.0)))["potential_speedup"] == 1.0


def test_kernels_are_counted_from_the_gpu_events() -> None:
    work = pl.concat([kernels(5.0, 9.9, 10.0, 50.0), kernels(1.0, cat="gpu_memcpy")])
    work = pl.concat([work, kernels(2.0, linked=False)])
    analysis = measure(system(KEY, idle(50.0), tables={"gpu_work": work}))["kernel_analysis"]
    assert analysis["total_kernel_count"] == 4
    assert analysis["short_kernel_count"] == 2
    assert analysis["avg_kernel_time_us"] == pytest.approx(74.9 / 4)


def test_short_kernels_matter_only_where_the_gpu_idles() -> None:
    tables = {"gpu_work": kernels(5.0, 6.0, 50.0)}
    (finding,) = short_kernels(system(KEY, idle(50.0), tables=tables))
    assert finding.severity is Severity.HIGH
    assert finding.priority is Priority.MEDIUM
    assert "2 of 3 kernels" in finding.issue
    assert not list(short_kernels(system(KEY, idle(10.0), tables=tables)))
    assert not list(short_kernels(system(KEY, idle(50.0))))


def test_patterns() -> None:
    tables = {"gpu_work": kernels(*[5.0] * 1001)}
    patterns = measure(system(KEY, idle(75.0), tables=tables))["patterns_detected"]
    assert {p["name"]: p["severity"] for p in patterns} == {
        "idle": "CRITICAL",
        "short_kernels": "HIGH",
        "kernel_count": "MEDIUM",
        "mean_kernel_time": "HIGH",
    }


def test_advice_on_graphs_knows_whether_there_are_any() -> None:
    def advice(launcher: str) -> str:
        work = kernels(5.0, 5.0, 5.0).with_columns(launcher_name=pl.lit(launcher))
        (finding,) = gpu_idle(system(KEY, idle(60.0), tables={"gpu_work": work}))
        return finding.kernel

    assert advice("aten::mul").startswith("Replay steady parts")
    assert "100.0% of the kernels are replayed" in advice("hipGraphLaunch")
