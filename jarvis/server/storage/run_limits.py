"""Limits on runs that came from elsewhere: files, rows, memory, and that they validate."""

import logging
import re
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import polars as pl

from jarvis.core.errors import JarvisError
from jarvis.core.workspace import RunPaths
from jarvis.pipeline import compare
from jarvis.reports import reporter
from jarvis.run import Manifest, Run, category_table, read_manifest
from jarvis.schemas import (
    ANY_PARAM,
    FLAG,
    INTEGER,
    KERNEL_STATS,
    KERNELS,
    NAMES,
    NUMBER,
    PARAM_PREFIX,
    SHEETS,
    TABLES,
    TEXT,
    UIDS,
    Column,
)
from jarvis.schemas.names import C
from jarvis.server.errors import ReceivedRunError, RunLimitError
from jarvis.text.markdown import short_line
from jarvis.tracelens.compare_report import NamedReport, compare_reports
from jarvis.validation import Verdict, validate

MAX_RUN_BYTES = 512 << 20
"""Total decompressed size of all files."""

MAX_FILES = 10_000

MAX_TEXT_BYTES = 64 << 20
"""Size of a file that is read into memory: JSON, Markdown, CSV."""

MAX_MANIFEST_BYTES = 4 << 20
"""Size of the manifest, which is copied into the database and parsed for lists of analyses."""

MAX_JSON_DEPTH = 64
MAX_NUMBER = 1e30
"""Sums and products of two such numbers are finite."""

MAX_TABLES = 500
MAX_COLUMNS = 1_000
MAX_ROW_GROUPS = 10_000
MAX_ROWS = 10_000_000
MAX_ROWS_OF = {
    "trace_health": 1_000,
    "gpu_timeline": 1_000,
    "other_definitions": 1_000,
    "ops_summary_by_category": 10_000,
    "short_kernel_histogram": 10_000,
    "top_operations": 1_000,
}
"""Rows of tables whose size does not depend on the trace; pages show all their rows."""

MAX_DECODED_BYTES = 2 << 30
"""Total size of all tables in memory."""

_MANIFEST = RunPaths(Path()).manifest.name
_READ_WHOLE = (".json", ".md", ".csv")
_DTYPES = (INTEGER, TEXT, FLAG, NUMBER, NAMES, UIDS, KERNELS, KERNEL_STATS)
_SEQUENCES = {
    "input_dims": int,
    "input_strides": int,
    "product_dims": int,
    "input_types": str,
    "product_types": str,
    "concrete_inputs": str,
}
"""Columns of Python sequences with their item types; shapes are nested sequences."""

_MAPPINGS = (C.params, C.perf_params)
"""Columns of Python or JSON dictionaries."""

_MAX_LITERAL_CHARS = 1_000_000

_EXTRA_COLUMN = re.compile(r"[a-z][a-z0-9_]{0,99}")
_TEXT_BYTES = 16
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8}
"""Bytes per value in memory by parquet physical type; a text takes 16 bytes and its content."""


def check_file_sizes(sizes: Iterable[tuple[str, int]]) -> None:
    """Raise RunLimitError for too many or too large files; names are relative paths."""
    total = 0
    for number, (name, size) in enumerate(sizes, start=1):
        total += size
        limit = MAX_MANIFEST_BYTES if name == _MANIFEST else MAX_TEXT_BYTES
        if name.endswith(_READ_WHOLE) and size > limit:
            raise RunLimitError(f"{name} is larger than {limit >> 20} MiB")
        if number > MAX_FILES:
            raise RunLimitError(f"it has more than {MAX_FILES:,} files")
    if total > MAX_RUN_BYTES:
        raise RunLimitError(f"its files take more than {MAX_RUN_BYTES >> 20} MiB")


def check_json(path: Path, name: str) -> None:
    """Raise RunLimitError if a file is not strict JSON, too deep, or has a huge number."""
    try:
        content = orjson.loads(path.read_bytes())
    except ValueError as error:
        raise RunLimitError(f"{name} is not JSON") from error
    level: list[Any] = [content]
    for _ in range(MAX_JSON_DEPTH):
        if not level:
            return
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, int | float) and not -MAX_NUMBER <= value <= MAX_NUMBER:
                raise RunLimitError(f"{name} has the number {value:.3g}")
        level = below
    raise RunLimitError(f"{name} has more than {MAX_JSON_DEPTH} levels")


