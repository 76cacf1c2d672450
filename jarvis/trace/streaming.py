"""The text of a trace, block by block -> its events and its header, in one pass.

A thread unpacks the next block, this one takes it apart, a third sorts the events by category.
What is broken is mended or left out and counted; only a file that is no trace at all is refused.
"""

import re
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import orjson

from jarvis.core.errors import NotAProfilerTraceError, UnreadableTraceError
from jarvis.trace import tokenizer
from jarvis.trace.event_store import EventStore
from jarvis.trace.layout import EVENTS_KEY, PADDING, TEXT_KEYS, Batch
from jarvis.trace.packed_texts import PackedTexts
from jarvis.trace.raw_trace import OnProgress, ReadProgress
from jarvis.trace.repairs import RepairKind, Repairs
from jarvis.trace.sorting import Sorter
from jarvis.trace.source import HEAD_ROOM, Block, ReadAhead, Source, other_kind
from jarvis.trace.texts import lenient_json
from jarvis.trace.tokenizer import At

BATCH_EVENTS = 1 << 15
MAX_EVENT_LENGTH = 1 << 24
"""An event whose end is not found within so many bytes is taken to be broken."""

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
    """One reading: the text at hand and where in the document it stands.

    ``first`` is the first block of ``source``. ``run`` leaves ``store``, ``metadata`` and
    ``repairs``; it raises UnreadableTraceError or NotAProfilerTraceError where there is no trace.
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
        """How many events were found, those included that could not be kept."""
        return int(self.state[At.NEXT_UID])

    def run(self) -> None:
        """Read the whole file."""
        self.ahead = ReadAhead(self.source, self.block_bytes)
        with ThreadPoolExecutor(1, "sort-events") as self.sorter, self.ahead:
            self._document()
            self._hand_over()
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

    # The document: an object with a list of events, or the bare list.

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
            raise self._refusal(first)
        if not self.found_events and self.is_cut:
            raise UnreadableTraceError(self.source.path, "it ends before its list of events")
        if not self.found_events:
            raise NotAProfilerTraceError(self.source.path, self._what_it_is())

    def _refusal(self, first: bytes) -> Exception:
        path = self.source.path
        if self.source.damage:
            return UnreadableTraceError(path, f"it cannot be unpacked ({self.source.damage})")
        if what := other_kind(bytes(self._text()[:512])):
            return NotAProfilerTraceError(path, what)
        if not first:
            return UnreadableTraceError(path, "there is nothing in it")
        return UnreadableTraceError(path, "it is not JSON")

    def _what_it_is(self) -> str:
        if EVENTS_KEY in self.metadata:
            return f"its {EVENTS_KEY} is no list"
        keys = ", ".join(_shortened(key) for key in list(self.metadata)[:5])
        return f"it has no list named {EVENTS_KEY}" + (f"; its keys are {keys}" if keys else "")

    def _members(self) -> None:
        """The members of the top-level object, events among them."""
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
            self.repairs.add(RepairKind.LOST_TEXT, example=self._shown())

    def _member(self) -> bool:
        """One key with its value; whether it could be read."""
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
        if value is None and _START_OF_EVENTS.search(text):  # a bracket too many swallowed them
            self.block.begin -= len(text)
            return False
        self.metadata[str(name)] = value
        return True

    def _value(self) -> bytes | None:
        """The text of the JSON value at hand; None where it has no end."""
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
        """Go on at the list of events after a header that cannot be read."""
        if self.found_events:
            self._cut("")
            return False
        self.repairs.add(RepairKind.LOST_TEXT, example=self._shown())
        while not self.found_events:
            if start := _START_OF_EVENTS.search(self._text()):
                self.block.begin += start.end()
                self._events()
                return True
            self.block.begin = max(self.block.begin, self.block.end - 64)
            if not self._more():
                break
        return False

    # The list of events.

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
                self._hand_over()
            elif status == tokenizer.DICTIONARY_FULL:
                self.texts.grow(min(self.block.end - self.block.begin, MAX_EVENT_LENGTH))
            elif status == tokenizer.PAIRS_FULL:
                self._make_room_for_pairs()
            elif status == tokenizer.INCOMPLETE and self._waits_for_more():
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

    def _waits_for_more(self) -> bool:
        """Whether the event at hand may end in a block to come, which is then there."""
        return self.block.end - self.block.begin <= MAX_EVENT_LENGTH and self._more()

    def _skip_broken_event(self) -> bool:
        """Go on behind an event that cannot be read; False where there is no other."""
        shown = self._shown()
        self.block.begin += 1
        while True:
            block = self.block
            found = tokenizer.find_event(block.array, block.begin, block.end)
            if found >= 0:
                self.repairs.add(RepairKind.LOST_TEXT, lost_events=1, example=shown)
                block.begin = found
                self.state[At.AFTER_COMMA], self.state[At.AFTER_EVENT] = 0, 0
                return True
            block.begin = max(block.begin, block.end - HEAD_ROOM // 2)
            if not self._more():
                self._cut(shown)
                return False

    def _cut(self, event: str) -> None:
        """The file ends too early: in the middle of ``event``, if that is not empty."""
        self.is_cut = True
        self.cut_off = event
        self.block.begin = self.block.end

    def _hand_over(self) -> None:
        """Give the batch to the sorting thread and go on with the other one."""
        if self.sorting:
            self.sorting.result()
        rows, pairs = int(self.state[At.ROWS]), int(self.state[At.PAIRS])
        self.sorting = self.sorter.submit(self.sort.add, self.batches[0], rows, pairs)
        self.batches.reverse()
        self.state[At.ROWS] = self.state[At.PAIRS] = 0

    def _make_room_for_pairs(self) -> None:
        if self.state[At.ROWS]:
            self._hand_over()
        else:
            self.batches[0] = _batch(BATCH_EVENTS, 2 * len(self.batches[0].pair_rows))

    # The text at hand.

    def _text(self) -> memoryview:
        return self.block.array[self.block.begin : self.block.end].data

    def _shown(self) -> str:
        return bytes(self._text()[:80]).decode(errors="replace")

    def _peek(self) -> bytes:
        """The next character that is no white space; empty at the end of the file."""
        while True:
            block = self.block
            block.begin = tokenizer.skip_space(block.array, block.begin, block.end)
            if block.begin < block.end:
                return bytes(block.array[block.begin : block.begin + 1])
            if not self._more():
                return b""

    def _more(self) -> bool:
        """Put the next block behind what is left of this one; False at the end of the file."""
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
            room = np.zeros(PADDING, np.uint8)
            joined = np.concatenate([rest, new.array[new.begin : new.end], room])
            self.block = Block(joined, 0, len(joined) - PADDING)
            self.ahead.give_back(new)
        self.ahead.give_back(old)
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
