"""Notes on a report: what its readers decided about findings, and how they present it.

Unlike options, notes do not change the results or the id of an analysis.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from jarvis.core.errors import JarvisError

MAX_OWNER_CHARS = 100
MAX_SUMMARY_CHARS = 5000
MAX_COMMENT_CHARS = 5000
MAX_COMMENTS = 1000
"""Maximum number of comments on one analysis."""

MAX_KEY_CHARS = 200
MAX_TITLE_CHARS = 300

LOCAL_AUTHOR = "local"
"""Displayed author of notes that were written while access control was off."""

_UNSTORABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
"""Characters that databases, files or UTF-8 cannot store."""


class NoteError(JarvisError):
    """A note is too long or empty, or there are too many."""


class FindingStatus(StrEnum):
    """What a team decided about a finding."""

    OPEN = "open"
    PLANNED = "planned"
    DONE = "done"
    WONT_FIX = "won't fix"


class NoteField(StrEnum):
    """A part of the notes that is written as a whole: of the report, or of a finding."""

    SUMMARY = "summary"
    ORDER = "order"
    INCLUDED = "included"
    STATUS = "status"
    OWNER = "owner"


FIELDS_OF_REPORT = (NoteField.SUMMARY, NoteField.ORDER)
"""Fields of the report; the others belong to a finding."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who wrote a note and when; ``author`` is None if access control was off.

    ``imported_by`` is the person who imported it from an archive, empty if access control was off;
    None for notes of this server. The author of an imported note is not verified.
    """

    author: str | None
    moment: datetime
    imported_by: str | None = None

    @property
    def name(self) -> str:
        """Return the author for display."""
        name = self.author or LOCAL_AUTHOR
        return name if self.imported_by is None else f"{name} (imported)"


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on a finding; ``text`` is plain text."""

    id: int
    text: str
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class FindingNotes:
    """The notes on one finding; ``title`` is its title when the first one was written."""

    key: str
    title: str
    status: FindingStatus = FindingStatus.OPEN
    owner: str = ""
    is_included: bool = True
    comments: tuple[Comment, ...] = ()

    @property
    def has_decision(self) -> bool:
        """Return whether it has a status other than open, or an owner."""
        return self.status is not FindingStatus.OPEN or bool(self.owner)

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing that a report would show."""
        return not self.has_decision and not self.comments


@dataclass(frozen=True, slots=True)
class ReportNotes:
    """All notes on the report of an analysis.

    Attributes:
        revision: number of the last change.
        summary: the author's summary as Markdown; None for the generated one.
        order: keys of the findings in the author's order; empty for the order by saving.
        findings: notes by the key of the finding, in the order of their keys.
        stamps: last change of each field, by the key of the finding ("" for the report) and field.
        last_change: the newest of all stamps, comments included; None if there is none.
    """

    revision: int = 0
    summary: str | None = None
    order: tuple[str, ...] = ()
    findings: Mapping[str, FindingNotes] = field(default_factory=dict)
    stamps: Mapping[tuple[str, NoteField], Stamp] = field(default_factory=dict)
    last_change: Stamp | None = None

    def of(self, key: str, title: str = "") -> FindingNotes:
        """Return the notes on a finding; empty ones if there are none."""
        return self.findings.get(key) or FindingNotes(key, title)

    @property
    def left_out(self) -> frozenset[str]:
        """Return the keys of the findings that the report leaves out."""
        return frozenset(each.key for each in self.findings.values() if not each.is_included)


NO_NOTES = ReportNotes()


def checked_text(name: str, text: str, max_chars: int, *, is_line: bool = False) -> str:
    """Return a text without surrounding spaces and characters that cannot be stored.

    Args:
        name: what it is, for the error.
        text: the text.
        max_chars: its maximum length.
        is_line: whether it is put on one line.

    Raises:
        NoteError: it is too long.
    """
    held = _UNSTORABLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).strip()
    held = " ".join(held.split()) if is_line else held
    if len(held) > max_chars:
        raise NoteError(f"The {name} has {len(held):,} characters. Use at most {max_chars:,}.")
    return held


def full_order(order: Sequence[str], ranked: Sequence[str]) -> list[str]:
    """Return the keys of ``ranked`` in the author's order.

    A finding that the order does not have follows the one before it in ``ranked``.
    """
    known = set(ranked)
    found = [key for key in dict.fromkeys(order) if key in known]
    for position, key in enumerate(ranked):
        if key not in found:
            found.insert(found.index(ranked[position - 1]) + 1 if position else 0, key)
    return found


def moved(order: Sequence[str], key: str, places: int) -> list[str]:
    """Return the order with a finding so many places further to the end; negative: to the start."""
    left = [each for each in order if each != key]
    place = max(0, min(len(left), list(order).index(key) + places))
    return [*left[:place], key, *left[place:]]
