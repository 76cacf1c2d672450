"""Claims from the OpenID Connect userinfo endpoint (OpenID Connect Core 5.3).

Many providers return a person's email address and groups there instead of in the ID token.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import httpx

from jarvis.server.errors import UnknownPersonError

DISCOVERY_PATH = "/.well-known/openid-configuration"
"""Path of the provider's discovery document, relative to the issuer."""

_TIMEOUT_S = 5.0
_MAX_CACHED_LOGINS = 4096


def fetch_userinfo(issuer: str, access_token: str, subject: str) -> Mapping[str, Any]:
    """Return the claims about the person who logged in as ``subject``; cached for each login.

    Raises:
        UnknownPersonError: the provider does not answer, or returns another subject.
    """
    try:
        claims = _userinfo(issuer, access_token)
    except (httpx.HTTPError, ValueError, TypeError) as error:
        raise UnknownPersonError(
            "The identity provider did not return your profile. Log out and in again; if that "
            "does not help, ask an admin of this server."
        ) from error
    if claims.get("sub") != subject:
        raise UnknownPersonError("The identity provider returned another user. Log in again.")
    return claims


@lru_cache(maxsize=_MAX_CACHED_LOGINS)
def _userinfo(issuer: str, access_token: str) -> Mapping[str, Any]:
    with httpx.Client(timeout=_TIMEOUT_S) as client:
        endpoint = _object(client.get(f"{issuer}{DISCOVERY_PATH}")).get("userinfo_endpoint")
        authorization = {"Authorization": f"Bearer {access_token}"}
        return _object(client.get(str(endpoint), headers=authorization))


def _object(response: httpx.Response) -> dict[str, Any]:
    content = response.raise_for_status().json()
    if not isinstance(content, dict):
        raise TypeError
    return content
