"""The settings as people read them: values without secrets, where each comes from, its meaning."""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from jarvis.core.protocol import TOKEN_VARIABLE
from jarvis.core.workspace import CONFIG_VARIABLE
from jarvis.server.settings import PREFIX, Settings, Target, settings

HIDDEN = "***"
NOT_SET = "not set"

FURTHER_VARIABLES = (CONFIG_VARIABLE, TOKEN_VARIABLE)
"""Variables that begin like settings and are none: the file, and the token of `jarvis push`."""

_PASSWORD = re.compile(r"(?P<head>://[^/?#@:\s]*):(?P<password>[^\s]*)@")
_URL = re.compile(r"://\S+")


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting; ``name`` has a dot within a section, ``source`` is a variable, a file or
    "default"."""

    name: str
    variable: str
    value: str
    source: str
    meaning: str


def shown_settings() -> list[Shown]:
    """All settings as they are now; SettingsError where they cannot be used."""
    now = settings()
    file = os.environ.get(CONFIG_VARIABLE)
    in_file = tomllib.loads(Path(file).read_text(encoding="utf-8")) if file else {}
    return [
        Shown(
            name,
            variable,
            _value(_of(now, name)),
            _source(name, variable, in_file, file),
            field.description or "",
        )
        for name, variable, field in _fields(Settings)
    ]


def known_variables() -> set[str]:
    """Return the environment variables that Jarvis reads, those of targets aside."""
    return {variable for _, variable, _ in _fields(Settings)} | set(FURTHER_VARIABLES)


def unknown_variables() -> list[str]:
    """A sentence for each variable that looks like a setting and is none."""
    known = known_variables()
    sentences = []
    for name in sorted(os.environ):
        is_of_target = name.startswith(f"{PREFIX}TARGETS__")
        if name.startswith(PREFIX) and name not in known and not is_of_target:
            near = get_close_matches(name, known, n=1)
            hint = f" Is {near[0]} meant?" if near else ""
            sentences.append(f"{name} is no setting, and changes nothing.{hint}")
    return sentences


def without_secrets(text: str) -> str:
    """A text in which the passwords and the options of URLs are hidden."""
    shown = _PASSWORD.sub(rf"\g<head>:{HIDDEN}@", text)
    return _URL.sub(lambda url: _without_options(url[0]), shown)


def _without_options(url: str) -> str:
    """A URL with the names of its options alone: any of them may hold a secret."""
    address, mark, options = url.partition("?")
    named = (option.partition("=") for option in options.split("&"))
    shown = (f"{name}={HIDDEN}" if equals else HIDDEN for name, equals, _ in named)
    return f"{address}?{'&'.join(shown)}" if mark else address


def settings_markdown() -> str:
    """``docs/settings.md``: every setting with its variable, default and meaning."""
    lines = [
        "# Settings of a server",
        "",
        "Made from the settings by `make docs`. Each is a variable of the environment, or a line",
        f"of the TOML file that `{CONFIG_VARIABLE}` or `jarvis serve --config` names; a variable",
        "wins. A setting of a section, like `oidc.issuer`, is a line in `[oidc]`. Lists are",
        "separated by commas in a variable. `jarvis config --show` says what holds, `--check` what",
        "is wrong.",
        "",
        *_table(Settings),
        "",
        "## Targets",
        "",
        "A machine that runs Jarvis on its own traces is a table `[targets.NAME]` of the file:",
        "",
        "| line | default | meaning |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{name}` | {_default(f)} | {f.description} |" for name, f in Target.model_fields.items()
    ]
    return "\n".join(lines) + "\n"


def _table(model: type[BaseModel]) -> Iterator[str]:
    yield "| setting | variable | default | meaning |"
    yield "|---|---|---|---|"
    for name, variable, field in _fields(model):
        yield f"| `{name}` | `{variable}` | {_default(field)} | {field.description} |"


def _fields(model: type[BaseModel], section: str = "") -> Iterator[tuple[str, str, FieldInfo]]:
    """Name, variable and field of each setting; a section has its own."""
    for key, field in model.model_fields.items():
        name = f"{section}{key}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation, f"{name}.")
        else:
            yield name, f"{PREFIX}{name.upper().replace('.', '__')}", field


def _of(now: BaseModel, name: str) -> Any:
    for part in name.split("."):
        now = getattr(now, part)
    return now


def _source(name: str, variable: str, in_file: Mapping[str, Any], file: str | None) -> str:
    given = [key for key in os.environ if key == variable or key.startswith(f"{variable}__")]
    if any(os.environ[key] for key in given):
        return variable
    found: Any = in_file
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return "default" if found is None or file is None else file


def _value(value: Any) -> str:
    if value is None or value in ("", (), {}):
        return NOT_SET
    if isinstance(value, SecretStr):
        text = value.get_secret_value()
        if not text:
            return NOT_SET
        is_place = "://" in text or text.startswith("/")
        return without_secrets(_without_options(text)) if is_place else HIDDEN
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, dict):
        return json.dumps({name: part.model_dump() for name, part in value.items()})
    return without_secrets(str(value))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    if field.default_factory is not None:
        return "`~/.jarvis`" if field.annotation is Path else NOT_SET
    text = _value(field.default)
    return text if text == NOT_SET else f"`{text}`"
