"""All facts of a card: what was measured, what is usual, and what is aimed at."""

from typing import Any

from tests.arithmetic.recomputed import facts_of
from tests.arithmetic.run_directory import Row, RunDirectory
from tests.arithmetic.savings import (
    SDPA_BANDS,
    Saving,
    band_of,
    saving_of,
    start_pcts,
    step_saving_of,
    target_of,
)
from tests.arithmetic.units import Facts, data_rows, own_rows, share, time_ms


def card_facts(run: RunDirectory, finding: dict[str, Any]) -> Facts:
    """The facts of a finding with its band, target, saving and their shares."""
    facts = facts_of(run, finding)
    rows = own_rows(run, finding)
    if rows and finding["check"] in ("low_efficiency", "opportunity"):
        if band := band_of(finding, rows[0], facts):
            facts["band_low"].append(band[0])
            facts["band_high"].append(band[1])
        _length_facts(facts, rows[0].parameters)
    if (target := target_of(run, finding, facts)) is not None:
        facts["target_pct"].append(target)
    _listed_facts(facts, run, data_rows(run, finding))
    facts["whole_steps"].append(run.manifest["totals"]["step"]["steps"])
    facts["impact_ms"] += _concerned_ms(finding["check"], facts)
    is_system = run.results[finding["category"]]["tier"] == "system"
    whole_ms = run.total_ms if is_system else run.compute_ms
    facts["impact_share_pct"] += [share(ms, whole_ms) for ms in facts["impact_ms"]]
    facts["start_pct"] += start_pcts(finding, facts)
    if (saving := saving_of(run, finding, facts)) is not None:
        for name, value in zip(("low_ms", "saved_ms", "high_ms"), saving, strict=True):
            facts[name].append(value)
        if facts.get("time_ms"):
            facts["goal_ms"].append(facts["time_ms"][0] - saving[1])
        facts["saved_compute_pct"].append(share(saving[1], run.compute_ms))
        facts["saved_total_pct"].append(share(saving[1], run.total_ms))
        _score_facts(facts, run, finding, saving)
        if (of_step := step_saving_of(run, finding, saving, facts)) is not None:
            steps = max(1, run.manifest["totals"]["step"]["steps"])
            whole_ms = run.manifest["totals"]["step"]["step_ms"] / steps
            high_ms = of_step[2] / steps
            gain_ms = high_ms if finding["impact"]["is_interval"] else of_step[1] / steps
            facts["gain_ms"].append(gain_ms)
            facts["gain_pct"].append(share(gain_ms, whole_ms))
            facts["step_high_ms"].append(high_ms)
            facts["step_high_pct"].append(share(high_ms, whole_ms))
    return facts


def _listed_facts(facts: Facts, run: RunDirectory, listed: list[Row]) -> None:
    """The rows that a card for other tools lists."""
    if not listed:
        return
    heaviest, hidden = listed[0], listed[25:]
    known = {
        "listed_rows": len(listed),
        "listed_calls": sum(row.calls for row in listed),
        "listed_ms": time_ms(listed),
        "listed_pct": share(time_ms(listed), run.total_ms),
        "heaviest_pct": heaviest.roofline_pct,
        "listed_flops_per_byte": heaviest.flops_per_byte,
        "listed_peak_tflops": heaviest.peak_tflops,
        "listed_peak_tb_per_s": heaviest.peak_tb_per_s,
        "rows_left": len(hidden),
        "left_ms": time_ms(hidden),
    }
    for name, value in known.items():
        facts[name] += [] if value is None else [value]
    for part in {row.cells.get("model_part") for row in listed} - {None, ""}:
        same = [row for row in listed if row.cells.get("model_part") == part]
        facts["part_ms"].append(time_ms(same))


def _score_facts(facts: Facts, run: RunDirectory, finding: dict[str, Any], saving: Saving) -> None:
    """Scores that other tools read: parts of the gap to the roofline, else the saving's share."""
    scores = [share(saved_ms, run.total_ms) for saved_ms in saving]
    if finding["impact"]["method"] == "perf model" and finding["operations"]:
        scores = [part * scores[2] for part in (0.75, 0.875, 1.0)]
    for name, score in zip(("low", "mid", "high"), scores, strict=True):
        facts[f"score_{name}"].append(score)


def _concerned_ms(check: str, facts: Facts) -> list[float]:
    """The time that the saving is a part of."""
    names = {
        "layout_transposes": "overhead_ms",
        "fills_and_casts": "overhead_ms",
        "gpu_idle": "idle_ms",
        "idle_causes": "own_cause_ms",
        "exposed_communication": "exposed_comm_ms",
        "poor_overlap": "exposed_comm_ms",
        "memory_copies": "copy_ms",
        "step_edges": "edges_ms",
    }
    return facts[names.get(check, "time_ms")][:1]


def _length_facts(facts: Facts, size: dict[str, Any]) -> None:
    """The ends of the range of lengths that an attention call falls into."""
    if "N_Q" not in size:
        return
    longest, start = max(size["N_Q"], size["N_KV"]), 0.0
    for below, _ in SDPA_BANDS:
        if longest < below:
            facts["length_from"].append(start)
            facts["length_below"].append(below)
            return
        start = below