def read_table(
    path: Path, name: str, columns: Iterable[Column], max_bytes: int
) -> tuple[pl.DataFrame, int]:
    """Read a table of at most ``max_bytes`` in memory; return it and its size in bytes.

    The parquet footer is checked before decoding, and the decoded table is checked against it.

    Raises:
        RunLimitError: the table exceeds a limit or does not have the expected columns.
        polars.exceptions.PolarsError: the file is damaged.
    """
    rows = _check_footer(path, name, max_bytes)
    _check_schema(pl.read_parquet_schema(path), name, columns)
    frame = pl.read_parquet(path, use_statistics=False, glob=False)
    if frame.height != rows:
        raise RunLimitError(f"the table {name} does not have the number of rows in its footer")
    size = sum(memory_bytes(column, name) for column in frame)
    if size > max_bytes:
        raise _too_large()
    literals = [c for c in (*_SEQUENCES, *_MAPPINGS) if frame.schema.get(c) == TEXT]
    for column in frame.select(literals):
        if not all(_is_readable(column.name, text) for text in column.drop_nulls().unique()):
            raise RunLimitError(f"the table {name} has unreadable {column.name}")
    return frame, size


def _is_readable(column: str, text: str) -> bool:
    """Return whether a text is a literal of the type of its column."""
    if not text:
        return True
    if len(text) > _MAX_LITERAL_CHARS:
        return False
    if column in _MAPPINGS:
        return isinstance(_value(text), dict)
    value, leaf = _value(text), _SEQUENCES[column]
    if not isinstance(value, tuple | list):
        return False
    return all(_is_of(item, leaf) and (leaf is str or type(item) is not leaf) for item in value)


def _value(text: str) -> object:
    """Parse a Python literal or a JSON document; return None for other texts."""
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        pass
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _is_of(value: object, leaf: type) -> bool:
    """Return whether a value has a type, or is a nested sequence of such values."""
    if isinstance(value, tuple | list):
        return all(_is_of(item, leaf) for item in value)
    return type(value) is leaf


def _too_large() -> RunLimitError:
    return RunLimitError(f"its tables take more than {MAX_DECODED_BYTES >> 20:,} MiB in memory")


def _check_footer(path: Path, name: str, max_bytes: int) -> int:
    """Return the number of rows in the footer; raise RunLimitError if a limit is exceeded."""
    import pyarrow as pa  # type: ignore[import-untyped]  # slow to import
    from pyarrow import parquet

    try:
        footer = parquet.read_metadata(path)
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RunLimitError(f"the table {name} cannot be read") from error
    rows = footer.num_rows
    limit = MAX_ROWS_OF.get(name, MAX_ROWS)
    if rows > limit:
        raise RunLimitError(f"the table {name} has more than {limit:,} rows")
    if footer.num_columns > MAX_COLUMNS or len(groups) > MAX_ROW_GROUPS:
        raise RunLimitError(f"the table {name} has more than {MAX_COLUMNS:,} columns or groups")
    if sum(group.num_rows for group in groups) != rows:
        raise RunLimitError(f"the footer of the table {name} is inconsistent")
    size = 0
    for group in groups:
        chunks = [group.column(index) for index in range(group.num_columns)]
        if any(min(c.num_values, c.total_uncompressed_size) < 0 for c in chunks):
            raise RunLimitError(f"the footer of the table {name} is inconsistent")
        size += sum(
            max(c.num_values * _WIDTHS.get(c.physical_type, _TEXT_BYTES), c.total_uncompressed_size)
            for c in chunks
        )
        if size > max_bytes:
            raise _too_large()
    return int(rows)


def _check_schema(schema: Mapping[str, pl.DataType], name: str, columns: Iterable[Column]) -> None:
    """Raise RunLimitError if a table lacks ``columns``, or if additional ones are not allowed."""
    known = {column.name: column for column in columns}
    has_parameters = known.pop(ANY_PARAM, None) is not None
    for column in known.values():
        if column.name not in schema and not column.optional:
            raise RunLimitError(f"the table {name} lacks the column {column.name}")
    for label, dtype in schema.items():
        if label in known:
            is_valid = dtype == known[label].dtype
        else:
            is_parameter = has_parameters and label.startswith(PARAM_PREFIX)
            is_name_valid = is_parameter or _EXTRA_COLUMN.fullmatch(label) is not None
            is_valid = _is_allowed(dtype) and is_name_valid
        if not is_valid:
            raise RunLimitError(f"the table {name} has a column {label[:40]!r} of another type")


def _is_allowed(dtype: Any) -> bool:
    """Return whether an additional column of a category may have this type."""
    if isinstance(dtype, pl.List):
        return _is_allowed(dtype.inner)
    if isinstance(dtype, pl.Struct):
        return all(_is_allowed(field.dtype) for field in dtype.fields)
    return dtype in _DTYPES or dtype.is_integer() or dtype.is_float()


