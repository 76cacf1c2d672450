"""Files of an analysis: each is written here, and together they stay below a limit.

A small trace can hold what is written many times over. The limit is checked at every write, so a
disk is not filled before the analysis fails.
"""

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, cast

from jarvis.core.errors import JarvisError
from jarvis.core.unpacking import number_setting

OUTPUT_VARIABLE = "JARVIS_MAX_OUTPUT_MB"
DEFAULT_OUTPUT_MB = 512.0
MAX_OUTPUT_RATIO = 200
"""Times the JSON of the trace; recorded traces of more than a few MB have less than 10."""

ALWAYS_ALLOWED_MB = 64.0
"""So much may be written for any trace, however small."""


class OutputLimitError(JarvisError):
    """An analysis would write more than is allowed."""

    def __init__(self, limit_mb: float) -> None:
        super().__init__(
            f"The analysis would write more than {limit_mb:.0f} MB, and nothing of it was stored. "
            "Recorded traces give far less: look for names or call stacks that are unusually long "
            f"or many, or record fewer steps. {OUTPUT_VARIABLE} allows more."
        )


class _Budget:
    """How many bytes may still be written."""

    def __init__(self, limit_mb: float) -> None:
        self.limit_mb = limit_mb
        self.left = int(limit_mb * 1e6)

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise OutputLimitError(self.limit_mb)


_BUDGET: ContextVar[_Budget | None] = ContextVar("output_budget", default=None)


class _OutputFile(io.RawIOBase):
    """A new file whose bytes count against the limit of the analysis that is being written."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._budget = _BUDGET.get()  # Polars writes from threads of its own

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Write bytes; OutputLimitError where they are too many."""
        if self._budget is not None:
            self._budget.spend(memoryview(data).nbytes)
        return self._file.write(data)

    def flush(self) -> None:
        """Pass on what is buffered."""
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        try:
            super().close()  # flushes, which fails where the disk is full
        finally:
            self._file.close()


def open_output(path: Path) -> IO[bytes]:
    """Open a new file to write, and make the folder that it is in.

    Its bytes count against the limit of the analysis, see ``limited_output``.
    """
    return cast(IO[bytes], _OutputFile(path))


@contextmanager
def limited_output(json_bytes: int) -> Iterator[None]:
    """Let what is written in the block stay below the limit for a trace of so much JSON.

    Raises OutputLimitError beyond it.
    """
    budget = _Budget(max_output_mb(json_bytes))
    token = _BUDGET.set(budget)
    try:
        yield
    except Exception as error:
        if budget.left >= 0 or isinstance(error, OutputLimitError):
            raise
        raise OutputLimitError(budget.limit_mb) from error  # Polars made something else of it
    finally:
        _BUDGET.reset(token)


def max_output_mb(json_bytes: int) -> float:
    """Return how much may be written for a trace of so much JSON, in MB (of 10^6 bytes)."""
    if os.environ.get(OUTPUT_VARIABLE):
        return number_setting(OUTPUT_VARIABLE, DEFAULT_OUTPUT_MB)
    return max(ALWAYS_ALLOWED_MB, min(DEFAULT_OUTPUT_MB, MAX_OUTPUT_RATIO * json_bytes / 1e6))


def write_output(path: Path, content: str | bytes | Iterable[bytes]) -> None:
    """Write a file, and the folder that it is in; text as UTF-8."""
    if isinstance(content, str):
        content = content.encode()
    with open_output(path) as file:
        for piece in (content,) if isinstance(content, bytes) else content:
            file.write(piece)
