"""Load forged archives: each is rejected with a message, or works in all commands."""

import hashlib
import io
import json
import os
import random
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl

from jarvis.cli import main as jarvis
from jarvis.run import Run
from jarvis.server.errors import ArchiveError
from jarvis.server.storage.archive import load_archive, save_archive
from jarvis.server.storage.catalog import read_catalog, stored_row
from jarvis.server.submission import Submission, submit
from tests.builders import trace

MAX_MESSAGE = 600
"""Maximum length of an error message."""

LIST = "jarvis-archive.json"
Members = dict[str, bytes]

_VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 2**31, 2**63 - 1, 2**63, 10**30, -(10**40), 0.5, -0.5, 1e300, -1e18),
    *("", "NaN", "x" * 5_000, "\x00\x1b[2J", "../../etc/passwd", "=1+1", "🎛", "GEMM", "OK"),
    *([], {}, [[]], [None], {"": None}, [1, "a", {}]),
]
_RAW = [b"NaN", b"-Infinity", b"1e999", b"[" * 300 + b"]" * 300, b"[" * 5_000, b'"\\ud800"', b"1e"]
_DTYPES = [pl.String, pl.Float64, pl.Int64, pl.Int8, pl.Boolean, pl.Categorical, pl.Binary]


def archive_of(members: Members) -> bytes:
    """Pack the files of a run as `jarvis archive save` does, with their checksums."""
    manifest = json.loads(members[LIST])
    prefix = f"{manifest['analysis_id']}/"
    manifest["files"] = {
        name.removeprefix(prefix): {
            "sha256": hashlib.sha256(content).hexdigest(),
            "size_bytes": len(content),
        }
        for name, content in members.items()
        if name != LIST
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in (members | {LIST: json.dumps(manifest).encode()}).items():
            archive.writestr(name, content)
    return out.getvalue()


def _some(members: Members, draw: random.Random, *endings: str) -> str:
    return draw.choice(sorted(name for name in members if name.endswith(endings) and name != LIST))


def _change_bytes(members: Members, draw: random.Random) -> None:
    name = _some(members, draw, "")
    content = bytearray(members[name])
    for _ in range(draw.choice((1, 1, 3, 10))):
        if content:
            content[draw.randrange(len(content))] = draw.randrange(256)
    members[name] = bytes(content[: draw.choice((len(content), len(content), len(content) // 2))])


def _change_json(members: Members, draw: random.Random) -> None:
    """Change one value of one document; equal copies of the document change alike."""
    important = [name for name in members if name.endswith(("/manifest.json", "/results.json"))]
    name = draw.choice((_some(members, draw, ".json"), *important))
    document = json.loads(members[name])
    places: list[tuple[Any, Any]] = []
    todo = [document]
    while todo:
        value = todo.pop()
        if isinstance(value, dict | list):
            keys = list(value) if isinstance(value, dict) else list(range(len(value)))
            places += [(value, key) for key in keys]
            todo += [value[key] for key in keys]
    if not places:
        return
    holder, key = draw.choice(places)
    if draw.random() < 0.15:
        del holder[key]
    elif draw.random() < 0.2:
        holder[key] = "RAW"
    else:
        holder[key] = draw.choice(_VALUES)
    text = json.dumps(document, indent=2).encode().replace(b'"RAW"', draw.choice(_RAW))
    old = members[name]
    members |= {other: text for other, content in members.items() if content == old}


def _change_table(members: Members, draw: random.Random) -> None:
    name = _some(members, draw, ".parquet")
    frame = pl.read_parquet(members[name])
    if not frame.width:
        return
    column = draw.choice(frame.columns)
    dtype = frame.schema[column]

    def shuffled() -> pl.DataFrame:
        return frame.with_columns(pl.col(column).reverse())

    def emptied() -> pl.DataFrame:
        return frame.with_columns(pl.lit(None, dtype).alias(column))

    def filled() -> pl.DataFrame:
        number = draw.choice([float("nan"), float("inf"), -1.0, 0.0, 1e300, 1e25, -1e25, 2.0**62])
        value = pl.lit(draw.choice(["", "x" * 3_000, "((", "[(1, 2]", "\x1b[2J\r"]))
        if dtype.is_float():
            value = pl.lit(number)
        elif dtype.is_integer():
            value = pl.lit(draw.choice([-1, 0, 2**40, 2**62]))
        elif dtype != pl.String:
            return emptied()
        return frame.with_columns(value.cast(dtype).alias(column))

    def cast() -> pl.DataFrame:
        return frame.with_columns(pl.col(column).cast(draw.choice(_DTYPES), strict=False))

    changes: list[Callable[[], pl.DataFrame]] = [
        *(shuffled, emptied, filled, filled, cast),
        lambda: frame.drop(column),
        lambda: frame.rename({column: f"{column}{draw.choice(['', '_', ' ', '.'])}2"}),
        lambda: frame.head(0),
        lambda: frame.head(1),
        lambda: pl.concat([frame] * draw.choice((2, 50))),
    ]
    try:
        changed = draw.choice(changes)()
    except pl.exceptions.PolarsError:  # no such cast
        changed = frame.drop(column)
    out = io.BytesIO()
    changed.write_parquet(out)
    members[name] = out.getvalue()


def _change_text(members: Members, draw: random.Random) -> None:
    name = _some(members, draw, ".csv", ".md")
    lines = members[name].split(b"\n")
    at = draw.randrange(len(lines))
    words = [b"", b"nan", b"-1", b"1e400", b"\xff\xfe", b'"', b"|||", b"# x", b"<!-- x -->", b"\r"]
    separator = b"," if name.endswith(".csv") else b" "
    match draw.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, draw.choice(lines))
        case 2:
            cells = lines[at].split(separator)
            cells[draw.randrange(len(cells))] = draw.choice(words)
            lines[at] = separator.join(cells)
        case _:
            lines.insert(at, draw.choice(words))
    members[name] = b"\n".join(lines)


def _change_names(members: Members, draw: random.Random) -> None:
    name = _some(members, draw, "")
    folder = name.rpartition("/")[0]
    others = [
        f"{folder}/new.json",
        "../x",
        f"{folder}/.x",
        f"{folder}/é",
        f"{name}/x",
        name.upper(),
    ]
    match draw.randrange(3):
        case 0:
            del members[name]
        case 1:
            members[draw.choice(others)] = members.pop(name)
        case _:
            members[draw.choice(others)] = draw.choice([b"", b"{}", members[name]])


_DAMAGED = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
_CHANGES = (
    *(_change_json, _change_json, _change_json, _change_table, _change_table, _change_table),
    *(_change_text, _change_bytes, _change_names),
)


def mutated(members: Members, draw: random.Random) -> bytes:
    """Pack a run with a few changes, or change the bytes of the file itself."""
    changed = dict(members)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        with suppress(ValueError, RecursionError, *_DAMAGED):  # by an earlier change
            draw.choice(_CHANGES)(changed, draw)
    packed = bytearray(archive_of(changed))
    if draw.random() < 0.08:
        for _ in range(draw.choice((1, 5))):
            packed[draw.randrange(len(packed))] = draw.randrange(256)
    return bytes(packed)


def seed_members(folder: Path) -> Members:
    """Analyze a small trace and return the files of its archive."""
    built = trace().op("aten::linear", [[64, 32], [32, 16]]).child("aten::mm", [[64, 32], [32, 16]])
    built.launches("gemm_kernel", us=12).op("aten::add", [[64, 16], [64, 16]])
    built.launches("vectorized_elementwise_kernel", us=40).launches("ncclDevKernel_AllReduce", us=5)
    stored = submit(Submission(built.write(folder / "tiny.json"), model_name="Tiny"))
    save_archive(stored.root, folder / "seed.zip")
    with zipfile.ZipFile(folder / "seed.zip") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def use(loaded: str, honest: Path, folder: Path) -> None:
    """Use a loaded analysis as later commands do; raise if one of them fails."""
    (entry,) = read_catalog().entries
    assert (entry.id, entry.loaded_by, stored_row(loaded).is_pinned) == (loaded, "", False)
    run = Run.load(entry.root)
    for name in run.manifest.tables:
        run.table(name)
    out = folder / "out"
    commands = (
        ("validate", loaded),
        ("list",),
        ("tree", loaded, "--name", "*"),
        ("export", loaded, "--format", "json", "--output", out / "run.json"),
        ("compare", honest, entry.root, "--output-dir", out / "compared"),
    )
    for command in commands:
        out.mkdir()
        output = io.StringIO()
        with redirect_stdout(io.StringIO()), redirect_stderr(output):
            code = jarvis([str(word) for word in command])
        assert code == 0, f"{command[0]}: {output.getvalue()}"
        shutil.rmtree(out)


def fuzz(count: int, seed: int, folder: Path) -> Counter[str]:
    """Load ``count`` forged archives; count the "loaded" and the "refused".

    Raises whatever else loading, or using what was loaded, raises.
    """
    draw = random.Random(seed)
    outcomes: Counter[str] = Counter()
    sentences: list[str] = []
    home, there = folder / "home", folder / "there"
    there.mkdir(parents=True)
    with patch.dict(os.environ, {"JARVIS_HOME": str(there)}):
        members = seed_members(there)
        honest = next((there / "analyses").glob("[0-9a-f]*"))
    forged = folder / "forged.jarvis.zip"
    with patch.dict(os.environ, {"JARVIS_HOME": str(home)}):
        for number in range(count):
            forged.write_bytes(mutated(members, draw))
            try:
                loaded = load_archive(forged)
            except ArchiveError as error:
                sentences.append(str(error))
                continue
            try:
                use(loaded.id, honest, folder)
            except BaseException as error:
                error.add_note(f"archive {number} of seed {seed}, see {forged}")
                raise
            shutil.rmtree(loaded.root)
            outcomes["loaded"] += 1
    assert not [text for text in sentences if not text.isprintable() or len(text) > MAX_MESSAGE]
    outcomes["refused"] = len(sentences)
    return outcomes
