"""Ranks in the headers of traces against those in their names, before a trace is read."""

import re
import zlib
from collections.abc import Container, Sequence
from pathlib import Path

from jarvis.ranks.identity import ranks_of_names
from jarvis.ranks.inputs import InputFile
from jarvis.text.format import counted, listed

HEAD_BYTES = 256 << 10
"""Bytes of the text in which a header is searched; PyTorch writes it first."""

_MAX_NAMED = 3
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*?"rank"\s*:\s*(\d{1,9})')
_GZIP, _GZIP_BITS = b"\x1f\x8b", 31


def header_rank(path: Path) -> int | None:
    """Return the rank in the header of a trace; None without one, and for archives and files that
    cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(HEAD_BYTES)
        if text.startswith(_GZIP):
            text = zlib.decompressobj(_GZIP_BITS).decompress(text, HEAD_BYTES)
    except (OSError, zlib.error):
        return None
    found = _RANK.search(text)
    return int(found[1]) if found else None


def names_against_headers(
    files: Sequence[InputFile], rank_regex: str | None = None, given: Container[str] = ()
) -> list[str]:
    """Return a sentence on the names that give another rank than the headers, if there are any.

    Args:
        files: The traces of a job.
        rank_regex: As in ``identity.identify``.
        given: Names of files whose rank the user says.
    """
    ranks = ranks_of_names([file.name for file in files], rank_regex)
    differing = [
        f"{file.name} ({named}, header {rank})"
        for file, named in zip(files, ranks, strict=True)
        if named is not None and file.name not in given
        if (rank := header_rank(file.path)) is not None and rank != named
    ]
    if not differing:
        return []
    return [
        f"Of {counted(len(differing), 'file')}, the name gives another rank than the header, which "
        f"is used: {listed(differing, _MAX_NAMED)}."
    ]
