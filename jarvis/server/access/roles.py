"""Which role somebody has: by name or group, as the settings say."""

from collections.abc import Iterable
from typing import Any

from jarvis.core.errors import JarvisError
from jarvis.server.access.rights import Person, Role
from jarvis.server.settings import Settings

GROUP_MARK = "@"
"""Before a group in the lists of admins and editors; no person's name begins with it."""

MAX_NAME_LENGTH = 200


class UnknownPersonError(JarvisError):
    """Who somebody is cannot be told."""


def person_named(name: str, groups: Iterable[str], now: Settings) -> Person:
    """A person with the role that the settings give to the name or to one of the groups.

    Names are the same in capitals and in small letters. Raises UnknownPersonError where ``name``
    is none that a person may have.
    """
    name = normal_name(name)
    return Person(name, _role(name, groups, now))


def normal_name(name: str) -> str:
    """A person's name as it is compared and kept; UnknownPersonError where it cannot be one."""
    normal = name.strip().lower()
    is_name = 0 < len(normal) <= MAX_NAME_LENGTH and normal.isprintable()
    if not is_name or normal.startswith(GROUP_MARK):
        raise UnknownPersonError(
            "Who you are cannot be told: a name has 1 to "
            f"{MAX_NAME_LENGTH} printable characters and does not begin with {GROUP_MARK}. Ask an "
            "admin of this server."
        )
    return normal


def has_groups(now: Settings) -> bool:
    """Whether roles depend on groups at all."""
    return any(entry.startswith(GROUP_MARK) for entry in (*now.admins, *now.editors))


def group_names(claimed: Any) -> tuple[str, ...]:
    """Groups as a provider or a proxy says them: a list, or text with commas between."""
    if isinstance(claimed, str):
        claimed = claimed.split(",")
    if not isinstance(claimed, list | tuple):
        return ()
    return tuple(text for group in claimed if (text := str(group).strip()))


def _role(name: str, groups: Iterable[str], now: Settings) -> Role:
    called = {name, *(f"{GROUP_MARK}{group}".lower() for group in groups)}
    for role, listed in ((Role.ADMIN, now.admins), (Role.EDITOR, now.editors)):
        if called.intersection(entry.lower() for entry in listed):
            return role
    return Role(now.default_role)
