"""Every hostile input ends with a sentence, as ``docs/bad-inputs.md`` says it."""

import re
from pathlib import Path

import pytest

from docs.bad_inputs import BadInput, inputs, what_is_said

PAGE = Path(__file__).parents[2] / "docs" / "bad-inputs.md"
TAKEN = {
    "Operators named as script, formula, link and path",
    "A zip whose trace is named `../../outside.json`",
    "A trace nested 200,000 levels deep",
    "A trace with a name of 15 MB",
    "A trace with NaN, infinite and endless numbers",
    "An upload named `../../t.json`",
}


@pytest.mark.parametrize("given", inputs(), ids=lambda given: given.name)
def test_it_is_refused_with_a_sentence_or_taken_in_harmlessly(given: BadInput) -> None:
    said = what_is_said(given)
    assert said.startswith("Taken in" if given.name in TAKEN else "Refused: ")
    assert re.search(r"[.!?]$", said)
    assert len(said) < 700
    assert f"| {given.name} | {said} |" in PAGE.read_text(encoding="utf-8")
