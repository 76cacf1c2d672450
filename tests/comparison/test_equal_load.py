"""Inference steps of two runs are compared at equal load, or not at all."""

import polars as pl
import pytest

from jarvis.comparison.equal_load import EqualLoad, equal_load

COLUMNS = ("phase", "ctx_tokens", "gen_tokens", "kv_tokens", "step_time_ms")


def steps(*rows: tuple[str | None, int | None, int, int, float], cut: int = -1) -> pl.DataFrame:
    """Whole steps; the one at ``cut`` is cut by the recording."""
    frame = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    return frame.with_columns(is_cut=pl.int_range(pl.len()) == cut, part=pl.lit(None, pl.Int64))


def only(target: pl.DataFrame, reference: pl.DataFrame) -> EqualLoad:
    (found,) = equal_load(target, reference)
    return found


def test_steps_of_equal_load_are_matched_one_by_one() -> None:
    now = steps(("decode", 0, 32, 1000, 12.0), ("decode", 0, 32, 2000, 20.0))
    then = steps(
        ("decode", 0, 32, 2050, 25.0), ("decode", 0, 32, 1010, 10.0), ("decode", 0, 8, 900, 1.0)
    )
    found = only(now, then)
    assert (found.pairs, found.target.matched_ms, found.reference.matched_ms) == (2, 16, 17.5)
    assert found.change_pct == pytest.approx(100 * (16 / 17.5 - 1))
    assert found.sentence() == (
        "decode at equal load (2 pairs of 2 and 3 steps): 16.0 ms a step, 17.5 ms in the "
        "reference (8.6% shorter)."
    )


def test_a_step_has_one_partner() -> None:
    now = steps(*[("decode", 0, 32, 1000, 12.0)] * 3)
    assert only(now, steps(("decode", 0, 32, 1000, 10.0))).pairs == 1


def test_without_equal_load_there_is_no_verdict() -> None:
    found = only(steps(("decode", 0, 32, 1000, 12.0)), steps(("decode", 0, 64, 4000, 12.8)))
    assert (found.pairs, found.change_pct) == (0, None)
    assert found.sentence() == (
        "decode: no steps of equal load, so which run is faster is not known. Mean step: 12.0 ms "
        "for 32 tokens and 1,000 KV tokens; in the reference 12.8 ms for 64 tokens and 4,000 KV "
        "tokens. Time per token 375 µs and 200 µs, per KV token 12.0 µs and 3.20 µs."
    )


def test_phases_and_cut_steps_do_not_mix() -> None:
    now = steps(("decode", 0, 32, 1000, 12.0), ("prefill", 300, 0, 300, 40.0))
    assert list(equal_load(now, steps(("mixed", 300, 32, 1300, 50.0)))) == []
    cut = steps(("decode", 0, 32, 1000, 6.0), ("decode", 0, 32, 1000, 12.0), cut=0)
    assert only(now, cut).reference.step_ms == 12
    assert list(equal_load(now, steps(("decode", None, 32, 1000, 12.0)))) == []
