"""Records of what was repaired or skipped while a trace was read."""

from dataclasses import dataclass, replace
from enum import StrEnum

EXAMPLE_CHARACTERS = 80


class RepairKind(StrEnum):
    """Kinds of damage in the text of a trace."""

    TRUNCATED = "truncated"
    DAMAGED_GZIP = "damaged_gzip"
    TEXT_IN_NAME = "text_in_name"
    CONTROL_CHARACTER = "control_character"
    INVALID_UTF8 = "invalid_utf8"
    TRAILING_COMMA = "trailing_comma"
    MISSING_COMMA = "missing_comma"
    NOT_A_NUMBER = "not_a_number"
    LOST_TEXT = "lost_text"
    NOT_AN_EVENT = "not_an_event"
    NOT_A_SLICE = "not_a_slice"
    ODD_ARGUMENT = "odd_argument"


@dataclass(frozen=True, slots=True)
class Repair:
    """One kind of damage: its number of occurrences, and the text around the first one.

    ``lost_events`` counts dropped events (for ``LOST_TEXT`` the number of places, because lost
    events cannot be counted there). A text that occurs repeatedly counts once.
    """

    kind: RepairKind
    count: int
    lost_events: int = 0
    example: str = ""


class Repairs:
    """Collector of repairs."""

    def __init__(self) -> None:
        self._by_kind: dict[RepairKind, Repair] = {}

    def add(
        self, kind: RepairKind, count: int = 1, lost_events: int = 0, example: str = ""
    ) -> None:
        """Count a repair; only the first example is stored."""
        if not count:
            return
        known = self._by_kind.get(kind, Repair(kind, 0))
        self._by_kind[kind] = replace(
            known,
            count=known.count + count,
            lost_events=known.lost_events + lost_events,
            example=known.example or example[:EXAMPLE_CHARACTERS],
        )

    def all(self) -> tuple[Repair, ...]:
        """Return all repairs in the order of RepairKind."""
        return tuple(self._by_kind[kind] for kind in RepairKind if kind in self._by_kind)
