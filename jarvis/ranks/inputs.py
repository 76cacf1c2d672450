"""The files of the ranks of a job: folders, several paths, and TraceLens's patterns."""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import TRUTH_NAME, RunPaths
from jarvis.ranks.identity import DEFAULT_RANK_REGEX, ranks_of_names
from jarvis.trace import SUFFIXES

MAX_DEPTH = 4
"""Folders below the given one in which traces are searched."""

MAX_RANKS_VARIABLE = "JARVIS_MAX_RANKS"
DEFAULT_MAX_RANKS = 4096

_SUFFIX = re.compile(r"(\.pt\.trace)?\.json(\.gz)?$")
_BRACES = re.compile(r"\{([0-9]{1,9})\.\.([0-9]{1,9})\}")


class InputFile(NamedTuple):
    """A trace and its name below the folder that all traces have in common."""

    path: Path
    name: str


class NoTracesError(JarvisError):
    """No trace was found."""

    def __init__(self, where: str) -> None:
        suffixes = ", ".join(SUFFIXES)
        super().__init__(f"There is no trace in {where}. Name files or a folder with {suffixes}.")


class TooManyFilesError(JarvisError):
    """There are more files than a job may have ranks."""

    def __init__(self, found: int, limit: int) -> None:
        super().__init__(
            f"There are {found:,} files, and a job may have {limit:,} ranks. Name fewer files, or "
            f"set {MAX_RANKS_VARIABLE}."
        )


class MissingRankError(JarvisError):
    """A rank of a pattern has no file."""

    def __init__(self, rank: int, where: str) -> None:
        super().__init__(f"Rank {rank} has no file: {where}. Check the pattern and --world-size.")


def max_ranks() -> int:
    """Return the limit of files of a job."""
    text = os.environ.get(MAX_RANKS_VARIABLE, "")
    return int(text) if text.isdecimal() and int(text) > 0 else DEFAULT_MAX_RANKS


def trace_files(paths: Sequence[Path]) -> list[InputFile]:
    """Return the traces that paths name: files, folders with traces, and patterns.

    Hidden files, run directories, and links that lead out of a folder are left out.

    Raises:
        NoTracesError: There is none.
        TooManyFilesError: There are more than ``max_ranks``.
    """
    found = (file for path in paths for file in _files(path))
    unique = list({Path(os.path.abspath(path)): path for path in found}.items())
    if not unique:
        raise NoTracesError(", ".join(map(str, paths)))
    if len(unique) > (limit := max_ranks()):
        raise TooManyFilesError(len(unique), limit)
    common = os.path.commonpath([place.parent for place, _ in unique])
    return [InputFile(path, place.relative_to(common).as_posix()) for place, path in unique]


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from _below(path)
    elif path.exists() or not glob.has_magic(str(path)):
        yield path
    else:
        for text in sorted(glob.glob(str(path), recursive=True)):
            yield from _files(Path(text))


def _below(folder: Path) -> Iterator[Path]:
    root = folder.resolve()
    for place, folders, names in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = [] if depth >= MAX_DEPTH else sorted(f for f in folders if f[0] != ".")
        if depth and RunPaths(Path(place)).manifest.name in names:
            folders[:] = []
            continue
        for name in sorted(names):
            path = Path(place) / name
            is_trace = name.endswith(SUFFIXES) and name[0] != "." and name != TRUTH_NAME
            if is_trace and path.resolve().is_relative_to(root):
                yield path


def files_of_folder(folder: Path, world_size: int) -> list[Path]:
    """Return ``rank<i>_trace.json`` of each rank.

    Raises:
        MissingRankError: A rank has no file.
    """
    return files_of_pattern(str(folder / "rank*_trace.json"), world_size)


def files_of_pattern(pattern: str, world_size: int) -> list[Path]:
    """Return the files of a pattern whose one ``*`` is the rank.

    Raises:
        JarvisError: The pattern has not exactly one ``*``.
        MissingRankError: A rank has no file.
    """
    _check_pattern(pattern)
    paths = [Path(pattern.replace("*", str(rank))) for rank in range(world_size)]
    for rank, path in enumerate(paths):
        if not path.is_file():
            raise MissingRankError(rank, str(path))
    return paths


def ranks_of_pattern(pattern: str) -> dict[Path, int]:
    """Return the files that a pattern matches, and the rank of each: the number at its one ``*``.

    Raises:
        JarvisError: The pattern has not exactly one ``*``.
        NoTracesError: It matches no file with a rank.
    """
    _check_pattern(pattern)
    before, after = pattern.split("*")
    texts = (text for text in glob.glob(f"{glob.escape(before)}*{glob.escape(after)}"))
    numbers = {text: text[len(before) : len(text) - len(after)] for text in texts}
    ranks = {Path(text): int(rank) for text, rank in numbers.items() if rank.isdecimal()}
    if not ranks:
        raise NoTracesError(pattern)
    return dict(sorted(ranks.items(), key=lambda item: item[1]))


def expand_braces(address: str) -> list[str]:
    """Return the addresses of one with a range of integers in braces, such as
    ``rank{0..63}.json``; numbers are padded with zeros to the width of the first.

    Raises:
        TooManyFilesError: There are more than ``max_ranks``.
    """
    found = _BRACES.search(address)
    if found is None:
        return [address]
    first, last = (int(number) for number in found.groups())
    if (count := last - first + 1) > (limit := max_ranks()):
        raise TooManyFilesError(count, limit)
    before, after, width = address[: found.start()], address[found.end() :], len(found[1])
    return [f"{before}{number:0{width}d}{after}" for number in range(first, last + 1)]


def _check_pattern(pattern: str) -> None:
    if pattern.count("*") != 1:
        raise JarvisError(f"{pattern} needs exactly one *, in the place of the rank.")


def files_of_glob(
    pattern: str, world_size: int, rank_regex: str = DEFAULT_RANK_REGEX
) -> list[Path]:
    """Return the first file of each rank among those that a pattern matches.

    Raises:
        MissingRankError: A rank has no file.
    """
    texts = sorted(glob.glob(pattern, recursive=True))
    by_rank: dict[int | None, Path] = {}
    for text, rank in zip(texts, ranks_of_names(texts, rank_regex), strict=True):
        by_rank.setdefault(rank, Path(text))
    for rank in range(world_size):
        if rank not in by_rank:
            raise MissingRankError(rank, f"no name that {pattern} matches has it")
    return [by_rank[rank] for rank in range(world_size)]


def common_name(names: Sequence[str]) -> str:
    """Return what files of a job are called together: the folder that all are in, else their names
    with ``*`` in place of the numbers that differ, without the suffix.

    Args:
        names: Names with ``/`` between folders; at least one.
    """
    paths = [PurePosixPath(name) for name in names]
    folders = os.path.commonpath([path.parent for path in paths])
    if folders:
        return PurePosixPath(folders).name
    stems = [re.sub(_SUFFIX, "", path.name) for path in paths]
    parts = [re.split("([0-9]+)", stem) for stem in stems]
    if len({tuple(own[::2]) for own in parts}) > 1:
        return stems[0]
    same = (set(each) for each in zip(*parts, strict=True))
    return "".join(each.pop() if len(each) == 1 else "*" for each in same)
