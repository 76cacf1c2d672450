"""Who may do what: roles, and who an analysis belongs to.

Viewers look. Editors also add and run, and change what is their own. Admins change everything.
Where access is off, everyone is ``LOCAL``.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sqlalchemy import ColumnElement, false, or_, true

from jarvis.core.errors import JarvisError
from jarvis.server.database import Visibility


class Role(StrEnum):
    """What a person may do, least first."""

    NONE = "none"
    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        """Whether it may do what ``other`` may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who uses this server; ``name`` is None where nobody is asked who they are."""

    name: str | None
    role: Role


LOCAL = Person(None, Role.ADMIN)
"""Everyone, where access is off; and who works on the server's own command line."""


class Owned(Protocol):
    """What belongs to somebody."""

    @property
    def owner(self) -> str | None: ...

    @property
    def visibility(self) -> Visibility: ...


class ForbiddenError(JarvisError):
    """The person may not do this."""


def may(person: Person, role: Role) -> bool:
    """Whether a person may do what this role may."""
    return person.role.includes(role)


def may_see(person: Person, owned: Owned) -> bool:
    """Whether a person may look at it."""
    if not may(person, Role.VIEWER):
        return False
    return owned.visibility is Visibility.TEAM or _is_theirs(person, owned)


def is_visible(
    person: Person, owner: ColumnElement[str | None], visibility: ColumnElement[Visibility]
) -> ColumnElement[bool]:
    """``may_see`` as a condition on the columns with the owner and the visibility."""
    if not may(person, Role.VIEWER):
        return false()
    if may(person, Role.ADMIN):
        return true()
    is_theirs = false() if person.name is None else owner == person.name
    return or_(visibility == Visibility.TEAM, is_theirs)


def may_change(person: Person, owned: Owned) -> bool:
    """Whether a person may remove it, or say who sees it."""
    if not may(person, Role.EDITOR):
        return False
    return _is_theirs(person, owned)


def lacking(person: Person, role: Role) -> str | None:
    """Why a person may not do what needs a role, and what to do; None where they may."""
    if may(person, role):
        return None
    return f"This needs the role {role}; yours is {person.role}. Ask an admin of this server."


def require(person: Person, role: Role, action: str) -> None:
    """ForbiddenError where a person may not do what ``action`` names, like "analyze traces"."""
    if (reason := lacking(person, role)) is not None:
        who = person.name or "Somebody who is not logged in"
        raise ForbiddenError(f"{who} may not {action} here. {reason}")


def _is_theirs(person: Person, owned: Owned) -> bool:
    is_owner = owned.owner is not None and owned.owner == person.name
    return is_owner or may(person, Role.ADMIN)
