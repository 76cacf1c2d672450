"""Hostile inputs give the messages of ``docs/bad-inputs.md``."""

import re
from pathlib import Path

import pytest

from docs.bad_inputs import BadInput, inputs, message_for

PAGE = Path(__file__).parents[2] / "docs" / "bad-inputs.md"
ACCEPTED = {
    "Operators named as script, formula, link and path",
    "A zip whose trace is named `../../outside.json`",
    "A trace nested 200,000 levels deep",
    "A trace with a name of 15 MB",
    "A trace with NaN, infinite and very long numbers",
    "An upload named `../../t.json`",
}


@pytest.mark.parametrize("given", inputs(), ids=lambda given: given.name)
def test_hostile_input_is_rejected_or_read_harmlessly(given: BadInput) -> None:
    message = message_for(given)
    assert message.startswith("Accepted: " if given.name in ACCEPTED else "Rejected: ")
    assert re.search(r"[.!?]$", message)
    assert len(message) < 700
    assert f"| {given.name} | {message} |" in PAGE.read_text(encoding="utf-8")
