"""Who looks at the page, what they see of what is kept, and jobs in their name."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import streamlit as st

from jarvis.server.access.audit import Channel
from jarvis.server.access.rights import LOCAL, Person, Role, lacking
from jarvis.server.access.roles import UnknownPersonError, group_names, has_groups, person_named
from jarvis.server.access.userinfo import fetch_userinfo
from jarvis.server.actions import Actor, ask_for_file, submit_job
from jarvis.server.database import Visibility, database
from jarvis.server.jobs.kinds import FileRequest, Request
from jarvis.server.jobs.queue import Job
from jarvis.server.settings import Settings, settings
from jarvis.server.storage.catalog import Catalog, read_catalog

VISIBILITY_LABELS: Mapping[str, str] = {Visibility.TEAM: "Team", Visibility.PRIVATE: "Private"}

NOBODY = Person(None, Role.NONE)
"""Somebody who has not logged in."""


def visitor() -> Person:
    """Whoever looks at the page; ``NOBODY`` before a login, everyone is ``LOCAL`` without access.

    Raises UnknownPersonError where the login, or the proxy, does not say it as it should.
    """
    now = settings()
    if now.access == "off":
        return LOCAL
    return _logged_in(now) if now.access == "oidc" else _told_by_proxy(now)


def missing_role(role: Role = Role.EDITOR) -> str | None:
    """Why the visitor may not do what needs a role, None where they may; for a disabled control."""
    return lacking(visitor(), role)


def actor() -> Actor:
    """The visitor, who does things by the page."""
    return Actor(visitor(), Channel.PAGE)


def ask_for_job(request: Request, visibility: Visibility = Visibility.TEAM) -> Job:
    """Queue a job for the visitor; raises as ``submit_job`` does."""
    return submit_job(database(), actor(), request, visibility)


def request_job_file(request: FileRequest) -> Job:
    """The job that makes a file for the visitor, or has made it; raises as ``ask_for_file``."""
    return ask_for_file(database(), actor(), request)


def visible_catalog() -> Catalog:
    """The kept analyses that the visitor may see."""
    return read_catalog().visible_to(visitor())


def login_mark() -> str:
    """Tells one login of the visitor from the next: its moment, or the day behind a proxy."""
    issued = _claims().get("iat")
    return str(issued) if issued is not None else f"{datetime.now(UTC):%Y-%m-%d}"


def _logged_in(now: Settings) -> Person:
    claims = _claims()
    if not claims.get("is_logged_in") or _is_over(claims, now):
        return NOBODY
    claims = _completed(claims, now)
    name = claims.get(now.oidc.user_claim)
    if not isinstance(name, str):
        raise UnknownPersonError(
            f"The login says no {now.oidc.user_claim!r}, so who you are cannot be told. An admin "
            "of this server can name another claim (JARVIS_OIDC__USER_CLAIM), or ask for more "
            "(JARVIS_OIDC__SCOPES)."
        )
    if now.oidc.user_claim == "email" and claims.get("email_verified") is False:
        raise UnknownPersonError(
            "The login says that nobody has checked your email address, so it does not count here. "
            "Confirm it there, then log in again."
        )
    return person_named(name, group_names(claims.get(now.oidc.groups_claim)), now)


def _completed(claims: dict[str, Any], now: Settings) -> dict[str, Any]:
    """The claims of a login, and what only the provider says where that is needed."""
    oidc = now.oidc
    needed = (oidc.user_claim, *((oidc.groups_claim,) if has_groups(now) else ()))
    token = claims.get("tokens", {}).get("access")
    if token is None or all(claim in claims for claim in needed):
        return claims
    more = fetch_userinfo(oidc.issuer.rstrip("/"), token, str(claims.get("sub")))
    return {**more, **claims}


def _is_over(claims: dict[str, Any], now: Settings) -> bool:
    """Whether a login is older than it may be, or does not say how old it is."""
    issued = claims.get("iat")
    if not isinstance(issued, int | float):
        return True
    age = datetime.now(UTC) - datetime.fromtimestamp(issued, UTC)
    return age > timedelta(hours=now.oidc.session_hours)


def _told_by_proxy(now: Settings) -> Person:
    """The person of the proxy's headers, which only trusted ones get through."""
    names = st.context.headers.get_all(now.user_header)
    if not names:
        return NOBODY
    if len(names) > 1:
        raise UnknownPersonError(
            f"The proxy says twice who you are ({now.user_header}). It must replace what a browser "
            "sends by its own."
        )
    groups = ",".join(st.context.headers.get_all(now.groups_header))
    return person_named(names[0], group_names(groups), now)


def _claims() -> dict[str, Any]:
    return dict(st.user.to_dict())
