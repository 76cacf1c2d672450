"""Server settings from environment variables or the TOML file ``JARVIS_CONFIG``.

The variable of a setting is ``JARVIS_`` and its name in upper case, with two underscores after the
name of a section (``JARVIS_OIDC__ISSUER``). A list is JSON or comma-separated. Variables override
the file.
"""

import os
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from jarvis.core.workspace import CONFIG_VARIABLE, HOME_VARIABLE
from jarvis.server.errors import SettingsError

PREFIX = "JARVIS_"

BELOW_THE_SERVER = (
    "home",
    "max_unpacked_gb",
    "max_unpacked_ratio",
    "max_output_mb",
    "trace_cache_mb",
)
"""Settings that lower layers read from the environment, into which ``use_file`` exports them.

They apply to a process and its children: ``home`` is read by ``workspace``, the limits by
``unpacking``, ``output`` and ``trace.sidecar``."""


def _split_list(value: Any) -> Any:
    """Split comma-separated text; leave other values to pydantic."""
    if not isinstance(value, str):
        return value
    return [part for part in (piece.strip() for piece in value.split(",")) if part]


def _address(url: str | None) -> str | None:
    """Return the URL of a site without a trailing slash."""
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError("must be like https://jarvis.example.org, without a path")
    return f"{parts.scheme}://{parts.netloc}"


NO_PAGE = "none"
"""Value of a URL that is not set: variables without a value count as not set at all."""


def _page(url: str) -> str:
    """Return the URL of a page without a query; empty for NO_PAGE."""
    if url.strip().lower() in ("", NO_PAGE):
        return ""
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"must be like https://ui.perfetto.dev, or {NO_PAGE}")
    return f"{parts.scheme}://{parts.netloc}{parts.path or '/'}"


