"""Messages as data: a message has the id of a template and its values; ``to_text`` renders it.

Templates live in one ``MessageTable`` per analysis. A placeholder is ``{value}`` or
``{value:spec}``; ``FORMATS`` lists the specs. ``{value:spec?text}`` prints ``text`` where the value
is None, and so does ``{value?text}``. Without a spec, ``BY_NAME`` and the unit at the end of the
value's name decide (``BY_UNIT``): ``{time_ms}`` prints ``1.23 ms``. A value with the spec
``message`` is the id of a message, or several ids: the nested message takes its values from those
of the outer one (``resolve``).
"""

import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count, takewhile
from typing import Annotated, Any, NamedTuple, TypeGuard, Union

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from jarvis.text.format import (
    byte_size,
    counted,
    decimal,
    listed,
    microseconds,
    milliseconds,
    percent,
    quoted,
)

LITERAL = "literal"
"""Id of a message whose only value ``text`` is its text: from plugins and from runs of earlier
versions."""

NAMES_SHOWN = 3

RESOLVED = "message"
"""Format spec of values that are ids of messages."""

Value = Union["Message", tuple["Message", ...], tuple[str, ...], str, bool, int, float, None]


class Message(BaseModel):
    """One sentence, or a part of one: the id of its template (``table.key``) and its values.

    ``needs`` are the preconditions of an action (``jarvis.preconditions``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str
    values: dict[str, Value] = {}
    needs: tuple[str, ...] = ()

    @model_serializer(mode="wrap")
    def _without_empty_needs(self, as_dict: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out ``needs`` of a message that always holds."""
        stored: dict[str, Any] = as_dict(self)
        return stored if self.needs else {"id": stored["id"], "values": stored["values"]}


def literal(text: str) -> Message:
    """Return a message with the literal text ``text``."""
    return Message(id=LITERAL, values={"text": text})


def _as_text(value: object) -> object:
    if value is None:
        return ()
    if isinstance(value, str):
        return (literal(value),)
    return (value,) if isinstance(value, Message) else value


Text = Annotated[tuple[Message, ...], BeforeValidator(_as_text)]
"""A sequence of messages; a string becomes a literal message, None an empty sequence."""

_TABLES: dict[str, Mapping[str, str]] = {LITERAL: {"": "{text}"}}
_NEEDS: dict[str, tuple[str, ...]] = {}
"""Preconditions by message id."""


class Action(NamedTuple):
    """A template with the preconditions of what it advises."""

    text: str
    needs: tuple[str, ...]


def action(text: str, *needs: str) -> Action:
    """Return a template with its preconditions (``jarvis.preconditions``)."""
    return Action(text, needs)


Template = str | Action
Templates = Template | Sequence[Template]
"""One template, or several in a list."""


class MessageTable:
    """The templates of one analysis by key; calling the table creates a message.

    Args:
        name: Unique name of the table; the first part of its messages' ids.
        templates: Templates by key. Keys may contain dots.
            Several templates under one key are numbered, ``key.0``; ``texts`` creates them all.
    """

    def __init__(self, name: str, templates: Mapping[str, Templates]) -> None:
        self.name = name
        self.templates: dict[str, str] = {}
        for key, several in templates.items():
            for each_key, each in _numbered(key, several):
                text, needs = each if isinstance(each, Action) else (each, ())
                self.templates[each_key] = text
                _NEEDS[f"{name}.{each_key}"] = needs
        _TABLES[name] = self.templates

    @classmethod
    def extended(cls, name: str, templates: Mapping[str, Templates]) -> "MessageTable":
        """Return the table ``name`` with these templates added."""
        known = {
            key: Action(text, _NEEDS[f"{name}.{key}"])
            for key, text in _TABLES.get(name, {}).items()
        }
        return cls(name, {**known, **templates})

    def id(self, key: str) -> str:
        """Return the id of the message ``key``, for a column of message ids.

        Raises:
            KeyError: The table has no such key.
        """
        if key not in self.templates:
            raise KeyError(key)
        return f"{self.name}.{key}"

    def __call__(self, key: str, /, **values: Any) -> Message:
        """Create the message ``key``.

        Raises:
            KeyError: The table has no such key, or a value of its template is missing.
            ValueError: The template does not use one of the values.
        """
        named = placeholders(self.templates[key])
        if unused := values.keys() - named:
            raise ValueError(f"{self.name}.{key} does not use {', '.join(sorted(unused))}")
        return self.pick(key, values)

    def pick(self, key: str, values: Mapping[str, Any]) -> Message:
        """Create the message ``key`` from the ``values`` that its template uses; ignore others.

        Raises:
            KeyError: The table has no such key, or a value of its template is missing.
        """
        return _message(f"{self.name}.{key}", self.templates[key], values)

    def texts(self, key: str, /, **values: Any) -> tuple[Message, ...]:
        """Create the messages of all templates under ``key`` from the values that each one uses;
        none without a template.

        Raises:
            KeyError: A value of a template is missing.
        """
        numbered = (f"{key}.{index}" for index in count())
        keys = [key] if key in self.templates else takewhile(self.templates.__contains__, numbered)
        return tuple(self.pick(each, values) for each in keys)


