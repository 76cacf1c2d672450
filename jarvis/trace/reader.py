"""Read a trace file: small valid ones with a JSON library, all others in blocks."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jarvis.trace.event_store import OnProgress, RawTrace, ReadProgress
from jarvis.trace.layout import PADDING
from jarvis.trace.plain_events import plain_trace
from jarvis.trace.source import BLOCK_BYTES, HEAD_ROOM, Block, Source, open_source

if TYPE_CHECKING:
    from jarvis.trace.streaming import Streaming

PLAIN_BYTES = BLOCK_BYTES
"""Up to this size, a JSON library is faster than loading the compiled kernels."""


def read_raw(
    path: Path,
    on_progress: OnProgress | None = None,
    block_bytes: int = BLOCK_BYTES,
    plain_bytes: int = PLAIN_BYTES,
) -> RawTrace:
    """Read a trace; ``sha256`` is that of the (compressed) file.

    Raises:
        UnreadableTraceError: The file cannot be read or unpacked.
        NotAProfilerTraceError: The file is not a profiler trace.
    """
    with open_source(path) as source:
        array = np.empty(HEAD_ROOM + block_bytes + PADDING, np.uint8)
        count = source.readinto(array[HEAD_ROOM : HEAD_ROOM + block_bytes])
        is_whole = count < block_bytes and source.damage is None
        text = array[HEAD_ROOM : HEAD_ROOM + count]
        plain = plain_trace(text.tobytes()) if is_whole and count <= plain_bytes else None
        first = Block(array, HEAD_ROOM, HEAD_ROOM + count)
        read = plain or _streamed(source, first, block_bytes, on_progress)
        if plain and on_progress:
            on_progress(ReadProgress(source.position, source.size_bytes, plain.event_count))
        return RawTrace(
            path=path,
            sha256=source.sha256(),
            size_bytes=source.size_bytes,
            json_bytes=source.json_bytes,
            store=read.store,
            event_count=read.event_count,
            metadata=read.metadata,
            repairs=read.store.repairs,
        )


def _streamed(
    source: Source, first: Block, block_bytes: int, on_progress: OnProgress | None
) -> "Streaming":
    from jarvis.trace.streaming import Streaming  # loads compiled kernels

    reading = Streaming(source, first, block_bytes, on_progress)
    reading.run()
    return reading