def _lower(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_list)]
LowerNames = Annotated[Names, AfterValidator(_lower)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Oidc(_Section):
    """OpenID Connect provider."""

    issuer: str = Field("", description="URL of the provider, without /.well-known")
    client_id: str = Field("", description="client ID of this server at the provider")
    client_secret: SecretStr = Field(SecretStr(""), description="client secret")
    cookie_secret: SecretStr = Field(
        SecretStr(""), description="signs the login cookie; equal in all web processes"
    )
    scopes: str = Field("openid email profile", description="requested scopes")
    user_claim: str = Field("email", description="claim with the user name")
    groups_claim: str = Field("groups", description="claim with the user's groups")
    session_hours: Positive = Field(12.0, description="session lifetime")


class Target(_Section):
    """A machine that can analyze traces on its own disks."""

    host: str = Field(description="ssh destination, as in ~/.ssh/config")
    container: str | None = Field(None, description="container on it that has jarvis")
    command: tuple[str, ...] = Field(
        ("jarvis",), description="command of jarvis there, without arguments"
    )
    container_command: tuple[str, ...] = Field(
        ("docker", "exec", "-i"),
        description="command prefix that runs a command in the container; it must forward stdin, "
        "whose end cancels the job",
    )
    ssh: tuple[str, ...] = Field(("ssh",), description="ssh command with options")
    roots: tuple[str, ...] = Field(
        (), description="folders there that traces may be in; by default all that ssh can read"
    )


class Settings(BaseSettings):
    """All settings with their defaults; None and empty lists mean "not set"."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
    )

    home: Path = Field(
        default_factory=lambda: Path.home() / ".jarvis",
        description="folder of this machine: database, analyses, uploads, caches",
    )
    database_url: SecretStr | None = Field(
        None, description="database of jobs and analyses; by default a SQLite file in home"
    )
    artifact_root: SecretStr | None = Field(
        None,
        description="where analyses, traces and exports are shared: a folder, or a URL of fsspec "
        "(s3://, gs://, sftp://); by default only in home",
    )
    artifact_cache_gb: Positive = Field(
        50.0, description="maximum size of the local cache of a shared artifact root"
    )

    job_slots: int = Field(1, ge=0, description="concurrent jobs; 0 to leave jobs to other workers")
    job_memory_gb: Positive | None = Field(
        None, description="memory limit of a job; by default an equal share of the machine's memory"
    )
    job_minutes: Positive = Field(120.0, description="time limit of a job")
    dask_scheduler: str | None = Field(
        None, description="address of a Dask scheduler that runs the jobs, like tcp://host:8786"
    )
    keep_jobs_days: Positive = Field(
        90.0, description="retention of ended jobs and their exported files"
    )

    trace_roots: str | None = Field(
        None, description="folders from which traces can be opened by path, separated like PATH"
    )
    ingest_hosts: LowerNames = Field(
        (),
        description="hosts from which traces can be downloaded by http, https or sftp; "
        "*.example.org for subdomains, s3://bucket for a bucket",
    )
    ingest_private_hosts: LowerNames = Field(
        (), description="those of them that may be in a private network"
    )
    sftp_key: Path | None = Field(
        None, description="private key for sftp; by default those of ~/.ssh and of the ssh agent"
    )
    sftp_known_hosts: Path | None = Field(
        None, description="known_hosts file for sftp; by default those of ssh"
    )
    max_upload_gb: Positive = Field(
        20.0, description="maximum size of an uploaded or downloaded trace"
    )
    max_unpacked_gb: Positive | None = Field(
        None, description="maximum decompressed size of a trace"
    )
    max_unpacked_ratio: Positive | None = Field(
        None, description="maximum decompressed size of a trace, as a multiple of its size"
    )
    max_output_mb: Positive | None = Field(
        None,
        description="maximum output size of an analysis; by default 512 MB or 200 times the JSON "
        "of its trace, whichever is smaller, but at least 64 MB",
    )
    trace_cache_mb: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="size of the cache of parsed traces (Arrow files)",
    )
    targets: dict[str, Target] = Field(
        default_factory=dict, description="machines that run jarvis on their own traces, by ssh"
    )

    access: Literal["off", "oidc", "header"] = Field(
        "off", description="authentication: none, OIDC login, or headers of a trusted proxy"
    )
    oidc: Oidc = Field(default_factory=Oidc, description="provider for access = oidc")
    user_header: str = Field(
        "X-Forwarded-User", description="header with the user name, for access = header"
    )
    groups_header: str = Field(
        "X-Forwarded-Groups", description="header with the groups, comma-separated"
    )
    trusted_proxies: Names = Field(
        ("127.0.0.1", "::1"), description="addresses whose forwarding headers are trusted"
    )
    admins: Names = Field((), description="users, or groups as @group, with the role admin")
    editors: Names = Field((), description="users, or groups as @group, with the role editor")
    default_role: Literal["none", "viewer", "editor", "admin"] = Field(
        "editor", description="role of all other authenticated users"
    )

    public_url: Annotated[str | None, AfterValidator(_address)] = Field(
        None, description="URL of this server for its users, like https://jarvis.example.org"
    )
    perfetto_url: Annotated[str, AfterValidator(_page)] = Field(
        "https://ui.perfetto.dev/",
        description="Perfetto UI that the timeline opens traces in: the browser passes them to a "
        "window of this address, no server gets them; none for downloads only",
    )
    allowed_hosts: LowerNames = Field(
        (),
        description="further host names of this server, besides loopback and public_url; "
        "*.example.org for subdomains, * for any",
    )
    api_requests_per_minute: int = Field(
        600, ge=1, description="rate limit of the API per token or address"
    )
    stop_seconds: Positive = Field(
        5.0, description="how long a stopping server waits for open requests"
    )
    log_format: Literal["text", "json"] = Field("text", description="format of log lines")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="minimum level of log lines"
    )

    prune_older_than: str | None = Field(
        None, description="age at which `jarvis prune` deletes, like 90d"
    )
    prune_keep_under: str | None = Field(
        None, description="`jarvis prune` deletes the oldest above this size, like 200GB"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the environment and the file, in order of precedence."""
        file = os.environ.get(CONFIG_VARIABLE)
        if not file:
            return (env_settings,)
        return (env_settings, TomlConfigSettingsSource(settings_cls, toml_file=file))


def settings() -> Settings:
    """Return the settings for the current environment and file.

    Raises:
        SettingsError: a setting or the file is not valid; the message lists each.
    """
    variables = ((name, os.environ[name]) for name in os.environ if name.startswith(PREFIX))
    return _settings(frozenset(variables))


def use_file() -> None:
    """Export settings of the file that lower layers read to the environment."""
    now = settings()
    for name in now.model_fields_set.intersection(BELOW_THE_SERVER):
        os.environ.setdefault(f"{PREFIX}{name.upper()}", str(getattr(now, name)))


@lru_cache(maxsize=8)
def _settings(_: frozenset[tuple[str, str]]) -> Settings:
    file = os.environ.get(CONFIG_VARIABLE)
    if file and not Path(file).is_file():
        raise SettingsError(f"There is no file {file} ({CONFIG_VARIABLE}). Check the path.")
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError(_sentence(error)) from error
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"The settings in {file} cannot be read: {error}. Correct it."
        ) from error


def _sentence(error: ValidationError) -> str:
    """Return the message with each invalid setting, by its variable, and the reason."""
    details = [
        f"{PREFIX}{'__'.join(str(part).upper() for part in detail['loc'])}: {detail['msg']}"
        for detail in error.errors(include_input=False, include_url=False)
    ]
    return f"Invalid settings: {'; '.join(details)}. `jarvis config --show` lists all settings."


assert f"{PREFIX}HOME" == HOME_VARIABLE
