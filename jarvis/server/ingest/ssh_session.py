"""Runs ssh and streams its stdout and stderr."""

import selectors
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from jarvis.text.markdown import short_line

_CHUNK_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 14
_MAX_STDERR_LINES = 40
_MAX_SHOWN_CHARS = 500
_POLL_S = 1.0


class OutputLimitError(Exception):
    """The output exceeds the limit."""


@dataclass(frozen=True, slots=True)
class SshResult:
    """Exit code and last lines of stderr."""

    code: int
    stderr: tuple[str, ...]


class SshSession:
    """A process whose stdin stays open and empty until it ends."""

    def __init__(self, command: Sequence[str], max_bytes: int, timeout_s: float | None) -> None:
        self._command = command
        self._left_bytes = max_bytes
        self._deadline = None if timeout_s is None else monotonic() + timeout_s
        self._stderr: deque[str] = deque(maxlen=_MAX_STDERR_LINES)
        self._rest = b""

    def run(
        self, on_output: Callable[[bytes], object], is_handled: Callable[[str], bool]
    ) -> SshResult:
        """Run the process to its end.

        Args:
            on_output: called with each chunk of stdout.
            is_handled: called with each line of stderr; lines for which it returns False are
                copied to this process's stderr.

        Raises:
            OutputLimitError: stdout exceeds the limit; the process is killed.
            TimeoutError: the time is up; the process is killed.
        """
        pipe = subprocess.PIPE
        with subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            try:
                self._stream(process, on_output, is_handled)
            except BaseException:
                process.kill()
                raise
            return SshResult(process.wait(), tuple(self._stderr))

    def _stream(
        self,
        process: "subprocess.Popen[bytes]",
        on_output: Callable[[bytes], object],
        is_handled: Callable[[str], bool],
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        with selectors.DefaultSelector() as selector:
            for stream in (process.stdout, process.stderr):
                selector.register(stream, selectors.EVENT_READ, stream)
            while selector.get_map():
                for key, _ in selector.select(_POLL_S):
                    chunk = key.data.read1(_CHUNK_BYTES)
                    if not chunk:
                        selector.unregister(key.data)
                    if key.data is process.stderr:
                        self._read_stderr(chunk, is_handled)
                    elif chunk:
                        self._read_stdout(chunk, on_output)
                if self._deadline is not None and monotonic() > self._deadline:
                    raise TimeoutError

    def _read_stdout(self, chunk: bytes, on_output: Callable[[bytes], object]) -> None:
        self._left_bytes -= len(chunk)
        if self._left_bytes < 0:
            raise OutputLimitError
        on_output(chunk)

    def _read_stderr(self, chunk: bytes, is_handled: Callable[[str], bool]) -> None:
        """Process a chunk of stderr line by line; an empty chunk means its end."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if not chunk or len(self._rest) > _MAX_LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            text = line.decode(errors="replace")
            if text.strip() and not is_handled(text):
                shown = short_line(text, _MAX_SHOWN_CHARS)
                self._stderr.append(shown)
                sys.stderr.write(f"{shown}\n")
