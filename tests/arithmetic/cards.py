"""All facts of a card: what was measured, what is usual, and what is aimed at."""

from typing import Any

from tests.arithmetic.recomputed import facts_of
from tests.arithmetic.run_directory import RunDirectory
from tests.arithmetic.savings import SDPA_BANDS, band_of, saving_of, target_of
from tests.arithmetic.units import Facts, own_rows


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
    if (saving := saving_of(run, finding, facts)) is not None:
        for name, value in zip(("low_ms", "saved_ms", "high_ms"), saving, strict=True):
            facts[name].append(value)
        if facts.get("time_ms"):
            facts["goal_ms"].append(facts["time_ms"][0] - saving[1])
    return facts


def _length_facts(facts: Facts, size: dict[str, Any]) -> None:
    """The ends of the range of lengths that an attention call falls into."""
    if "N_Q" not in size:
        return
    longest, start = max(size["N_Q"], size["N_KV"]), 0.0
    for below, _ in SDPA_BANDS:
        if longest < below:
            facts["length_from"].append(start)
            facts["length_below"].append(below)
            facts["length_to"].append(below - 1)
            return
        start = below


TEXTS = ("title", "issue", "algorithmic", "kernel", "hypothesis", "caveat", "verify", "capture")
"""The fields of a finding that hold sentences."""
