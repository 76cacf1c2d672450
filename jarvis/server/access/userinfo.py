"""What the provider says of somebody beside the login itself.

Many providers put a person's address and groups not into the login but behind their userinfo
endpoint, as the standard has it (OpenID Connect Core 5.3).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import httpx

from jarvis.server.access.roles import UnknownPersonError

DISCOVERY_PATH = "/.well-known/openid-configuration"
"""Below the provider's address: where it says what it has."""

_TIMEOUT_S = 5.0
_KEPT_LOGINS = 4096


def asked_of_provider(issuer: str, access_token: str, subject: str) -> Mapping[str, Any]:
    """The claims about the person who logged in as ``subject``; asked once for each login.

    Raises UnknownPersonError where the provider does not answer, or speaks of somebody else.
    """
    try:
        claims = _userinfo(issuer, access_token)
    except (httpx.HTTPError, ValueError, TypeError) as error:
        raise UnknownPersonError(
            "The provider of logins does not say who you are. Log out and in again; if that does "
            "not help, ask an admin of this server."
        ) from error
    if claims.get("sub") != subject:
        raise UnknownPersonError("The provider of logins speaks of somebody else. Log in again.")
    return claims


@lru_cache(maxsize=_KEPT_LOGINS)
def _userinfo(issuer: str, access_token: str) -> Mapping[str, Any]:
    with httpx.Client(timeout=_TIMEOUT_S) as client:
        endpoint = _object(client.get(f"{issuer}{DISCOVERY_PATH}")).get("userinfo_endpoint")
        authorization = {"Authorization": f"Bearer {access_token}"}
        return _object(client.get(str(endpoint), headers=authorization))


def _object(response: httpx.Response) -> dict[str, Any]:
    found = response.raise_for_status().json()
    if not isinstance(found, dict):
        raise TypeError
    return found
