"""The steady state of a load, and the selection of inference steps."""

import csv
from pathlib import Path

import polars as pl
import pytest

from jarvis.cli import main
from jarvis.core.errors import StepSelectionError
from jarvis.perf_report.serving.rates import StepRates, step_rates
from jarvis.perf_report.serving.selection import SteadyState, selected_steps, steady_state
from jarvis.schemas import columns
from tests.builders import trace


def steps(*requests: int | None, phase: str = "decode") -> pl.DataFrame:
    """Whole steps with these numbers of requests."""
    rows = [
        {"step": at, "part": None, "phase": phase, "ctx_requests": 0, "gen_requests": count}
        for at, count in enumerate(requests)
    ]
    schema = {"step": pl.Int64, "part": pl.Int64, "phase": pl.String}
    counts = dict.fromkeys(("ctx_requests", "gen_requests"), pl.Int64)
    return pl.DataFrame(rows, schema={**schema, **counts})


def test_the_steady_state_begins_after_the_ramp_and_ends_before_the_drain() -> None:
    ramp, drain = (8, 16, 24, 32), (20, 16, 12, 8, 4, 2)
    load = (*ramp, 60, 64, 64, 63, 64, 58, 64, *drain)
    assert steady_state(steps(*load)) == SteadyState(4, 10, 58, 64)


def test_a_few_other_steps_do_not_end_it() -> None:
    load = (*[64] * 6, *[10] * 5, *[64] * 2, *[10] * 6, 64)
    assert steady_state(steps(*load)) == SteadyState(0, 12, 10, 64)


def test_the_longest_one_is_taken_and_the_first_of_equal_ones() -> None:
    apart = [1] * 6
    assert steady_state(steps(*[9] * 6, *apart, *[9] * 7)) == SteadyState(12, 18, 9, 9)
    assert steady_state(steps(*[9] * 6, *apart, *[9] * 6)) == SteadyState(0, 5, 9, 9)


@pytest.mark.parametrize("load", [(), (4,) * 7, (100, 50) * 8, (4, 4, None, *[4] * 8)], ids=str)
def test_no_steady_state(load: tuple[int | None, ...]) -> None:
    assert steady_state(steps(*load)) is None
    with pytest.raises(StepSelectionError, match="no steady state"):
        selected_steps(steps(*load), "steady")


def test_selections() -> None:
    of = steps(*range(1, 5))
    parts = of.head(2).with_columns(part=pl.lit(0, pl.Int64), phase=pl.lit("denoise"))
    of = pl.concat([of, parts])
    for selection, numbers in {
        "1:3": [1, 2, 1],
        ":1": [0, 0],
        "3:": [3],
        "decode": [0, 1, 2, 3, 0, 1],
        "prefill": [],
    }.items():
        assert selected_steps(of, selection)["step"].to_list() == numbers, selection
    with pytest.raises(StepSelectionError, match="'some' is not steady, prefill, decode"):
        selected_steps(of, "some")


def test_the_command_selects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = trace()
    for at_us, name in ((1200, "step[DECODE bs=8]"), (1400, "step[EXTEND bs=2 toks=300]")):
        builder.annotation(name, us=100).child("aten::mm")
        builder.launches("Cijk_gemm", us=100, at_us=at_us).up(2)
    path = str(builder.write(tmp_path / "t.json"))
    assert main(["steps", path, "--select", "prefill", "--format", "csv"]) == 0
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert row["phase"] == "prefill"
    assert main(["steps", path, "--select", "1:", "--output-dir", str(tmp_path / "out")]) == 0
    (phase,) = csv.DictReader((tmp_path / "out" / "inference_phases.csv").read_text().splitlines())
    assert (phase["phase"], phase["step_count"]) == ("prefill", "1")
    assert main(["steps", path, "--select", "steady"]) == 1
    assert "no steady state" in capsys.readouterr().err


def test_rates_of_no_steps_are_not_known() -> None:
    empty = pl.DataFrame(schema={c.name: c.dtype for c in columns("inference_steps")})
    assert step_rates(empty, 80, 80) == StepRates(0, *[None] * 8)


def test_a_step_at_its_targets_is_bound_by_the_slower_of_memory_and_matrix_units() -> None:
    rows = pl.DataFrame(
        {
            "step_time_ms": [10.0, 20.0],
            "busy_ms": [9.0, 12.0],
            "itl_ms": [10.0, None],
            "ctx_tokens": [0, 100],
            "gen_tokens": [30, 0],
            "mbu_pct": [40.0, 10.0],
            "mfu_pct": [5.0, 90.0],
        }
    )
    rates = step_rates(rows, 80, 80)
    assert rates.target_ms == 12.5  # 5 ms by memory; not shorter than the 20 ms of now
    assert rates.tokens_per_s == pytest.approx(130 / 0.03)
    assert (rates.mbu_pct, rates.mfu_pct) == (20, pytest.approx(185 / 3))
    assert (rates.itl_ms, rates.busy_pct) == (10, 70)
