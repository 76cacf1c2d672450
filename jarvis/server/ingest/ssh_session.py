"""A program that is listened to while it runs: what it makes, and what it says beside that."""

import selectors
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from jarvis.text.markdown import one_line, shortened

_CHUNK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 14
_KEPT_LINES = 40
_SHOWN_LETTERS = 500
_LOOK_S = 1.0


class TooMuchSentError(Exception):
    """The program makes more than is allowed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended, and its last words."""

    code: int
    said: tuple[str, ...]


class Conversation:
    """A program whose input stays open, and empty, for as long as somebody listens."""

    def __init__(self, command: Sequence[str], most_bytes: int, seconds: float | None) -> None:
        self._command = command
        self._left_bytes = most_bytes
        self._until = None if seconds is None else monotonic() + seconds
        self._said: deque[str] = deque(maxlen=_KEPT_LINES)
        self._rest = b""

    def hold(self, take: Callable[[bytes], object], is_taken: Callable[[str], bool]) -> Ended:
        """Listen to the end: output goes to ``take``, each line of its errors to ``is_taken``, and
        to our own errors where that is not so.

        Raises TooMuchSentError, and TimeoutError after the time that it has; it is ended then, as
        by anything else that is raised.
        """
        pipe = subprocess.PIPE
        with subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            try:
                self._listen(process, take, is_taken)
            except BaseException:
                process.kill()
                raise
            return Ended(process.wait(), tuple(self._said))

    def _listen(
        self,
        process: "subprocess.Popen[bytes]",
        take: Callable[[bytes], object],
        is_taken: Callable[[str], bool],
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        with selectors.DefaultSelector() as selector:
            for stream in (process.stdout, process.stderr):
                selector.register(stream, selectors.EVENT_READ, stream)
            while selector.get_map():
                for key, _ in selector.select(_LOOK_S):
                    chunk = key.data.read1(_CHUNK_BYTES)
                    if not chunk:
                        selector.unregister(key.data)
                    if key.data is process.stderr:
                        self._hear(chunk, is_taken)
                    elif chunk:
                        self._pass(chunk, take)
                if self._until is not None and monotonic() > self._until:
                    raise TimeoutError

    def _pass(self, chunk: bytes, take: Callable[[bytes], object]) -> None:
        self._left_bytes -= len(chunk)
        if self._left_bytes < 0:
            raise TooMuchSentError
        take(chunk)

    def _hear(self, chunk: bytes, is_taken: Callable[[str], bool]) -> None:
        """Take in more of what it says; an empty chunk is the end."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if not chunk or len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            text = line.decode(errors="replace")
            if text.strip() and not is_taken(text):
                shown = shortened(one_line(text), _SHOWN_LETTERS)
                self._said.append(shown)
                sys.stderr.write(f"{shown}\n")
