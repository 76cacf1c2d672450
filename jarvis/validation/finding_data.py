"""The content of a finding in ``results.json``, for checks."""

from collections.abc import Iterator
from math import isclose
from typing import Any

from jarvis.validation.run_files import Json, RunFiles

ROUNDING = 1e-6
ENDS = ("low", "mid", "high")


def title(finding: Json) -> str:
    """Return the title in quotes."""
    return repr(finding["title"])


def key_of(finding: Json) -> tuple[str, ...]:
    """Return check, analysis and title, and what else distinguishes findings of one title."""
    uids = [operation["uid"] for operation in finding["operations"]]
    others = (finding["issue"], uids, finding.get("shared_uids"))
    return finding["check"], finding["category"], finding["title"], *map(str, others)


def quantified(run: RunFiles) -> list[Json]:
    """Return the findings with a known saving."""
    return [finding for finding in run.findings if finding.get("impact")]


def gain_ms(finding: Json) -> float | None:
    """Return the saving that counts: of step time if it is known, and the high end of an
    interval."""
    gain = finding.get("impact")
    if not gain:
        return None
    saving = gain.get("step_ms") or gain["saved_ms"]
    return float(saving["high" if gain.get("is_interval") else "mid"])


def uids(finding: Json) -> set[int]:
    """Return its own operations and those that share its time."""
    own = {operation["uid"] for operation in finding["operations"]}
    return own | set(finding.get("shared_uids") or ())


def quantities(finding: Json) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each quantity; none for a file of an earlier version."""
    for quantity in finding.get("quantities", ()):
        yield quantity["name"], quantity["value"]


def messages(finding: Json) -> Iterator[Json]:
    """Yield the messages, including nested messages and those of quantities."""
    pending: list[Json] = [m for texts in finding.get("messages", {}).values() for m in texts]
    pending += (q["message"] for q in finding.get("quantities", ()) if q.get("message"))
    while pending:
        message = pending.pop()
        for value in message["values"].values():
            inner = value if isinstance(value, list) else [value]
            pending += (each for each in inner if isinstance(each, dict))
        yield message


def values(finding: Json) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each value of the messages, including nested messages."""
    for message in messages(finding):
        yield from message["values"].items()


def texts(finding: Json) -> Iterator[tuple[str, str]]:
    """Yield name and text of each text among the values of the messages; of lists, each item."""
    for name, value in values(finding):
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                yield name, text


def percent(part: float, whole: float) -> float:
    """Return a part in percent of the whole; 0 if there is no whole."""
    return 100 * part / whole if whole else 0.0


def is_close(found: float, expected: float) -> bool:
    """Return whether two numbers are equal but for rounding."""
    return isclose(found, expected, rel_tol=ROUNDING, abs_tol=ROUNDING)


def exceeds(found: float, limit: float) -> bool:
    """Return whether a number is greater than a limit by more than rounding."""
    return found > limit * (1 + ROUNDING) + ROUNDING
