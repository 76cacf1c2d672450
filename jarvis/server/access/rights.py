"""Authorization: roles, which the settings assign to names and groups, and ownership.

Viewers read. Editors also add traces, run jobs and change their own resources. Admins change
everything. If access control is off, everyone is ``LOCAL``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from sqlalchemy import ColumnElement, false, or_, true

from jarvis.server.database import Visibility
from jarvis.server.errors import ForbiddenError, UnknownPersonError
from jarvis.server.settings import Settings


class Role(StrEnum):
    """Role of a person, in ascending order of permissions."""

    NONE = "none"
    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        """Return whether the role has all permissions of ``other``."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class Person:
    """A user of this server; ``name`` is None if access control is off."""

    name: str | None
    role: Role


LOCAL = Person(None, Role.ADMIN)
"""Every user if access control is off, and the operator on the server's command line."""


class Owned(Protocol):
    """A resource with an owner and a visibility."""

    @property
    def owner(self) -> str | None: ...

    @property
    def visibility(self) -> Visibility: ...


def may(person: Person, role: Role) -> bool:
    """Return whether a person has the permissions of a role."""
    return person.role.includes(role)


def may_see(person: Person, owned: Owned) -> bool:
    """Return whether a person may see a resource."""
    if not may(person, Role.VIEWER):
        return False
    return owned.visibility is Visibility.TEAM or _is_theirs(person, owned)


def is_visible(
    person: Person, owner: ColumnElement[str | None], visibility: ColumnElement[Visibility]
) -> ColumnElement[bool]:
    """Return ``may_see`` as an SQL condition on the owner and visibility columns."""
    if not may(person, Role.VIEWER):
        return false()
    if may(person, Role.ADMIN):
        return true()
    is_theirs = false() if person.name is None else owner == person.name
    return or_(visibility == Visibility.TEAM, is_theirs)


def may_change(person: Person, owned: Owned) -> bool:
    """Return whether a person may delete a resource or change its visibility."""
    if not may(person, Role.EDITOR):
        return False
    return _is_theirs(person, owned)


def lacking(person: Person, role: Role) -> str | None:
    """Return why a person lacks the permissions of a role, and what to do; None if not lacking."""
    if may(person, role):
        return None
    return f"This needs the role {role}; yours is {person.role}. Ask an admin of this server."


def require(person: Person, role: Role, action: str) -> None:
    """Raise ForbiddenError if a person lacks a role; ``action`` is like "analyze traces"."""
    if (reason := lacking(person, role)) is not None:
        who = person.name or "An anonymous user"
        raise ForbiddenError(f"{who} may not {action} here. {reason}")


def require_viewer(person: Person) -> None:
    """Raise ForbiddenError if a person may not look at analyses."""
    require(person, Role.VIEWER, "look at analyses")


def _is_theirs(person: Person, owned: Owned) -> bool:
    is_owner = owned.owner is not None and owned.owner == person.name
    return is_owner or may(person, Role.ADMIN)


GROUP_MARK = "@"
"""Prefix of a group in the lists of admins and editors; names of persons cannot begin with it."""

MAX_NAME_LENGTH = 200


def person_named(name: str, groups: Iterable[str], now: Settings) -> Person:
    """Return a person with the highest role that the settings give to the name or its groups.

    Names and groups are case-insensitive.

    Raises:
        UnknownPersonError: ``name`` is not valid.
    """
    name = normal_name(name)
    return Person(name, _role(name, groups, now))


def normal_name(name: str) -> str:
    """Return a name in lower case, without surrounding spaces; UnknownPersonError if invalid."""
    normal = name.strip().lower()
    is_name = 0 < len(normal) <= MAX_NAME_LENGTH and normal.isprintable()
    if not is_name or normal.startswith(GROUP_MARK):
        raise UnknownPersonError(
            "Your name cannot be used here: a name has 1 to "
            f"{MAX_NAME_LENGTH} printable characters and does not begin with {GROUP_MARK}. Ask an "
            "admin of this server."
        )
    return normal


def has_groups(now: Settings) -> bool:
    """Return whether any role depends on a group."""
    return any(entry.startswith(GROUP_MARK) for entry in (*now.admins, *now.editors))


def group_names(claimed: Any) -> tuple[str, ...]:
    """Return the groups from a provider's claim (a list) or a proxy's header (comma-separated)."""
    if isinstance(claimed, str):
        claimed = claimed.split(",")
    if not isinstance(claimed, list | tuple):
        return ()
    return tuple(text for group in claimed if (text := str(group).strip()))


def _role(name: str, groups: Iterable[str], now: Settings) -> Role:
    names = {name, *(f"{GROUP_MARK}{group}".lower() for group in groups)}
    for role, members in ((Role.ADMIN, now.admins), (Role.EDITOR, now.editors)):
        if names.intersection(member.lower() for member in members):
            return role
    return Role(now.default_role)