def memory_bytes(column: pl.Series, table: str) -> int:
    """Return the size of a column in memory; raise RunLimitError for NaN and huge numbers."""
    if isinstance(column.dtype, pl.List):
        inner = column.explode(empty_as_null=False, keep_nulls=False)
        return 8 * len(column) + memory_bytes(inner, table)
    if isinstance(column.dtype, pl.Struct):
        return sum(memory_bytes(field, table) for field in column.struct.unnest())
    if column.dtype == TEXT:
        return _TEXT_BYTES * len(column) + int(column.str.len_bytes().cast(INTEGER).sum())
    if column.dtype.is_float():
        numbers = [value for value in (column.min(), column.max()) if isinstance(value, float)]
        is_huge = any(not isfinite(v) or abs(v) > MAX_NUMBER for v in numbers)
        if is_huge or column.is_nan().any():
            raise RunLimitError(f"the table {table} has a NaN or a too large number")
    return 8 * len(column)


log = logging.getLogger(__name__)

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""Name of a table or an analysis, which is part of file names."""


def check_received_run(root: Path) -> Manifest:
    """Check all files of a run directory, and return its manifest.

    Raises:
        ReceivedRunError: a file is too large or malformed, `jarvis validate` fails, or the run
            cannot be exported or compared.
    """
    try:
        return _checked(root)
    except RunLimitError as error:
        raise ReceivedRunError(str(error)) from error
    except ReceivedRunError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # forged content may raise anything
        log.info("a received run cannot be used", exc_info=error)
        reason = short_line(f"{type(error).__name__}: {error}")
        raise ReceivedRunError(f"its files are inconsistent ({reason})") from error


def _checked(root: Path) -> Manifest:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    check_file_sizes((path.relative_to(root).as_posix(), path.stat().st_size) for path in files)
    for path in files:
        if path.suffix == ".json":
            check_json(path, path.relative_to(root).as_posix())
    try:
        manifest = read_manifest(root)
    except JarvisError as error:
        raise ReceivedRunError("its manifest cannot be read") from error
    run = Run.load(root)
    _check_names(run)
    _check_tables(run)
    for outcome in validate(root):
        if outcome.verdict is Verdict.FAIL:
            reason = short_line(str(outcome.problems[0]))
            raise ReceivedRunError(f"it is inconsistent ({outcome.check.name}: {reason})")
    _check_use(run)
    return manifest


def _check_names(run: Run) -> None:
    """Raise ReceivedRunError for names of tables or analyses that are unsafe in paths."""
    manifest = run.manifest
    if len(manifest.tables) > MAX_TABLES or len(set(manifest.tables)) != len(manifest.tables):
        raise ReceivedRunError("its list of tables is too long or has duplicates")
    if missing := set(manifest.sheets) - set(manifest.tables):
        raise ReceivedRunError(f"the table {min(missing)[:80]!r} is missing")
    cards = (card.key for card in manifest.added_analyses)
    summaries = [summary.key for summary in manifest.categories]
    for name in (*manifest.tables, *run.results, *summaries, *cards):
        if not _KEY.fullmatch(name):
            raise ReceivedRunError(f"the name {name[:80]!r} of a table or analysis is not valid")
    if set(summaries) != set(run.results) or any(k != r.key for k, r in run.results.items()):
        raise ReceivedRunError("its manifest and its results list different analyses")


def _check_tables(run: Run) -> None:
    """Read all tables within the limits."""
    paths, left = RunPaths(run.root or Path()), MAX_DECODED_BYTES
    for name in run.manifest.tables:
        _, size = read_table(paths.table(name), name, tuple(_columns(run, name)), left)
        left -= size


def _columns(run: Run, name: str) -> Iterator[Column]:
    """Yield the known required columns of a table."""
    categories = {category_table(key): key for key in run.results}
    if name in TABLES:
        yield from TABLES[name]
    elif name in run.manifest.sheets:
        yield from SHEETS["roofline"]
    elif name in categories:
        yield from TABLES["operations"]
        if (analysis := run.analyses.get(categories[name])) is not None:
            yield from analysis.details


def _check_use(run: Run) -> None:
    """Use a run as pages and commands do; any error is a reason to reject it."""
    for key, result in run.results.items():
        run.call_paths(key)
        if result.tier == "compute":
            run.category_operations(key)
    with TemporaryDirectory() as folder:
        for name in ("json", "html"):
            reporter(name).render(run, Path(folder) / name)
    compare(run, run)
    report = NamedReport("this", run.sheets())
    compare_reports([report, NamedReport("other", run.sheets())])
