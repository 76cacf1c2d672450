"""Logging of server processes as text or JSON (``JARVIS_LOG_FORMAT``).

Each line goes to stderr with its time (UTC), level, logger and context (``request``, ``job``,
``person``). Control characters in values are escaped, so that they cannot forge log lines.
"""

import logging
from collections.abc import MutableMapping
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger

from jarvis.server.settings import settings
from jarvis.text.format import escaped

_SILENT = "uvicorn.access"
"""Access log of uvicorn, replaced by our own."""

_WEBSOCKET_LINES = ('"WebSocket %s"', "connection open", "connection closed")
"""Messages of the web server about websockets, which are in our own access log."""

_TAKEN_OVER = ("uvicorn", "streamlit", "websockets", "asyncio", "alembic")
"""Libraries with their own handlers, which are replaced by ours."""

_CHATTY = {"alembic": logging.WARNING, "websockets": logging.WARNING, "httpx": logging.WARNING}


def configure_logs(process: str) -> None:
    """Configure the logging of this process by the settings; ``process`` is its name in lines."""
    now = settings()
    handler = logging.StreamHandler()
    handler.addFilter(_is_relevant)
    handler.setFormatter(_formatter(process, is_json=now.log_format == "json"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(now.log_level.upper())
    for name, level in _CHATTY.items():
        logging.getLogger(name).setLevel(max(level, root.level))
    take_over_loggers()


def take_over_loggers() -> None:
    """Route the log lines of libraries imported so far through the root logger."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in _TAKEN_OVER:
            logger = logging.getLogger(name)
            logger.handlers = []
            logger.propagate = name != _SILENT
            if name not in _CHATTY:
                logger.setLevel(logging.NOTSET)


def about(**values: str | None) -> None:
    """Add context values to all further log lines of this request or job."""
    structlog.contextvars.bind_contextvars(**{k: v for k, v in values.items() if v is not None})


def _is_relevant(record: logging.LogRecord) -> bool:
    return not any(line in str(record.msg) for line in _WEBSOCKET_LINES)


def _formatter(process: str, *, is_json: bool) -> logging.Formatter:
    def add_process(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["process"] = process
        return event

    formatter = structlog.stdlib.ProcessorFormatter
    processors: list[Any] = [add_process, formatter.remove_processors_meta]
    if is_json:
        exceptions = structlog.processors.dict_tracebacks
        renderer: Any = structlog.processors.JSONRenderer(default=str, ensure_ascii=False)
    else:
        exceptions = structlog.processors.format_exc_info
        renderer = _text
    return formatter(
        foreign_pre_chain=_SHARED,
        processors=[*processors, exceptions, renderer, _without_control_characters],
    )


def _text(_: WrappedLogger, __: str, event: MutableMapping[str, Any]) -> str:
    """Return ``2026-01-31T12:00:00Z info web jarvis.server.claims: message job=...``."""
    exception = event.pop("exception", None)
    head = [event.pop(key, "-") for key in ("timestamp", "level", "process", "logger", "event")]
    time, level, process, logger, message = head
    values = "".join(f" {key}={_quoted(value)}" for key, value in event.items())
    line = f"{time} {level} {process} {logger}: {message}{values}"
    return f"{line}\n{exception}" if exception else line


def _quoted(value: object) -> str:
    text = str(value)
    return repr(text) if not text or any(c in text for c in " ='\"") else text


def _without_empty_values(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Drop None values and uvicorn's colored copy of its message."""
    return {k: v for k, v in event.items() if v is not None and k != "color_message"}


def _on_one_line(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Escape control characters, so that values cannot start lines or set colors."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = escaped(value)
    return event


def _without_control_characters(_: WrappedLogger, __: str, line: Any) -> str:
    """Escape control characters in the final lines, because exceptions contain values, too."""
    return "\n".join(map(escaped, line.split("\n")))


_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    _without_empty_values,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    _on_one_line,
]