def _numbered(key: str, templates: Templates) -> Iterator[tuple[str, Template]]:
    if isinstance(templates, str | Action):
        yield key, templates
    else:
        yield from ((f"{key}.{index}", each) for index, each in enumerate(templates))


def _message(message_id: str, template: str, values: Mapping[str, Any]) -> Message:
    return Message(id=message_id, values=_used(template, values), needs=_NEEDS.get(message_id, ()))


def _used(template: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a template uses, with message ids resolved."""
    ids = {field for _, field, spec, _ in _parsed(template) if spec == RESOLVED}
    return {
        name: resolve(values[name], values) if name in ids else values[name]
        for name in sorted(placeholders(template))
    }


def resolve(ids: Any, values: Mapping[str, Any]) -> Any:
    """Return the message with this id and the ``values`` that its template uses.

    A list of ids gives a tuple of messages, an empty id or list None, and a text that is not an id
    a literal message. Messages and None are returned unchanged.
    """
    if isinstance(ids, list):
        return tuple(resolve(each, values) for each in ids) or None
    if not isinstance(ids, str):
        return ids
    template = _template(ids)
    if template is None:
        return literal(ids) if ids else None
    return _message(ids, template, values)


def _template(message_id: str) -> str | None:
    table, _, key = message_id.partition(".")
    return _TABLES.get(table, {}).get(key)


def preconditions() -> Mapping[str, tuple[str, ...]]:
    """Return the preconditions of all imported templates, by message id."""
    return _NEEDS


def without(message: Message, is_dropped: Callable[[Message], bool]) -> Message | None:
    """Return a message without its parts that ``is_dropped`` selects; None if it is one itself.

    A part is a value that is a message, or one of a list of messages.
    """
    if is_dropped(message):
        return None
    values = {name: _without(value, is_dropped) for name, value in message.values.items()}
    return message if values == message.values else message.model_copy(update={"values": values})


def _without(value: Value, is_dropped: Callable[[Message], bool]) -> Value:
    if isinstance(value, Message):
        return without(value, is_dropped)
    if not _are_messages(value):
        return value
    return tuple(filter(None, (without(each, is_dropped) for each in value))) or None


def names_in(message: Message) -> Iterator[str]:
    """Yield the names of the values of a message and of its parts (``without``)."""
    for name, value in message.values.items():
        yield name
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Message):
                yield from names_in(part)


def tables() -> Mapping[str, Mapping[str, str]]:
    """Return the templates of all imported tables, by table and key."""
    return _TABLES


def placeholders(template: str) -> frozenset[str]:
    """Return the names of the values in a template."""
    fields = (field for _, field, _, _ in _parsed(template) if field)
    return frozenset(field.partition("?")[0] for field in fields)


@cache
def _parsed(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    return list(string.Formatter().parse(template))


def to_text(text: Message | Iterable[Message]) -> str:
    """Render messages as plain text with names from the trace in backticks.

    A message whose template no longer exists, or needs other values than those of an earlier
    release, is rendered as its id and values.
    """
    messages = (text,) if isinstance(text, Message) else text
    return " ".join(filter(None, map(_render_one, messages)))


def _render_one(message: Message) -> str:
    template = _template(message.id)
    if template is None or not placeholders(template) <= message.values.keys():
        values = ", ".join(f"{name} {_plain(value)}" for name, value in message.values.items())
        return f"{message.id}: {values}"
    return _filled(template, message.values)


def _plain(value: Value) -> str:
    if isinstance(value, Message):
        return to_text(value)
    if isinstance(value, tuple):
        return ", ".join(map(_plain, value))
    return "" if value is None else str(value)


def _names(value: Iterable[str], limit: str) -> str:
    return listed([quoted(name) for name in value], int(limit or NAMES_SHOWN))


def _either(value: float, words: str) -> str:
    singular, plural = words.split("|")
    return singular if value == 1 else plural


FORMATS: Mapping[str, Callable[[Any, str], str]] = {
    "ms": lambda value, _: milliseconds(value),
    "us": lambda value, _: microseconds(value),
    "pct": lambda value, _: percent(value),
    "number": lambda value, _: decimal(value),
    "size": lambda value, _: byte_size(value),
    "count": counted,
    "name": lambda value, _: quoted(value),
    "names": _names,
    "list": lambda value, limit: listed(
        [_plain(item) for item in value], int(limit or NAMES_SHOWN)
    ),
    "joined": lambda value, separator: separator.join(map(_plain, value)),
    "either": _either,
    "more": lambda value, _: f" and {value} more" if value else "",
    "lower": lambda value, _: str(value).lower(),
    "short": lambda value, _: f"{round(value, 1):g}",
    "bare": lambda value, _: milliseconds(value).partition(" ")[0],
}
"""Formatters by spec, with the argument after the spec's name: ``{n:count call}`` prints 3 calls,
``{n:either takes|take}`` the first word for 1, ``{names:names 4}`` up to four names in backticks,
``{parts:joined ; }`` all items separated by semicolons, ``{time_ms:bare}`` a time without its unit,
``{target_pct:short}`` at most one decimal. Other specs are Python's format specs."""

OF_ITEMS = ("list", "joined")
"""Specs that join several messages; with other specs messages are separated by spaces."""


BY_NAME: Mapping[str, str] = {
    "name": "name",
    "kernel": "name?its kernel",
    "arguments": "?the heaviest call",
    "calls": "count call",
    "launches": "count launch",
    "site_calls": "count call",
    "package": "?names and times of these calls",
    "run_package": "?run the model",
    "signatures": "count signature",
    "moved_bytes": "size?traffic",
}
BY_UNIT: Mapping[str, str] = {"ms": "ms", "us": "us", "pct": "pct", "bytes": "size"}
"""Default specs of values: by name, else by the last part of the name."""


def _default_spec(name: str) -> str:
    return BY_NAME.get(name) or BY_UNIT.get(name.rpartition("_")[2], "")


def _rendered(field: str, spec: str, values: Mapping[str, Value]) -> str:
    name, question, default = field.partition("?")
    if question:
        spec = f"{spec}?{default}"
    value = values[name]
    spec, _, default = (spec or _default_spec(name)).partition("?")
    if value is None:
        return default
    format_name, _, argument = spec.partition(" ")
    if isinstance(value, Message) or (format_name not in OF_ITEMS and _are_messages(value)):
        return to_text(value)
    if format_name in FORMATS:
        return FORMATS[format_name](value, argument)
    return str(format(value, spec))


def _are_messages(value: Value) -> TypeGuard[tuple[Message, ...]]:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], Message)


ARTICLES = ("the ", "The ")
"""After these a count of one is left out: ``the call``, not ``the 1 call``."""


def _filled(template: str, values: Mapping[str, Value]) -> str:
    """Return the template with its values filled in."""
    filled = ""
    for text, field, spec, _ in _parsed(template):
        filled += text
        if field is not None:
            rendered = _rendered(field, spec or "", values)
            if text.endswith(ARTICLES):
                rendered = rendered.removeprefix("1 ")
            is_spaced = not filled or filled.endswith(" ")
            filled += rendered.lstrip(" ") if is_spaced else rendered
    return filled
