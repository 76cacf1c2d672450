"""The user of the page: identity, visible analyses, and jobs submitted in their name."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import streamlit as st

from jarvis.server.access.audit import Channel
from jarvis.server.access.login import fetch_userinfo
from jarvis.server.access.rights import (
    LOCAL,
    Person,
    Role,
    group_names,
    has_groups,
    lacking,
    person_named,
)
from jarvis.server.actions import Actor, ask_for_file, submit_job
from jarvis.server.database import Visibility, database
from jarvis.server.errors import UnknownPersonError
from jarvis.server.jobs.kinds import FileRequest, Request
from jarvis.server.queue import Job
from jarvis.server.settings import Settings, settings
from jarvis.server.storage.catalog import Catalog, read_catalog

VISIBILITY_LABELS: Mapping[str, str] = {Visibility.TEAM: "Team", Visibility.PRIVATE: "Private"}

ANONYMOUS = Person(None, Role.NONE)
"""A user who has not logged in."""


def current_user() -> Person:
    """Return the user of the page: ``ANONYMOUS`` before login, ``LOCAL`` without access control.

    Raises:
        UnknownPersonError: The login or the proxy does not identify the user properly.
    """
    now = settings()
    if now.access == "off":
        return LOCAL
    return _oidc_user(now) if now.access == "oidc" else _proxy_user(now)


def missing_role(role: Role = Role.EDITOR) -> str | None:
    """Return why the user lacks a role, or None if they have it; for disabled controls."""
    return lacking(current_user(), role)


def actor() -> Actor:
    """Return the user as an actor of the page channel."""
    return Actor(current_user(), Channel.PAGE)


def request_job(request: Request, visibility: Visibility = Visibility.TEAM) -> Job:
    """Queue a job for the user; raises like ``submit_job``."""
    return submit_job(database(), actor(), request, visibility)


def request_job_file(request: FileRequest) -> Job:
    """Return the job that makes or has made a file for the user; raises like ``ask_for_file``."""
    return ask_for_file(database(), actor(), request)


def visible_catalog() -> Catalog:
    """Return the stored analyses that the user may see."""
    return read_catalog().visible_to(current_user())


def login_mark() -> str:
    """Return an id of the user's login: its time, or the day if a proxy identifies users."""
    issued = _claims().get("iat")
    return str(issued) if issued is not None else f"{datetime.now(UTC):%Y-%m-%d}"


def _oidc_user(now: Settings) -> Person:
    claims = _claims()
    if not claims.get("is_logged_in") or _is_expired(claims, now):
        return ANONYMOUS
    claims = _with_userinfo(claims, now)
    name = claims.get(now.oidc.user_claim)
    if not isinstance(name, str):
        raise UnknownPersonError(
            f"The login has no {now.oidc.user_claim!r} claim, so you cannot be identified. An "
            "admin of this server can choose another claim (JARVIS_OIDC__USER_CLAIM) or request "
            "more scopes (JARVIS_OIDC__SCOPES)."
        )
    if now.oidc.user_claim == "email" and claims.get("email_verified") is False:
        raise UnknownPersonError(
            "Your login provider has not verified your email address. Verify it there, then log in "
            "again."
        )
    return person_named(name, group_names(claims.get(now.oidc.groups_claim)), now)


def _with_userinfo(claims: dict[str, Any], now: Settings) -> dict[str, Any]:
    """Return the claims of a login, with those of the provider's userinfo if some are missing."""
    oidc = now.oidc
    needed = (oidc.user_claim, *((oidc.groups_claim,) if has_groups(now) else ()))
    token = claims.get("tokens", {}).get("access")
    if token is None or all(claim in claims for claim in needed):
        return claims
    more = fetch_userinfo(oidc.issuer.rstrip("/"), token, str(claims.get("sub")))
    return {**more, **claims}


def _is_expired(claims: dict[str, Any], now: Settings) -> bool:
    """Return whether a login is older than the session lifetime or has no issue time."""
    issued = claims.get("iat")
    if not isinstance(issued, int | float):
        return True
    age = datetime.now(UTC) - datetime.fromtimestamp(issued, UTC)
    return age > timedelta(hours=now.oidc.session_hours)


def _proxy_user(now: Settings) -> Person:
    """Return the person in the proxy's headers, which are accepted from trusted proxies only."""
    names = st.context.headers.get_all(now.user_header)
    if not names:
        return ANONYMOUS
    if len(names) > 1:
        raise UnknownPersonError(
            f"The request has the header {now.user_header} more than once. The proxy must replace "
            "a value that the browser sends."
        )
    groups = ",".join(st.context.headers.get_all(now.groups_header))
    return person_named(names[0], group_names(groups), now)


def _claims() -> dict[str, Any]:
    return dict(st.user.to_dict())
