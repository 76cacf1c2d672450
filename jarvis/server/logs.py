"""Log lines of a server's processes: for people, or as JSON for programs (``JARVIS_LOG_FORMAT``).

Every line goes to stderr with its time (UTC), level, logger and what it is about: ``request``,
``job``, ``person``. Values that came from outside cannot begin a line of their own.
"""

import logging
from collections.abc import MutableMapping
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger

from jarvis.server.settings import settings
from jarvis.text.format import escaped

_SILENT = "uvicorn.access"
"""Requests have a line of ours."""

_WEBSOCKET_LINES = ('"WebSocket %s"', "connection open", "connection closed")
"""What the web server says of each websocket, which has such a line too."""

_TAKEN_OVER = ("uvicorn", "streamlit", "websockets", "asyncio", "alembic")
"""Libraries that log for themselves; what they say goes the way of all lines."""

_CHATTY = {"alembic": logging.WARNING, "websockets": logging.WARNING, "httpx": logging.WARNING}


def configure_logs(process: str) -> None:
    """Write the lines of this process, named ``process``, as the settings say."""
    now = settings()
    handler = logging.StreamHandler()
    handler.addFilter(_is_news)
    handler.setFormatter(_formatter(process, is_json=now.log_format == "json"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(now.log_level.upper())
    for name, least in _CHATTY.items():
        logging.getLogger(name).setLevel(max(least, root.level))
    take_over_loggers()


def take_over_loggers() -> None:
    """Let libraries that are imported by now log as everything does."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in _TAKEN_OVER:
            logger = logging.getLogger(name)
            logger.handlers = []
            logger.propagate = name != _SILENT
            if name not in _CHATTY:
                logger.setLevel(logging.NOTSET)


def about(**values: str | None) -> None:
    """Say in all further lines of this request or job what they are about."""
    structlog.contextvars.bind_contextvars(**{k: v for k, v in values.items() if v is not None})


def _is_news(record: logging.LogRecord) -> bool:
    return not any(line in str(record.msg) for line in _WEBSOCKET_LINES)


def _formatter(process: str, *, is_json: bool) -> logging.Formatter:
    def named(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["process"] = process
        return event

    formatter = structlog.stdlib.ProcessorFormatter
    written: list[Any] = [named, formatter.remove_processors_meta]
    if is_json:
        exceptions = structlog.processors.dict_tracebacks
        renderer: Any = structlog.processors.JSONRenderer(default=str, ensure_ascii=False)
    else:
        exceptions = structlog.processors.format_exc_info
        renderer = _text
    return formatter(
        foreign_pre_chain=_SHARED,
        processors=[*written, exceptions, renderer, _without_control_characters],
    )


def _text(_: WrappedLogger, __: str, event: MutableMapping[str, Any]) -> str:
    """``2026-01-31T12:00:00Z info web jarvis.server.jobs.claims: what happened job=...``."""
    exception = event.pop("exception", None)
    head = [event.pop(key, "-") for key in ("timestamp", "level", "process", "logger", "event")]
    time, level, process, logger, said = head
    values = "".join(f" {key}={_quoted(value)}" for key, value in event.items())
    line = f"{time} {level} {process} {logger}: {said}{values}"
    return f"{line}\n{exception}" if exception else line


def _quoted(value: object) -> str:
    text = str(value)
    return repr(text) if not text or any(c in text for c in " ='\"") else text


def _without_what_says_nothing(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """What is not known; and the web server's lines as it would color them."""
    return {k: v for k, v in event.items() if v is not None and k != "color_message"}


def _on_one_line(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Control characters as escapes: a name in a message begins no line and colors nothing."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = escaped(value)
    return event


def _without_control_characters(_: WrappedLogger, __: str, line: Any) -> str:
    """The finished line or lines: an exception quotes names too."""
    return "\n".join(map(escaped, line.split("\n")))


_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    _without_what_says_nothing,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    _on_one_line,
]
