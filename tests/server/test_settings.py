"""Settings come from variables and a file, are shown without secrets, and are checked."""

import json
import os
from pathlib import Path

import pytest

from jarvis import cli
from jarvis.cli.output import ExitCode
from jarvis.server.errors import SettingsError
from jarvis.server.settings import Settings, settings
from jarvis.server.settings_shown import (
    settings_markdown,
    shown_settings,
    unknown_variables,
    without_secrets,
)

Capture = pytest.CaptureFixture[str]

FILE = """
job_slots = 3
allowed_hosts = ["Jarvis.example.org"]
trace_cache_mb = 7

[oidc]
issuer = "https://login.example.org"
client_secret = "in-the-file"

[targets.cluster]
host = "login-node"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "jarvis.toml"
    path.write_text(FILE)
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JARVIS_CONFIG", str(path))
    monkeypatch.setenv("JARVIS_TRACE_CACHE_MB", "restored afterwards")
    monkeypatch.delenv("JARVIS_TRACE_CACHE_MB")
    return path


def test_a_variable_wins_over_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_JOB_SLOTS", "5")
    monkeypatch.setenv("JARVIS_OIDC__CLIENT_ID", "me")
    shown = {setting.name: setting for setting in shown_settings()}
    assert (shown["job_slots"].value, shown["job_slots"].source) == ("5", "JARVIS_JOB_SLOTS")
    assert shown["oidc.client_id"].source == "JARVIS_OIDC__CLIENT_ID"
    assert (shown["oidc.issuer"].value, shown["oidc.issuer"].source) == (
        "https://login.example.org",
        str(file),
    )
    assert shown["allowed_hosts"].value == "jarvis.example.org"
    assert shown["job_minutes"].source == "default"
    assert json.loads(shown["targets"].value)["cluster"]["host"] == "login-node"


def test_no_secret_is_shown(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("JARVIS_DATABASE_URL", "postgresql+psycopg://me:hidden/1@db/jarvis")
    monkeypatch.setenv("JARVIS_OIDC__COOKIE_SECRET", "hidden-2")
    monkeypatch.setenv(
        "JARVIS_ARTIFACT_ROOT",
        "s3://bucket?connection_string=A=hidden-3;B=c d&sas=hidden-4&hidden-5",
    )
    for options in ((), ("--json",)):
        assert cli.main(["config", "--show", *options]) == ExitCode.OK
        message = capsys.readouterr().out
        assert "hidden" not in message
        assert "in-the-file" not in message
        assert "postgresql+psycopg://me:***@db/jarvis" in message
        assert "s3://bucket?connection_string=***&sas=***&***" in message


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://u:p@ss:w/o@host:5432/db", "postgresql://u:***@host:5432/db"),
        ("https://host/path?access_token=abc#x", "https://host/path?access_token=***"),
        ("at abfs://x/y?credential=a&anon=b.", "at abfs://x/y?credential=***&anon=***"),
        ("Is it? a=b&c=d", "Is it? a=b&c=d"),
        ("sftp://user@host/path", "sftp://user@host/path"),
        ("tcp://scheduler:8786", "tcp://scheduler:8786"),
        ("sqlite:////srv/jarvis.db", "sqlite:////srv/jarvis.db"),
    ],
)
def test_passwords_in_urls_are_hidden(given: str, shown: str) -> None:
    assert without_secrets(given) == shown


def test_every_command_takes_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert cli.main(["list"]) == ExitCode.OK
    assert os.environ["JARVIS_TRACE_CACHE_MB"] == "7.0"
    monkeypatch.setenv("JARVIS_CONFIG", "/nowhere/jarvis.toml")
    assert cli.main(["list"]) == ExitCode.FAILED
    assert "There is no file /nowhere/jarvis.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("JARVIS_JOB_SLOTS", "two", "JARVIS_JOB_SLOTS: Input should be a valid integer"),
        ("JARVIS_JOB_MINUTES", "nan", "JARVIS_JOB_MINUTES: Input should be a finite number"),
        ("JARVIS_PUBLIC_URL", "jarvis.example.org", "must be like https://jarvis.example.org"),
        ("JARVIS_PUBLIC_URL", "javascript://x", "must be like https://jarvis.example.org"),
        ("JARVIS_ACCESS", "oidc", "JARVIS_OIDC__"),
        ("JARVIS_DATABASE_URL", "postgresql+psycopg://me:hidden@127.0.0.1:1/x", "refused"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    variable: str,
    value: str,
    message: str,
) -> None:
    monkeypatch.setenv("JARVIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(variable, value)
    assert cli.main(["config", "--check"]) == ExitCode.CHECK_FAILED
    printed = capsys.readouterr()
    assert message in printed.out
    assert "hidden" not in printed.out
    assert "Traceback" not in printed.err


def test_a_good_file_passes_the_check(file: Path, capsys: Capture) -> None:
    assert cli.main(["config", "--check", "--config", str(file), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"ok": True, "problems": []}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job_slots = ", "cannot be read"),
        ("job_slot = 1", "JARVIS_JOB_SLOT"),
        ("[oidc]\nissuers = 1", "JARVIS_OIDC__ISSUERS"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_sentence(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(SettingsError, match=message):
        settings()


def test_a_variable_with_a_slip_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_JOB_SLOT", "2")
    monkeypatch.setenv("JARVIS_TARGETS__A__HOST", "a")
    message = [sentence for sentence in unknown_variables() if "JOB_SLOT" in sentence]
    assert message == [
        "JARVIS_JOB_SLOT is not a setting and has no effect. Did you mean JARVIS_JOB_SLOTS?"
    ]
    assert not [sentence for sentence in unknown_variables() if "TARGETS" in sentence]


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("https://perfetto.example.org", "https://perfetto.example.org/"),
        ("http://10.0.0.7:9001/ui/", "http://10.0.0.7:9001/ui/"),
        ("none", ""),
        ("", "https://ui.perfetto.dev/"),
    ],
)
def test_the_perfetto_ui_can_be_another_one_or_none(
    given: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_PERFETTO_URL", given)
    assert settings().perfetto_url == address


def test_a_perfetto_ui_is_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ("javascript:alert(1)", "ui.perfetto.dev", "https://ui.perfetto.dev/#!/x"):
        monkeypatch.setenv("JARVIS_PERFETTO_URL", given)
        with pytest.raises(SettingsError, match="JARVIS_PERFETTO_URL"):
            settings()


def test_every_setting_is_explained() -> None:
    page = settings_markdown()
    for name, field in Settings.model_fields.items():
        assert field.description or name == "oidc", name
        assert f"`{name}" in page
    assert "None" not in page
