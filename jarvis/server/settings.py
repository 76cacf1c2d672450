"""Settings of a server: each by an environment variable, or in the TOML file ``JARVIS_CONFIG``.

A variable is ``JARVIS_`` and the name of the setting in capitals; one of a section has two
underscores between (``JARVIS_OIDC__ISSUER``), a list is JSON or separated by commas. The variable
wins over the file.
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

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import CONFIG_VARIABLE, HOME_VARIABLE

PREFIX = "JARVIS_"

BELOW_THE_SERVER = (
    "home",
    "max_unpacked_gb",
    "max_unpacked_ratio",
    "max_output_mb",
    "trace_cache_mb",
)
"""Settings that layers below read from the environment, where the file's values are put.

They hold for a whole process and for those that it starts (jobs, workers, the server itself), which
get them with their environment: ``home`` is read by ``workspace``, the limits by ``unpacking``,
``output`` and ``trace.sidecar``."""


class SettingsError(JarvisError):
    """A setting cannot be used."""


def _listed(given: Any) -> Any:
    """A list as a variable has it: JSON is left to pydantic, else separated by commas."""
    if not isinstance(given, str):
        return given
    return [part for part in (piece.strip() for piece in given.split(",")) if part]


def _address(url: str | None) -> str | None:
    """A URL of a site, without a slash at its end."""
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError("must be like https://jarvis.example.org, without a path")
    return f"{parts.scheme}://{parts.netloc}"


def _lower(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)]
LowerNames = Annotated[Names, AfterValidator(_lower)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Oidc(_Section):
    """The provider that people log in with."""

    issuer: str = Field("", description="URL of the provider, without /.well-known")
    client_id: str = Field("", description="this server's name at the provider")
    client_secret: SecretStr = Field(SecretStr(""), description="its secret there")
    cookie_secret: SecretStr = Field(
        SecretStr(""), description="signs the login cookie; the same for all web processes"
    )
    scopes: str = Field("openid email profile", description="what it is asked to tell")
    user_claim: str = Field("email", description="the claim with a person's name")
    groups_claim: str = Field("groups", description="the claim with a person's groups")
    session_hours: float = Field(12.0, gt=0, allow_inf_nan=False, description="session lifetime")


class Target(_Section):
    """A machine that can analyze traces of its own disks."""

    host: str = Field(description="what ssh is to connect to, as in ~/.ssh/config")
    container: str | None = Field(None, description="the container there that has jarvis")
    command: tuple[str, ...] = Field(
        ("jarvis",), description="what starts jarvis there, before its arguments"
    )
    container_command: tuple[str, ...] = Field(
        ("docker", "exec", "-i"),
        description="what runs a command in the container, with its input: when the input ends, "
        "the job was cancelled",
    )
    ssh: tuple[str, ...] = Field(("ssh",), description="the ssh command, with options")
    roots: tuple[str, ...] = Field(
        (), description="folders there whose traces may be named; by default any that ssh may read"
    )


class Settings(BaseSettings):
    """All settings with their defaults; None and empty lists stand for "not set"."""

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
    artifact_cache_gb: float = Field(
        50.0,
        gt=0,
        allow_inf_nan=False,
        description="most that home keeps of a shared artifact root",
    )

    job_slots: int = Field(1, ge=0, description="jobs at once; 0 leaves them to workers elsewhere")
    job_memory_gb: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="memory of one job; by default an equal part of the machine's",
    )
    job_minutes: float = Field(
        120.0, gt=0, allow_inf_nan=False, description="a job that takes longer is ended"
    )
    dask_scheduler: str | None = Field(
        None, description="address of a Dask scheduler that runs the jobs, like tcp://host:8786"
    )
    keep_jobs_days: float = Field(
        90.0,
        gt=0,
        allow_inf_nan=False,
        description="ended jobs and the files that they exported stay for so long",
    )

    trace_roots: str | None = Field(
        None, description="folders whose traces may be named by path, separated like PATH"
    )
    ingest_hosts: LowerNames = Field(
        (),
        description="hosts that traces may be fetched from by URL or sftp; *.example.org for "
        "those below",
    )
    ingest_private_hosts: LowerNames = Field(
        (), description="of these, those that may have addresses of a private network"
    )
    sftp_key: Path | None = Field(
        None,
        description="key that sftp logs in with; by default those of ~/.ssh and of the ssh agent",
    )
    sftp_known_hosts: Path | None = Field(
        None, description="keys of the hosts of sftp; by default those that ssh knows"
    )
    max_upload_gb: float = Field(
        20.0, gt=0, allow_inf_nan=False, description="largest file taken from a browser or API"
    )
    max_unpacked_gb: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="most that a trace may unpack to"
    )
    max_unpacked_ratio: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="most that a trace may unpack to, as a multiple of its size",
    )
    max_output_mb: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="most that one analysis may write; by default 512 MB or 200 times the JSON of "
        "its trace, whichever is smaller, but at least 64 MB",
    )
    trace_cache_mb: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="read traces kept as Arrow files to be opened again",
    )
    targets: dict[str, Target] = Field(
        default_factory=dict, description="machines that run jarvis on their own traces, by ssh"
    )

    access: Literal["off", "oidc", "header"] = Field(
        "off", description="who people are: not asked, OIDC login, or told by a trusted proxy"
    )
    oidc: Oidc = Field(default_factory=Oidc, description="the provider of access = oidc")
    user_header: str = Field(
        "X-Forwarded-User", description="the header with the person, for access = header"
    )
    groups_header: str = Field(
        "X-Forwarded-Groups", description="the header with the groups, separated by commas"
    )
    trusted_proxies: Names = Field(
        ("127.0.0.1", "::1"), description="addresses whose forwarding headers are believed"
    )
    admins: Names = Field((), description="people, or groups as @group, with the role admin")
    editors: Names = Field((), description="people, or groups as @group, with the role editor")
    default_role: Literal["none", "viewer", "editor", "admin"] = Field(
        "editor", description="the role of everyone else who is known"
    )

    public_url: Annotated[str | None, AfterValidator(_address)] = Field(
        None, description="how people reach this server, like https://jarvis.example.org"
    )
    allowed_hosts: LowerNames = Field(
        (),
        description="further names that this server answers to, beside those of loopback and of "
        "public_url; *.example.org for those below, * for any",
    )
    api_requests_per_minute: int = Field(
        600, ge=1, description="requests to the API by one token or address"
    )
    stop_seconds: float = Field(
        5.0,
        gt=0,
        allow_inf_nan=False,
        description="a server that is told to stop waits so long for open requests",
    )
    log_format: Literal["text", "json"] = Field("text", description="lines for people or programs")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="the least important lines that are written"
    )

    prune_older_than: str | None = Field(None, description="what `jarvis prune` removes, like 90d")
    prune_keep_under: str | None = Field(
        None, description="`jarvis prune` removes the oldest beyond this, like 200GB"
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
        """The environment, then the file."""
        file = os.environ.get(CONFIG_VARIABLE)
        if not file:
            return (env_settings,)
        return (env_settings, TomlConfigSettingsSource(settings_cls, toml_file=file))


def settings() -> Settings:
    """The settings as the environment and the file are now.

    Raises SettingsError, which names each setting that cannot be used, or the file.
    """
    given = frozenset((name, os.environ[name]) for name in os.environ if name.startswith(PREFIX))
    return _settings(given)


def use_file() -> None:
    """Put what the file says into the environment where layers below the server look for it."""
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
        raise SettingsError(f"The settings in {file} cannot be read: {error}. Mend it.") from error


def _sentence(error: ValidationError) -> str:
    """Each setting that cannot be used, as the variable that sets it, and why."""
    faults = [
        f"{PREFIX}{'__'.join(str(part).upper() for part in fault['loc'])}: {fault['msg']}"
        for fault in error.errors(include_input=False, include_url=False)
    ]
    return f"The server cannot be set up so: {'; '.join(faults)}. `jarvis config --show` lists all."


assert f"{PREFIX}HOME" == HOME_VARIABLE
