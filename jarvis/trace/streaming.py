"""Parse the text of a trace block by block, in one pass.

One thread decompresses the next block, this one tokenizes, and a third sorts the events by
category. Damaged parts are repaired or skipped, and counted; only a file that is not a trace is
rejected.
"""

import re
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import orjson

from jarvis.core.errors import NotAProfilerTraceError, UnreadableTraceError
from jarvis.trace import tokenizer
from jarvis.trace.event_store import EventStore, OnProgress, ReadProgress
from jarvis.trace.layout import EVENTS_KEY, PADDING, TEXT_KEYS, Batch
from jarvis.trace.packed_texts import PackedTexts
from jarvis.trace.repairs import RepairKind, Repairs
from jarvis.trace.sorting import Sorter
from jarvis.trace.source import HEAD_ROOM, Block, ReadAhead, Source, other_kind
from jarvis.trace.texts import lenient_json
from jarvis.trace.tokenizer import At

BATCH_EVENTS = 1 << 15
MAX_EVENT_LENGTH = 1 << 24
"""Maximum bytes of an event; an event without an end within these is treated as damaged."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_START_OF_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_COUNTED = (
    (At.TRAILING_COMMAS, RepairKind.TRAILING_COMMA),
    (At.MISSING_COMMAS, RepairKind.MISSING_COMMA),
    (At.NOT_A_NUMBER, RepairKind.NOT_A_NUMBER),
    (At.TEXT_IN_NAME, RepairKind.TEXT_IN_NAME),
    (At.NOT_AN_EVENT, RepairKind.NOT_AN_EVENT),
)


class Streaming:
    """Parser state: the current block and the position in the document.

    ``first`` is the first block of ``source``. ``run`` fills ``store``, ``metadata`` and
    ``repairs``.
    """

    def __init__(
        self, source: Source, first: Block, block_bytes: int, on_progress: OnProgress | None
    ) -> None:
        self.source = source
        self.on_progress = on_progress
        self.block_bytes = block_bytes
        self.repairs = Repairs()
        self.texts = PackedTexts()
        self.store = EventStore(self.texts, self.repairs)
        self.sort = Sorter(self.store)
        self.metadata: dict[str, Any] = {}
        self.state = np.zeros(len(At), np.int64)
        self.found_events = False
        self.block = first
        self.at_end = False
        self.is_cut = False
        self.cut_off = ""
        self.batches = [_batch(BATCH_EVENTS), _batch(BATCH_EVENTS)]
        self.sorting: Future[None] | None = None

    @property
    def event_count(self) -> int:
        """Number of events, including dropped ones."""
        return int(self.state[At.NEXT_UID])

    def run(self) -> None:
        """Read the whole file.

        Raises:
            UnreadableTraceError: The file is damaged beyond repair or not JSON.
            NotAProfilerTraceError: The file is not a profiler trace.
        """
        self.ahead = ReadAhead(self.source, self.block_bytes)
        with ThreadPoolExecutor(1, "sort-events") as self.sorter, self.ahead:
            self._document()
            self._submit_batch()
            if self.sorting:
                self.sorting.result()
        for place, kind in _COUNTED:
            self.repairs.add(kind, int(self.state[place]))
        if self.is_cut:
            self.repairs.add(
                RepairKind.TRUNCATED, lost_events=int(bool(self.cut_off)), example=self.cut_off
            )
        if self.source.damage:
            self.repairs.add(RepairKind.DAMAGED_GZIP, example=self.source.damage)

    # Document level: an object with a list of events, or the bare list.

    def _document(self) -> None:
        first = self._peek()
        for mark in _BYTE_ORDER_MARK:
            if first == bytes([mark]):
                self.block.begin += 1
                first = self._peek()
        if first == b"[":
            self.block.begin += 1
            self._events()
            self._expect_end()
        elif first == b"{":
            self.block.begin += 1
            self._members()
        else:
            raise self._rejection(first)
        if not self.found_events and self.is_cut:
            raise UnreadableTraceError(self.source.path, "it ends before its list of events")
        if not self.found_events:
            raise NotAProfilerTraceError(self.source.path, self._content_summary())

    def _rejection(self, first: bytes) -> Exception:
        path = self.source.path
        if self.source.damage:
            return UnreadableTraceError(path, f"it cannot be decompressed ({self.source.damage})")
        if kind := other_kind(bytes(self._text()[:512])):
            return NotAProfilerTraceError(path, kind)
        if not first:
            return UnreadableTraceError(path, "it is empty")
        return UnreadableTraceError(path, "it is not JSON")

    def _content_summary(self) -> str:
        if EVENTS_KEY in self.metadata:
            return f"its {EVENTS_KEY} is not a list"
        keys = ", ".join(_shortened(key) for key in list(self.metadata)[:5])
        return f"it has no list named {EVENTS_KEY}" + (f"; its keys are {keys}" if keys else "")

    def _members(self) -> None:
        """Read the members of the top-level object, including the events."""
        while True:
            first = self._peek()
            if first == b",":
                self.block.begin += 1
                continue
            if first == b"}":
                self.block.begin += 1
                self._expect_end()
                return
            if not first:
                self.is_cut = True
                return
            if not self._member() and not self._seek_events():
                return

    def _expect_end(self) -> None:
        if self._peek():
            self.repairs.add(RepairKind.LOST_TEXT, example=self._excerpt())

    def _member(self) -> bool:
        """Read one key with its value; return whether that succeeded."""
        key = self._value() if self._peek() == b'"' else None
        if key is None or self._peek() != b":":
            return False
        self.block.begin += 1
        name = _loads(key)
        if name == EVENTS_KEY and self._peek() == b"[":
            self.block.begin += 1
            self._events()
            return True
        text = self._value()
        if text is None:
            return False
        value = _loads(text)
        if value is None and _START_OF_EVENTS.search(text):  # swallowed by an extra bracket
            self.block.begin -= len(text)
            return False
        self.metadata[str(name)] = value
        return True

    def _value(self) -> bytes | None:
        """Return the text of the current JSON value; None if it has no end."""
        self._peek()
        while True:
            block = self.block
            end = tokenizer.skip_value(block.array, block.begin, block.end)
            if end >= 0:
                text = bytes(self._text()[: end - block.begin])
                block.begin = end
                return text
            if end == tokenizer.MALFORMED or block.end - block.begin > MAX_EVENT_LENGTH:
                return None
            if not self._more():
                self.is_cut = True
                return None

    def _seek_events(self) -> bool:
        """Skip an unreadable header and read the list of events; return whether there is one."""
        if self.found_events:
            self._mark_truncated("")
            return False
        self.repairs.add(RepairKind.LOST_TEXT, example=self._excerpt())
        while not self.found_events:
            if start := _START_OF_EVENTS.search(self._text()):
                self.block.begin += start.end()
                self._events()
                return True
            self.block.begin = max(self.block.begin, self.block.end - 64)
            if not self._more():
                break
        return False

    # List of events.

    def _events(self) -> None:
        self.found_events = True
        self.state[At.AFTER_COMMA] = self.state[At.AFTER_EVENT] = 0
        lenient = False
        while True:
            before = self.state[At.NEXT_UID]
            self.state[At.POSITION] = self.block.begin
            status = tokenizer.read_events(
                self.block.array,
                self.block.end,
                lenient,
                self.texts.arrays,
                self.batches[0],
                self.state,
            )
            self.block.begin = int(self.state[At.POSITION])
            lenient = lenient and self.state[At.NEXT_UID] == before
            if status == tokenizer.END_OF_EVENTS:
                return
            if status == tokenizer.BATCH_FULL:
                self._submit_batch()
            elif status == tokenizer.DICTIONARY_FULL:
                self.texts.grow(min(self.block.end - self.block.begin, MAX_EVENT_LENGTH))
            elif status == tokenizer.PAIRS_FULL:
                self._grow_pairs()
            elif status == tokenizer.INCOMPLETE and self._can_extend_event():
                continue
            elif self.at_end and self.block.begin >= self.block.end:
                self.is_cut = True
                return
            elif not lenient:
                lenient = True
            elif not self._skip_broken_event():
                return
            else:
                lenient = False

    def _can_extend_event(self) -> bool:
        """Load the next block if the current event may continue in it; return whether it did."""
        return self.block.end - self.block.begin <= MAX_EVENT_LENGTH and self._more()

    def _skip_broken_event(self) -> bool:
        """Skip an unreadable event; return whether another one follows."""
        excerpt = self._excerpt()
        self.block.begin += 1
        while True:
            block = self.block
            start = tokenizer.find_event(block.array, block.begin, block.end)
            if start >= 0:
                self.repairs.add(RepairKind.LOST_TEXT, lost_events=1, example=excerpt)
                block.begin = start
                self.state[At.AFTER_COMMA], self.state[At.AFTER_EVENT] = 0, 0
                return True
            block.begin = max(block.begin, block.end - HEAD_ROOM // 2)
            if not self._more():
                self._mark_truncated(excerpt)
                return False

    def _mark_truncated(self, event: str) -> None:
        """Record that the file is truncated, within ``event`` if that is not empty."""
        self.is_cut = True
        self.cut_off = event
        self.block.begin = self.block.end

    def _submit_batch(self) -> None:
        """Submit the batch to the sorting thread and switch to the other one."""
        if self.sorting:
            self.sorting.result()
        rows, pairs = int(self.state[At.ROWS]), int(self.state[At.PAIRS])
        self.sorting = self.sorter.submit(self.sort.add, self.batches[0], rows, pairs)
        self.batches.reverse()
        self.state[At.ROWS] = self.state[At.PAIRS] = 0

    def _grow_pairs(self) -> None:
        if self.state[At.ROWS]:
            self._submit_batch()
        else:
            self.batches[0] = _batch(BATCH_EVENTS, 2 * len(self.batches[0].pair_rows))

    # Current text.

    def _text(self) -> memoryview:
        return self.block.array[self.block.begin : self.block.end].data

    def _excerpt(self) -> str:
        return bytes(self._text()[:80]).decode(errors="replace")

    def _peek(self) -> bytes:
        """Skip white space and return the next character; empty at the end of the file."""
        while True:
            block = self.block
            block.begin = tokenizer.skip_space(block.array, block.begin, block.end)
            if block.begin < block.end:
                return bytes(block.array[block.begin : block.begin + 1])
            if not self._more():
                return b""

    def _more(self) -> bool:
        """Append the next block to the rest of this one; return False at the end of the file."""
        if self.at_end:
            return False
        if self.on_progress:
            self.on_progress(
                ReadProgress(self.source.position, self.source.size_bytes, self.event_count)
            )
        old = self.block
        rest = old.array[old.begin : old.end]
        new = self.ahead.take()
        if new.begin == new.end:
            self.at_end = True
            return False
        if len(rest) <= new.begin:
            new.array[new.begin - len(rest) : new.begin] = rest
            new.begin -= len(rest)
            self.block = new
        else:
            padding = np.zeros(PADDING, np.uint8)
            joined = np.concatenate([rest, new.array[new.begin : new.end], padding])
            self.block = Block(joined, 0, len(joined) - PADDING)
            self.ahead.recycle(new)
        self.ahead.recycle(old)
        return True


def _shortened(key: str) -> str:
    return "".join(character for character in key[:40] if character.isprintable())


def _loads(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            return lenient_json(text.decode(errors="replace"))
        except (ValueError, RecursionError):
            return None


def _batch(events: int, pairs: int = 0) -> Batch:
    pairs = pairs or 16 * events
    return Batch(
        codes=np.empty((TEXT_KEYS, events), np.int32),
        times=np.empty((2, events), np.int64),
        uids=np.empty(events, np.int64),
        pair_rows=np.empty(pairs, np.int32),
        pair_keys=np.empty(pairs, np.int32),
        pair_kinds=np.empty(pairs, np.uint8),
        pair_values=np.empty(pairs, np.int64),
    )
