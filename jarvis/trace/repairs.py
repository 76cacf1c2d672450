"""What had to be mended or left out while a trace was read."""

from dataclasses import dataclass, replace
from enum import StrEnum

EXAMPLE_CHARACTERS = 80


class RepairKind(StrEnum):
    """What was wrong with the text of a trace."""

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
    """One kind of fault: how often it occurred, and the text around the first place.

    ``lost_events`` counts the events that could not be kept (for ``LOST_TEXT`` the number of
    places: what stood there cannot be counted). Texts count once however often they occur.
    """

    kind: RepairKind
    count: int
    lost_events: int = 0
    example: str = ""


class Repairs:
    """Collects what is mended while a trace is read."""

    def __init__(self) -> None:
        self._by_kind: dict[RepairKind, Repair] = {}

    def add(
        self, kind: RepairKind, count: int = 1, lost_events: int = 0, example: str = ""
    ) -> None:
        """Count a fault; the first example is kept."""
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
        """In the order of RepairKind."""
        return tuple(self._by_kind[kind] for kind in RepairKind if kind in self._by_kind)
