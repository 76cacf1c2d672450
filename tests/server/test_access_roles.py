"""Roles by name and group, and validation of the login settings."""

from typing import Any

import pytest

from jarvis.server.access import login
from jarvis.server.access.login import check_login, check_reach, login_secrets
from jarvis.server.access.rights import Role, group_names, person_named
from jarvis.server.errors import SettingsError, UnknownPersonError
from jarvis.server.settings import PREFIX, Settings, settings

LISTS = {
    "ADMINS": "Root@example.org,@platform",
    "EDITORS": "eve@example.org,@ml",
    "DEFAULT_ROLE": "viewer",
}
OIDC = {
    "ACCESS": "oidc",
    "PUBLIC_URL": "https://jarvis.example.org/",
    "OIDC__ISSUER": "https://login.example.org/realm/",
    "OIDC__CLIENT_ID": "jarvis",
    "OIDC__CLIENT_SECRET": "s",
    "OIDC__COOKIE_SECRET": "c" * 32,
}


def _settings(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> Settings:
    for name, value in given.items():
        monkeypatch.setenv(f"{PREFIX}{name}", value)
    return settings()


@pytest.mark.parametrize(
    ("name", "groups", "role"),
    [
        ("root@example.org", (), Role.ADMIN),
        (" ROOT@example.org ", (), Role.ADMIN),
        ("x@example.org", ("ml", "platform"), Role.ADMIN),
        ("eve@example.org", (), Role.EDITOR),
        ("x@example.org", ("ML",), Role.EDITOR),
        ("x@example.org", ("other",), Role.VIEWER),
        ("platform", (), Role.VIEWER),
        ("x@example.org", ("eve@example.org",), Role.VIEWER),
    ],
)
def test_a_role_comes_from_the_name_or_a_group(
    monkeypatch: pytest.MonkeyPatch, name: str, groups: tuple[str, ...], role: Role
) -> None:
    person = person_named(name, groups, _settings(monkeypatch, LISTS))
    assert (person.role, person.name) == (role, name.strip().lower())


@pytest.mark.parametrize("name", ["", "  ", "@platform", "a\nb", "x" * 201, "\u202eroot"])
def test_what_is_no_name_is_no_user(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(UnknownPersonError, match="cannot be used"):
        person_named(name, (), _settings(monkeypatch, LISTS))


@pytest.mark.parametrize(
    ("claimed", "groups"),
    [
        (["ml", "a b"], ("ml", "a b")),
        ("ml, platform,,", ("ml", "platform")),
        (None, ()),
        ({"ml": 1}, ()),
        (7, ()),
    ],
)
def test_groups_are_a_list_or_text(claimed: Any, groups: tuple[str, ...]) -> None:
    assert group_names(claimed) == groups


def test_the_login_gets_the_address_to_return_to(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = login_secrets(_settings(monkeypatch, OIDC))
    assert reported is not None
    assert reported["auth"]["redirect_uri"] == "https://jarvis.example.org/oauth2callback"
    assert reported["auth"]["server_metadata_url"] == (
        "https://login.example.org/realm/.well-known/openid-configuration"
    )


def test_without_a_login_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert login_secrets(_settings(monkeypatch, {"ACCESS": "header"})) is None


@pytest.mark.parametrize("missing", [name for name in OIDC if name != "ACCESS"])
def test_a_half_set_up_login_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    given = {name: value for name, value in OIDC.items() if name != missing}
    with pytest.raises(SettingsError, match=f"{PREFIX}{missing} is not set"):
        check_login(_settings(monkeypatch, given))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("OIDC__COOKIE_SECRET", "short", "at least 32"),
        ("PUBLIC_URL", "http://jarvis.example.org", "https"),
        ("PUBLIC_URL", "jarvis.example.org", "https"),
        ("OIDC__ISSUER", "http://login.example.org", "https"),
        ("TRUSTED_PROXIES", "proxy.example.org", "is neither an address"),
    ],
)
def test_an_unsafe_login_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason) as refusal:
        check_login(_settings(monkeypatch, OIDC | {name: value}))
    assert f"{PREFIX}{name}" in str(refusal.value)


def test_a_login_without_its_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "find_spec", lambda _: None)
    with pytest.raises(SettingsError, match="authlib is not installed"):
        check_login(_settings(monkeypatch, OIDC))


@pytest.mark.parametrize("url", ["http://localhost:8501", "http://127.0.0.1", "http://[::1]:8501"])
def test_inside_one_machine_no_tls_is_needed(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    check_login(_settings(monkeypatch, OIDC | {"PUBLIC_URL": url, "OIDC__ISSUER": url}))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "jarvis.example.org"])
def test_a_server_without_access_is_not_reached_by_accident(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    with pytest.raises(SettingsError, match=f"reaches {host} could see"):
        check_reach(settings(), host, is_open=False)
    check_reach(settings(), host, is_open=True)
    check_reach(_settings(monkeypatch, {"ACCESS": "header"}), host, is_open=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.9.1"])
def test_on_loopback_no_confirmation_is_needed(host: str) -> None:
    check_reach(settings(), host, is_open=False)
