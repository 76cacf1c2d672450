"""Login by OpenID Connect: checks of the settings, Streamlit's secrets, a person's claims."""

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import httpx

from jarvis.server.errors import SettingsError, UnknownPersonError
from jarvis.server.settings import PREFIX, Settings

CALLBACK_PATH = "/oauth2callback"
"""Path of Streamlit's OAuth redirect URI."""

MIN_SECRET_LENGTH = 32


def check_login(now: Settings) -> None:
    """Validate the login settings; raise SettingsError, which names the setting, if invalid."""
    for proxy in now.trusted_proxies:
        _check_network(proxy)
    if now.access == "oidc":
        _check_oidc(now)


def check_reach(now: Settings, host: str, *, is_open: bool) -> None:
    """Raise SettingsError if the network could reach a server without access control.

    Args:
        host: address that the server listens on.
        is_open: whether the operator allowed this with ``--open``.
    """
    if now.access != "off" or is_open or is_loopback(host):
        return
    raise SettingsError(
        f"Anyone who reaches {host} could see, add and delete everything: access control is off. "
        f"Set {PREFIX}ACCESS to oidc or header, listen on 127.0.0.1, or pass --open if only "
        "trusted users can reach this network."
    )


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def login_secrets(now: Settings) -> dict[str, Any] | None:
    """Return the secrets for Streamlit's login; None unless access is ``oidc``."""
    if now.access != "oidc":
        return None
    check_login(now)
    oidc = now.oidc
    section = {
        "redirect_uri": f"{str(now.public_url).rstrip('/')}{CALLBACK_PATH}",
        "cookie_secret": oidc.cookie_secret.get_secret_value(),
        "client_id": oidc.client_id,
        "client_secret": oidc.client_secret.get_secret_value(),
        "server_metadata_url": f"{oidc.issuer.rstrip('/')}{DISCOVERY_PATH}",
        "client_kwargs": {"scope": oidc.scopes, "prompt": "select_account"},
        "expose_tokens": ["access"],
    }
    return {"auth": section}


def _check_oidc(now: Settings) -> None:
    if find_spec("authlib") is None:
        raise SettingsError(
            f"{PREFIX}ACCESS is oidc, but authlib is not installed: "
            'pip install "jarvis-perf[oidc]".'
        )
    oidc = now.oidc
    needed = {
        "OIDC__ISSUER": oidc.issuer,
        "OIDC__CLIENT_ID": oidc.client_id,
        "OIDC__CLIENT_SECRET": oidc.client_secret.get_secret_value(),
        "OIDC__COOKIE_SECRET": oidc.cookie_secret.get_secret_value(),
        "PUBLIC_URL": now.public_url,
    }
    missing = [f"{PREFIX}{name}" for name, value in needed.items() if not value]
    if missing:
        raise SettingsError(
            f"{PREFIX}ACCESS is oidc, but {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set. "
            "Without that, no one can log in."
        )
    if len(oidc.cookie_secret.get_secret_value()) < MIN_SECRET_LENGTH:
        raise SettingsError(
            f"{PREFIX}OIDC__COOKIE_SECRET needs at least {MIN_SECRET_LENGTH} characters: anyone "
            "who knows it can log in as any user. Create one with `openssl rand -hex 32`."
        )
    _check_url("PUBLIC_URL", str(now.public_url))
    _check_url("OIDC__ISSUER", oidc.issuer)


def _check_url(name: str, url: str) -> None:
    """Raise SettingsError unless a URL that receives secrets uses TLS or is on this machine."""
    parts = urlsplit(url)
    is_safe = parts.scheme == "https" or (
        parts.scheme == "http" and is_loopback(parts.hostname or "")
    )
    if not parts.hostname or not is_safe:
        raise SettingsError(
            f"{PREFIX}{name} must be a URL that begins with https://, because login secrets are "
            "sent there. Only a URL of this machine may begin with http://."
        )


def _check_network(text: str) -> None:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise SettingsError(
            f"{PREFIX}TRUSTED_PROXIES: {text!r} is neither an address like 10.0.0.7 nor a network "
            "like 10.0.0.0/24."
        ) from error


DISCOVERY_PATH = "/.well-known/openid-configuration"
"""Path of the provider's discovery document, relative to the issuer."""

_TIMEOUT_S = 5.0
_MAX_CACHED_LOGINS = 4096


def fetch_userinfo(issuer: str, access_token: str, subject: str) -> Mapping[str, Any]:
    """Return the claims about the person who logged in as ``subject``; cached for each login.

    Many providers return the email address and groups only by this endpoint (OpenID Connect Core
    5.3), not in the ID token.

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
