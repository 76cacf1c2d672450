"""What had to be mended or left out while a trace was read."""

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, slots=True)
class Repair:
    """One kind of fault: how often it occurred, and the text around the first place.

    ``lost_events`` counts the events that could not be kept (for ``LOST_TEXT`` the number of
    places: what stood there cannot be counted).
    """

    kind: RepairKind
    count: int
    lost_events: int = 0
    example: str = ""
