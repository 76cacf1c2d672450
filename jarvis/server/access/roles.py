"""Assignment of roles to names and groups, from the settings."""

from collections.abc import Iterable
from typing import Any

from jarvis.server.access.rights import Person, Role
from jarvis.server.errors import UnknownPersonError
from jarvis.server.settings import Settings

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
