"""How people log in: what must be set up before a server is reached, and what Streamlit needs."""

import ipaddress
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from jarvis.server.access.userinfo import DISCOVERY_PATH
from jarvis.server.settings import PREFIX, Settings, SettingsError

CALLBACK_PATH = "/oauth2callback"
"""Where the provider sends people back to; the path is Streamlit's."""

MIN_SECRET_LENGTH = 32
_LOOPBACK_NAMES = ("localhost",)


def check_login(now: Settings) -> None:
    """SettingsError, which names the setting, where people could not log in as it is set up."""
    for proxy in now.trusted_proxies:
        _check_network(proxy)
    if now.access == "oidc":
        _check_oidc(now)


def check_reach(now: Settings, host: str, *, is_open: bool) -> None:
    """SettingsError where everyone in the network could do everything, and nobody said so.

    ``host`` is the address that the server listens on.
    """
    if now.access != "off" or is_open or is_loopback(host):
        return
    raise SettingsError(
        f"Whoever reaches {host} could see, add and remove everything: nobody is asked who they "
        f"are. Set {PREFIX}ACCESS to oidc or header, listen on 127.0.0.1, or say --open where the "
        "network lets in only people who may do that."
    )


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() in _LOOPBACK_NAMES


def login_secrets(now: Settings) -> dict[str, Any] | None:
    """What Streamlit's login is told, None where nobody logs in here."""
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
            f"{PREFIX}ACCESS is oidc, but {' and '.join(missing)} {_is_or_are(missing)} not set. "
            "Nobody could log in."
        )
    if len(oidc.cookie_secret.get_secret_value()) < MIN_SECRET_LENGTH:
        raise SettingsError(
            f"{PREFIX}OIDC__COOKIE_SECRET needs at least {MIN_SECRET_LENGTH} characters: who knows "
            "it can log in as anybody. `openssl rand -hex 32` makes one."
        )
    _check_url("PUBLIC_URL", str(now.public_url))
    _check_url("OIDC__ISSUER", oidc.issuer)


def _check_url(name: str, url: str) -> None:
    """An address that logins and their secrets go through: by TLS, or inside this machine."""
    parts = urlsplit(url)
    is_safe = parts.scheme == "https" or (
        parts.scheme == "http" and is_loopback(parts.hostname or "")
    )
    if not parts.hostname or not is_safe:
        raise SettingsError(
            f"{PREFIX}{name} must be an address that begins with https://: secrets of logins go "
            "there. Only one of this machine may begin with http://."
        )


def _check_network(text: str) -> None:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise SettingsError(
            f"{PREFIX}TRUSTED_PROXIES: {text!r} is no address like 10.0.0.7, and no network like "
            "10.0.0.0/24."
        ) from error


def _is_or_are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
